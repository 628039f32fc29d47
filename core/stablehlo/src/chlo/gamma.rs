//! The logarithm of the gamma function, and its derivative.

use std::f64::consts::PI;

use super::builder::Value;

/// Where the gamma function is least, from 0 on.
const LEAST: f64 = 1.461_632_144_968_362_2;

/// The value of lgamma there, and what that lacks.
const VALUE_AT_LEAST: f64 = -0.121_486_290_535_849_61;
const REST_AT_LEAST: f64 = 3.638_676_997_039_505e-18;

/// `(ln(2 π) - 1) / 2`
const STIRLING: f64 = 0.418_938_533_204_672_7;

/// `ln |Γ(x)|`, by the ranges and polynomials of fdlibm's `e_lgamma_r.c` (Sun Microsystems, 1993),
/// so that it is exact around its zeros 1 and 2.
pub(super) fn lgamma(x: Value<'_>) -> Value<'_> {
    let size = x.abs();
    let two = size.constant(2.0);
    let eight = size.constant(8.0);
    let near = below_two(size.min(two));
    let middle = below_eight(size.max(two).min(eight));
    let far = from_eight(size.max(eight));
    let positive = size.lt(2.0).select(near, size.lt(8.0).select(middle, far));
    // Γ(x) Γ(-x) = -π / (x sin(π x)), whose sine is 0 at the poles.
    let fraction = reflected_fraction(x).abs();
    let sine = (fraction * PI).sin().ln() - PI.ln();
    // π times a subnormal number is rounded.
    let sine = fraction.lt(1e-10).select(fraction.ln(), sine);
    let reflected = -(sine + size.ln()) - positive;
    let infinity = size.constant(f64::INFINITY);
    let is_pole = fraction.eq(0.0).or(size.eq(infinity));
    x.lt(0.0)
        .select(is_pole.select(infinity, reflected), positive)
}

/// On [0, 2]. Up to 0.9 it is that of x + 1, less ln(x).
fn below_two(x: Value<'_>) -> Value<'_> {
    let low = x.le(0.9);
    let shifted = |at: f64| low.select(x.constant(at - 1.0), x.constant(at));
    let y = shifted(2.0) - x;
    let square = y * y;
    let even = square.polynomial(&NEAR_TWO_EVEN);
    let odd = square * square.polynomial(&NEAR_TWO_ODD);
    let near_two = (y * even + odd) - y * 0.5;
    let y = x - shifted(LEAST);
    let cube = y * y * y;
    let [first, second, third] =
        [&LEAST_0, &LEAST_1, &LEAST_2].map(|coefficients| cube.polynomial(coefficients));
    let near_least = (y * y) * first + (cube * (second + y * third) + REST_AT_LEAST);
    let near_least = near_least + VALUE_AT_LEAST;
    let y = x - shifted(1.0);
    let ratio = y.polynomial(&NEAR_ONE_NUMERATOR) / y.polynomial(&NEAR_ONE_DENOMINATOR);
    let near_one = y * ratio - y * 0.5;
    let is_near_two = x.ge(low.select(x.constant(0.7316), x.constant(1.7316)));
    let is_near_least = x.ge(low.select(x.constant(0.231_64), x.constant(1.231_64)));
    let of_shifted = is_near_two.select(near_two, is_near_least.select(near_least, near_one));
    low.select(of_shifted - x.ln(), of_shifted)
}

/// On [2, 8]: `lgamma(n + y) = ln((n - 1 + y) .. (2 + y)) + lgamma(2 + y)`.
fn below_eight(x: Value<'_>) -> Value<'_> {
    let y = x - x.floor();
    let one = x.constant(1.0);
    let product = (3..8).fold(one, |product, n| {
        let n = f64::from(n);
        product * x.ge(n).select(y + (n - 1.0), one)
    });
    let ratio = y.polynomial(&MIDDLE_NUMERATOR) / y.polynomial(&MIDDLE_DENOMINATOR);
    (y * 0.5 + y * ratio) + product.ln()
}

/// From 8 on, by Stirling's formula.
fn from_eight(x: Value<'_>) -> Value<'_> {
    let inverse = 1.0 / x;
    let correction = inverse * (inverse * inverse).polynomial(&FAR);
    (x - 0.5) * (x.ln() - 1.0) + (correction + STIRLING)
}

/// The derivative of lgamma: from 10 on its asymptotic series, below by `ψ(x) = ψ(x + 10) - 1 / x -
/// .. - 1 / (x + 9)`, of negative numbers by `ψ(x) = ψ(1 - x) - π / tan(π x)`.
pub(super) fn digamma(x: Value<'_>) -> Value<'_> {
    let negative = x.lt(0.0);
    let positive = negative.select(1.0 - x, x);
    let small = positive.min(x.constant(10.0));
    let sum = (1..10).fold(1.0 / small, |sum, n| sum + 1.0 / (small + f64::from(n)));
    let is_small = positive.lt(10.0);
    let zero = x.constant(0.0);
    let large = positive + is_small.select(x.constant(10.0), zero);
    let inverse = 1.0 / large;
    let square = inverse * inverse;
    let series = square * square.polynomial(&DIGAMMA);
    let value = (large.ln() - inverse * 0.5) - series;
    let value = value - is_small.select(sum, zero);
    let fraction = reflected_fraction(x);
    let reflected = value - PI / (fraction * PI).tan();
    let nan = x.constant(f64::NAN);
    let reflected = fraction.eq(0.0).select(nan, reflected);
    negative.select(reflected, value)
}

/// How far a negative number is from the nearest integer, of which sines and tangents of π x
/// depend. Positive numbers, which need none, get one with finite results and derivatives.
fn reflected_fraction(x: Value<'_>) -> Value<'_> {
    x.lt(0.0).select(x - x.round(), x.constant(0.25))
}

/// `B(2 k) / (2 k)` of Bernoulli's numbers, highest power first.
const DIGAMMA: [f64; 7] = [
    1.0 / 12.0,
    -691.0 / 32_760.0,
    1.0 / 132.0,
    -1.0 / 240.0,
    1.0 / 252.0,
    -1.0 / 120.0,
    1.0 / 12.0,
];

/// Even powers of `lgamma(2 - y) - y / 2`, in y².
const NEAR_TWO_EVEN: [f64; 6] = [
    2.521_445_654_512_573_3e-05,
    0.000_220_862_790_713_908_39,
    0.001_192_707_631_833_620_7,
    0.007_385_550_860_814_029,
    0.067_352_301_053_129_27,
    0.077_215_664_901_532_87,
];

/// Odd powers, in y².
const NEAR_TWO_ODD: [f64; 6] = [
    4.486_409_496_189_151_6e-05,
    0.000_108_011_567_247_583_94,
    0.000_510_069_792_153_511_3,
    0.002_890_513_836_734_156_3,
    0.020_580_808_432_516_733,
    0.322_467_033_424_113_6,
];

/// Around the least value of lgamma: every third power, in y³.
const LEAST_0: [f64; 5] = [
    0.000_315_632_070_903_625_95,
    -0.001_403_464_699_892_328_4,
    0.006_100_538_702_462_913,
    -0.032_788_541_075_985_965,
    0.483_836_122_723_810_05,
];

/// The next powers.
const LEAST_1: [f64; 5] = [
    -0.000_312_754_168_375_120_86,
    0.000_881_081_882_437_654,
    -0.003_684_520_167_811_382_6,
    0.017_970_675_081_182_04,
    -0.147_587_722_994_593_9,
];

/// The next powers.
const LEAST_2: [f64; 5] = [
    0.000_335_529_192_635_519_1,
    -0.000_538_595_305_356_740_5,
    0.002_259_647_809_006_124_7,
    -0.010_314_224_129_834_144,
    0.064_624_940_239_133_39,
];

/// Numerator of `lgamma(1 + y) + y / 2`, over y.
const NEAR_ONE_NUMERATOR: [f64; 6] = [
    0.013_381_091_853_678_766,
    0.228_963_728_064_692_45,
    0.977_717_527_963_372_7,
    1.454_922_501_372_347_7,
    0.632_827_064_025_093_4,
    -0.077_215_664_901_532_87,
];

/// Its denominator.
const NEAR_ONE_DENOMINATOR: [f64; 6] = [
    0.003_217_092_422_824_239,
    0.104_222_645_593_369_13,
    0.769_285_150_456_672_8,
    2.128_489_763_798_934,
    2.455_977_937_130_411_3,
    1.0,
];

/// Numerator of `lgamma(2 + y) - y / 2`, over y.
const MIDDLE_NUMERATOR: [f64; 7] = [
    3.194_753_265_841_009e-05,
    0.001_840_284_514_073_377_2,
    0.026_642_270_303_363_86,
    0.146_350_472_652_464_45,
    0.325_778_796_408_931,
    0.214_982_415_960_608_85,
    -0.077_215_664_901_532_87,
];

/// Its denominator.
const MIDDLE_DENOMINATOR: [f64; 7] = [
    7.326_684_307_446_256e-06,
    0.000_777_942_496_381_893_6,
    0.018_645_919_171_565_29,
    0.171_933_865_632_803_08,
    0.721_935_547_567_138_1,
    1.392_005_334_676_210_5,
    1.0,
];

/// Corrections of Stirling's formula over 1 / x, in 1 / x².
const FAR: [f64; 6] = [
    -0.001_630_929_340_965_752_7,
    0.000_836_339_918_996_282_1,
    -0.000_595_187_557_450_34,
    0.000_793_650_558_643_019_6,
    -0.002_777_777_777_287_755_4,
    0.083_333_333_333_332_97,
];
