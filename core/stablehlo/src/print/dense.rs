//! Constants as text, bit-exact.

use std::fmt::{self, Write};

use half::{bf16, f16};

use super::text::Text;
use crate::{Dense, ElementClass, ElementType};

/// Number of elements above which they are written as one block of hexadecimal digits.
const LISTED: usize = 16;

/// Number of dimensions above which booleans are written as one block.
const LISTED_RANK: usize = 16;

impl Text<'_> {
    /// Writes `dense<..> : tensor<..>`.
    pub(super) fn dense(&mut self, dense: &Dense) -> &mut Self {
        let Dense { ty, bytes } = dense;
        self.text("dense<");
        let listed = match ty.element {
            // The packing of booleans in a block is not the same in all versions of MLIR.
            ElementType::Bool => ty.rank() <= LISTED_RANK,
            _ => ty.elements() <= LISTED && ty.rank() <= 1,
        };
        match bytes.len() {
            0 => &mut *self,
            length if length == ty.element.size() => self.element(ty.element, bytes),
            _ if listed => self.nested(ty.element, &ty.dims, bytes),
            _ => self.blob(bytes),
        };
        self.text("> : ").tensor(ty)
    }

    /// Writes `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`, whose rows have `width` numbers each.
    pub(super) fn matrix<R: IntoIterator<Item = i64>>(
        &mut self,
        rows: impl ExactSizeIterator<Item = R>,
        width: usize,
    ) -> &mut Self {
        let count = rows.len();
        self.text("dense<");
        if count > 0 {
            self.list(rows, |text, row| {
                text.integers(row);
            });
        }
        self.text("> : tensor<").number(count as u64);
        self.char('x').number(width as u64).text("xi64>")
    }

    /// Writes `[[true, false], [false, true]]`.
    fn nested(&mut self, ty: ElementType, dims: &[usize], bytes: &[u8]) -> &mut Self {
        let Some((&size, inner)) = dims.split_first() else {
            return self.element(ty, bytes);
        };
        let part = (bytes.len() / size.max(1)).max(1);
        self.list(bytes.chunks(part), |text, part| {
            text.nested(ty, inner, part);
        })
    }

    /// Writes one element: `-1`, `1.5`, `0x7F800000`, `true`, `(1.0, 2.0)`.
    fn element(&mut self, ty: ElementType, bytes: &[u8]) -> &mut Self {
        if let Some(part) = ty.part() {
            let (real, imaginary) = bytes.split_at(part.size().min(bytes.len()));
            self.char('(').element(part, real).text(", ");
            return self.element(part, imaginary).char(')');
        }
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        let unused = 64 - 8 * bytes.len();
        match ty.class() {
            ElementClass::Bool => self.boolean(bits != 0),
            ElementClass::Signed => self.integer((bits << unused) as i64 >> unused),
            ElementClass::Unsigned => self.number(bits),
            ElementClass::Float | ElementClass::Complex => self.float(ty, bits),
        }
    }

    /// Writes a float in decimal if that parses (as `f64`, as MLIR does for all floats) to the same
    /// bits, else as its bits.
    pub(super) fn float(&mut self, ty: ElementType, bits: u64) -> &mut Self {
        let mut decimal = Decimal::default();
        let written = match ty {
            ElementType::F16 => write!(decimal, "{:?}", f16::from_bits(bits as u16).to_f32()),
            ElementType::Bf16 => write!(decimal, "{:?}", bf16::from_bits(bits as u16).to_f32()),
            ElementType::F32 => write!(decimal, "{:?}", f32::from_bits(bits as u32)),
            ElementType::F64 => write!(decimal, "{:?}", f64::from_bits(bits)),
            _ => Err(fmt::Error),
        };
        let read = |value: f64| match ty {
            ElementType::F16 => f16::from_f64(value).to_bits().into(),
            ElementType::Bf16 => bf16::from_f64(value).to_bits().into(),
            ElementType::F32 => (value as f32).to_bits().into(),
            _ => value.to_bits(),
        };
        let text = decimal.text();
        let same = |value: f64| value.is_finite() && read(value) == bits;
        if written.is_err() || !text.parse().is_ok_and(same) {
            return self.bits(bits, ty.bits().div_ceil(4));
        }
        match text.split_once('e') {
            // MLIR requires a point: `1.0e-7`.
            Some((mantissa, exponent)) if !mantissa.contains('.') => {
                self.text(mantissa).text(".0e").text(exponent)
            }
            _ => self.text(text),
        }
    }
}

/// A number in decimal, on the stack.
#[derive(Default)]
struct Decimal {
    digits: [u8; 32],
    length: usize,
}

impl Decimal {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.digits[..self.length]).expect("numbers are ASCII")
    }
}

impl Write for Decimal {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let place = self.digits.get_mut(self.length..end).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}
