//! Types of elements that kernels compute with in `f32`.

use half::{bf16, slice::HalfFloatSliceExt};

use crate::Threads;

/// A type of elements that kernels read and write; they compute in `f32`.
pub trait Element: sealed::Element {}

impl Element for f32 {}
impl Element for bf16 {}

pub(crate) mod sealed {
    use super::{HalfFloatSliceExt, Threads, bf16};

    pub trait Element: Copy + Send + Sync + 'static {
        /// Whether values are `f32` already.
        const IS_F32: bool;

        /// Writes the values as `f32`.
        fn widen(from: &[Self], to: &mut [f32]);

        /// Calls `work` with the values as `f32`.
        fn with_f32<T>(threads: &Threads, from: &[Self], work: impl FnOnce(&[f32]) -> T) -> T;

        /// Calls `work` with `f32` values of an unspecified content, and stores them rounded to
        /// `to` afterwards.
        fn with_f32_mut<T>(
            threads: &Threads,
            to: &mut [Self],
            work: impl FnOnce(&mut [f32]) -> T,
        ) -> T;
    }

    impl Element for f32 {
        const IS_F32: bool = true;

        fn widen(from: &[Self], to: &mut [f32]) {
            to.copy_from_slice(from);
        }

        fn with_f32<T>(_: &Threads, from: &[Self], work: impl FnOnce(&[f32]) -> T) -> T {
            work(from)
        }

        fn with_f32_mut<T>(_: &Threads, to: &mut [Self], work: impl FnOnce(&mut [f32]) -> T) -> T {
            work(to)
        }
    }

    impl Element for bf16 {
        const IS_F32: bool = false;

        fn widen(from: &[Self], to: &mut [f32]) {
            for (to, from) in to.iter_mut().zip(from) {
                *to = f32::from_bits(u32::from(from.to_bits()) << 16);
            }
        }

        fn with_f32<T>(threads: &Threads, from: &[Self], work: impl FnOnce(&[f32]) -> T) -> T {
            threads.with_scratch(from.len(), |wide| {
                Self::widen(from, wide);
                work(wide)
            })
        }

        fn with_f32_mut<T>(
            threads: &Threads,
            to: &mut [Self],
            work: impl FnOnce(&mut [f32]) -> T,
        ) -> T {
            threads.with_scratch(to.len(), |wide| {
                let result = work(wide);
                to.convert_from_f32_slice(wide);
                result
            })
        }
    }
}
