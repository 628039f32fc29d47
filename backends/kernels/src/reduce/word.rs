//! Elements of reductions, of 32 and 64 bits.

/// An element of a reduction: the bits of a float, or an integer, of this size.
pub trait Word: sealed::Word {}

impl Word for u32 {}
impl Word for u64 {}

pub(crate) mod sealed {
    use bytemuck::Pod;

    use super::super::LANES;
    use crate::{Accumulate, math};

    pub trait Word: Pod + Eq + Send + Sync {
        /// The word that changes no other.
        fn identity(op: Accumulate) -> Self;

        /// Combines each element of `x` with that of `out` at the same position.
        fn accumulate(op: Accumulate, out: &mut [Self], x: &[Self]);

        /// The sums of the floats of each lane: one of each part, and of `rest`.
        fn add_lanes(parts: &[[Self; LANES]], rest: &[Self]) -> [f64; LANES];

        /// The low bits of a word.
        fn from_word(word: u64) -> Self;

        /// The value of a float.
        fn to_float(self) -> f64;

        /// The nearest float.
        fn from_float(float: f64) -> Self;
    }

    macro_rules! word {
        ($word:ident, $signed:ident, $float:ident, $maximum:path, $minimum:path) => {
            impl Word for $word {
                fn identity(op: Accumulate) -> Self {
                    match op {
                        Accumulate::AddF => (-0.0 as $float).to_bits(),
                        Accumulate::MultiplyF => (1.0 as $float).to_bits(),
                        Accumulate::MaximumF => $float::NEG_INFINITY.to_bits(),
                        Accumulate::MinimumF => $float::INFINITY.to_bits(),
                        Accumulate::Multiply => 1,
                        Accumulate::MaximumS => $signed::MIN as $word,
                        Accumulate::MinimumS => $signed::MAX as $word,
                        Accumulate::MinimumU | Accumulate::And => $word::MAX,
                        Accumulate::Add
                        | Accumulate::MaximumU
                        | Accumulate::Or
                        | Accumulate::Xor => 0,
                    }
                }

                #[inline(always)]
                fn accumulate(op: Accumulate, out: &mut [Self], x: &[Self]) {
                    macro_rules! each {
                        ($f:expr) => {
                            for (out, x) in out.iter_mut().zip(x) {
                                *out = $f(*out, *x);
                            }
                        };
                    }
                    #[inline(always)]
                    fn float(
                        f: impl Fn($float, $float) -> $float,
                    ) -> impl Fn($word, $word) -> $word {
                        move |x, y| f($float::from_bits(x), $float::from_bits(y)).to_bits()
                    }
                    match op {
                        Accumulate::AddF => each!(float(|x, y| x + y)),
                        Accumulate::MultiplyF => each!(float(|x, y| x * y)),
                        Accumulate::MaximumF => each!(float($maximum)),
                        Accumulate::MinimumF => each!(float($minimum)),
                        Accumulate::Add => each!($word::wrapping_add),
                        Accumulate::Multiply => each!($word::wrapping_mul),
                        Accumulate::MaximumS => {
                            each!(|x, y| (x as $signed).max(y as $signed) as $word);
                        }
                        Accumulate::MinimumS => {
                            each!(|x, y| (x as $signed).min(y as $signed) as $word);
                        }
                        Accumulate::MaximumU => each!($word::max),
                        Accumulate::MinimumU => each!($word::min),
                        Accumulate::And => each!(|x, y| x & y),
                        Accumulate::Or => each!(|x, y| x | y),
                        Accumulate::Xor => each!(|x, y| x ^ y),
                    }
                }

                #[inline(always)]
                fn add_lanes(parts: &[[Self; LANES]], rest: &[Self]) -> [f64; LANES] {
                    let mut lanes = [-0.0; LANES];
                    for part in parts {
                        for (lane, &x) in lanes.iter_mut().zip(part) {
                            *lane += $float::from_bits(x);
                        }
                    }
                    for (lane, &x) in lanes.iter_mut().zip(rest) {
                        *lane += $float::from_bits(x);
                    }
                    let mut wide = [0.0; LANES];
                    for (wide, lane) in wide.iter_mut().zip(lanes) {
                        *wide = lane.into();
                    }
                    wide
                }

                #[inline(always)]
                fn from_word(word: u64) -> Self {
                    word as $word
                }

                #[inline(always)]
                fn to_float(self) -> f64 {
                    $float::from_bits(self).into()
                }

                #[inline(always)]
                fn from_float(float: f64) -> Self {
                    (float as $float).to_bits()
                }
            }
        };
    }

    word!(u32, i32, f32, math::maximum, math::minimum);
    word!(u64, i64, f64, math::double::maximum, math::double::minimum);
}
