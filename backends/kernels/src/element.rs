//! Types of elements that kernels compute with in `f32`.

use half::bf16;

use crate::Threads;

/// A type of elements that kernels read and write; they compute in `f32`.
pub trait Element: sealed::Element {}

impl Element for f32 {}
impl Element for bf16 {}

/// Slices of elements of one type. A function of this enum is compiled in this crate: a generic one is
/// compiled in the crate that calls it, at the level of optimization of that crate. Public as the
/// trait that names it, and not exported.
#[derive(Debug)]
pub enum Elements<'a, const N: usize> {
    F32([&'a [f32]; N]),
    Bf16([&'a [bf16]; N]),
}

/// A slice of elements of one type, to write.
#[derive(Debug)]
pub enum ElementsMut<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [bf16]),
}

pub(crate) mod sealed {
    use pulp::Arch;

    use super::{Elements, ElementsMut, Threads, bf16, rounded, widened};

    pub trait Element: Copy + Send + Sync + Sized + 'static {
        /// Whether values are `f32` already.
        const IS_F32: bool;

        /// The value as `f32`.
        fn wide(self) -> f32;

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

        /// The slices, by their type.
        fn elements<const N: usize>(slices: [&[Self]; N]) -> Elements<'_, N>;

        /// The slice, by its type.
        fn elements_mut(slice: &mut [Self]) -> ElementsMut<'_>;
    }

    impl Element for f32 {
        const IS_F32: bool = true;

        #[inline(always)]
        fn wide(self) -> f32 {
            self
        }

        fn widen(from: &[Self], to: &mut [f32]) {
            to.copy_from_slice(from);
        }

        fn with_f32<T>(_: &Threads, from: &[Self], work: impl FnOnce(&[f32]) -> T) -> T {
            work(from)
        }

        fn with_f32_mut<T>(_: &Threads, to: &mut [Self], work: impl FnOnce(&mut [f32]) -> T) -> T {
            work(to)
        }

        fn elements<const N: usize>(slices: [&[Self]; N]) -> Elements<'_, N> {
            Elements::F32(slices)
        }

        fn elements_mut(slice: &mut [Self]) -> ElementsMut<'_> {
            ElementsMut::F32(slice)
        }
    }

    impl Element for bf16 {
        const IS_F32: bool = false;

        #[inline(always)]
        fn wide(self) -> f32 {
            widened(self)
        }

        fn widen(from: &[Self], to: &mut [f32]) {
            Arch::new().dispatch(
                #[inline(always)]
                || {
                    for (to, from) in to.iter_mut().zip(from) {
                        *to = widened(*from);
                    }
                },
            );
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
                Arch::new().dispatch(
                    #[inline(always)]
                    || {
                        for (to, from) in to.iter_mut().zip(wide) {
                            *to = rounded(*from);
                        }
                    },
                );
                result
            })
        }

        fn elements<const N: usize>(slices: [&[Self]; N]) -> Elements<'_, N> {
            Elements::Bf16(slices)
        }

        fn elements_mut(slice: &mut [Self]) -> ElementsMut<'_> {
            ElementsMut::Bf16(slice)
        }
    }
}

#[inline(always)]
fn widened(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}

/// The nearest value, the even one of two: `bf16::from_f32` without a branch, for vectors.
#[inline(always)]
fn rounded(value: f32) -> bf16 {
    let bits = value.to_bits();
    let odd = bits >> 16 & 1;
    let nearest = bits.wrapping_add(0x7fff + odd) >> 16;
    let nan = bits >> 16 | 0x40;
    bf16::from_bits(if value.is_nan() { nan } else { nearest } as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_that_of_half() {
        // All exponents, both signs, NaNs and infinities; halves with even and odd neighbors.
        for high in 0..=u32::from(u16::MAX) {
            for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let value = f32::from_bits(high << 16 | low);
                let [found, expected] = [rounded(value), bf16::from_f32(value)].map(bf16::to_bits);
                assert_eq!(found, expected, "of {value} ({high:#x}, {low:#x})");
            }
            let value = bf16::from_bits(high as u16);
            assert_eq!(widened(value).to_bits(), high << 16);
        }
    }
}
