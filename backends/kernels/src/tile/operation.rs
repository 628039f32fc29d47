//! Operations on tiles, a loop for each.
//!
//! All of a loop has to be inlined into the function that has the vector instructions of the
//! processor: what the compiler leaves as a function of its own has those of the oldest processor.
//! So the loops have no `for_each`, and closures of long functions say that they are inlined, which
//! is written where one is an argument.

use std::convert::identity;

use crate::narrow::{
    from_bf16, from_f16, odd_from, round_bf16, round_f16, to_bf16, to_f16, to_odd,
};

/// The types of words of one width, which operations name alike for both.
macro_rules! width {
    ($width:ident, $unsigned:ident, $signed:ident, $float:ident, $math:path) => {
        mod $width {
            use std::convert::identity;

            pub(super) use $math as math;

            pub(super) type U = $unsigned;
            pub(super) type S = $signed;
            pub(super) type F = $float;

            #[inline(always)]
            pub(super) fn float(word: U) -> F {
                F::from_bits(word)
            }

            #[inline(always)]
            pub(super) fn float1(f: impl Fn(F) -> F) -> impl Fn(U) -> U {
                identity(
                    #[inline(always)]
                    move |x| f(float(x)).to_bits(),
                )
            }

            /// As [`float1`], computed in `f64` and rounded once.
            #[inline(always)]
            pub(super) fn float1_in_f64(f: impl Fn(f64) -> f64) -> impl Fn(U) -> U {
                float1(
                    #[inline(always)]
                    move |x| f(x as f64) as F,
                )
            }

            #[inline(always)]
            pub(super) fn float2(f: impl Fn(F, F) -> F) -> impl Fn(U, U) -> U {
                identity(
                    #[inline(always)]
                    move |x, y| f(float(x), float(y)).to_bits(),
                )
            }

            /// An integer that is ordered as all floats are, NaNs included.
            #[inline(always)]
            pub(super) fn total(word: U) -> S {
                let negative = (word as S >> (U::BITS - 1)) as U;
                (word ^ (negative >> 1)) as S
            }

            /// A float rounded to a format of fewer bits, given as those of its exponent times 256
            /// and those of its mantissa: to nearest, ties to even. What is too large is infinite,
            /// what is below the normal numbers 0, if the exponent has fewer bits.
            #[inline(always)]
            pub(super) fn reduce_precision(x: U, format: U) -> U {
                const MANTISSA: u32 = F::MANTISSA_DIGITS - 1;
                const EXPONENT: u32 = U::BITS - 1 - MANTISSA;
                const INFINITY: U = F::INFINITY.to_bits();
                let (exponent, mantissa) = ((format >> 8) as u32, (format & 0xff) as u32);
                let sign = x & (1 << (U::BITS - 1));
                let magnitude = x ^ sign;
                let dropped = MANTISSA - mantissa;
                // A carry moves on to the exponent.
                let odd = magnitude >> dropped & 1;
                let half = (1 as U) << dropped >> 1;
                let rounded = magnitude.wrapping_add(half.wrapping_sub(1).wrapping_add(odd));
                let rounded = rounded >> dropped << dropped;
                let rounded = if dropped == 0 { magnitude } else { rounded };
                let bias = |exponent: u32| ((1 as U) << (exponent - 1)) - 1;
                let code = rounded >> MANTISSA;
                let is_less = exponent < EXPONENT;
                let is_large = is_less && code > bias(EXPONENT) + bias(exponent);
                let is_small = is_less && code <= bias(EXPONENT) - bias(exponent);
                let rounded = if is_large { INFINITY } else { rounded };
                let rounded = if is_small { 0 } else { rounded };
                if magnitude >= INFINITY {
                    x
                } else {
                    sign | rounded
                }
            }

            /// All bits are 1 for a quotient by 0, as in XLA.
            #[inline(always)]
            pub(super) fn divide_signed(x: U, y: U) -> U {
                if y == 0 {
                    U::MAX
                } else {
                    (x as S).wrapping_div(y as S) as U
                }
            }

            #[inline(always)]
            pub(super) fn remainder_signed(x: U, y: U) -> U {
                if y == 0 {
                    x
                } else {
                    (x as S).wrapping_rem(y as S) as U
                }
            }

            #[inline(always)]
            pub(super) fn power_unsigned(x: U, y: U) -> U {
                let (mut result, mut square, mut left): (U, U, U) = (1, x, y);
                while left > 0 {
                    if left & 1 == 1 {
                        result = result.wrapping_mul(square);
                    }
                    square = square.wrapping_mul(square);
                    left >>= 1;
                }
                result
            }

            /// That of a negative exponent is 0 but for the bases 1 and -1.
            #[inline(always)]
            pub(super) fn power_signed(x: U, y: U) -> U {
                let is_one = x == 1 || x == U::MAX;
                if (y as S) < 0 && !is_one {
                    0
                } else {
                    power_unsigned(x, if is_one { y & 1 } else { y })
                }
            }
        }
    };
}

width!(w32, u32, i32, f32, crate::math);
width!(w64, u64, i64, f64, crate::math::double);

/// An enumeration of operations, and a function for each width with a loop for each.
macro_rules! operations {
    ($(#[$doc:meta])* $name:ident($x:ident $(, $y:ident)?) {
        $($variant:ident: $f:expr,)*
    } $functions:tt) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[allow(missing_docs, reason = "the names are operation and type")]
        pub enum $name { $($variant),* }

        operations!(@functions $name ($x $(, $y)?) [$($variant: $f,)*] $functions);
    };
    (@functions $name:ident $operands:tt $variants:tt {
        $($apply:ident($width:ident): $from:ident => $to:ident,)*
    }) => {
        $(operations!(@function $name $operands $variants $apply $width $from $to);)*
    };
    (@function $name:ident ($x:ident) [$($variant:ident: $f:expr,)*]
        $apply:ident $width:ident $from:ident $to:ident) => {
        #[inline(always)]
        pub(super) fn $apply(op: $name, out: &mut [$to], $x: &[$from]) {
            #[allow(clippy::wildcard_imports, unused_imports, reason = "operations differ")]
            use $width::*;
            match op {
                $($name::$variant => {
                    let f = $f;
                    let x = &$x[..out.len()];
                    for (out, x) in out.iter_mut().zip(x) {
                        *out = f(*x);
                    }
                })*
            }
        }
    };
    (@function $name:ident ($x:ident, $y:ident) [$($variant:ident: $f:expr,)*]
        $apply:ident $width:ident $from:ident $to:ident) => {
        #[inline(always)]
        pub(super) fn $apply(op: $name, out: &mut [$to], $x: &[$from], $y: &[$from]) {
            #[allow(clippy::wildcard_imports, unused_imports, reason = "operations differ")]
            use $width::*;
            match op {
                $($name::$variant => {
                    let f = $f;
                    let (x, y) = (&$x[..out.len()], &$y[..out.len()]);
                    for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
                        *out = f(*x, *y);
                    }
                })*
            }
        }
    };
}

operations! {
    /// Operations on one register, with a result of its width. `F`: on floats, `S` and `U`: on
    /// signed and unsigned integers.
    Unary(x) {
        AbsF: float1(F::abs),
        NegateF: float1(|x| -x),
        SignF: float1(math::sign),
        Exp: float1(math::exp),
        ExpM1: float1(math::exp_m1),
        Log: float1(math::log),
        Log1P: float1(math::log_1p),
        Tanh: float1(math::tanh),
        Logistic: float1(math::logistic),
        Sqrt: float1(F::sqrt),
        Rsqrt: float1_in_f64(crate::math::rsqrt_wide),
        Floor: float1(F::floor),
        Ceil: float1(F::ceil),
        RoundEven: float1(F::round_ties_even),
        RoundAway: float1(F::round),
        Cos: float1_in_f64(f64::cos),
        Sin: float1_in_f64(f64::sin),
        Tan: float1_in_f64(f64::tan),
        Cbrt: float1_in_f64(f64::cbrt),
        Erf: float1(math::erf),
        IsFinite: |x: U| U::from(float(x).is_finite()),
        AbsS: |x: U| (x as S).wrapping_abs() as U,
        NegateS: U::wrapping_neg,
        SignS: |x: U| (x as S).signum() as U,
        Not: |x: U| !x,
        Popcnt: |x: U| x.count_ones() as U,
        LeadingZeros: |x: U| x.leading_zeros() as U,
        FloatFromS: |x: U| (x as S as F).to_bits(),
        FloatFromU: |x: U| (x as F).to_bits(),
        SFromFloat: |x: U| float(x) as S as U,
        UFromFloat: |x: U| float(x) as U,
    } {
        unary(w32): u32 => u32,
        unary_wide(w64): u64 => u64,
    }
}

operations! {
    /// Operations on two registers of one width, with a result of the same. `F`: on floats, `S` and
    /// `U`: on signed and unsigned integers. `ReducePrecision` rounds the floats of the first to
    /// formats, `256 * exponent bits + mantissa bits`, which the second has as integers: at most
    /// those of the float.
    Binary(x, y) {
        AddF: float2(|x, y| x + y),
        SubtractF: float2(|x, y| x - y),
        MultiplyF: float2(|x, y| x * y),
        DivideF: float2(|x, y| x / y),
        RemainderF: float2(|x, y| x % y),
        MaximumF: float2(math::maximum),
        MinimumF: float2(math::minimum),
        PowerF: float2(math::power),
        Atan2F: float2(math::atan2),
        ReducePrecision: reduce_precision,
        Add: U::wrapping_add,
        Subtract: U::wrapping_sub,
        Multiply: U::wrapping_mul,
        DivideS: divide_signed,
        DivideU: |x: U, y: U| x.checked_div(y).unwrap_or(U::MAX),
        RemainderS: remainder_signed,
        RemainderU: |x: U, y: U| x.checked_rem(y).unwrap_or(x),
        PowerS: power_signed,
        PowerU: power_unsigned,
        MaximumS: |x: U, y: U| (x as S).max(y as S) as U,
        MinimumS: |x: U, y: U| (x as S).min(y as S) as U,
        MaximumU: |x: U, y: U| x.max(y),
        MinimumU: |x: U, y: U| x.min(y),
        And: |x: U, y: U| x & y,
        Or: |x: U, y: U| x | y,
        Xor: |x: U, y: U| x ^ y,
        ShiftLeft: |x: U, y: U| {
            let by = y & U::from(U::BITS - 1);
            if y == by { x << by } else { 0 }
        },
        ShiftRightLogical: |x: U, y: U| {
            let by = y & U::from(U::BITS - 1);
            if y == by { x >> by } else { 0 }
        },
        ShiftRightArithmetic: |x: U, y: U| (x as S >> y.min(U::from(U::BITS - 1))) as U,
    } {
        binary(w32): u32 => u32,
        binary_wide(w64): u64 => u64,
    }
}

operations! {
    /// Comparisons of two registers of one width, with a result of 0 or 1. `F`: of floats, `Total`:
    /// of floats in their total order, `S` and `U`: of signed and unsigned integers.
    Compare(x, y) {
        EqualF: |x: U, y: U| u32::from(float(x) == float(y)),
        NotEqualF: |x: U, y: U| u32::from(float(x) != float(y)),
        LessF: |x: U, y: U| u32::from(float(x) < float(y)),
        LessEqualF: |x: U, y: U| u32::from(float(x) <= float(y)),
        LessTotal: |x: U, y: U| u32::from(total(x) < total(y)),
        LessEqualTotal: |x: U, y: U| u32::from(total(x) <= total(y)),
        Equal: |x: U, y: U| u32::from(x == y),
        NotEqual: |x: U, y: U| u32::from(x != y),
        LessS: |x: U, y: U| u32::from((x as S) < y as S),
        LessEqualS: |x: U, y: U| u32::from(x as S <= y as S),
        LessU: |x: U, y: U| u32::from(x < y),
        LessEqualU: |x: U, y: U| u32::from(x <= y),
    } {
        compare(w32): u32 => u32,
        compare_wide(w64): u64 => u32,
    }
}

#[inline(always)]
fn odd1(f: impl Fn(f64) -> f64) -> impl Fn(u32) -> u32 {
    identity(
        #[inline(always)]
        move |x| to_odd(f(f32::from_bits(x).into())).to_bits(),
    )
}

#[inline(always)]
fn odd2(f: impl Fn(f64, f64) -> f64) -> impl Fn(u32, u32) -> u32 {
    identity(
        #[inline(always)]
        move |x, y| to_odd(f(f32::from_bits(x).into(), f32::from_bits(y).into())).to_bits(),
    )
}

operations! {
    /// Functions of one register of floats of 32 bits, rounded to odd: rounded to 16 bits
    /// afterwards, the result is rounded once.
    Odd(x) {
        Exp: odd1(math::exp_wide),
        ExpM1: odd1(math::exp_m1_wide),
        Log: odd1(math::log_wide),
        Log1P: odd1(math::log_1p_wide),
        Tanh: odd1(math::tanh_wide),
        Logistic: odd1(math::logistic_wide),
        Rsqrt: odd1(math::rsqrt_wide),
        Cos: odd1(f64::cos),
        Sin: odd1(f64::sin),
        Tan: odd1(f64::tan),
        Cbrt: odd1(f64::cbrt),
        Erf: odd1(math::erf_wide),
    } {
        odd(w32): u32 => u32,
    }
}

operations! {
    /// Functions of two registers of floats of 32 bits, rounded to odd: rounded to 16 bits
    /// afterwards, the result is rounded once.
    OddBinary(x, y) {
        Multiply: odd2(|x, y| x * y),
        Divide: odd2(|x, y| x / y),
        Power: odd2(f64::powf),
        Atan2: odd2(f64::atan2),
    } {
        odd_binary(w32): u32 => u32,
    }
}

operations! {
    /// Conversions between types that have words of 32 bits, named by the result and the operand.
    /// `Odd`: a float, rounded to odd.
    Convert(x) {
        RoundBf16: float1(round_bf16),
        RoundF16: float1(round_f16),
        S8FromInt: |x: U| x as i8 as u32,
        U8FromInt: |x: U| x & 0xff,
        S16FromInt: |x: U| x as i16 as u32,
        U16FromInt: |x: U| x & 0xffff,
        BoolFromInt: |x: U| u32::from(x != 0),
        NotBool: |x: U| x ^ 1,
        S8FromFloat: |x: U| float(x) as i8 as u32,
        U8FromFloat: |x: U| float(x) as u8 as u32,
        S16FromFloat: |x: U| float(x) as i16 as u32,
        U16FromFloat: |x: U| float(x) as u16 as u32,
        BoolFromFloat: |x: U| u32::from(float(x) != 0.0),
        OddFromS: |x: U| to_odd((x as i32).into()).to_bits(),
        OddFromU: |x: U| to_odd(x.into()).to_bits(),
        BitsFromBf16: |x: U| u32::from(to_bf16(x)),
        BitsFromF16: |x: U| u32::from(to_f16(x)),
        Bf16FromBits: |x: U| from_bf16(x as u16),
        F16FromBits: |x: U| from_f16(x as u16),
        LeadingZeros8: |x: U| (x << 24 | 1 << 23).leading_zeros(),
        LeadingZeros16: |x: U| (x << 16 | 1 << 15).leading_zeros(),
    } {
        convert(w32): u32 => u32,
    }
}

operations! {
    /// Conversions to words of 64 bits, named by the result and the operand.
    Widen(x) {
        SFromInt: |x: u32| x as i32 as u64,
        UFromInt: u64::from,
        SFromFloat: |x: u32| f32::from_bits(x) as i64 as u64,
        UFromFloat: |x: u32| f32::from_bits(x) as u64,
        DoubleFromS: |x: u32| f64::from(x as i32).to_bits(),
        DoubleFromU: |x: u32| f64::from(x).to_bits(),
        DoubleFromFloat: |x: u32| f64::from(f32::from_bits(x)).to_bits(),
    } {
        widen(w32): u32 => u64,
    }
}

operations! {
    /// Conversions from words of 64 bits to 32, named by the result and the operand. `Odd`: a
    /// float, rounded to odd.
    Shorten(x) {
        IntFromInt: |x: U| x as u32,
        BoolFromInt: |x: U| u32::from(x != 0),
        IsFinite: |x: U| u32::from(float(x).is_finite()),
        FloatFromS: |x: U| (x as i64 as f32).to_bits(),
        FloatFromU: |x: U| (x as f32).to_bits(),
        OddFromS: |x: U| odd_from((x as i64).into()).to_bits(),
        OddFromU: |x: U| odd_from(x.into()).to_bits(),
        FloatFromDouble: |x: U| (float(x) as f32).to_bits(),
        OddFromDouble: |x: U| to_odd(float(x)).to_bits(),
        S8FromDouble: |x: U| float(x) as i8 as u32,
        U8FromDouble: |x: U| float(x) as u8 as u32,
        S16FromDouble: |x: U| float(x) as i16 as u32,
        U16FromDouble: |x: U| float(x) as u16 as u32,
        S32FromDouble: |x: U| float(x) as i32 as u32,
        U32FromDouble: |x: U| float(x) as u32,
        BoolFromDouble: |x: U| u32::from(float(x) != 0.0),
    } {
        shorten(w64): u64 => u32,
    }
}
