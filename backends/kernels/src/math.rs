//! Transcendental functions of `f32` that compilers vectorize.
//!
//! All but [`exp_of_negative`] compute in `f64` by polynomials whose error is far below the
//! rounding of the result: it is within 0.51 units in the last place. Those that end in `_wide`
//! have the result before it is rounded. Functions of `f64` are in [`double`].

pub(crate) mod double;

/// A polynomial for `(exp(r) - 1) / r`, highest power first. For `|r| <= ln(2) / 2` its relative
/// error is at most 2.4e-10.
const EXP: [f64; 7] = [
    1.984_125_123_598_623e-4,
    1.394_102_789_051_470_4e-3,
    8.333_402_959_921_238e-3,
    0.041_666_354_174_779_68,
    0.166_666_662_490_704_94,
    0.500_000_004_671_372,
    1.000_000_000_031_252,
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
    let r = x - power * std::f64::consts::LN_2;
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

/// A polynomial in `|x| / 2 - 1` for `-ln(1 - erf(x)) / |x|`, highest power first. Up to 4 the
/// relative error of `erf` by it is at most 1e-10.
const ERF: [f64; 12] = [
    -2.166_539_853_096_862_7e-4,
    -8.367_604_106_952_865e-4,
    -4.783_552_026_494_012e-4,
    -2.196_525_333_069_53e-4,
    3.744_302_911_647_586e-4,
    1.540_581_525_974_497_3e-3,
    -5.669_699_050_478_105e-3,
    0.017_354_706_413_477_54,
    -0.045_957_960_791_240_25,
    0.111_811_761_941_951,
    1.735_690_348_110_887_2,
    2.682_470_639_421_323,
];

#[inline(always)]
pub(crate) fn erf_wide(x: f64) -> f64 {
    // Beyond 4 the result differs from 1 by less than `f32` can have.
    let magnitude = x.abs();
    let magnitude = if magnitude > 4.0 { 4.0 } else { magnitude };
    let t = magnitude * 0.5 - 1.0;
    let mut sum = ERF[0];
    for coefficient in &ERF[1..] {
        sum = sum * t + coefficient;
    }
    let (scale, rest) = exp_parts(-(magnitude * sum));
    ((1.0 - scale) - scale * rest).copysign(x)
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
