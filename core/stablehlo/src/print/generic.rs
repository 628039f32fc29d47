//! Operations in the generic form, which is the same for all:
//! `"stablehlo.sort"(%0) <{dimension = 0 : i64}> ({..}) {..} : (t) -> t`.

use super::{function::Printer, text::Text};
use crate::{
    Attribute, ElementType, OpKind, Operation,
    ops::{Named, Value, width},
};

impl<'m> Printer<'m, '_> {
    /// Writes an operation after its results.
    pub(super) fn generic(&mut self, operation: &'m Operation) {
        self.out.char('"');
        self.op_name(operation.kind.name());
        self.out.text("\"(");
        self.values(&operation.operands);
        self.out.char(')');
        self.properties(&operation.kind);
        if !operation.regions.is_empty() {
            let terminator = match operation.kind {
                OpKind::ManualComputation(_) => "sdy.return",
                _ => "stablehlo.return",
            };
            self.out.text(" (");
            for (index, region) in operation.regions.iter().enumerate() {
                self.out.comma(index).char('{');
                self.block(region, terminator);
                self.out.char('}');
            }
            self.out.char(')');
        }
        self.out.optional_dictionary(&operation.attributes);
        self.out.text(" : ");
        self.function_type(&operation.operands, &operation.results);
    }

    /// Writes ` <{name = value, ..}>`, if the operation has attributes.
    fn properties(&mut self, kind: &OpKind) {
        // The structure that nested attributes are in.
        let structure = match kind {
            OpKind::Gather(_) => "dimension_numbers = #stablehlo.gather<",
            OpKind::Scatter(_) => "scatter_dimension_numbers = #stablehlo.scatter<",
            _ => "",
        };
        let (mut count, mut open) = (0, false);
        kind.visit(&mut |named: &Named, value| {
            if let ("use_global_device_ids", Value::Bool(false)) = (named.name, value) {
                return;
            }
            let nested = named.nested && !structure.is_empty();
            if open && !nested {
                self.out.char('>');
            }
            self.out.text(if count == 0 { " <{" } else { ", " });
            if nested && !open {
                self.out.text(structure);
            }
            (count, open) = (count + 1, nested);
            match nested {
                true => self.out.text(named.name).text(" = ").plain(value),
                false => self.out.named_property(named, value),
            };
        });
        if open {
            self.out.char('>');
        }
        if count > 0 {
            self.out.text("}>");
        }
    }
}

impl Text<'_> {
    /// Writes `name = value` of an attribute that defines an operation.
    fn named_property(&mut self, named: &Named, value: Value<'_>) -> &mut Self {
        let enumeration = named.enumeration.map_or("", |it| it.text);
        match (named.name, value) {
            ("use_global_device_ids", _) => self.text(named.name),
            ("channel_id", value) => {
                self.text("channel_handle = #stablehlo.channel_handle<handle = ");
                self.plain(value).text(", type = 1>")
            }
            (name, Value::Case(case)) => self.text(name).text(" = ").case(enumeration, case),
            (name, Value::Texts(cases)) if !enumeration.is_empty() => {
                self.text(name).text(" = ").cases(enumeration, cases)
            }
            (name, Value::Any(value)) => self.text(name).entry_value(name, value),
            (name, value) => self.text(name).text(" = ").property(value),
        }
    }

    /// Writes a value with its type.
    pub(super) fn property(&mut self, value: Value<'_>) -> &mut Self {
        match value {
            Value::Bool(value) => self.boolean(value),
            Value::Int(value, ty) => self.integer(value).text(" : ").text(ty.name()),
            Value::Float(value) => {
                let number = self.float(ElementType::F32, value.to_bits().into());
                number.text(" : f32")
            }
            Value::Case(text) => self.string(text),
            Value::Text(text) => self.string(text),
            Value::Texts(texts) => self.list(texts, |text, item| {
                text.string(item);
            }),
            Value::Symbol(name) => self.symbol(name),
            Value::Symbols(names) => self.list(names, |text, name| {
                text.symbol(name);
            }),
            Value::Ints(numbers) => self.array("i64", numbers, |text, &number| {
                text.integer(number);
            }),
            Value::Sizes(sizes) => self.array("i64", sizes, |text, &size| {
                text.number(size as u64);
            }),
            Value::Flags(flags) => self.array("i1", flags, |text, &flag| {
                text.boolean(flag);
            }),
            Value::Pairs(pairs) => self.matrix(pairs.iter().map(|&(low, high)| [low, high]), 2),
            Value::Devices(pairs) => {
                self.matrix(pairs.iter().map(|&(a, b)| [a as i64, b as i64]), 2)
            }
            Value::Groups(groups) => {
                let width = width(groups);
                let rows = groups.iter().map(|group| {
                    let members = group.iter().map(|&member| member as i64);
                    members.chain(std::iter::repeat(-1)).take(width)
                });
                self.matrix(rows, width)
            }
            Value::Constant(dense) => self.dense(dense),
            Value::Dictionary(attributes) => self.dictionary(attributes),
            Value::Sharding(sharding) => self.text("#sdy.sharding").sharding(sharding),
            Value::Shardings(shardings) => {
                let start = self.text("#sdy.sharding_per_value<");
                start.shardings(shardings).char('>')
            }
            Value::Axes(axes) => self.text("#sdy<manual_axes").axes(axes).char('>'),
            Value::Any(value) => self.attribute(value),
        }
    }

    /// Writes `#stablehlo<fft_type FFT>`.
    fn case(&mut self, enumeration: &str, case: &str) -> &mut Self {
        let start = self.text("#stablehlo<").text(enumeration);
        start.char(' ').text(case).char('>')
    }

    /// Writes `[#stablehlo<precision HIGH>, ..]`.
    pub(super) fn cases(&mut self, enumeration: &str, cases: &[String]) -> &mut Self {
        self.list(cases, |text, case| {
            text.case(enumeration, case);
        })
    }

    /// Writes `array<i64: 1, 2>`.
    fn array<T>(&mut self, ty: &str, items: &[T], item: impl Fn(&mut Self, &T)) -> &mut Self {
        self.text("array<").text(ty);
        if !items.is_empty() {
            self.text(": ");
        }
        self.each(items, item).char('>')
    }

    /// Writes `[#stablehlo.output_operand_alias<..>, ..]`.
    pub(super) fn aliases(&mut self, aliases: &Attribute) -> &mut Self {
        let Attribute::Array(aliases) = aliases else {
            return self.attribute(aliases);
        };
        self.list(aliases, |text, alias| match alias {
            Attribute::Dict(fields) => {
                text.text("#stablehlo.output_operand_alias<");
                text.each(&fields.0, |text, (name, value)| {
                    text.text(name).text(" = ").plain_attribute(value);
                });
                text.char('>');
            }
            other => {
                text.attribute(other);
            }
        })
    }

    /// Writes layouts, whose elements are of type `index`: `[dense<[1, 0]> : tensor<2xindex>]`.
    pub(super) fn layouts(&mut self, layouts: &Attribute) -> &mut Self {
        let Attribute::Array(layouts) = layouts else {
            return self.attribute(layouts);
        };
        self.list(layouts, |text, layout| match layout {
            Attribute::Dense(dense) if dense.ty.rank() == 1 && dense.ty.elements() <= 64 => {
                let dims = dense.integers().unwrap_or_default();
                text.text("dense<");
                if !dims.is_empty() {
                    text.integers(dims);
                }
                text.text("> : tensor<").number(dense.ty.elements() as u64);
                text.text("xindex>");
            }
            other => {
                text.attribute(other);
            }
        })
    }
}
