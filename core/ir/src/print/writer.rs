//! The text under construction, and the small pieces of MLIR syntax.

use std::{collections::HashMap, fmt::Write, panic::Location};

use halite_core::{PartitionSpec, TensorType};

/// Name of a value in the text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Name {
    /// `%arg3`
    Argument(u32),
    /// `%3`
    Single(u32),
    /// `%3#1`, one of several results
    Part(u32, u32),
    /// `%i3`, an argument of a region
    Region(u32),
}

/// The user's source line of an operation.
pub(super) type Origin = Option<&'static Location<'static>>;

/// Appends to the text. Methods return the writer, so that a line of text is a line of code.
pub(super) struct Writer {
    out: String,
    depth: usize,
    next: u32,
    /// `None` if locations are not written.
    locations: Option<Locations>,
}

/// The distinct source lines, in order of first use.
#[derive(Default)]
struct Locations {
    /// Keyed by address: one call site has one `Location`.
    numbers: HashMap<*const Location<'static>, usize>,
    places: Vec<&'static Location<'static>>,
}

impl Writer {
    pub(super) fn new(nodes: usize, locations: bool) -> Self {
        let out = String::with_capacity(4096 + nodes * 128);
        Writer {
            out,
            depth: 0,
            next: 0,
            locations: locations.then(Locations::default),
        }
    }

    pub(super) fn finish(mut self) -> String {
        for (number, place) in self
            .locations
            .take()
            .unwrap_or_default()
            .places
            .into_iter()
            .enumerate()
        {
            self.text("#loc")
                .number(number + 1)
                .text(" = loc(")
                .string(place.file());
            self.text(":")
                .number(place.line() as usize)
                .text(":")
                .number(place.column() as usize)
                .text(")\n");
        }
        self.out
    }

    /// Returns the number of an unused name.
    pub(super) fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn indent(&mut self) {
        self.depth += 1;
    }

    pub(super) fn outdent(&mut self) {
        self.depth -= 1;
    }

    /// Starts a line.
    pub(super) fn line(&mut self) -> &mut Self {
        self.out.push('\n');
        for _ in 0..self.depth {
            self.out.push_str("  ");
        }
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.out.push_str(text);
        self
    }

    /// Writes a comma before all but the first element.
    pub(super) fn comma(&mut self, i: usize) -> &mut Self {
        self.text(if i == 0 { "" } else { ", " })
    }

    pub(super) fn number(&mut self, number: usize) -> &mut Self {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        for &digit in &digits[at..] {
            self.out.push(char::from(digit));
        }
        self
    }

    /// Writes a value by its `Display`; slower than the specific methods.
    pub(super) fn display(&mut self, value: impl std::fmt::Display) -> &mut Self {
        write!(self.out, "{value}").expect("a string can be written to");
        self
    }

    pub(super) fn name(&mut self, name: Name) -> &mut Self {
        match name {
            Name::Argument(number) => self.text("%arg").number(number as usize),
            Name::Single(number) => self.text("%").number(number as usize),
            Name::Part(number, part) => self
                .text("%")
                .number(number as usize)
                .text("#")
                .number(part as usize),
            Name::Region(number) => self.text("%i").number(number as usize),
        }
    }

    /// Writes `%1, %2`.
    pub(super) fn names(&mut self, names: &[Name]) -> &mut Self {
        for (i, &name) in names.iter().enumerate() {
            self.comma(i).name(name);
        }
        self
    }

    /// Writes `%i1: t, %i2: t`.
    pub(super) fn parameters(&mut self, parameters: &[(Name, &TensorType)]) -> &mut Self {
        for (i, &(name, ty)) in parameters.iter().enumerate() {
            self.comma(i).name(name).text(": ").ty(ty);
        }
        self
    }

    /// Writes `%3 = `, `%3:2 = `, or nothing.
    pub(super) fn results(&mut self, number: u32, count: usize) -> &mut Self {
        match count {
            0 => self,
            1 => self.text("%").number(number as usize).text(" = "),
            count => self
                .text("%")
                .number(number as usize)
                .text(":")
                .number(count)
                .text(" = "),
        }
    }

    /// Writes `tensor<2x3xf32>`.
    pub(super) fn ty(&mut self, ty: &TensorType) -> &mut Self {
        self.text("tensor<");
        for &dim in ty.dims() {
            self.number(dim).text("x");
        }
        self.text(ty.dtype().mlir_name()).text(">")
    }

    /// Writes `t, t`.
    pub(super) fn types(&mut self, types: &[&TensorType]) -> &mut Self {
        for (i, ty) in types.iter().enumerate() {
            self.comma(i).ty(ty);
        }
        self
    }

    /// Writes `[1, 2]`.
    pub(super) fn list(&mut self, numbers: &[usize]) -> &mut Self {
        self.text("[");
        for (i, &number) in numbers.iter().enumerate() {
            self.comma(i).number(number);
        }
        self.text("]")
    }

    /// Writes `[1, -2]`.
    pub(super) fn signed_list(&mut self, numbers: &[i64]) -> &mut Self {
        self.text("[");
        for (i, &number) in numbers.iter().enumerate() {
            self.comma(i).display(number);
        }
        self.text("]")
    }

    /// Writes `array<i64: 1, 2>`.
    pub(super) fn array(&mut self, numbers: &[usize]) -> &mut Self {
        self.text("array<i64");
        for (i, &number) in numbers.iter().enumerate() {
            self.text(if i == 0 { ": " } else { ", " }).number(number);
        }
        self.text(">")
    }

    /// `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`, whose rows have `width` numbers each.
    pub(super) fn matrix<'r>(
        &mut self,
        rows: impl ExactSizeIterator<Item = &'r [usize]>,
        width: usize,
    ) -> &mut Self {
        let count = rows.len();
        self.text("dense<");
        if count > 0 {
            self.text("[");
            for (i, row) in rows.enumerate() {
                self.comma(i).list(row);
            }
            self.text("]");
        }
        self.text("> : tensor<")
            .number(count)
            .text("x")
            .number(width)
            .text("xi64>")
    }

    /// Writes `<@mesh, [{"data"}, {}]>`.
    pub(super) fn sharding(&mut self, spec: &PartitionSpec, rank: usize) -> &mut Self {
        self.partial_sharding(spec, rank, false)
    }

    /// Writes like [`sharding`](Self::sharding); if `open`, the compiler may split over further
    /// axes:
    /// `<@mesh, [{"data", ?}, {?}]>`.
    pub(super) fn partial_sharding(
        &mut self,
        spec: &PartitionSpec,
        rank: usize,
        open: bool,
    ) -> &mut Self {
        self.text("<@mesh, [");
        for dim in 0..rank {
            self.comma(dim).text("{");
            let axes = spec.axes(dim);
            for (i, axis) in axes.iter().enumerate() {
                self.comma(i).string(axis);
            }
            if open {
                self.comma(axes.len()).text("?");
            }
            self.text("}");
        }
        self.text("]>")
    }

    /// Writes a quoted string.
    pub(super) fn string(&mut self, text: &str) -> &mut Self {
        self.out.push('"');
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => {
                    self.out.push('\\');
                    self.out.push(char::from(byte));
                }
                b' '..=b'~' => self.out.push(char::from(byte)),
                byte => write!(self.out, "\\{byte:02X}").expect("a string can be written to"),
            }
        }
        self.out.push('"');
        self
    }

    /// Writes the symbol of a module, after its `@`. Compilers derive file names from it.
    pub(super) fn symbol(&mut self, text: &str) -> &mut Self {
        if !text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            self.out.push('_');
        }
        for c in text.chars() {
            self.out
                .push(if c.is_ascii_alphanumeric() { c } else { '_' });
        }
        self
    }

    /// Writes bytes as a quoted `0x` string.
    pub(super) fn hex(&mut self, bytes: &[u8]) -> &mut Self {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        self.out.reserve(bytes.len() * 2 + 4);
        self.out.push_str("\"0x");
        for &byte in bytes {
            self.out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            self.out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        self.out.push('"');
        self
    }

    /// Writes ` loc(#loc3)`.
    pub(super) fn location(&mut self, origin: Origin) {
        let (Some(locations), Some(origin)) = (&mut self.locations, origin) else {
            return;
        };
        let number = *locations.numbers.entry(origin).or_insert_with(|| {
            locations.places.push(origin);
            locations.places.len()
        });
        self.text(" loc(#loc").number(number).text(")");
    }
}
