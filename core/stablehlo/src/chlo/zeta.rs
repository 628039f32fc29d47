//! The Hurwitz zeta function, polygamma functions, and a Bessel function.

use super::{
    builder::Value,
    elementary::odd,
    gamma::{digamma, lgamma},
};

/// Terms of the sum that are added one by one.
const TERMS: u32 = 10;

/// `ζ(x, q)`, the sum of `(q + n)^-x`, by the Euler-Maclaurin formula (S. L. Moshier, Cephes
/// Mathematical Library, `zeta.c`). Infinite for x = 1 and where a term is; NaN for x below 1, and
/// for negative q.
pub(super) fn zeta<'b>(x: Value<'b>, q: Value<'b>) -> Value<'b> {
    let last = q + f64::from(TERMS - 1);
    let power = last.pow(-x);
    let sum = (0..TERMS - 1).fold(x.constant(0.0), |sum, n| sum + (q + f64::from(n)).pow(-x));
    let mut sum = sum + (last * power / (x - 1.0) + power * 0.5);
    // Beyond the bound, the power is 0.
    let bounded = x.min(x.constant(1e3));
    let mut factor = power * bounded / last;
    for (index, &divisor) in EULER_MACLAURIN.iter().enumerate() {
        sum = sum + factor / divisor;
        let n = 2.0 * index as f64 + 1.0;
        factor = factor * ((bounded + n) / last) * ((bounded + (n + 1.0)) / last);
    }
    let [infinity, nan] = [f64::INFINITY, f64::NAN].map(|value| x.constant(value));
    let sum = q.eq(0.0).select(infinity, sum);
    let sum = x.eq(1.0).select(infinity, sum);
    let both = x + q;
    let is_nan = x.lt(1.0).or(q.lt(0.0)).or(both.ne(both));
    is_nan.select(nan, sum)
}

/// The derivative of order `n` of digamma: `(-1)^(n + 1) n! ζ(n + 1, x)`. NaN for an order that is
/// not a natural number, and from order 1 on for negative x.
pub(super) fn polygamma<'b>(n: Value<'b>, x: Value<'b>) -> Value<'b> {
    let order = n.max(n.constant(1.0));
    let factorial = lgamma(order + 1.0).exp();
    let half = n * 0.5;
    let is_even = half.floor().eq(half);
    let size = factorial * zeta(order + 1.0, x);
    let value = is_even.select(-size, size);
    let value = n.eq(0.0).select(digamma(x), value);
    let is_order = n.floor().eq(n).and(n.ge(0.0));
    is_order.select(value, n.constant(f64::NAN))
}

/// `e^-|x| I₁(x)` (S. L. Moshier, Cephes Mathematical Library, `i1.c`).
pub(super) fn bessel_i1e(x: Value<'_>) -> Value<'_> {
    odd(x, |size| {
        let near = size.min(x.constant(8.0));
        let far = size.max(x.constant(8.0));
        size.le(8.0).select(
            near * chebyshev(near * 0.5 - 2.0, &BESSEL_NEAR),
            chebyshev(32.0 / far - 2.0, &BESSEL_FAR) / far.sqrt(),
        )
    })
}

/// A Chebyshev series in `x / 2`, highest order first, by Clenshaw's recurrence.
fn chebyshev<'b>(x: Value<'b>, coefficients: &[f64]) -> Value<'b> {
    let zero = x.constant(0.0);
    let (mut last, mut before, mut two_before) = (zero, zero, zero);
    for &coefficient in coefficients {
        (two_before, before) = (before, last);
        last = x * before - two_before + coefficient;
    }
    (last - two_before) * 0.5
}

/// `(2 k)! / B(2 k)` of Bernoulli's numbers, from k = 1 on.
const EULER_MACLAURIN: [f64; 12] = [
    12.0,
    -720.0,
    30_240.0,
    -1_209_600.0,
    47_900_160.0,
    -1.892_437_580_318_379e9,
    7.472_424_96e10,
    -2.950_130_727_918_164e12,
    1.164_678_281_435_006_7e14,
    -4.597_978_722_407_472e15,
    1.815_210_540_194_354_7e17,
    -7.166_165_256_175_667e18,
];

/// Chebyshev coefficients of `e^-x I₁(x) / x` on [0, 8].
const BESSEL_NEAR: [f64; 29] = [
    2.777_914_112_761_046_4e-18,
    -2.111_421_214_358_166e-17,
    1.553_631_957_736_200_5e-16,
    -1.105_596_947_735_386_2e-15,
    7.600_684_294_735_408e-15,
    -5.042_185_504_727_912e-14,
    3.223_793_365_945_575e-13,
    -1.983_974_397_764_943_6e-12,
    1.173_618_629_889_090_1e-11,
    -6.663_489_723_502_027e-11,
    3.625_590_281_552_117e-10,
    -1.887_249_751_722_829_4e-09,
    9.381_537_386_495_773e-09,
    -4.445_059_128_796_328e-08,
    2.003_294_753_552_135_3e-07,
    -8.568_720_264_695_455e-07,
    3.470_251_308_137_678_5e-06,
    -1.327_316_365_603_943_6e-05,
    4.781_565_107_550_054e-05,
    -0.000_161_760_815_825_896_74,
    0.000_512_285_956_168_575_8,
    -0.001_513_572_450_631_253_2,
    0.004_156_422_944_312_888,
    -0.010_564_084_894_626_197,
    0.024_726_449_030_626_516,
    -0.052_945_981_208_094_99,
    0.102_643_658_689_847_1,
    -0.176_416_518_357_834_06,
    0.252_587_186_443_633_65,
];

/// Chebyshev coefficients of `e^-x I₁(x) √x` from 8 on.
const BESSEL_FAR: [f64; 25] = [
    7.517_296_310_842_105e-18,
    4.414_348_323_071_708e-18,
    -4.650_305_368_489_358_6e-17,
    -3.209_525_921_993_424e-17,
    2.962_628_997_645_95e-16,
    3.308_202_310_920_928_5e-16,
    -1.880_354_775_510_782_5e-15,
    -3.814_403_072_437_007_5e-15,
    1.042_027_698_412_880_2e-14,
    4.272_440_016_711_951e-14,
    -2.101_541_842_772_664_3e-14,
    -4.083_551_111_092_197_4e-13,
    -7.198_551_776_245_908e-13,
    2.035_628_544_147_089_6e-12,
    1.412_580_743_661_378_2e-11,
    3.252_603_583_015_488_4e-11,
    -1.897_495_812_350_541_3e-11,
    -5.589_743_462_196_584e-10,
    -3.835_380_385_964_237e-09,
    -2.631_468_846_889_519_6e-08,
    -2.512_236_237_870_209e-07,
    -3.882_564_808_877_691e-06,
    -0.000_110_588_938_762_623_71,
    -0.009_761_097_491_361_469,
    0.778_576_235_018_280_1,
];
