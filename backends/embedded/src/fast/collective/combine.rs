//! Combinations of the values of several processes, by one operation.

use std::sync::Arc;

use bytemuck::Pod;
use half::{bf16, f16};
use halite_kernels::{Threads, combine};
use halite_stablehlo::{BinaryOp, ElementType};

use crate::storage::{Aligned, Storage};

/// The combination of all sources in `out`, rounded once. False if there is no kernel for it.
pub(super) fn combine_all(
    threads: &Threads,
    op: BinaryOp,
    element: ElementType,
    sources: &[Arc<Storage>],
    out: &mut Storage,
) -> bool {
    let values = &mut Values {
        threads,
        sources,
        out,
    };
    match element {
        ElementType::F32 => floats(op, values, f64::from, |x| x as f32),
        ElementType::F64 => floats(op, values, |x: f64| x, |x| x),
        ElementType::Bf16 => floats(op, values, bf16::to_f64, bf16::from_f64),
        ElementType::F16 => floats(op, values, f16::to_f64, f16::from_f64),
        ElementType::Bool => booleans(op, values),
        ElementType::S8 => i8::combine(op, values),
        ElementType::S16 => i16::combine(op, values),
        ElementType::S32 => i32::combine(op, values),
        ElementType::S64 => i64::combine(op, values),
        ElementType::U8 => u8::combine(op, values),
        ElementType::U16 => u16::combine(op, values),
        ElementType::U32 => u32::combine(op, values),
        ElementType::U64 => u64::combine(op, values),
        _ => None,
    }
    .is_some()
}

/// Returns whether there is a kernel for the combination.
pub(super) fn has_kernel(op: BinaryOp, element: ElementType) -> bool {
    let Ok(threads) = Threads::new(1) else {
        return false;
    };
    let empty = || Storage::Aligned(Aligned::zeros(0));
    combine_all(&threads, op, element, &[Arc::new(empty())], &mut empty())
}

struct Values<'v> {
    threads: &'v Threads,
    sources: &'v [Arc<Storage>],
    out: &'v mut Storage,
}

impl Values<'_> {
    #[inline]
    fn with<T: Pod + Send + Sync, W: Copy + Default>(
        &mut self,
        widen: impl Fn(T) -> W + Sync,
        op: impl Fn(W, W) -> W + Sync,
        narrow: impl Fn(W) -> T + Sync,
    ) -> Option<()> {
        let sources = self.sources.iter().map(|source| source.elements());
        let sources: Vec<&[T]> = sources.collect::<Option<_>>()?;
        let out = bytemuck::try_cast_slice_mut(self.out.bytes_mut()).ok()?;
        combine(self.threads, &sources, out, widen, op, narrow);
        Some(())
    }
}

fn floats<T: Pod + Send + Sync>(
    op: BinaryOp,
    values: &mut Values<'_>,
    widen: impl Fn(T) -> f64 + Sync,
    narrow: impl Fn(f64) -> T + Sync,
) -> Option<()> {
    // NaN wins, and 0 is above -0.
    let extreme = |x: f64, y: f64, takes_x: bool| {
        if x.is_nan() || (takes_x && !y.is_nan()) {
            x
        } else {
            y
        }
    };
    match op {
        BinaryOp::Add => values.with(widen, |x, y| x + y, narrow),
        BinaryOp::Multiply => values.with(widen, |x, y| x * y, narrow),
        BinaryOp::Maximum => {
            let above = |x: f64, y: f64| x > y || (x == y && y.is_sign_negative());
            values.with(widen, |x, y| extreme(x, y, above(x, y)), narrow)
        }
        BinaryOp::Minimum => {
            let below = |x: f64, y: f64| x < y || (x == y && x.is_sign_negative());
            values.with(widen, |x, y| extreme(x, y, below(x, y)), narrow)
        }
        _ => None,
    }
}

fn booleans(op: BinaryOp, values: &mut Values<'_>) -> Option<()> {
    let same = |x: u8| x;
    match op {
        BinaryOp::And | BinaryOp::Minimum | BinaryOp::Multiply => {
            values.with(same, |x, y| x & y, same)
        }
        BinaryOp::Or | BinaryOp::Maximum => values.with(same, |x, y| x | y, same),
        BinaryOp::Xor => values.with(same, |x, y| x ^ y, same),
        _ => None,
    }
}

/// Integers, whose results wrap.
trait Integer {
    fn combine(op: BinaryOp, values: &mut Values<'_>) -> Option<()>;
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Integer for $integer {
            fn combine(op: BinaryOp, values: &mut Values<'_>) -> Option<()> {
                let same = |x: $integer| x;
                match op {
                    BinaryOp::Add => values.with(same, <$integer>::wrapping_add, same),
                    BinaryOp::Multiply => values.with(same, <$integer>::wrapping_mul, same),
                    BinaryOp::Maximum => values.with(same, <$integer>::max, same),
                    BinaryOp::Minimum => values.with(same, <$integer>::min, same),
                    BinaryOp::And => values.with(same, |x, y| x & y, same),
                    BinaryOp::Or => values.with(same, |x, y| x | y, same),
                    BinaryOp::Xor => values.with(same, |x, y| x ^ y, same),
                    _ => None,
                }
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);
