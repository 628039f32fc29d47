//! Reductions of host arrays.

use super::ReduceOp;
use crate::{Element, Error, HostArray, Result};

pub(super) fn reduce(arrays: &[HostArray], op: ReduceOp) -> Result<HostArray> {
    use crate::DType::*;
    macro_rules! by_type {
        ($($dtype:ident => $rust:ty);* $(;)?) => {
            match arrays[0].ty().dtype() {
                $($dtype => reduce_as::<$rust>(arrays, op),)*
                Bool => reduce_bool(arrays, op),
                F16 => reduce_half::<half::f16>(arrays, op, half::f16::to_f64, half::f16::from_f64),
                Bf16 => reduce_half::<half::bf16>(arrays, op, half::bf16::to_f64, half::bf16::from_f64),
                other => Err(Error::invalid("all_reduce", format!("elements of type {other} are not reduced"))),
            }
        };
    }
    by_type! {
        S8 => i8; S16 => i16; S32 => i32; S64 => i64;
        U8 => u8; U16 => u16; U32 => u32; U64 => u64;
        F32 => f32; F64 => f64;
    }
}

/// Arithmetic of reductions.
trait Number: Element + PartialOrd {
    fn is_nan(self) -> bool;
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// Mean of at least one value; integers are rounded towards 0.
    fn mean(values: impl ExactSizeIterator<Item = Self>) -> Self;
}

macro_rules! numbers {
    ($($int:ty)*; $($float:ty)*) => {
        $(impl Number for $int {
            fn is_nan(self) -> bool { false }
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn mean(values: impl ExactSizeIterator<Item = Self>) -> Self {
                let count = values.len() as i128;
                (values.map(i128::from).sum::<i128>() / count) as $int
            }
        })*
        $(impl Number for $float {
            fn is_nan(self) -> bool { <$float>::is_nan(self) }
            fn add(self, other: Self) -> Self { self + other }
            fn mul(self, other: Self) -> Self { self * other }
            fn mean(values: impl ExactSizeIterator<Item = Self>) -> Self {
                let count = values.len() as $float;
                values.sum::<$float>() / count
            }
        })*
    };
}
numbers!(i8 i16 i32 i64 u8 u16 u32 u64; f32 f64);

fn fold<T: Number>(a: T, b: T, op: ReduceOp) -> Option<T> {
    Some(match op {
        ReduceOp::Sum => a.add(b),
        ReduceOp::Product => a.mul(b),
        ReduceOp::Min => {
            if b < a || b.is_nan() {
                b
            } else {
                a
            }
        }
        ReduceOp::Max => {
            if b > a || b.is_nan() {
                b
            } else {
                a
            }
        }
        ReduceOp::Mean | ReduceOp::And | ReduceOp::Or => return None,
    })
}

fn reduce_as<T: Number>(arrays: &[HostArray], op: ReduceOp) -> Result<HostArray> {
    let mut total = arrays[0].as_slice::<T>()?.to_vec();
    if op == ReduceOp::Mean {
        let all: Vec<&[T]> = arrays
            .iter()
            .map(HostArray::as_slice)
            .collect::<Result<_>>()?;
        let mean = |index: usize| T::mean(all.iter().map(|values| values[index]));
        let means: Vec<T> = (0..total.len()).map(mean).collect();
        return HostArray::from_slice(&means, arrays[0].ty().dims());
    }
    for array in &arrays[1..] {
        for (total, &value) in total.iter_mut().zip(array.as_slice::<T>()?) {
            *total = fold(*total, value, op).ok_or_else(|| undefined(op, &arrays[0]))?;
        }
    }
    if matches!(op, ReduceOp::And | ReduceOp::Or) {
        return Err(undefined(op, &arrays[0]));
    }
    HostArray::from_slice(&total, arrays[0].ty().dims())
}

/// 16-bit floats are reduced in f64 and rounded once.
fn reduce_half<T: Element>(
    arrays: &[HostArray],
    op: ReduceOp,
    widen: fn(T) -> f64,
    narrow: fn(f64) -> T,
) -> Result<HostArray> {
    let widened = |array: &HostArray| {
        let values: Vec<f64> = array
            .as_slice::<T>()?
            .iter()
            .map(|&value| widen(value))
            .collect();
        HostArray::from_slice(&values, array.ty().dims())
    };
    let arrays: Vec<HostArray> = arrays.iter().map(widened).collect::<Result<_>>()?;
    let total = reduce_as::<f64>(&arrays, op)?;
    let values: Vec<T> = total
        .as_slice::<f64>()?
        .iter()
        .map(|&value| narrow(value))
        .collect();
    HostArray::from_slice(&values, total.ty().dims())
}

fn reduce_bool(arrays: &[HostArray], op: ReduceOp) -> Result<HostArray> {
    let mut total = arrays[0].as_slice::<bool>()?.to_vec();
    for array in &arrays[1..] {
        for (total, &value) in total.iter_mut().zip(array.as_slice::<bool>()?) {
            *total = match op {
                ReduceOp::And | ReduceOp::Min | ReduceOp::Product => *total && value,
                ReduceOp::Or | ReduceOp::Max => *total || value,
                ReduceOp::Sum | ReduceOp::Mean => return Err(undefined(op, &arrays[0])),
            };
        }
    }
    HostArray::from_slice(&total, arrays[0].ty().dims())
}

fn undefined(op: ReduceOp, array: &HostArray) -> Error {
    Error::invalid(
        "all_reduce",
        format!("{op:?} is not defined for {}", array.ty()),
    )
}
