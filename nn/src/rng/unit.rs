//! Uniform floats in `[0, 1)`, whole or in parts, and other distributions as functions of them.

use halite_core::{DType, TensorType};
use halite_ir::{Literal, Op};

use super::{bits, bits_at, threefry::counters_from};
use crate::Tensor;

/// Draws a tensor of `f32` or `f64`.
#[track_caller]
pub(crate) fn unit<'t>(key: Tensor<'t>, dims: &[usize], dtype: DType) -> Tensor<'t> {
    unit_of(bits(key, dims, word(dtype)), dtype)
}

/// Draws the `count` elements of any larger tensor from row-major index `start` on, a `u32` scalar:
/// the same bits as in [`unit`], which has neither rounding nor functions that differ between
/// programs.
#[track_caller]
pub(crate) fn unit_part<'t>(
    key: Tensor<'t>,
    start: Tensor<'t>,
    count: usize,
    dtype: DType,
) -> Tensor<'t> {
    let cx = key.trace();
    let ty = TensorType::new(DType::U32, [count]);
    let op = Op::Iota {
        ty: ty.clone(),
        dim: 0,
    };
    let counters = (cx.full(0.0, &ty), cx.push_one(op, &[]) + start);
    unit_of(bits_at(key, counters, word(dtype)), dtype)
}

/// Draws the part of a larger tensor with these dimensions whose first element has the row-major
/// index `start`, a `u64` scalar: the same bits as in [`unit`] of the whole tensor.
#[track_caller]
pub(crate) fn unit_from<'t>(
    key: Tensor<'t>,
    dims: &[usize],
    start: Tensor<'t>,
    dtype: DType,
) -> Tensor<'t> {
    let counters = counters_from(key.trace(), dims, start);
    unit_of(bits_at(key, counters, word(dtype)), dtype)
}

/// The unsigned integer of the size of a float.
fn word(full: DType) -> DType {
    match full {
        DType::F64 => DType::U64,
        _ => DType::U32,
    }
}

/// Uniform floats in `[0, 1)`, from random bits of their size.
fn unit_of(bits: Tensor<'_>, full: DType) -> Tensor<'_> {
    let cx = bits.trace();
    // The bits become the mantissa of a number in [1, 2).
    let (unused, one) = match full {
        DType::F64 => (12.0, Literal::splat(1f64.to_bits(), bits.dims())),
        _ => (9.0, Literal::splat(1f32.to_bits(), bits.dims())),
    };
    let mantissa = bits.shift_right_logical(cx.full(unused, &bits.ty()));
    mantissa.or(cx.literal(one)).bitcast(full) - 1.0
}

/// Floats in `[low, high)`, from those in `[0, 1)`.
pub(crate) fn stretched<'t>(unit: Tensor<'t>, low: Tensor<'t>, high: Tensor<'t>) -> Tensor<'t> {
    (unit * (high - low) + low).maximum(low)
}

/// Normal floats, from uniform ones in `[0, 1)`.
pub(crate) fn normal_of(unit: Tensor<'_>) -> Tensor<'_> {
    let (cx, full) = (unit.trace(), unit.dtype());
    // The stretched number is never -1, whose inverse error function is infinite.
    let low = match full {
        DType::F64 => (-1f64).next_up(),
        _ => f64::from((-1f32).next_up()),
    };
    let signed = stretched(unit, cx.scalar(low, full), cx.scalar(1.0, full));
    signed.erf_inv() * std::f64::consts::SQRT_2
}

/// Normal floats truncated to `(low, high)`, from uniform ones in `[0, 1)`.
pub(crate) fn truncated_of(unit: Tensor<'_>, low: f64, high: f64) -> Tensor<'_> {
    let (cx, full) = (unit.trace(), unit.dtype());
    let erf = |bound: f64| (cx.scalar(bound, full) / std::f64::consts::SQRT_2).erf();
    let x = stretched(unit, erf(low), erf(high)).erf_inv() * std::f64::consts::SQRT_2;
    // Rounding must not give the bounds themselves.
    let (low, high) = match full {
        DType::F64 => (low.next_up(), high.next_down()),
        _ => (
            f64::from((low as f32).next_up()),
            f64::from((high as f32).next_down()),
        ),
    };
    x.clamp(low, high)
}
