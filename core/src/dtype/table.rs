//! The table of element types: one row for each type, with its bits and its names elsewhere.
//! Nothing here reads or writes a format.

use super::float_format::{FloatFormat, SpecialValues};

/// Declares [`ElementType`] and [`DType`] from one row for each type.
///
/// A row is `Variant: N bits, class`, then columns; a row leaves out columns of formats that do not
/// have the type.
///
/// | column | is |
/// |---|---|
/// | bits | bits of one element in StableHLO; on the host an element has whole bytes |
/// | class | a [`Kind`]: floats with their format, complex numbers with the type of their parts |
/// | `array` | halite's name, if arrays of clients have the type: it is in `DType` too |
/// | `mlir` | name in MLIR text |
/// | `builtin` | code in MLIR bytecode of the dialect `builtin` |
/// | `vhlo` | code in portable artifacts, and the first version of StableHLO that has it |
/// | `pjrt` | number in `PJRT_Buffer_Type` |
/// | `hlo` | name of XLA's `PrimitiveType`, and its number, which `XLA_FFI_DataType` has too |
/// | `safetensors` | name in headers |
/// | `numpy` | kind and bytes in `.npy` headers; types of `ml_dtypes` have none |
/// | `torch` | name in the module `torch` |
/// | `storage` | class of storages in PyTorch's pickles |
/// | `jax` | code in artifacts of `jax.export` |
///
/// # Add an element type
///
/// 1. Add a row. Variants have the order of rows, which `Ord` of `DType` and `ALL` follow. Readers
///    and writers of names and numbers, and the conversions of floats of at most 16 bits, use it.
/// 2. If the C API has the type, add it to `PJRT_Buffer_Type` and `XLA_FFI_DataType` of
///    `halite-pjrt-sys`. A test of `halite-pjrt` compares them with the table.
/// 3. If arrays have the type, and a Rust type has its bits, implement [`Element`](super::Element),
///    and print it in `Display` of `HostArray`.
macro_rules! element_types {
    ($(
        #[doc = $doc:literal]
        $variant:ident: $bits:literal bits, $kind:expr
        $(, array $name:literal)?
        , mlir $mlir:literal $(builtin $builtin:literal)? $(vhlo $vhlo:literal since $since:expr)?
        $(, pjrt $pjrt:literal)?
        $(, hlo $hlo_name:literal $($hlo:literal)?)?
        $(, safetensors $safetensors:literal)?
        $(, numpy $numpy:literal)?
        $(, torch $torch:literal $(storage $storage:literal)?)?
        $(, jax $jax:literal)?
        ;
    )*) => {
        /// Element type of a tensor in a program: every type of StableHLO but the quantized ones.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum ElementType {
            $(
                #[doc = concat!("`", $mlir, "`:", $doc)]
                $variant,
            )*
        }

        /// Element type of a tensor.
        ///
        /// halite's operations compute with the types from `bool` to `f64`. Arrays of 8-bit floats
        /// and of complex numbers can be transferred, and are arguments and results of programs
        /// from elsewhere.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum DType {
            $($(
                #[doc = concat!("`", $name, "`:", $doc)]
                $variant,
            )?)*
        }

        impl ElementType {
            /// All element types.
            pub const ALL: [ElementType; [$(ElementType::$variant),*].len()] =
                [$(ElementType::$variant),*];

            #[inline]
            pub(super) const fn row(self) -> &'static Row {
                match self {
                    $(ElementType::$variant => const { &Row {
                        bits: $bits,
                        kind: $kind,
                        dtype: optional!($($name => DType::$variant)?),
                        name: optional!($($name)?),
                        mlir: $mlir,
                        builtin: optional!($($builtin)?),
                        vhlo: optional!($($vhlo)?),
                        vhlo_since: optional!($($since)?),
                        pjrt: optional!($($pjrt)?),
                        hlo_name: optional!($($hlo_name)?),
                        hlo: optional!($($($hlo)?)?),
                        safetensors: optional!($($safetensors)?),
                        numpy: optional!($($numpy)?),
                        torch: optional!($($torch)?),
                        torch_storage: optional!($($($storage)?)?),
                        jax: optional!($($jax)?),
                    } },)*
                }
            }
        }

        impl DType {
            /// All element types, from narrow to wide within each family.
            pub const ALL: [DType; [$($($name,)?)*].len()] =
                [$($(array_type!($name => DType::$variant),)?)*];

            /// The same type in programs.
            #[inline]
            pub const fn element_type(self) -> ElementType {
                match self {
                    $($(DType::$variant => array_type!($name => ElementType::$variant),)?)*
                }
            }
        }
    };
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
    ($name:literal => $value:expr) => {
        Some($value)
    };
}

/// A value for each type with a name of arrays.
macro_rules! array_type {
    ($name:literal => $value:expr) => {
        $value
    };
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) bits: usize,
    pub(super) kind: Kind,
    pub(super) dtype: Option<DType>,
    pub(super) name: Option<&'static str>,
    pub(super) mlir: &'static str,
    pub(super) builtin: Option<u32>,
    pub(super) vhlo: Option<u32>,
    pub(super) vhlo_since: Option<(u16, u16)>,
    pub(super) pjrt: Option<u32>,
    pub(super) hlo_name: Option<&'static str>,
    pub(super) hlo: Option<u32>,
    pub(super) safetensors: Option<&'static str>,
    pub(super) numpy: Option<&'static str>,
    pub(super) torch: Option<&'static str>,
    pub(super) torch_storage: Option<&'static str>,
    pub(super) jax: Option<u32>,
}

/// The family of a type, with what the family needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Bool,
    Signed,
    Unsigned,
    Float(FloatFormat),
    /// A complex number of parts of this type.
    Complex(ElementType),
}

use Kind::{Bool, Complex, Float, Signed, Unsigned};
use SpecialValues::{AllFinite, NegativeZeroIsNan, OnesAreNan};

element_types! {
    /// Boolean: 0 or 1.
    Bool: 1 bits, Bool, array "bool",
        mlir "i1" vhlo 0 since (0, 9), pjrt 1, hlo "pred" 1, safetensors "BOOL", numpy "b1",
        torch "bool" storage "BoolStorage", jax 0;
    /// Signed integer.
    S2: 2 bits, Signed,
        mlir "i2" vhlo 31 since (1, 2), pjrt 24, hlo "s2" 26;
    /// Signed integer.
    S4: 4 bits, Signed,
        mlir "i4" vhlo 10 since (0, 9), pjrt 21, hlo "s4" 21, jax 15;
    /// Signed integer.
    S8: 8 bits, Signed, array "s8",
        mlir "i8" vhlo 11 since (0, 9), pjrt 2, hlo "s8" 2, safetensors "I8", numpy "i1",
        torch "int8" storage "CharStorage", jax 1;
    /// Signed integer.
    S16: 16 bits, Signed, array "s16",
        mlir "i16" vhlo 12 since (0, 9), pjrt 3, hlo "s16" 3, safetensors "I16", numpy "i2",
        torch "int16" storage "ShortStorage", jax 2;
    /// Signed integer.
    S32: 32 bits, Signed, array "s32",
        mlir "i32" vhlo 13 since (0, 9), pjrt 4, hlo "s32" 4, safetensors "I32", numpy "i4",
        torch "int32" storage "IntStorage", jax 3;
    /// Signed integer.
    S64: 64 bits, Signed, array "s64",
        mlir "i64" vhlo 14 since (0, 9), pjrt 5, hlo "s64" 5, safetensors "I64", numpy "i8",
        torch "int64" storage "LongStorage", jax 4;
    /// Unsigned integer.
    U2: 2 bits, Unsigned,
        mlir "ui2" vhlo 32 since (1, 2), pjrt 25, hlo "u2" 27;
    /// Unsigned integer.
    U4: 4 bits, Unsigned,
        mlir "ui4" vhlo 15 since (0, 9), pjrt 22, hlo "u4" 22, jax 16;
    /// Unsigned integer.
    U8: 8 bits, Unsigned, array "u8",
        mlir "ui8" vhlo 16 since (0, 9), pjrt 6, hlo "u8" 6, safetensors "U8", numpy "u1",
        torch "uint8" storage "ByteStorage", jax 5;
    /// Unsigned integer.
    U16: 16 bits, Unsigned, array "u16",
        mlir "ui16" vhlo 17 since (0, 9), pjrt 7, hlo "u16" 7, safetensors "U16", numpy "u2",
        torch "uint16", jax 6;
    /// Unsigned integer.
    U32: 32 bits, Unsigned, array "u32",
        mlir "ui32" vhlo 18 since (0, 9), pjrt 8, hlo "u32" 8, safetensors "U32", numpy "u4",
        torch "uint32", jax 7;
    /// Unsigned integer.
    U64: 64 bits, Unsigned, array "u64",
        mlir "ui64" vhlo 19 since (0, 9), pjrt 9, hlo "u64" 9, safetensors "U64", numpy "u8",
        torch "uint64", jax 8;
    /// Float of IEEE 754.
    F16: 16 bits, Float(FloatFormat::ieee(5, 10)), array "f16",
        mlir "f16" builtin 4 vhlo 3 since (0, 9), pjrt 10, hlo "f16" 10, safetensors "F16",
        numpy "f2", torch "float16" storage "HalfStorage", jax 9;
    /// Float with the exponent of `f32`.
    Bf16: 16 bits, Float(FloatFormat::ieee(8, 7)), array "bf16",
        mlir "bf16" builtin 3 vhlo 2 since (0, 9), pjrt 13, hlo "bf16" 16, safetensors "BF16",
        torch "bfloat16" storage "BFloat16Storage", jax 14;
    /// Float of IEEE 754.
    F32: 32 bits, Float(FloatFormat::ieee(8, 23)), array "f32",
        mlir "f32" builtin 5 vhlo 4 since (0, 9), pjrt 11, hlo "f32" 11, safetensors "F32",
        numpy "f4", torch "float32" storage "FloatStorage", jax 10;
    /// Float of IEEE 754.
    F64: 64 bits, Float(FloatFormat::ieee(11, 52)), array "f64",
        mlir "f64" builtin 6 vhlo 5 since (0, 9), pjrt 12, hlo "f64" 12, safetensors "F64",
        numpy "f8", torch "float64" storage "DoubleStorage", jax 11;
    /// 4-bit float without infinities and NaN.
    F4E2M1Fn: 4 bits, Float(FloatFormat::new(2, 1, 1, AllFinite)),
        mlir "f4E2M1FN" builtin 29 vhlo 37 since (1, 8), pjrt 29, hlo "f4e2m1fn" 32,
        safetensors "F4", jax 26;
    /// 6-bit float without infinities and NaN.
    F6E2M3Fn: 6 bits, Float(FloatFormat::new(2, 3, 1, AllFinite)),
        mlir "f6E2M3FN" builtin 30 vhlo 38 since (1, 8), pjrt 32, hlo "f6e2m3fn",
        safetensors "F6_E2M3";
    /// 6-bit float without infinities and NaN.
    F6E3M2Fn: 6 bits, Float(FloatFormat::new(3, 2, 3, AllFinite)),
        mlir "f6E3M2FN" builtin 31 vhlo 39 since (1, 8), pjrt 33, hlo "f6e3m2fn",
        safetensors "F6_E3M2";
    /// 8-bit float with infinities and NaN.
    F8E3M4: 8 bits, Float(FloatFormat::ieee(3, 4)), array "f8e3m4",
        mlir "f8E3M4" builtin 28 vhlo 36 since (1, 7), pjrt 27, hlo "f8e3m4" 29, jax 24;
    /// 8-bit float with infinities and NaN.
    F8E4M3: 8 bits, Float(FloatFormat::ieee(4, 3)), array "f8e4m3",
        mlir "f8E4M3" builtin 23 vhlo 35 since (1, 7), pjrt 26, hlo "f8e4m3" 28, jax 23;
    /// 8-bit float without infinities.
    F8E4M3Fn: 8 bits, Float(FloatFormat::new(4, 3, 7, OnesAreNan)), array "f8e4m3fn",
        mlir "f8E4M3FN" builtin 24 vhlo 6 since (0, 9), pjrt 17, hlo "f8e4m3fn" 20,
        safetensors "F8_E4M3", torch "float8_e4m3fn", jax 18;
    /// 8-bit float without infinities and -0.
    F8E4M3Fnuz: 8 bits, Float(FloatFormat::new(4, 3, 8, NegativeZeroIsNan)), array "f8e4m3fnuz",
        mlir "f8E4M3FNUZ" builtin 26 vhlo 27 since (0, 10), pjrt 20, hlo "f8e4m3fnuz" 25,
        safetensors "F8_E4M3FNUZ", torch "float8_e4m3fnuz", jax 19;
    /// 8-bit float of bias 11 without infinities and -0.
    F8E4M3B11Fnuz: 8 bits, Float(FloatFormat::new(4, 3, 11, NegativeZeroIsNan)),
        array "f8e4m3b11fnuz",
        mlir "f8E4M3B11FNUZ" builtin 27 vhlo 29 since (0, 11), pjrt 18, hlo "f8e4m3b11fnuz" 23,
        jax 17;
    /// 8-bit float with infinities and NaN.
    F8E5M2: 8 bits, Float(FloatFormat::ieee(5, 2)), array "f8e5m2",
        mlir "f8E5M2" builtin 22 vhlo 7 since (0, 9), pjrt 16, hlo "f8e5m2" 19,
        safetensors "F8_E5M2", torch "float8_e5m2", jax 20;
    /// 8-bit float without infinities and -0.
    F8E5M2Fnuz: 8 bits, Float(FloatFormat::new(5, 2, 16, NegativeZeroIsNan)), array "f8e5m2fnuz",
        mlir "f8E5M2FNUZ" builtin 25 vhlo 28 since (0, 10), pjrt 19, hlo "f8e5m2fnuz" 24,
        safetensors "F8_E5M2FNUZ", torch "float8_e5m2fnuz", jax 21;
    /// 8-bit power of two, or NaN.
    F8E8M0Fnu: 8 bits, Float(FloatFormat::exponents(8, 127)), array "f8e8m0fnu",
        mlir "f8E8M0FNU" builtin 32 vhlo 40 since (1, 8), pjrt 28, hlo "f8e8m0fnu" 33,
        safetensors "F8_E8M0", torch "float8_e8m0fnu", jax 25;
    /// Complex: two `f32`, the real part first.
    C64: 64 bits, Complex(ElementType::F32), array "c64",
        mlir "complex<f32>", pjrt 14, hlo "c64" 15, safetensors "C64", numpy "c8",
        torch "complex64" storage "ComplexFloatStorage", jax 12;
    /// Complex: two `f64`, the real part first.
    C128: 128 bits, Complex(ElementType::F64), array "c128",
        mlir "complex<f64>", pjrt 15, hlo "c128" 18, numpy "c16",
        torch "complex128" storage "ComplexDoubleStorage", jax 13;
}
