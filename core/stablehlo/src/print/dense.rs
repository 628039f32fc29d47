//! Constants as text.

use std::fmt::{Display, Formatter, Result};

use half::{bf16, f16};

use super::{attribute::Decimal, list};
use crate::{Dense, ElementClass, ElementType};

/// Number of elements above which they are written as one block of hexadecimal digits.
const LISTED: usize = 16;

/// Number of dimensions above which they are written as one block.
const LISTED_RANK: usize = 16;

/// `dense<..> : tensor<..>`.
pub(super) struct DenseText<'a>(pub(super) &'a Dense);

impl Display for DenseText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "dense<{}> : {}", Elements(self.0), self.0.ty)
    }
}

/// The elements of a constant, without its type.
pub(super) struct Elements<'a>(pub(super) &'a Dense);

impl Display for Elements<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Dense { ty, bytes } = self.0;
        let size = ty.element.size();
        // The packing of booleans in a block is not the same in all versions of MLIR.
        let boolean = ty.element == ElementType::Bool;
        let listed = (boolean || ty.elements() <= LISTED) && ty.rank() <= LISTED_RANK;
        match bytes.len() {
            0 => Ok(()),
            length if length == size => element(f, ty.element, bytes),
            _ if listed => nested(f, ty.element, &ty.dims, bytes),
            _ => {
                f.write_str("\"0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
                f.write_str("\"")
            }
        }
    }
}

/// `[[1, 2], [3, 4]]`.
fn nested(f: &mut Formatter<'_>, ty: ElementType, dims: &[usize], bytes: &[u8]) -> Result {
    match dims.split_first() {
        None => element(f, ty, bytes),
        Some((&size, inner)) => {
            f.write_str("[")?;
            let part = (bytes.len() / size.max(1)).max(1);
            list(f, bytes.chunks(part), |f, part| nested(f, ty, inner, part))?;
            f.write_str("]")
        }
    }
}

/// One element: `-1`, `1.5`, `0x7F800000`, `true`, `(1.0, 2.0)`.
pub(super) fn element(f: &mut Formatter<'_>, ty: ElementType, bytes: &[u8]) -> Result {
    if let Some(part) = ty.part() {
        let (real, imaginary) = bytes.split_at(part.size());
        f.write_str("(")?;
        element(f, part, real)?;
        f.write_str(", ")?;
        element(f, part, imaginary)?;
        return f.write_str(")");
    }
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    let unused = 64 - 8 * bytes.len();
    match ty.class() {
        ElementClass::Bool => write!(f, "{}", bits != 0),
        ElementClass::Signed => write!(f, "{}", (bits << unused) as i64 >> unused),
        ElementClass::Unsigned => write!(f, "{bits}"),
        ElementClass::Float | ElementClass::Complex => match float(ty, bits) {
            Some(value) => write!(f, "{}", Decimal(value)),
            None => write!(f, "0x{bits:0width$X}", width = ty.bits().div_ceil(4)),
        },
    }
}

/// A number whose decimal digits are read as these bits; `None` if it is not finite or narrow.
fn float(ty: ElementType, bits: u64) -> Option<f64> {
    let value = match ty {
        ElementType::F16 => f16::from_bits(bits as u16).to_f64(),
        ElementType::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        ElementType::F32 => short(f32::from_bits(bits as u32)),
        ElementType::F64 => f64::from_bits(bits),
        _ => return None,
    };
    value.is_finite().then_some(value)
}

/// The number with the fewest digits that is read as `value`.
fn short(value: f32) -> f64 {
    // Readers round to f64 first, which is not always the same as rounding to f32 at once.
    let short: f64 = value.to_string().parse().unwrap_or(f64::NAN);
    match (short as f32).to_bits() == value.to_bits() {
        true => short,
        false => f64::from(value),
    }
}
