//! The text under construction, and the small pieces of MLIR's syntax.

use std::{fmt, ops::Range};

use crate::{RankedType, Type};

/// Appends to a text. Methods return it, so that a line of text is a line of code.
#[derive(Default)]
pub(super) struct Text<'s> {
    /// UTF-8 up to the end of each method.
    out: Vec<u8>,
    /// Number of bytes that the sink got.
    before: usize,
    /// Receives the text in blocks. `None` if all of it is kept.
    sink: Option<&'s mut dyn fmt::Write>,
    /// The error of the sink, after which nothing is written.
    error: Option<fmt::Error>,
}

const TEXT: &str = "what is written is UTF-8";

/// Number of bytes from which a block is written to the sink.
const BLOCK: usize = 1 << 14;

impl<'s> Text<'s> {
    pub(super) fn streamed(sink: &'s mut dyn fmt::Write) -> Self {
        Text {
            sink: Some(sink),
            ..Text::default()
        }
    }

    /// Prepares for as many bytes, if all of the text is kept.
    pub(super) fn reserve(&mut self, bytes: usize) {
        if self.sink.is_none() {
            self.out.reserve(bytes);
        }
    }

    /// Writes a block to the sink, if there is one.
    pub(super) fn flush(&mut self) {
        if self.out.len() >= BLOCK {
            self.flush_all();
        }
    }

    fn flush_all(&mut self) {
        if let Some(sink) = &mut self.sink {
            if self.error.is_none() {
                let block = std::str::from_utf8(&self.out);
                self.error = sink.write_str(block.expect(TEXT)).err();
            }
            self.before += self.out.len();
            self.out.clear();
        }
    }

    /// The text that was kept, and the error of the sink.
    pub(super) fn finish(mut self) -> (String, fmt::Result) {
        self.flush_all();
        let text = String::from_utf8(self.out);
        (text.expect(TEXT), self.error.map_or(Ok(()), Err))
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.out.extend_from_slice(text.as_bytes());
        self
    }

    /// Writes an ASCII character.
    pub(super) fn char(&mut self, char: char) -> &mut Self {
        debug_assert!(char.is_ascii(), "{char:?} is one byte");
        self.out.push(char as u8);
        self
    }

    /// The place of what is written next, for [`repeat`](Self::repeat).
    pub(super) fn place(&self) -> usize {
        self.before + self.out.len()
    }

    /// Writes what is at a place again. Returns `false` if the sink has it.
    pub(super) fn repeat(&mut self, place: &Range<usize>) -> bool {
        let Some(start) = place.start.checked_sub(self.before) else {
            return false;
        };
        self.out.extend_from_within(start..place.end - self.before);
        true
    }

    /// Starts a line.
    pub(super) fn line(&mut self, depth: usize) -> &mut Self {
        const BLANK: &str = "\n                                ";
        match BLANK.get(..1 + 2 * depth) {
            Some(start) => self.text(start),
            None => {
                self.char('\n');
                (0..depth).fold(self, |text, _| text.text("  "))
            }
        }
    }

    /// Writes a comma before all but the first element.
    pub(super) fn comma(&mut self, index: usize) -> &mut Self {
        match index {
            0 => self,
            _ => self.text(", "),
        }
    }

    pub(super) fn number(&mut self, number: impl TryInto<u64>) -> &mut Self {
        let mut digits = [0; 20];
        let mut start = digits.len();
        let mut rest: u64 = number.try_into().unwrap_or(u64::MAX);
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.out.extend_from_slice(&digits[start..]);
        self
    }

    pub(super) fn integer(&mut self, number: i64) -> &mut Self {
        if number < 0 {
            self.char('-');
        }
        self.number(number.unsigned_abs())
    }

    /// Writes `true` or `false`.
    pub(super) fn boolean(&mut self, value: bool) -> &mut Self {
        self.text(if value { "true" } else { "false" })
    }

    /// Writes items separated by commas.
    pub(super) fn each<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        for (index, value) in items.into_iter().enumerate() {
            self.comma(index);
            item(self, value);
        }
        self
    }

    /// Writes `[a, b]`.
    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        item: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        self.char('[').each(items, item).char(']')
    }

    /// Writes `[1, 2]`.
    pub(super) fn sizes(&mut self, sizes: &[usize]) -> &mut Self {
        self.list(sizes, |text, &size| {
            text.number(size as u64);
        })
    }

    /// Writes `[1, -2]`.
    pub(super) fn integers(&mut self, numbers: impl IntoIterator<Item = i64>) -> &mut Self {
        self.list(numbers, |text, number| {
            text.integer(number);
        })
    }

    pub(super) fn ty(&mut self, ty: &Type) -> &mut Self {
        match ty {
            Type::Tensor(ty) => self.tensor(ty),
            Type::Token => self.text("!stablehlo.token"),
            Type::Tuple(types) => {
                let element = |text: &mut Self, ty: &Type| {
                    text.ty(ty);
                };
                self.text("tuple<").each(types, element).char('>')
            }
        }
    }

    /// Writes `tensor<2x3xf32>`.
    pub(super) fn tensor(&mut self, ty: &RankedType) -> &mut Self {
        self.text("tensor<");
        for &dim in &ty.dims {
            self.number(dim as u64).char('x');
        }
        self.text(ty.element.name()).char('>')
    }

    /// Writes `@name`, quoted where it needs to be.
    pub(super) fn symbol(&mut self, name: &str) -> &mut Self {
        self.char('@').word(name)
    }

    /// Writes a name, quoted where it needs to be.
    pub(super) fn word(&mut self, name: &str) -> &mut Self {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.');
        let letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
        match name.as_bytes().first().is_some_and(letter) && name.bytes().all(plain) {
            true => self.text(name),
            false => self.string(name),
        }
    }

    /// Writes a quoted string of these bytes.
    pub(super) fn string(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.char('"');
        for &byte in bytes.as_ref() {
            match byte {
                b'"' | b'\\' => {
                    self.char('\\').char(char::from(byte));
                }
                b' '..=b'~' => self.out.push(byte),
                _ => {
                    self.char('\\').out.extend(hex(byte));
                }
            }
        }
        self.char('"')
    }

    /// Writes bytes as a quoted string of digits: `"0x00FF"`.
    pub(super) fn blob(&mut self, bytes: &[u8]) -> &mut Self {
        const PART: usize = 512;
        self.reserve(2 * bytes.len() + 16);
        self.text("\"0x");
        for part in bytes.chunks(PART) {
            let mut digits = [0; 2 * PART];
            for (pair, &byte) in digits.chunks_exact_mut(2).zip(part) {
                pair.copy_from_slice(&hex(byte));
            }
            self.out.extend_from_slice(&digits[..2 * part.len()]);
            self.flush();
        }
        self.char('"')
    }

    /// Writes `0x` and at least as many digits as `width`.
    pub(super) fn bits(&mut self, bits: u64, width: usize) -> &mut Self {
        let mut digits = [0; 16];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bits.to_be_bytes()) {
            pair.copy_from_slice(&hex(byte));
        }
        let used = (u64::BITS - bits.leading_zeros()).div_ceil(4) as usize;
        let digits = &digits[16 - used.max(width).min(16)..];
        self.text("0x").out.extend_from_slice(digits);
        self
    }
}

fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)])
}
