//! The generator Threefry-2x32 and its counters.

use halite_core::{DType, TensorType};
use halite_ir::Op;

use crate::{Tensor, Trace};

/// The row-major index of each element of a tensor, as two words.
///
/// Computed as a sum over the dimensions, not by reshaping an iota, so that a partitioner can split
/// it along any of them.
pub(super) fn counters<'t>(cx: &'t Trace, dims: &[usize]) -> (Tensor<'t>, Tensor<'t>) {
    let wide = TensorType::new(DType::U32, dims).elements() as u64 > 1 << 32;
    let ty = TensorType::new(if wide { DType::U64 } else { DType::U32 }, dims);
    let mut number = None;
    let mut stride = 1usize;
    for dim in (0..dims.len()).rev() {
        let index = cx.push_one(
            Op::Iota {
                ty: ty.clone(),
                dim,
            },
            &[],
        );
        // Strides are below 2^53, since the bytes of a tensor fit memory. `check_size` has checked
        // that they fit in `usize`.
        let part = if stride == 1 {
            index
        } else {
            index * cx.full(stride as f64, &ty)
        };
        number = Some(number.map_or(part, |number: Tensor<'t>| number + part));
        stride *= dims[dim];
    }
    let number = number.unwrap_or_else(|| cx.full(0.0, &ty));
    if wide {
        let high = number.shift_right_logical(cx.full(32.0, &ty));
        (high.convert(DType::U32), number.convert(DType::U32))
    } else {
        (cx.full(0.0, &ty), number)
    }
}

/// As [`counters`], of the part of a larger tensor whose first element has the row-major index
/// `start`, a `u64` scalar.
pub(super) fn counters_from<'t>(
    cx: &'t Trace,
    dims: &[usize],
    start: Tensor<'t>,
) -> (Tensor<'t>, Tensor<'t>) {
    let (high, low) = counters(cx, dims);
    let word_of = |shift: f64| {
        let shifted = start.shift_right_logical(cx.full(shift, &start.ty()));
        shifted.convert(DType::U32).broadcast_in_dim(dims, [])
    };
    let (start_high, start_low) = (word_of(32.0), word_of(0.0));
    let sum = low + start_low;
    let carry = sum.lt(start_low).convert(DType::U32);
    (high + start_high + carry, sum)
}

/// Threefry-2x32 with 20 rounds: two random words for each pair of counters.
pub(super) fn block<'t>(
    key: Tensor<'t>,
    counters: (Tensor<'t>, Tensor<'t>),
) -> (Tensor<'t>, Tensor<'t>) {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    const PARITY: u32 = 0x1BD1_1BDA;

    let cx = key.trace();
    let ty = counters.0.ty();
    let expected = TensorType::new(DType::U32, [2]);
    if key.ty() != expected {
        if !key.is_error() {
            cx.fail(
                "random key",
                format!(
                    "{} is not a key; a key is {expected}, as `rng::key` and `rng::split` make",
                    key.ty()
                ),
                None,
            );
        }
        return (cx.error_like(Some(ty.clone())), cx.error_like(Some(ty)));
    }
    let word = |index: usize| {
        let op = Op::Slice {
            starts: vec![index],
            limits: vec![index + 1],
            strides: vec![1],
        };
        cx.push_one(op, &[key]).reshape([])
    };
    let (first, second) = (word(0), word(1));
    let schedule = [first, second, first.xor(second).xor(PARITY)];
    // Subkeys are the same for all elements, and computed on scalars.
    let subkey = |index: usize, round: u32| {
        let subkey = schedule[index % 3];
        let subkey = if round == 0 { subkey } else { subkey + round };
        subkey.broadcast_to(ty.dims())
    };
    let (mut a, mut b) = (counters.0 + subkey(0, 0), counters.1 + subkey(1, 0));
    for round in 1..=5u32 {
        for rotation in ROTATIONS[(round as usize + 1) % 2] {
            a = a + b;
            let left = b.shift_left(cx.full(f64::from(rotation), &ty));
            let right = b.shift_right_logical(cx.full(f64::from(32 - rotation), &ty));
            b = left.or(right).xor(a);
        }
        a = a + subkey(round as usize, 0);
        b = b + subkey(round as usize + 1, round);
    }
    (a, b)
}
