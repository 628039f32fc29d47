//! Transcendental functions of `f32` that compilers vectorize.
//!
//! All but [`exp_of_negative`] compute in `f64` by polynomials whose error is far below the
//! rounding of the result: it is within 0.51 units in the last place. Those that end in `_wide`
//! have the result before it is rounded. Functions of `f64` are in [`double`].

pub(crate) mod double;

/// Taylor coefficients of `(exp(r) - 1) / r`, highest power first. For `|r| <= ln(2) / 2` the
/// relative error is below 1e-11.
const EXP: [f64; 9] = [
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    1.0 / 2.0,
    1.0,
];

/// Adding it to an `f64` of at most 2^51 leaves the nearest integer in the low bits.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// `exp(x) = scale * (1 + rest)`; `x` is limited to where `f32` neither over- nor underflows.
#[inline(always)]
fn exp_parts(x: f64) -> (f64, f64) {
    let x = if x < -120.0 { -120.0 } else { x };
    let x = if x > 120.0 { 120.0 } else { x };
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let power = shifted - ROUND;
    let r = (x - power * 0.693_147_180_369_123_8) - power * 1.908_214_929_270_587_7e-10;
    let mut sum = EXP[0];
    for coefficient in &EXP[1..] {
        sum = sum * r + coefficient;
    }
    let scale = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    (scale, sum * r)
}

#[inline(always)]
pub(crate) fn exp_m1_wide(x: f64) -> f64 {
    let (scale, rest) = exp_parts(x);
    let result = (scale - 1.0) + scale * rest;
    // Zeros keep their sign.
    if x == 0.0 { x } else { result }
}

#[inline(always)]
pub(crate) fn exp_wide(x: f64) -> f64 {
    let (scale, rest) = exp_parts(x);
    scale + scale * rest
}

#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    exp_wide(x.into()) as f32
}

/// `exp(x)` of `x` that is not positive, computed in `f32`: within 2 units in the last place, and 0
/// for results below the smallest normal number. A small positive `x`, as rounding gives, is as
/// good.
#[inline(always)]
pub(crate) fn exp_of_negative(x: f32) -> f32 {
    /// Adding it to an `f32` of at most 2^22 leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln(2^-126) and ln(2^127)
    const LEAST: f32 = -87.336_54;
    const MOST: f32 = 88.0;
    let limited = if x < LEAST { LEAST } else { x };
    let limited = if limited > MOST { MOST } else { limited };
    let shifted = limited * std::f32::consts::LOG2_E + ROUND;
    let power = shifted - ROUND;
    // ln(2) in two parts, the first of few bits.
    let r = (limited - power * 0.693_359_4) + power * 2.121_944_4e-4;
    let mut sum = 1.0 / 5_040.0;
    for coefficient in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        sum = sum * r + coefficient;
    }
    let scale = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    let result = sum * scale;
    let result = if x > MOST { f32::INFINITY } else { result };
    if x < LEAST { 0.0 } else { result }
}

#[inline(always)]
pub(crate) fn exp_m1(x: f32) -> f32 {
    exp_m1_wide(x.into()) as f32
}

#[inline(always)]
pub(crate) fn tanh_wide(x: f64) -> f64 {
    // Beyond 20 the result is 1.
    let twice = 2.0 * x;
    let twice = if twice > 40.0 { 40.0 } else { twice };
    let twice = if twice < -40.0 { -40.0 } else { twice };
    let grown = exp_m1_wide(twice);
    grown / (grown + 2.0)
}

#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    tanh_wide(x.into()) as f32
}

/// The error function of a magnitude up to 0.5, by a quotient of polynomials in its square: Cody,
/// "Rational Chebyshev approximations for the error function" (1969), in the coefficients of
/// SPECFUN.
#[inline(always)]
fn erf_near_zero(x: f64) -> f64 {
    const UPPER: [f64; 3] = [
        3.161_123_743_870_565_6,
        113.864_154_151_050_16,
        377.485_237_685_302,
    ];
    const LOWER: [f64; 3] = [
        23.601_290_952_344_122,
        244.024_637_934_444_17,
        1_282.616_526_077_372_3,
    ];
    let square = x * x;
    let (mut upper, mut lower) = (0.185_777_706_184_603_15 * square, square);
    for (a, b) in UPPER.iter().zip(LOWER) {
        upper = (upper + a) * square;
        lower = (lower + b) * square;
    }
    x * (upper + 3_209.377_589_138_469_4) / (lower + 2_844.236_833_439_171)
}

/// `1 - erf(x)` for `x` between 0.46875 and 6, likewise: beyond 4 it is small against `f32`.
#[inline(always)]
fn erfc_far(x: f64) -> f64 {
    const UPPER: [f64; 7] = [
        0.564_188_496_988_670_1,
        8.883_149_794_388_377,
        66.119_190_637_141_63,
        298.635_138_197_400_1,
        881.952_221_241_769,
        1_712.047_612_634_070_7,
        2_051.078_377_826_071_6,
    ];
    const LOWER: [f64; 7] = [
        15.744_926_110_709_835,
        117.693_950_891_312_5,
        537.181_101_862_009_9,
        1_621.389_574_566_690_3,
        3_290.799_235_733_459_7,
        4_362.619_090_143_247,
        3_439.367_674_143_721_6,
    ];
    let (mut upper, mut lower) = (2.153_115_354_744_038_3e-8 * x, x);
    for (a, b) in UPPER.iter().zip(LOWER) {
        upper = (upper + a) * x;
        lower = (lower + b) * x;
    }
    let quotient = (upper + 1_230.339_354_797_997_2) / (lower + 1_230.339_354_803_749_5);
    exp_wide(-(x * x)) * quotient
}

#[inline(always)]
pub(crate) fn erf_wide(x: f64) -> f64 {
    let magnitude = x.abs();
    // Beyond 6 the result is 1.
    let limited = if magnitude > 6.0 { 6.0 } else { magnitude };
    let far = (1.0 - erfc_far(limited)).copysign(x);
    if magnitude < 0.46875 {
        erf_near_zero(x)
    } else {
        far
    }
}

#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    erf_wide(x.into()) as f32
}

#[inline(always)]
pub(crate) fn logistic_wide(x: f64) -> f64 {
    1.0 / (1.0 + exp_wide(-x))
}

#[inline(always)]
pub(crate) fn logistic(x: f32) -> f32 {
    logistic_wide(x.into()) as f32
}

/// Logarithm of a normal `f64`, of zero, infinity and NaN.
#[inline(always)]
pub(crate) fn log_wide(x: f64) -> f64 {
    // x = mantissa * 2^power, with the mantissa between sqrt(1/2) and sqrt(2).
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    let bits = x.to_bits().wrapping_sub(SQRT_HALF);
    // A signed shift by 52, by instructions that AVX2 has: the power is added to 2^52 + 2^51.
    let biased = (bits >> 52) ^ 0x800;
    let power = f64::from_bits(0x4330_0000_0000_0000 | biased) - (4_503_599_627_370_496.0 + 2048.0);
    let mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(SQRT_HALF));
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut sum = 1.0 / 15.0;
    for divisor in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        sum = sum * square + 1.0 / divisor;
    }
    let log = power * std::f64::consts::LN_2 + 2.0 * s * sum;
    let log = if x == 0.0 { f64::NEG_INFINITY } else { log };
    let log = if x < 0.0 { f64::NAN } else { log };
    if x == f64::INFINITY || x.is_nan() {
        x
    } else {
        log
    }
}

#[inline(always)]
pub(crate) fn log(x: f32) -> f32 {
    log_wide(x.into()) as f32
}

#[inline(always)]
pub(crate) fn log_1p_wide(x: f64) -> f64 {
    let series = x - x * x * (0.5 - x * (1.0 / 3.0));
    let log = log_wide(1.0 + x);
    if x.abs() < 1e-4 { series } else { log }
}

#[inline(always)]
pub(crate) fn log_1p(x: f32) -> f32 {
    log_1p_wide(x.into()) as f32
}

#[inline(always)]
pub(crate) fn rsqrt_wide(x: f64) -> f64 {
    1.0 / x.sqrt()
}

macro_rules! through_f64 {
    ($($name:ident: $f:expr,)*) => {
        $(#[inline(always)]
        pub(crate) fn $name(x: f32) -> f32 {
            $f(f64::from(x)) as f32
        })*
    };
}

through_f64! {
    rsqrt: rsqrt_wide,
    cos: f64::cos,
    sin: f64::sin,
    tan: f64::tan,
    cbrt: f64::cbrt,
}

#[inline(always)]
pub(crate) fn power(x: f32, y: f32) -> f32 {
    f64::from(x).powf(y.into()) as f32
}

#[inline(always)]
pub(crate) fn atan2(x: f32, y: f32) -> f32 {
    f64::from(x).atan2(y.into()) as f32
}

/// The larger of both; NaN if one is. Zero is larger than negative zero.
#[inline(always)]
pub(crate) fn maximum(a: f32, b: f32) -> f32 {
    let larger = if a > b || a.is_nan() { a } else { b };
    if a == b {
        f32::from_bits(a.to_bits() & b.to_bits())
    } else {
        larger
    }
}

/// The smaller of both; NaN if one is. Negative zero is smaller than zero.
#[inline(always)]
pub(crate) fn minimum(a: f32, b: f32) -> f32 {
    let smaller = if a < b || a.is_nan() { a } else { b };
    if a == b {
        f32::from_bits(a.to_bits() | b.to_bits())
    } else {
        smaller
    }
}

/// -1, 0 or 1; zeros keep their sign, NaN is NaN.
#[inline(always)]
pub(crate) fn sign(x: f32) -> f32 {
    let sign = if x > 0.0 { 1.0 } else { -1.0 };
    if x == 0.0 || x.is_nan() { x } else { sign }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units in the last place of `exact`, rounded to `f32`.
    fn ulps(value: f32, exact: f64) -> f64 {
        if exact.is_nan() {
            return if value.is_nan() { 0.0 } else { f64::INFINITY };
        }
        let rounded = exact as f32;
        if value == rounded {
            return 0.0;
        }
        let unit = f64::from(f32::from_bits(rounded.abs().to_bits() + 1) - rounded.abs());
        (f64::from(value) - exact).abs() / unit
    }

    fn check(name: &str, fast: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) {
        // Every 9973rd bit pattern: all exponents, both signs, subnormals, infinities and NaN.
        for bits in (0..=u32::MAX).step_by(9_973) {
            let x = f32::from_bits(bits);
            let error = ulps(fast(x), exact(x.into()));
            assert!(error <= 0.51, "{name}({x:e}) = {:e}: {error} ulp", fast(x));
        }
        for x in [
            0.0,
            -0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            1.0,
            -1.0,
        ] {
            let (value, rounded) = (fast(x), exact(x.into()) as f32);
            let same = value.to_bits() == rounded.to_bits() || value.is_nan() && rounded.is_nan();
            assert!(same, "{name}({x}) = {value}, not {rounded}");
        }
    }

    #[test]
    fn exp_is_rounded_correctly_to_half_an_ulp() {
        check("exp", exp, f64::exp);
    }

    #[test]
    fn exp_of_negative_is_within_two_ulps() {
        // Every 997th bit pattern of a negative number, infinity and NaN included.
        for bits in (1 << 31..=u32::MAX).step_by(997) {
            let x = f32::from_bits(bits);
            let (value, exact) = (exp_of_negative(x), f64::from(x).exp());
            let is_zero = value == 0.0 && exact < 1.2e-38;
            let error = ulps(value, exact);
            assert!(
                is_zero || error <= 2.0,
                "exp({x:e}) = {value:e}: {error} ulp"
            );
        }
        assert_eq!(exp_of_negative(0.0), 1.0);
        assert_eq!(exp_of_negative(f32::INFINITY), f32::INFINITY);
    }

    #[test]
    fn exp_m1_is_rounded_to_half_an_ulp() {
        check("exp_m1", exp_m1, f64::exp_m1);
    }

    #[test]
    fn tanh_is_rounded_to_half_an_ulp() {
        check("tanh", tanh, f64::tanh);
    }

    #[test]
    fn erf_is_rounded_to_half_an_ulp() {
        check("erf", erf, libm::erf);
    }

    #[test]
    fn logistic_is_rounded_to_half_an_ulp() {
        check("logistic", logistic, |x| 1.0 / (1.0 + (-x).exp()));
    }

    #[test]
    fn log_is_rounded_to_half_an_ulp() {
        check("log", log, f64::ln);
    }

    #[test]
    fn log_1p_is_rounded_to_half_an_ulp() {
        check("log_1p", log_1p, f64::ln_1p);
    }
}
