//! Counter-based random numbers: a key and a shape give the same bits on every backend.
//!
//! The generator is Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy
//! as 1, 2, 3", 2011), composed of IR operations. Keys and draws equal those of JAX 0.10 (`jax.random`
//! with its default, partitionable Threefry): bit for bit for integers, and for uniform floats in a
//! range whose width is a power of two; otherwise up to the rounding of a multiplication and an
//! addition, which compilers may fuse, and of logarithms and roots. An element depends only on the
//! key and its index, so values do not depend on the sharding of the tensor.
//!
//! Use a key (`u32[2]`) once: split it, or fold a number in, for every further draw.
//!
//! In a job of processes, a draw with a row for each sample of the batch has the rows of this
//! process of what one process would draw for the whole batch.
//!
//! ```
//! use halite_nn::{Trace, rng};
//!
//! let cx = Trace::new();
//! let key = rng::constant_key(&cx, rng::key(42));
//! let [weights, noise] = rng::split(key);
//! let x = rng::normal(weights, [2, 3], halite_core::DType::F32);
//! let mask = rng::bernoulli(noise, [2, 3], 0.5);
//! assert_eq!(x.ty().to_string(), "f32[2, 3]");
//! assert_eq!(mask.ty().to_string(), "bool[2, 3]");
//! ```

mod threefry;
mod unit;

use std::panic::Location;

use halite_core::{DType, TensorType};
use halite_ir::{Extreme, Literal, Op};

use crate::{
    Operand, Tensor, Trace,
    check::{Checked, check},
    special::wide,
};
use threefry::{block, counters, counters_from};
pub(crate) use unit::{normal_of, stretched, truncated_of, unit, unit_from, unit_part};

/// Makes the key of a seed on the host: high word, low word.
pub const fn key(seed: u64) -> [u32; 2] {
    [(seed >> 32) as u32, seed as u32]
}

/// Makes a key a constant of a program, `u32[2]`.
#[track_caller]
pub fn constant_key(cx: &Trace, key: [u32; 2]) -> Tensor<'_> {
    cx.literal(Literal::new(&key, [2]).expect("two words make a key"))
}

/// Splits `key` into `N` new keys, each `u32[2]`.
#[track_caller]
pub fn split<'t, const N: usize>(key: Tensor<'t>) -> [Tensor<'t>; N] {
    let _site = key.trace().called_from(Location::caller());
    let keys = split_many(key, N);
    std::array::from_fn(|index| row(keys, index))
}

/// Splits `key` into `count` new keys: `u32[count, 2]`.
#[track_caller]
pub fn split_many(key: Tensor<'_>, count: usize) -> Tensor<'_> {
    let _site = key.trace().called_from(Location::caller());
    check!(check_size(
        "random split",
        key.trace(),
        &TensorType::new(DType::U32, [count, 2])
    ));
    let (first, second) = block(key, counters(key.trace(), &[count]));
    pairs(first, second)
}

/// Derives a new key from `key` (`u32[2]`) and a number: a `u32`, or an integer scalar of the trace
/// such as the step, of which the low 32 bits count.
#[track_caller]
pub fn fold_in<'t>(key: Tensor<'t>, data: impl Operand<'t>) -> Tensor<'t> {
    let _site = key.trace().called_from(Location::caller());
    let data = data.beside(key).convert(DType::U32).reshape([1]);
    let zero = key.trace().full(0.0, &TensorType::new(DType::U32, [1]));
    let (first, second) = block(key, (zero, data));
    pairs(first, second).reshape([2])
}

/// Derives a new key from `key` and each of these numbers: `u32[n, 2]`. For numbers below 2^32 they
/// equal those of [`fold_in`].
#[track_caller]
pub fn fold_in_many<'t>(key: Tensor<'t>, numbers: &[u64]) -> Tensor<'t> {
    let _site = key.trace().called_from(Location::caller());
    let words = |shift: u32| -> Tensor<'t> {
        let words: Vec<u32> = numbers
            .iter()
            .map(|number| (number >> shift) as u32)
            .collect();
        key.trace().literal(
            Literal::new(&words, [words.len()]).expect("the dimension is the number of words"),
        )
    };
    let (first, second) = block(key, (words(32), words(0)));
    pairs(first, second)
}

/// Takes the key in row `index` of `keys`, `u32[n, 2]`.
#[track_caller]
pub fn row(keys: Tensor<'_>, index: usize) -> Tensor<'_> {
    let _site = keys.trace().called_from(Location::caller());
    let op = Op::Slice {
        starts: vec![index, 0],
        limits: vec![index + 1, 2],
        strides: vec![1, 1],
    };
    keys.trace().push_one(op, &[keys]).reshape([2])
}

/// Draws random bits as unsigned integers of type `dtype` (`u8` to `u64`).
#[track_caller]
pub fn bits<'t>(key: Tensor<'t>, dims: impl AsRef<[usize]>, dtype: DType) -> Tensor<'t> {
    let _site = key.trace().called_from(Location::caller());
    let cx = key.trace();
    let ty = TensorType::new(dtype, dims);
    if !dtype.is_unsigned_integer() {
        return cx.fail(
            "random bits",
            format!("{dtype} is not an unsigned integer type; use u8, u16, u32 or u64"),
            Some(ty),
        );
    }
    check!(check_size("random bits", cx, &ty));
    let counters = match cx.first_of_samples(ty.dims()) {
        Some(first) => counters_from(cx, ty.dims(), first),
        None => counters(cx, ty.dims()),
    };
    bits_at(key, counters, dtype)
}

/// The bits of elements with these row-major indices, as two words.
fn bits_at<'t>(key: Tensor<'t>, counters: (Tensor<'t>, Tensor<'t>), dtype: DType) -> Tensor<'t> {
    let (first, second) = block(key, counters);
    if dtype == DType::U64 {
        let high = first.convert(dtype);
        high.shift_left(key.trace().full(32.0, &high.ty()))
            .or(second.convert(dtype))
    } else {
        first.xor(second).convert(dtype)
    }
}

/// Draws uniform floats in `[low, high)`.
///
/// `low` and `high` are numbers or scalars of the trace. `f16` and `bf16` are drawn in `f32` and
/// rounded, which can yield `high`.
#[track_caller]
pub fn uniform<'t>(
    key: Tensor<'t>,
    dims: impl AsRef<[usize]>,
    dtype: DType,
    low: impl Operand<'t>,
    high: impl Operand<'t>,
) -> Tensor<'t> {
    let _site = key.trace().called_from(Location::caller());
    in_full_precision(key, dims.as_ref(), dtype, "random uniform", |dims, full| {
        let like = key.trace().scalar(0.0, full);
        let (low, high) = (
            low.beside(like).convert(full),
            high.beside(like).convert(full),
        );
        stretched(unit(key, dims, full), low, high)
    })
}

/// Draws normal floats with mean 0 and standard deviation 1.
#[track_caller]
pub fn normal<'t>(key: Tensor<'t>, dims: impl AsRef<[usize]>, dtype: DType) -> Tensor<'t> {
    let _site = key.trace().called_from(Location::caller());
    in_full_precision(key, dims.as_ref(), dtype, "random normal", |dims, full| {
        normal_of(unit(key, dims, full))
    })
}

/// Draws normal floats with mean 0 and standard deviation 1, truncated to `(low, high)`, of which
/// `low` is the smaller.
#[track_caller]
pub fn truncated_normal<'t>(
    key: Tensor<'t>,
    dims: impl AsRef<[usize]>,
    dtype: DType,
    low: f64,
    high: f64,
) -> Tensor<'t> {
    let _site = key.trace().called_from(Location::caller());
    if low.is_nan() || high.is_nan() || low >= high {
        let like = TensorType::new(dtype, dims.as_ref());
        let message = format!("the range {low}..{high} is empty");
        return key
            .trace()
            .fail("random truncated normal", message, Some(like));
    }
    in_full_precision(
        key,
        dims.as_ref(),
        dtype,
        "random truncated normal",
        |dims, full| truncated_of(unit(key, dims, full), low, high),
    )
}

/// Draws `bool`s that are true with this probability: a number, or an `f32` tensor that broadcasts
/// to `dims`.
#[track_caller]
pub fn bernoulli<'t>(
    key: Tensor<'t>,
    dims: impl AsRef<[usize]>,
    probability: impl Operand<'t>,
) -> Tensor<'t> {
    let _site = key.trace().called_from(Location::caller());
    uniform(key, dims, DType::F32, 0.0, 1.0).lt(probability)
}

/// Draws floats of the standard Gumbel distribution. The argmax of logits plus such noise is a sample
/// of the categorical distribution.
#[track_caller]
pub fn gumbel<'t>(key: Tensor<'t>, dims: impl AsRef<[usize]>, dtype: DType) -> Tensor<'t> {
    let _site = key.trace().called_from(Location::caller());
    in_full_precision(key, dims.as_ref(), dtype, "random gumbel", |dims, full| {
        let tiny = if full == DType::F64 {
            f64::MIN_POSITIVE
        } else {
            f64::from(f32::MIN_POSITIVE)
        };
        -(-uniform(key, dims, full, tiny, 1.0).log()).log()
    })
}

/// Draws class ids from `logits: [.., classes]`: `s32[..]`.
#[track_caller]
pub fn categorical<'t>(key: Tensor<'t>, logits: Tensor<'t>) -> Tensor<'t> {
    let _site = key.trace().called_from(Location::caller());
    let cx = key.trace();
    if logits.is_error() {
        return logits;
    }
    if logits.rank() == 0 {
        return cx.fail(
            "random categorical",
            format!("{} has no dimension of classes", logits.ty()),
            None,
        );
    }
    check!(logits.check_float("random categorical"));
    // In 16 bits the sums of different classes would be equal too often.
    let logits = logits.convert(wide(logits.dtype()));
    let noisy = gumbel(key, logits.dims(), logits.dtype()) + logits;
    let op = Op::ArgReduce {
        kind: Extreme::Max,
        dim: logits.rank() - 1,
    };
    cx.push_many(op, &[noisy], 2)[1]
}

/// Draws integers in `low..high` as `s32`, uniform up to a bias of about 2^-32.
#[track_caller]
pub fn integers<'t>(key: Tensor<'t>, dims: impl AsRef<[usize]>, low: i32, high: i32) -> Tensor<'t> {
    let _site = key.trace().called_from(Location::caller());
    let (cx, dims) = (key.trace(), dims.as_ref());
    if low >= high {
        let like = TensorType::new(DType::S32, dims);
        return cx.fail(
            "random integers",
            format!("the range {low}..{high} is empty"),
            Some(like),
        );
    }
    check!(check_size(
        "random integers",
        cx,
        &TensorType::new(DType::S32, dims)
    ));
    let span = high.wrapping_sub(low) as u32;
    // Weight of the high word: 2^32 mod span, or 0 where 2^16 mod span is 2^16. This is JAX's
    // formula, and no product below overflows: a span over 2^16 uses the low word alone.
    let half = (1u32 << 16) % span;
    let multiplier = half.wrapping_mul(half) % span;
    let [first, second] = split(key);
    let (high_word, low_word) = (
        bits(first, dims, DType::U32),
        bits(second, dims, DType::U32),
    );
    let offset = ((high_word % span) * multiplier + low_word % span) % span;
    offset.bitcast(DType::S32) + low
}

/// Shuffles the numbers `0..count`: `s32[count]`.
#[track_caller]
pub fn permutation(key: Tensor<'_>, count: usize) -> Tensor<'_> {
    let _site = key.trace().called_from(Location::caller());
    let cx = key.trace();
    check!(check_size(
        "random permutation",
        cx,
        &TensorType::new(DType::S32, [count])
    ));
    let mut order = cx.push_one(
        Op::Iota {
            ty: TensorType::new(DType::S32, [count]),
            dim: 0,
        },
        &[],
    );
    // Sorts by random words, in enough rounds that equal words in all of them are unlikely.
    let rounds = (3.0 * (count.max(1) as f64).ln() / f64::from(u32::MAX).ln()).ceil() as usize;
    let mut key = key;
    for _ in 0..rounds {
        let [next, subkey] = split(key);
        let words = bits(subkey, [count], DType::U32);
        order = cx.push_many(
            Op::Sort {
                dim: 0,
                descending: false,
                by_bits: false,
            },
            &[words, order],
            2,
        )[1];
        key = next;
    }
    order
}

/// Runs `draw` in `f32` or `f64`, and rounds its result to `dtype`.
fn in_full_precision<'t>(
    key: Tensor<'t>,
    dims: &[usize],
    dtype: DType,
    name: &str,
    draw: impl FnOnce(&[usize], DType) -> Tensor<'t>,
) -> Tensor<'t> {
    check!(check_size(name, key.trace(), &TensorType::new(dtype, dims)));
    match dtype {
        DType::F32 | DType::F64 => draw(dims, dtype),
        DType::F16 | DType::Bf16 => draw(dims, DType::F32).convert(dtype),
        _ => key.trace().fail(
            name,
            format!("{dtype} is not a float type"),
            Some(TensorType::new(dtype, dims)),
        ),
    }
}

/// Checks that the size in bytes of 64-bit words, one for each element of `ty`, does not overflow.
fn check_size<'t>(op: &str, cx: &'t Trace, ty: &TensorType) -> Checked<'t> {
    // With a dimension of 0 every size fits, but strides may still overflow.
    let nonzero: Vec<usize> = ty.dims().iter().map(|&size| size.max(1)).collect();
    match TensorType::new(DType::U64, nonzero).checked_bytes() {
        Ok(_) => Ok(()),
        Err(_) => Err(cx.fail(
            op,
            format!("{ty} is larger than any address space"),
            Some(ty.clone()),
        )),
    }
}

/// Stacks `[n]` and `[n]` as columns: `[n, 2]`.
fn pairs<'t>(first: Tensor<'t>, second: Tensor<'t>) -> Tensor<'t> {
    let mut dims = first.dims();
    dims.push(1);
    let dim = dims.len() - 1;
    first.trace().push_one(
        Op::Concatenate { dim },
        &[first.reshape(&dims), second.reshape(&dims)],
    )
}
