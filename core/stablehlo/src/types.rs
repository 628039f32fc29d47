//! Types of values.

use std::fmt;

use halite_core::{DType, TensorType};

/// Element type of a tensor: every type of StableHLO but the quantized ones.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are those of StableHLO")]
pub enum ElementType {
    Bool,
    S2,
    S4,
    S8,
    S16,
    S32,
    S64,
    U2,
    U4,
    U8,
    U16,
    U32,
    U64,
    F4E2M1Fn,
    F6E2M3Fn,
    F6E3M2Fn,
    F8E3M4,
    F8E4M3,
    F8E4M3Fn,
    F8E4M3Fnuz,
    F8E4M3B11Fnuz,
    F8E5M2,
    F8E5M2Fnuz,
    F8E8M0Fnu,
    F16,
    Bf16,
    F32,
    F64,
    C64,
    C128,
}

/// The families of [`ElementType`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum ElementClass {
    Bool,
    Signed,
    Unsigned,
    Float,
    Complex,
}

impl ElementType {
    /// All element types.
    pub const ALL: [ElementType; 30] = [
        ElementType::Bool,
        ElementType::S2,
        ElementType::S4,
        ElementType::S8,
        ElementType::S16,
        ElementType::S32,
        ElementType::S64,
        ElementType::U2,
        ElementType::U4,
        ElementType::U8,
        ElementType::U16,
        ElementType::U32,
        ElementType::U64,
        ElementType::F4E2M1Fn,
        ElementType::F6E2M3Fn,
        ElementType::F6E3M2Fn,
        ElementType::F8E3M4,
        ElementType::F8E4M3,
        ElementType::F8E4M3Fn,
        ElementType::F8E4M3Fnuz,
        ElementType::F8E4M3B11Fnuz,
        ElementType::F8E5M2,
        ElementType::F8E5M2Fnuz,
        ElementType::F8E8M0Fnu,
        ElementType::F16,
        ElementType::Bf16,
        ElementType::F32,
        ElementType::F64,
        ElementType::C64,
        ElementType::C128,
    ];

    /// The name in MLIR text: `i1`, `i32`, `ui8`, `f8E4M3FN`, `complex<f32>`.
    pub const fn name(self) -> &'static str {
        match self {
            ElementType::Bool => "i1",
            ElementType::S2 => "i2",
            ElementType::S4 => "i4",
            ElementType::S8 => "i8",
            ElementType::S16 => "i16",
            ElementType::S32 => "i32",
            ElementType::S64 => "i64",
            ElementType::U2 => "ui2",
            ElementType::U4 => "ui4",
            ElementType::U8 => "ui8",
            ElementType::U16 => "ui16",
            ElementType::U32 => "ui32",
            ElementType::U64 => "ui64",
            ElementType::F4E2M1Fn => "f4E2M1FN",
            ElementType::F6E2M3Fn => "f6E2M3FN",
            ElementType::F6E3M2Fn => "f6E3M2FN",
            ElementType::F8E3M4 => "f8E3M4",
            ElementType::F8E4M3 => "f8E4M3",
            ElementType::F8E4M3Fn => "f8E4M3FN",
            ElementType::F8E4M3Fnuz => "f8E4M3FNUZ",
            ElementType::F8E4M3B11Fnuz => "f8E4M3B11FNUZ",
            ElementType::F8E5M2 => "f8E5M2",
            ElementType::F8E5M2Fnuz => "f8E5M2FNUZ",
            ElementType::F8E8M0Fnu => "f8E8M0FNU",
            ElementType::F16 => "f16",
            ElementType::Bf16 => "bf16",
            ElementType::F32 => "f32",
            ElementType::F64 => "f64",
            ElementType::C64 => "complex<f32>",
            ElementType::C128 => "complex<f64>",
        }
    }

    /// The element type with this [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        ElementType::ALL.into_iter().find(|ty| ty.name() == name)
    }

    /// Size in bytes of one element in a [`Dense`](crate::Dense): narrow types have a byte each.
    pub const fn size(self) -> usize {
        match self {
            ElementType::S16 | ElementType::U16 | ElementType::F16 | ElementType::Bf16 => 2,
            ElementType::S32 | ElementType::U32 | ElementType::F32 => 4,
            ElementType::S64 | ElementType::U64 | ElementType::F64 | ElementType::C64 => 8,
            ElementType::C128 => 16,
            _ => 1,
        }
    }

    /// Bits of one element in StableHLO, which `bitcast_convert` and packed constants count.
    pub const fn bits(self) -> usize {
        match self {
            ElementType::Bool => 1,
            ElementType::S2 | ElementType::U2 => 2,
            ElementType::S4 | ElementType::U4 | ElementType::F4E2M1Fn => 4,
            ElementType::F6E2M3Fn | ElementType::F6E3M2Fn => 6,
            _ => 8 * self.size(),
        }
    }

    /// The family.
    pub const fn class(self) -> ElementClass {
        match self {
            ElementType::Bool => ElementClass::Bool,
            ElementType::S2
            | ElementType::S4
            | ElementType::S8
            | ElementType::S16
            | ElementType::S32
            | ElementType::S64 => ElementClass::Signed,
            ElementType::U2
            | ElementType::U4
            | ElementType::U8
            | ElementType::U16
            | ElementType::U32
            | ElementType::U64 => ElementClass::Unsigned,
            ElementType::C64 | ElementType::C128 => ElementClass::Complex,
            _ => ElementClass::Float,
        }
    }

    /// The element type of the real and imaginary parts of a complex type.
    pub const fn part(self) -> Option<ElementType> {
        match self {
            ElementType::C64 => Some(ElementType::F32),
            ElementType::C128 => Some(ElementType::F64),
            _ => None,
        }
    }

    /// The element type of arrays of a client; `None` if clients have no such arrays.
    pub const fn dtype(self) -> Option<DType> {
        Some(match self {
            ElementType::Bool => DType::Bool,
            ElementType::S8 => DType::S8,
            ElementType::S16 => DType::S16,
            ElementType::S32 => DType::S32,
            ElementType::S64 => DType::S64,
            ElementType::U8 => DType::U8,
            ElementType::U16 => DType::U16,
            ElementType::U32 => DType::U32,
            ElementType::U64 => DType::U64,
            ElementType::F16 => DType::F16,
            ElementType::Bf16 => DType::Bf16,
            ElementType::F32 => DType::F32,
            ElementType::F64 => DType::F64,
            ElementType::F8E3M4 => DType::F8E3M4,
            ElementType::F8E4M3 => DType::F8E4M3,
            ElementType::F8E4M3Fn => DType::F8E4M3Fn,
            ElementType::F8E4M3Fnuz => DType::F8E4M3Fnuz,
            ElementType::F8E4M3B11Fnuz => DType::F8E4M3B11Fnuz,
            ElementType::F8E5M2 => DType::F8E5M2,
            ElementType::F8E5M2Fnuz => DType::F8E5M2Fnuz,
            ElementType::F8E8M0Fnu => DType::F8E8M0Fnu,
            ElementType::C64 => DType::C64,
            ElementType::C128 => DType::C128,
            _ => return None,
        })
    }

    /// The form in a [`Dense`](crate::Dense) of an element of less than a byte: integers are extended
    /// with their sign, floats are in the low bits. Bytes of wider elements are the same.
    pub(crate) fn canonical(self, byte: u8) -> u8 {
        let unused = 8_u32.saturating_sub(self.bits() as u32);
        match self.class() {
            ElementClass::Signed => ((byte << unused) as i8 >> unused) as u8,
            _ => byte << unused >> unused,
        }
    }
}

impl From<DType> for ElementType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::Bool => ElementType::Bool,
            DType::S8 => ElementType::S8,
            DType::S16 => ElementType::S16,
            DType::S32 => ElementType::S32,
            DType::S64 => ElementType::S64,
            DType::U8 => ElementType::U8,
            DType::U16 => ElementType::U16,
            DType::U32 => ElementType::U32,
            DType::U64 => ElementType::U64,
            DType::F16 => ElementType::F16,
            DType::Bf16 => ElementType::Bf16,
            DType::F32 => ElementType::F32,
            DType::F64 => ElementType::F64,
            DType::F8E3M4 => ElementType::F8E3M4,
            DType::F8E4M3 => ElementType::F8E4M3,
            DType::F8E4M3Fn => ElementType::F8E4M3Fn,
            DType::F8E4M3Fnuz => ElementType::F8E4M3Fnuz,
            DType::F8E4M3B11Fnuz => ElementType::F8E4M3B11Fnuz,
            DType::F8E5M2 => ElementType::F8E5M2,
            DType::F8E5M2Fnuz => ElementType::F8E5M2Fnuz,
            DType::F8E8M0Fnu => ElementType::F8E8M0Fnu,
            DType::C64 => ElementType::C64,
            DType::C128 => ElementType::C128,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Type of a tensor of static dimensions.
///
/// The number of its elements, and of its bytes, fits `isize`: readers refuse other types.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RankedType {
    /// Type of each element.
    pub element: ElementType,
    /// Sizes of the dimensions, outermost first.
    pub dims: Vec<usize>,
}

impl RankedType {
    /// The type of a tensor of `dims`.
    pub fn new(element: ElementType, dims: impl Into<Vec<usize>>) -> Self {
        let dims = dims.into();
        RankedType { element, dims }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements. Saturates, which no type that a reader accepts does.
    pub fn elements(&self) -> usize {
        (self.dims.iter()).fold(1, |elements: usize, &dim| elements.saturating_mul(dim))
    }

    /// Row-major strides, in elements.
    pub fn strides(&self) -> Vec<usize> {
        let inner = |dim| {
            self.dims[dim..]
                .iter()
                .fold(1, |product: usize, &size| product.saturating_mul(size))
        };
        (1..=self.rank()).map(inner).collect()
    }

    /// Number of bytes, row-major. Saturates, which no type that a reader accepts does.
    pub fn bytes(&self) -> usize {
        self.elements().saturating_mul(self.element.size())
    }

    /// The type of arrays of a client; `None` if clients have no such arrays.
    pub fn tensor_type(&self) -> Option<TensorType> {
        Some(TensorType::new(self.element.dtype()?, &self.dims))
    }
}

impl From<&TensorType> for RankedType {
    fn from(ty: &TensorType) -> Self {
        RankedType::new(ty.dtype().into(), ty.dims())
    }
}

impl fmt::Display for RankedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensor<")?;
        for dim in &self.dims {
            write!(f, "{dim}x")?;
        }
        write!(f, "{}>", self.element)
    }
}

/// Type of a value.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Type {
    /// A tensor.
    Tensor(RankedType),
    /// Orders operations with side effects.
    Token,
    /// Several values as one.
    Tuple(Vec<Type>),
}

impl Type {
    /// The type of the tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&RankedType> {
        match self {
            Type::Tensor(ty) => Some(ty),
            Type::Token | Type::Tuple(_) => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(ty) => ty.fmt(f),
            Type::Token => f.write_str("!stablehlo.token"),
            Type::Tuple(types) => {
                f.write_str("tuple<")?;
                for (index, ty) in types.iter().enumerate() {
                    write!(f, "{}{ty}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str(">")
            }
        }
    }
}
