//! Operations on tiles, a loop for each.

use crate::math;

macro_rules! operations {
    ($(#[$doc:meta])* $name:ident, $apply:ident($x:ident $(, $y:ident)?) {
        $($variant:ident: $f:expr,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[allow(missing_docs, reason = "the names are operation and type")]
        pub enum $name { $($variant),* }

        operations!(@function $name $apply $x $($y)? [$($variant: $f,)*]);
    };
    // One loop for each operation.
    (@function $name:ident $apply:ident $x:ident [$($variant:ident: $f:expr,)*]) => {
        #[inline(always)]
        pub(super) fn $apply(op: $name, out: &mut [u32], $x: &[u32]) {
            match op {
                $($name::$variant => {
                    let f = $f;
                    out.iter_mut().zip($x).for_each(|(out, x)| *out = f(*x));
                })*
            }
        }
    };
    (@function $name:ident $apply:ident $x:ident $y:ident [$($variant:ident: $f:expr,)*]) => {
        #[inline(always)]
        pub(super) fn $apply(op: $name, out: &mut [u32], $x: &[u32], $y: &[u32]) {
            match op {
                $($name::$variant => {
                    let f = $f;
                    let operands = $x.iter().zip($y);
                    out.iter_mut().zip(operands).for_each(|(out, (x, y))| *out = f(*x, *y));
                })*
            }
        }
    };
}

#[inline(always)]
fn float(word: u32) -> f32 {
    f32::from_bits(word)
}

#[inline(always)]
fn float1(f: impl Fn(f32) -> f32) -> impl Fn(u32) -> u32 {
    move |x| f(float(x)).to_bits()
}

#[inline(always)]
fn float2(f: impl Fn(f32, f32) -> f32) -> impl Fn(u32, u32) -> u32 {
    move |x, y| f(float(x), float(y)).to_bits()
}

#[inline(always)]
fn through_f64(f: impl Fn(f64) -> f64) -> impl Fn(u32) -> u32 {
    move |x| (f(float(x).into()) as f32).to_bits()
}

operations! {
    /// Operations on one register. `F`: on floats, `S` and `U`: on signed and unsigned integers.
    Unary, unary(x) {
        AbsF: float1(f32::abs),
        NegateF: float1(|x| -x),
        SignF: float1(math::sign),
        Exp: float1(math::exp),
        ExpM1: float1(math::exp_m1),
        Log: float1(math::log),
        Log1P: float1(math::log_1p),
        Tanh: float1(math::tanh),
        Logistic: float1(math::logistic),
        Sqrt: float1(f32::sqrt),
        Rsqrt: through_f64(|x| 1.0 / x.sqrt()),
        Floor: float1(f32::floor),
        Ceil: float1(f32::ceil),
        RoundEven: float1(f32::round_ties_even),
        RoundAway: float1(f32::round),
        Cos: through_f64(f64::cos),
        Sin: through_f64(f64::sin),
        Tan: through_f64(f64::tan),
        Cbrt: through_f64(f64::cbrt),
        IsFinite: |x: u32| u32::from(float(x).is_finite()),
        AbsS: |x: u32| (x as i32).wrapping_abs() as u32,
        NegateS: |x: u32| x.wrapping_neg(),
        SignS: |x: u32| (x as i32).signum() as u32,
        SignU: |x: u32| u32::from(x != 0),
        Not: |x: u32| !x,
        NotBool: |x: u32| x ^ 1,
        Popcnt: |x: u32| x.count_ones(),
        LeadingZeros: |x: u32| x.leading_zeros(),
        FloatFromS: |x: u32| (x as i32 as f32).to_bits(),
        FloatFromU: |x: u32| (x as f32).to_bits(),
        SFromFloat: |x: u32| float(x) as i32 as u32,
        UFromFloat: |x: u32| float(x) as u32,
        S8FromFloat: |x: u32| float(x) as i8 as u32,
        U8FromFloat: |x: u32| float(x) as u8 as u32,
        BoolFromFloat: |x: u32| u32::from(float(x) != 0.0),
        BoolFromInt: |x: u32| u32::from(x != 0),
        S8FromInt: |x: u32| x as i8 as u32,
        U8FromInt: |x: u32| x & 0xff,
    }
}

operations! {
    /// Operations on two registers. `F`: on floats, `S` and `U`: on signed and unsigned integers.
    /// Comparisons are 0 or 1.
    Binary, binary(x, y) {
        AddF: float2(|x, y| x + y),
        SubtractF: float2(|x, y| x - y),
        MultiplyF: float2(|x, y| x * y),
        DivideF: float2(|x, y| x / y),
        RemainderF: float2(|x, y| x % y),
        MaximumF: float2(math::maximum),
        MinimumF: float2(math::minimum),
        PowerF: float2(|x, y| f64::from(x).powf(y.into()) as f32),
        Atan2F: float2(|x, y| f64::from(x).atan2(y.into()) as f32),
        Add: u32::wrapping_add,
        Subtract: u32::wrapping_sub,
        Multiply: u32::wrapping_mul,
        MaximumS: |x: u32, y: u32| (x as i32).max(y as i32) as u32,
        MinimumS: |x: u32, y: u32| (x as i32).min(y as i32) as u32,
        MaximumU: |x: u32, y: u32| x.max(y),
        MinimumU: |x: u32, y: u32| x.min(y),
        And: |x: u32, y: u32| x & y,
        Or: |x: u32, y: u32| x | y,
        Xor: |x: u32, y: u32| x ^ y,
        ShiftLeft: |x: u32, y: u32| if y < 32 { x << (y & 31) } else { 0 },
        ShiftRightLogical: |x: u32, y: u32| if y < 32 { x >> (y & 31) } else { 0 },
        ShiftRightArithmetic: |x: u32, y: u32| (x as i32 >> y.min(31)) as u32,
        EqualF: |x: u32, y: u32| u32::from(float(x) == float(y)),
        NotEqualF: |x: u32, y: u32| u32::from(float(x) != float(y)),
        LessF: |x: u32, y: u32| u32::from(float(x) < float(y)),
        LessEqualF: |x: u32, y: u32| u32::from(float(x) <= float(y)),
        Equal: |x: u32, y: u32| u32::from(x == y),
        NotEqual: |x: u32, y: u32| u32::from(x != y),
        LessS: |x: u32, y: u32| u32::from((x as i32) < y as i32),
        LessEqualS: |x: u32, y: u32| u32::from(x as i32 <= y as i32),
        LessU: |x: u32, y: u32| u32::from(x < y),
        LessEqualU: |x: u32, y: u32| u32::from(x <= y),
    }
}
