//! Elementwise operations on two and three operands.

use halite_core::Result;
use halite_stablehlo::{
    BinaryOp, ComparisonDirection, ComparisonOrder, ElementClass, ElementType, RankedType,
};

use super::{
    complex::Complex,
    tensor::{Tensor, Wide, allocate, collect, unexpected},
    unary::undefined,
};

/// Applies `op` to the elements of `x` and `y`; the result has type `ty`.
pub(super) fn binary(op: BinaryOp, x: &Tensor, y: &Tensor, ty: &RankedType) -> Result<Tensor> {
    let (element, count) = (x.ty.element, x.ty.elements());
    let not_defined = || undefined(op.name(), element);
    let wide = match (x.wide()?, y.wide()?) {
        (Wide::Int(x), Wide::Int(y)) => {
            let mut results = allocate(count)?;
            for (x, y) in x.into_iter().zip(y) {
                results.push(binary_int(op, element, x, y).ok_or_else(not_defined)?);
            }
            Wide::Int(results)
        }
        (Wide::Float(x), Wide::Float(y)) if op == BinaryOp::Complex => {
            let each = x.into_iter().zip(y).map(|(re, im)| Complex::new(re, im));
            Wide::Complex(collect(count, each)?)
        }
        (Wide::Float(x), Wide::Float(y)) => {
            let mut results = allocate(count)?;
            for (x, y) in x.into_iter().zip(y) {
                results.push(binary_float(op, x, y).ok_or_else(not_defined)?);
            }
            Wide::Float(results)
        }
        (Wide::Complex(x), Wide::Complex(y)) => {
            let mut results = allocate(count)?;
            for (x, y) in x.into_iter().zip(y) {
                results.push(binary_complex(op, x, y).ok_or_else(not_defined)?);
            }
            Wide::Complex(results)
        }
        _ => return Err(unexpected(&x.ty.to_string(), &y.ty.to_string())),
    };
    Tensor::encode(ty, wide)
}

/// `x op y`, modulo the range of `element` once it is encoded. `None` where it is not defined.
pub(super) fn binary_int(op: BinaryOp, element: ElementType, x: i128, y: i128) -> Option<i128> {
    let bits = element.bits() as i128;
    let is_signed = element.class() == ElementClass::Signed;
    // Amounts are unsigned, so that a negative one is out of range, too.
    let shift = u32::try_from(y).ok().filter(|&y| i128::from(y) < bits);
    let unused = 128 - bits as u32;
    let pattern = (x as u128) << unused >> unused;
    Some(match op {
        BinaryOp::Add => x + y,
        BinaryOp::Subtract => x - y,
        BinaryOp::Multiply => x.wrapping_mul(y),
        // Same as XLA: all bits are 1.
        BinaryOp::Divide if y == 0 => -1,
        BinaryOp::Divide => x / y,
        BinaryOp::Remainder if y == 0 => x,
        BinaryOp::Remainder => x % y,
        BinaryOp::Maximum => x.max(y),
        BinaryOp::Minimum => x.min(y),
        BinaryOp::And => x & y,
        BinaryOp::Or => x | y,
        BinaryOp::Xor => x ^ y,
        BinaryOp::Power => power_int(x, y),
        BinaryOp::ShiftLeft => shift.map_or(0, |by| x << by),
        BinaryOp::ShiftRightLogical => shift.map_or(0, |by| (pattern >> by) as i128),
        BinaryOp::ShiftRightArithmetic => {
            // The highest bit is the sign, also of unsigned numbers.
            let signed = if is_signed {
                x
            } else {
                (pattern << unused) as i128 >> unused
            };
            signed >> shift.unwrap_or(bits as u32 - 1)
        }
        BinaryOp::Atan2 | BinaryOp::Complex => return None,
    })
}

/// The power, modulo 2^128; that of a negative exponent is 0 but for the bases 1 and -1.
fn power_int(base: i128, exponent: i128) -> i128 {
    match (base, exponent) {
        (1, _) => 1,
        (-1, exponent) => {
            if exponent % 2 == 0 {
                1
            } else {
                -1
            }
        }
        (_, ..0) => 0,
        _ => {
            let (mut result, mut square, mut left) = (1i128, base, exponent);
            while left > 0 {
                if left % 2 == 1 {
                    result = result.wrapping_mul(square);
                }
                square = square.wrapping_mul(square);
                left /= 2;
            }
            result
        }
    }
}

/// `x op y`. `None` where it is not defined.
pub(super) fn binary_float(op: BinaryOp, x: f64, y: f64) -> Option<f64> {
    Some(match op {
        BinaryOp::Add => x + y,
        BinaryOp::Subtract => x - y,
        BinaryOp::Multiply => x * y,
        BinaryOp::Divide => x / y,
        BinaryOp::Remainder => x % y,
        BinaryOp::Atan2 => x.atan2(y),
        BinaryOp::Power => x.powf(y),
        BinaryOp::Maximum => extreme(x, y, x > y || (x == y && y.is_sign_negative())),
        BinaryOp::Minimum => extreme(x, y, x < y || (x == y && x.is_sign_negative())),
        _ => return None,
    })
}

/// `x` if `takes_x`, else `y`; NaN if either is NaN.
fn extreme(x: f64, y: f64, takes_x: bool) -> f64 {
    if x.is_nan() || (takes_x && !y.is_nan()) {
        x
    } else {
        y
    }
}

/// `x op y`. `None` where it is not defined.
pub(super) fn binary_complex(op: BinaryOp, x: Complex, y: Complex) -> Option<Complex> {
    Some(match op {
        BinaryOp::Add => x + y,
        BinaryOp::Subtract => x - y,
        BinaryOp::Multiply => x * y,
        BinaryOp::Divide => x / y,
        BinaryOp::Power => x.pow(y),
        // atan2(x, y) = -i ln((y + i x) / sqrt(x² + y²))
        BinaryOp::Atan2 => {
            let numerator = y + Complex::new(-x.im, x.re);
            let angle = (numerator / (x * x + y * y).sqrt()).ln();
            Complex::new(angle.im, -angle.re)
        }
        BinaryOp::Maximum if x.is_nan() || (!y.is_nan() && x.is_above(y)) => x,
        BinaryOp::Minimum if x.is_nan() || (!y.is_nan() && y.is_above(x)) => x,
        BinaryOp::Maximum | BinaryOp::Minimum => y,
        _ => return None,
    })
}

/// Compares the elements of `x` and `y`.
pub(super) fn compare(
    direction: ComparisonDirection,
    order: Option<ComparisonOrder>,
    operands: [&Tensor; 2],
    ty: &RankedType,
) -> Result<Tensor> {
    let [x, y] = operands;
    let count = x.ty.elements();
    let results = match (x.wide()?, y.wide()?) {
        (Wide::Int(x), Wide::Int(y)) => {
            let each = x.into_iter().zip(y).map(|(x, y)| holds(direction, x, y));
            collect(count, each)?
        }
        (Wide::Float(x), Wide::Float(y)) if order == Some(ComparisonOrder::TotalOrder) => {
            let holds = |(x, y): (f64, f64)| holds(direction, x.total_cmp(&y) as i32, 0);
            collect(count, x.into_iter().zip(y).map(holds))?
        }
        (Wide::Float(x), Wide::Float(y)) => collect(
            count,
            x.into_iter().zip(y).map(|(x, y)| holds(direction, x, y)),
        )?,
        (Wide::Complex(x), Wide::Complex(y)) => {
            // Lexicographic.
            let parts = |x: Complex| (x.re, x.im);
            let holds = |(x, y)| holds(direction, parts(x), parts(y));
            collect(count, x.into_iter().zip(y).map(holds))?
        }
        _ => return Err(unexpected(&x.ty.to_string(), &y.ty.to_string())),
    };
    Tensor::encode(ty, Wide::Int(results))
}

pub(super) fn holds<T: PartialOrd>(direction: ComparisonDirection, x: T, y: T) -> i128 {
    i128::from(match direction {
        ComparisonDirection::Eq => x == y,
        ComparisonDirection::Ne => x != y,
        ComparisonDirection::Ge => x >= y,
        ComparisonDirection::Gt => x > y,
        ComparisonDirection::Le => x <= y,
        ComparisonDirection::Lt => x < y,
    })
}

/// The elements of `on_true` where the predicate, of the same dimensions or a scalar, holds, else
/// those of `on_false`.
pub(super) fn select(predicate: &Tensor, on_true: &Tensor, on_false: &Tensor) -> Result<Tensor> {
    let mut bytes = allocate(on_true.ty.bytes())?;
    let last = predicate.ty.elements().saturating_sub(1);
    for at in 0..on_true.ty.elements() {
        let holds = predicate.element(at.min(last))[0] != 0;
        bytes.extend_from_slice(if holds { on_true } else { on_false }.element(at));
    }
    Ok(Tensor::new(on_true.ty.clone(), bytes))
}

/// `min(max(low, x), high)`; the bounds have the dimensions of `x` or are scalars.
pub(super) fn clamp(low: &Tensor, x: &Tensor, high: &Tensor, ty: &RankedType) -> Result<Tensor> {
    let bound = |bound: &Tensor| -> Result<Tensor> {
        let repeats = if bound.ty.rank() == 0 {
            x.ty.elements()
        } else {
            1
        };
        let mut bytes = allocate(x.ty.bytes())?;
        (0..repeats).for_each(|_| bytes.extend_from_slice(&bound.bytes));
        Ok(Tensor::new(x.ty.clone(), bytes))
    };
    let raised = binary(BinaryOp::Maximum, &bound(low)?, x, ty)?;
    binary(BinaryOp::Minimum, &raised, &bound(high)?, ty)
}
