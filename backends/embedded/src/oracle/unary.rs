//! Elementwise operations on one operand, and conversions of elements.

use halite_core::{Error, ErrorKind, Result};
use halite_stablehlo::{ElementClass, ElementType, RankedType, UnaryOp};

use super::{
    complex::Complex,
    tensor::{Tensor, Wide, allocate, collect, unexpected, wrap},
};

/// Applies `op` to every element of `x`; the result has type `ty`.
pub(super) fn unary(op: UnaryOp, x: &Tensor, ty: &RankedType) -> Result<Tensor> {
    let element = x.ty.element;
    let count = x.ty.elements();
    let wide = match x.wide()? {
        Wide::Int(values) => {
            let each = values
                .into_iter()
                .map(|value| unary_int(op, element, value));
            Wide::Int(collect_results(count, op, element, each)?)
        }
        Wide::Float(values) if op == UnaryOp::IsFinite => Wide::Int(collect(
            count,
            values.into_iter().map(|value| value.is_finite().into()),
        )?),
        Wide::Float(values) => {
            let each = values.into_iter().map(|value| unary_float(op, value));
            Wide::Float(collect_results(count, op, element, each)?)
        }
        Wide::Complex(values) => match complex_part(op) {
            Some(part) => Wide::Float(collect(count, values.into_iter().map(part))?),
            None => {
                let each = values.into_iter().map(|value| unary_complex(op, value));
                Wide::Complex(collect_results(count, op, element, each)?)
            }
        },
    };
    Tensor::encode(ty, wide)
}

fn collect_results<T>(
    count: usize,
    op: UnaryOp,
    element: ElementType,
    results: impl Iterator<Item = Option<T>>,
) -> Result<Vec<T>> {
    let mut all = allocate(count)?;
    for result in results {
        all.push(result.ok_or_else(|| undefined(op.name(), element))?);
    }
    Ok(all)
}

/// The error of an operation on elements for which this executor does not define it.
pub(super) fn undefined(op: &str, element: ElementType) -> Error {
    let message = format!("`{op}` of elements of type {element} is not supported");
    Error::new(ErrorKind::Unsupported, "run", message)
}

fn unary_int(op: UnaryOp, element: ElementType, x: i128) -> Option<i128> {
    let bits = element.bits() as u32;
    let pattern = (x as u128) << (128 - bits) >> (128 - bits);
    Some(match op {
        UnaryOp::Abs => x.abs(),
        UnaryOp::Negate => -x,
        UnaryOp::Not if element == ElementType::Bool => 1 - x,
        UnaryOp::Not => !x,
        UnaryOp::Sign => x.signum(),
        UnaryOp::Popcnt => pattern.count_ones().into(),
        UnaryOp::CountLeadingZeros => i128::from(pattern.leading_zeros()) - i128::from(128 - bits),
        _ => return None,
    })
}

fn unary_float(op: UnaryOp, x: f64) -> Option<f64> {
    Some(match op {
        UnaryOp::Abs => x.abs(),
        UnaryOp::Cbrt => x.cbrt(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Cosine => x.cos(),
        UnaryOp::Erf => libm::erf(x),
        UnaryOp::Exponential => x.exp(),
        UnaryOp::ExponentialMinusOne => x.exp_m1(),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Imag => 0.0,
        UnaryOp::Log => x.ln(),
        UnaryOp::LogPlusOne => x.ln_1p(),
        UnaryOp::Logistic => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Negate => -x,
        UnaryOp::Real => x,
        UnaryOp::RoundNearestAfz => x.round(),
        UnaryOp::RoundNearestEven => x.round_ties_even(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        // The sign of NaN is NaN, those of the zeros are they themselves.
        UnaryOp::Sign if x.is_nan() || x == 0.0 => x,
        UnaryOp::Sign => 1f64.copysign(x),
        UnaryOp::Sine => x.sin(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Tan => x.tan(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::CountLeadingZeros | UnaryOp::IsFinite | UnaryOp::Not | UnaryOp::Popcnt => {
            return None;
        }
    })
}

/// Operations whose result has the type of a part of their complex operand.
fn complex_part(op: UnaryOp) -> Option<fn(Complex) -> f64> {
    match op {
        UnaryOp::Abs => Some(Complex::abs),
        UnaryOp::Real => Some(|x| x.re),
        UnaryOp::Imag => Some(|x| x.im),
        _ => None,
    }
}

fn unary_complex(op: UnaryOp, x: Complex) -> Option<Complex> {
    Some(match op {
        UnaryOp::Cbrt => x.pow(Complex::from(1.0 / 3.0)),
        UnaryOp::Cosine => x.cos(),
        UnaryOp::Exponential => x.exp(),
        UnaryOp::ExponentialMinusOne => x.exp_m1(),
        UnaryOp::Log => x.ln(),
        UnaryOp::LogPlusOne => x.ln_1p(),
        UnaryOp::Logistic => Complex::ONE / (Complex::ONE + (-x).exp()),
        UnaryOp::Negate => -x,
        UnaryOp::Rsqrt => Complex::ONE / x.sqrt(),
        UnaryOp::Sign => x.sign(),
        UnaryOp::Sine => x.sin(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Tan => x.tan(),
        UnaryOp::Tanh => x.tanh(),
        _ => return None,
    })
}

/// Converts the elements by value. Floats become integers towards zero and saturate, NaN becomes 0;
/// complex numbers lose their imaginary part where the result has none.
pub(super) fn convert(x: &Tensor, ty: &RankedType) -> Result<Tensor> {
    let (to, count) = (ty.element, x.ty.elements());
    if x.ty.element == to {
        return Ok(x.reshape(&ty.dims));
    }
    let real = |values: Vec<Complex>| collect(count, values.into_iter().map(|value| value.re));
    let wide = match (x.wide()?, to.class()) {
        (Wide::Int(values), ElementClass::Float) => Wide::Float(collect(
            count,
            values.into_iter().map(|value| float_of(value, to)),
        )?),
        (Wide::Int(values), ElementClass::Complex) => {
            let part = to.part().unwrap_or(to);
            let each = values
                .into_iter()
                .map(|value| Complex::from(float_of(value, part)));
            Wide::Complex(collect(count, each)?)
        }
        (Wide::Float(values), ElementClass::Complex) => {
            Wide::Complex(collect(count, values.into_iter().map(Complex::from))?)
        }
        (Wide::Complex(values), ElementClass::Float) => Wide::Float(real(values)?),
        (Wide::Complex(values), ElementClass::Bool) => {
            let each = values.into_iter().map(|value| (value.re != 0.0).into());
            Wide::Int(collect(count, each)?)
        }
        (Wide::Complex(values), ElementClass::Signed | ElementClass::Unsigned) => {
            Wide::Int(collect(
                count,
                real(values)?.into_iter().map(|value| int_of(value, to)),
            )?)
        }
        (
            Wide::Float(values),
            ElementClass::Bool | ElementClass::Signed | ElementClass::Unsigned,
        ) => Wide::Int(collect(
            count,
            values.into_iter().map(|value| int_of(value, to)),
        )?),
        (wide, _) => wide,
    };
    Tensor::encode(ty, wide)
}

/// An integer as a float that rounds to `to` as the integer does.
fn float_of(value: i128, to: ElementType) -> f64 {
    let nearest = value as f64;
    if to == ElementType::F64 || nearest as i128 == value {
        return nearest;
    }
    // Rounded to odd, so that it is never halfway between two numbers of a narrower format.
    let towards_zero = if (nearest as i128).unsigned_abs() > value.unsigned_abs() {
        f64::from_bits(nearest.to_bits() - 1)
    } else {
        nearest
    };
    f64::from_bits(towards_zero.to_bits() | 1)
}

fn int_of(value: f64, to: ElementType) -> i128 {
    let bits = to.bits() as u32;
    let (low, high) = match to.class() {
        ElementClass::Bool => return (value != 0.0).into(),
        ElementClass::Signed => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        _ => (0, (1i128 << bits) - 1),
    };
    // `as` saturates, and gives 0 for NaN.
    (value as i128).clamp(low, high)
}

/// Rounds floats to the exponent and mantissa of another format. Numbers that are below its normal
/// range once the mantissa is rounded become zeros; NaN stays, also where the format has none, as in
/// XLA (StableHLO's interpreter returns an infinity then).
pub(super) fn reduce_precision(
    x: &Tensor,
    exponent: u32,
    mantissa: u32,
    ty: &RankedType,
) -> Result<Tensor> {
    let (own_exponent, own_mantissa) = match x.ty.element {
        ElementType::F64 => (11, 52),
        ElementType::F32 => (8, 23),
        ElementType::Bf16 => (8, 7),
        ElementType::F16 => (5, 10),
        other => return Err(undefined("reduce_precision", other)),
    };
    let rounding = Rounding {
        own: [own_exponent, own_mantissa],
        to: [exponent.min(own_exponent), mantissa.min(own_mantissa)],
    };
    let size = x.ty.element.size();
    let mut bytes = allocate(x.bytes.len())?;
    for element in x.bytes.chunks_exact(size) {
        let mut bits = [0; 8];
        bits[..size].copy_from_slice(element);
        let reduced = rounding.of_bits(u64::from_le_bytes(bits));
        bytes.extend_from_slice(&reduced.to_le_bytes()[..size]);
    }
    Ok(Tensor::new(ty.clone(), bytes))
}

/// Rounding from one format of IEEE 754 to a smaller one. Formats are `[exponent, mantissa]` bits.
struct Rounding {
    own: [u32; 2],
    to: [u32; 2],
}

impl Rounding {
    /// The rounded number, in the bits of the own format.
    fn of_bits(&self, bits: u64) -> u64 {
        let ([own_exponent, own_mantissa], [exponent, mantissa]) = (self.own, self.to);
        let sign = bits & 1 << (own_exponent + own_mantissa);
        let infinity = ((1u64 << own_exponent) - 1) << own_mantissa;
        let mut magnitude = bits - sign;
        if magnitude >= infinity {
            return bits;
        }
        let dropped = own_mantissa - mantissa;
        if dropped > 0 {
            // To nearest, ties to even; a carry moves on to the exponent.
            let odd = magnitude >> dropped & 1;
            magnitude += (1 << (dropped - 1)) - 1 + odd;
            magnitude &= !((1 << dropped) - 1);
        }
        if exponent < own_exponent {
            let bias = |exponent: u32| (1u64 << (exponent - 1)) - 1;
            let code = magnitude >> own_mantissa;
            if code > bias(own_exponent) + bias(exponent) {
                magnitude = infinity;
            } else if code <= bias(own_exponent) - bias(exponent) {
                magnitude = 0;
            }
        }
        sign | magnitude
    }
}

/// Reinterprets the bits of the elements: a trailing dimension becomes one element or the reverse.
pub(super) fn bitcast_convert(x: &Tensor, ty: &RankedType) -> Result<Tensor> {
    let (from, to) = (x.ty.element, ty.element);
    if from.bits() == 8 * from.size() && to.bits() == 8 * to.size() {
        return Ok(Tensor {
            ty: ty.clone(),
            bytes: x.bytes.clone(),
        });
    }
    // A type of fewer than eight bits is involved: it has a byte for each element.
    let mut bytes = allocate(ty.bytes())?;
    let (mut pending, mut count) = (0u128, 0);
    for at in 0..x.ty.elements() {
        let bits = x
            .element(at)
            .iter()
            .rev()
            .fold(0, |bits, &byte| bits << 8 | u128::from(byte));
        pending |= (bits & ((1 << from.bits()) - 1)) << count;
        count += from.bits();
        while count >= to.bits() && bytes.len() < ty.bytes() {
            push_bits(to, pending & ((1 << to.bits()) - 1), &mut bytes);
            pending >>= to.bits();
            count -= to.bits();
        }
    }
    if bytes.len() != ty.bytes() {
        return Err(unexpected(
            &format!("as many bits as {ty} has"),
            &x.ty.to_string(),
        ));
    }
    Ok(Tensor::new(ty.clone(), bytes))
}

/// Appends an element given by its bits; integers are extended to the byte.
pub(super) fn push_bits(element: ElementType, bits: u128, bytes: &mut Vec<u8>) {
    let extended = match element.class() {
        ElementClass::Signed => wrap(element, bits as i128),
        _ => bits as i128,
    };
    bytes.extend_from_slice(&extended.to_le_bytes()[..element.size()]);
}
