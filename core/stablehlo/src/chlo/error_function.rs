//! The error function, its complement and its inverse.

use super::builder::Value;
use crate::ElementType;

/// erf(x). Relative error in `f64`: 4e-16.
pub(super) fn erf(x: Value<'_>) -> Value<'_> {
    let Parts { center, tail } = parts(x);
    x.abs().lt(1.0).select(x * center, x.sign() * (1.0 - tail))
}

/// `1 - erf(x)`, whose tail has the relative precision of the rest.
pub(super) fn erfc(x: Value<'_>) -> Value<'_> {
    let Parts { center, tail } = parts(x);
    let tail = x.lt(0.0).select(2.0 - tail, tail);
    x.abs().lt(1.0).select(1.0 - x * center, tail)
}

/// Rational functions of S. L. Moshier, Cephes Mathematical Library, `ndtr.c`, 1992.
struct Parts<'b> {
    /// erf(x) / x where |x| is at most 1.
    center: Value<'b>,
    /// erfc(|x|) where |x| is at least 1.
    tail: Value<'b>,
}

fn parts(x: Value<'_>) -> Parts<'_> {
    let square = x.abs().min(x.constant(1.0));
    let square = square * square;
    let center = square.polynomial(&CENTER_NUMERATOR) / square.polynomial(&CENTER_DENOMINATOR);
    // Beyond the bound it is 0 in both types.
    let size = x.abs().max(x.constant(1.0)).min(x.constant(30.0));
    let middle = size.min(x.constant(8.0));
    let far = size.max(x.constant(8.0));
    let ratio = size.lt(8.0).select(
        middle.polynomial(&MIDDLE_NUMERATOR) / middle.polynomial(&MIDDLE_DENOMINATOR),
        far.polynomial(&FAR_NUMERATOR) / far.polynomial(&FAR_DENOMINATOR),
    );
    let tail = exp_of_square(size) * ratio;
    Parts { center, tail }
}

/// `e^-x²`, without the rounding error of x² in the exponent: the square of the high half of the
/// bits is exact.
fn exp_of_square(x: Value<'_>) -> Value<'_> {
    let high = match x.element() {
        ElementType::F64 => x.reduce_precision(11, 25),
        _ => x.reduce_precision(8, 11),
    };
    (-(high * high)).exp() * ((high - x) * (high + x)).exp()
}

/// Polynomials of M. Giles, Approximating the erfinv Function (2011), of `-ln(1 - x²)`.
pub(super) fn erf_inv(x: Value<'_>) -> Value<'_> {
    // 1 - x² would lose what is left near 1.
    let w = -((1.0 - x) * (1.0 + x)).ln();
    let slope = match x.element() {
        ElementType::F64 => {
            let center = (w.min(w.constant(6.25)) - 3.125).polynomial(&INVERSE_CENTER);
            let root = w.max(w.constant(6.25)).min(w.constant(40.0)).sqrt();
            let middle = (root.min(w.constant(4.0)) - 3.25).polynomial(&INVERSE_MIDDLE);
            let far = (root.max(w.constant(4.0)) - 5.0).polynomial(&INVERSE_FAR);
            w.lt(6.25).select(center, w.lt(16.0).select(middle, far))
        }
        _ => {
            let center = (w.min(w.constant(5.0)) - 2.5).polynomial(&INVERSE_CENTER_32);
            let root = w.max(w.constant(5.0)).min(w.constant(20.0)).sqrt();
            w.lt(5.0)
                .select(center, (root - 3.0).polynomial(&INVERSE_FAR_32))
        }
    };
    let [positive, negative] = [f64::INFINITY, f64::NEG_INFINITY].map(|end| x.constant(end));
    let value = x.eq(1.0).select(positive, slope * x);
    x.eq(-1.0).select(negative, value)
}

/// Numerator of erf(x) / x, in x².
const CENTER_NUMERATOR: [f64; 5] = [
    9.604_973_739_870_516,
    90.026_019_720_384_27,
    2_232.005_345_946_843,
    7_003.325_141_128_051,
    55_592.301_301_039_49,
];

/// Its denominator.
const CENTER_DENOMINATOR: [f64; 6] = [
    1.0,
    33.561_714_164_750_31,
    521.357_949_780_152_7,
    4_594.323_829_709_801,
    22_629.000_061_389_095,
    49_267.394_260_863_59,
];

/// Numerator of erfc(x) exp(x²) from 1 to 8, in x.
const MIDDLE_NUMERATOR: [f64; 9] = [
    2.461_969_814_735_305e-10,
    0.564_189_564_831_068_9,
    7.463_210_564_422_699,
    48.637_197_098_568_14,
    196.520_832_956_077_1,
    526.445_194_995_477_3,
    934.528_527_171_957_6,
    1_027.551_886_895_157_2,
    557.535_335_369_399_4,
];

/// Its denominator.
const MIDDLE_DENOMINATOR: [f64; 9] = [
    1.0,
    13.228_195_115_474_499,
    86.707_214_088_598_97,
    354.937_778_887_819_9,
    975.708_501_743_205_5,
    1_823.909_166_879_097_3,
    2_246.337_608_187_109_7,
    1_656.663_091_941_613_4,
    557.535_340_817_727_7,
];

/// The same from 8 on.
const FAR_NUMERATOR: [f64; 6] = [
    0.564_189_583_547_755_1,
    1.275_366_707_599_781,
    5.019_050_422_511_805,
    6.160_210_979_930_536,
    7.409_742_699_504_489_5,
    2.978_866_653_721_002_2,
];

/// Its denominator.
const FAR_DENOMINATOR: [f64; 7] = [
    1.0,
    2.260_528_632_201_172_6,
    9.396_035_249_380_015,
    12.048_953_980_809_666,
    17.081_445_074_756_59,
    9.608_968_090_632_859,
    3.369_076_451_000_815,
];

/// erf⁻¹(x) / x below `w` = 6.25, in `w` - 3.125.
const INVERSE_CENTER: [f64; 23] = [
    -3.644_412_064_017_82e-21,
    -1.685_059_138_182_016_6e-19,
    1.285_848_071_525_64e-18,
    1.115_787_767_802_518_1e-17,
    -1.333_171_662_854_621e-16,
    2.097_276_787_596_856_2e-17,
    6.637_638_134_358_324e-15,
    -4.054_566_272_975_207e-14,
    -8.151_934_197_605_472e-14,
    2.633_509_315_308_232_3e-12,
    -1.297_513_325_345_353_2e-11,
    -5.415_412_054_294_628e-11,
    1.051_212_273_321_532_3e-09,
    -4.112_633_980_346_984e-09,
    -2.907_036_995_788_200_5e-08,
    4.234_787_782_793_240_4e-07,
    -1.365_469_200_083_467_9e-06,
    -1.388_252_336_278_646_9e-05,
    0.000_186_734_208_034_057_14,
    -0.000_740_702_534_166_267,
    -0.006_033_670_871_430_149,
    0.240_158_182_425_589_62,
    1.653_654_562_683_102_7,
];

/// The same below `w` = 16, in `√w` - 3.25.
const INVERSE_MIDDLE: [f64; 19] = [
    2.213_737_692_177_578_7e-09,
    9.075_656_193_888_539e-08,
    -2.751_740_629_706_454_5e-07,
    1.823_962_921_438_922_8e-08,
    1.502_740_396_890_982_8e-06,
    -4.013_867_526_981_546e-06,
    2.923_444_908_995_544_6e-06,
    1.247_530_448_167_177_9e-05,
    -4.731_822_900_905_573_4e-05,
    6.828_485_145_957_318e-05,
    2.403_111_038_709_789_4e-05,
    -0.000_355_037_520_362_847_5,
    0.000_953_289_379_737_380_5,
    -0.001_688_275_556_023_504_7,
    0.002_491_442_096_107_851,
    -0.003_751_208_507_569_241,
    0.005_370_914_553_590_064,
    1.005_258_967_694_159_2,
    3.083_885_610_492_220_8,
];

/// The same from there on, in `√w` - 5.
const INVERSE_FAR: [f64; 17] = [
    -2.710_992_061_643_857_3e-11,
    -2.555_641_816_996_525e-10,
    1.507_657_269_350_054_8e-09,
    -3.789_465_440_126_737e-09,
    7.615_701_208_078_34e-09,
    -1.496_002_662_714_924e-08,
    2.914_795_345_090_108e-08,
    -6.771_199_775_845_234e-08,
    2.290_048_222_802_665_5e-07,
    -9.929_827_294_231_7e-07,
    4.526_062_597_223_154e-06,
    -1.968_177_810_553_167e-05,
    7.599_527_703_001_776e-05,
    -0.000_215_030_119_300_444_77,
    -0.000_138_719_318_336_231_22,
    1.010_300_464_864_534_4,
    4.849_906_401_408_584,
];

/// In `f32`, below `w` = 5, in `w` - 2.5.
const INVERSE_CENTER_32: [f64; 9] = [
    2.810_226_36e-08,
    3.432_739_39e-07,
    -3.523_387_7e-06,
    -4.391_506_54e-06,
    0.000_218_580_87,
    -0.001_253_725_03,
    -0.004_177_681_64,
    0.246_640_727,
    1.501_409_41,
];

/// In `f32`, from there on, in `√w` - 3.
const INVERSE_FAR_32: [f64; 9] = [
    -0.000_200_214_257,
    0.000_100_950_558,
    0.001_349_343_22,
    -0.003_673_428_44,
    0.005_739_507_73,
    -0.007_622_461_3,
    0.009_438_870_47,
    1.001_674_06,
    2.832_976_82,
];
