//! Functions that are not operations, as operations.

use std::panic::Location;

use halite_core::DType;

use crate::Tensor;

/// Giles' polynomials for `f32`: of `w - 2.5` where `w = -log(1 - x²) < 5`, else of `sqrt(w) - 3`;
/// highest power first.
const CENTRAL: [f64; 9] = [
    2.810_226_36e-8,
    3.432_739_39e-7,
    -3.523_387_7e-6,
    -4.391_506_54e-6,
    0.000_218_580_87,
    -0.001_253_725_03,
    -0.004_177_681_64,
    0.246_640_727,
    1.501_409_41,
];
const TAIL: [f64; 9] = [
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

/// The same for `f64`: of `w - 3.125` where `w < 6.25`, of `sqrt(w) - 3.25` where `w < 16`, else of
/// `sqrt(w) - 5`.
const CENTRAL_F64: [f64; 23] = [
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
    1.051_212_273_321_532_3e-9,
    -4.112_633_980_346_984e-9,
    -2.907_036_995_788_2e-8,
    4.234_787_782_793_240_4e-7,
    -1.365_469_200_083_467_9e-6,
    -1.388_252_336_278_646_9e-5,
    0.000_186_734_208_034_057_14,
    -0.000_740_702_534_166_267,
    -0.006_033_670_871_430_149,
    0.240_158_182_425_589_62,
    1.653_654_562_683_102_7,
];
const MIDDLE_F64: [f64; 19] = [
    2.213_737_692_177_578_7e-9,
    9.075_656_193_888_54e-8,
    -2.751_740_629_706_454_5e-7,
    1.823_962_921_438_922_8e-8,
    1.502_740_396_890_982_8e-6,
    -4.013_867_526_981_546e-6,
    2.923_444_908_995_544_6e-6,
    1.247_530_448_167_177_9e-5,
    -4.731_822_900_905_573_4e-5,
    6.828_485_145_957_318e-5,
    2.403_111_038_709_789_4e-5,
    -0.000_355_037_520_362_847_5,
    0.000_953_289_379_737_380_5,
    -0.001_688_275_556_023_504_7,
    0.002_491_442_096_107_851,
    -0.003_751_208_507_569_241,
    0.005_370_914_553_590_064,
    1.005_258_967_694_159_2,
    3.083_885_610_492_220_8,
];
const TAIL_F64: [f64; 17] = [
    -2.710_992_061_643_857_3e-11,
    -2.555_641_816_996_525e-10,
    1.507_657_269_350_054_8e-9,
    -3.789_465_440_126_737e-9,
    7.615_701_208_078_34e-9,
    -1.496_002_662_714_924e-8,
    2.914_795_345_090_108e-8,
    -6.771_199_775_845_234e-8,
    2.290_048_222_802_665_5e-7,
    -9.929_827_294_231_7e-7,
    4.526_062_597_223_154e-6,
    -1.968_177_810_553_167e-5,
    7.599_527_703_001_776e-5,
    -0.000_215_030_119_300_444_77,
    -0.000_138_719_318_336_231_22,
    1.010_300_464_864_534_4,
    4.849_906_401_408_584,
];

impl<'t> Tensor<'t> {
    /// The result of `function`, which computes in `f32` if this has floats of 16 bits, rounded
    /// once. Intermediate results of 16 bits would overflow (`f16`) or add up their rounding.
    pub(crate) fn widened(self, function: impl FnOnce(Tensor<'t>) -> Tensor<'t>) -> Tensor<'t> {
        match self.dtype() {
            DType::F16 | DType::Bf16 => function(self.convert(DType::F32)).convert(self.dtype()),
            _ => function(self),
        }
    }

    /// The inverse of the error function: infinite at -1 and 1, NaN beyond.
    ///
    /// Two (`f64`: three) polynomials, of Giles, "Approximating the erfinv function", 2012. 16-bit
    /// floats go through `f32`.
    #[track_caller]
    pub fn erf_inv(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        self.widened(Tensor::wide_erf_inv)
    }

    fn wide_erf_inv(self) -> Tensor<'t> {
        // Both branches see a number at which their gradient is finite where they are not selected.
        let is_end = self.abs().eq(1.0);
        let unbounded = is_end.select(self, 1.0) * f64::INFINITY;
        let x = is_end.select(self.zeros_like(), self);
        let w = -(-(x * x)).log_1p();
        // Used only where w is larger; the slope of a root at 0 is infinite.
        let root = |w: Tensor<'t>| w.maximum(1.0).sqrt();
        let finite = match self.dtype() {
            DType::F64 => {
                let root = root(w);
                let tail = w.lt(16.0).select(
                    polynomial(root - 3.25, &MIDDLE_F64),
                    polynomial(root - 5.0, &TAIL_F64),
                );
                w.lt(6.25).select(polynomial(w - 3.125, &CENTRAL_F64), tail)
            }
            _ => w.lt(5.0).select(
                polynomial(w - 2.5, &CENTRAL),
                polynomial(root(w) - 3.0, &TAIL),
            ),
        };
        is_end.select(unbounded, finite * x)
    }
}

/// Accumulation type of an element type: `f64` for `f64`, else `f32`.
pub(crate) fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// Highest power first.
fn polynomial<'t>(x: Tensor<'t>, coefficients: &[f64]) -> Tensor<'t> {
    let (ty, cx) = (x.ty(), x.trace());
    let mut sum = cx.full(coefficients[0], &ty);
    for &coefficient in &coefficients[1..] {
        sum = sum * x + cx.full(coefficient, &ty);
    }
    sum
}
