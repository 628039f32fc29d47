//! Element types, and their Rust types on the host.

mod float8;

use std::fmt;

use bytemuck::checked::CheckedCastError;

pub use float8::float8;

/// Element type of a tensor.
///
/// halite's operations compute with the types from `bool` to `f64`. Arrays of 8-bit floats and of
/// complex numbers can be transferred, and are arguments and results of programs from elsewhere.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[allow(
    missing_docs,
    reason = "each name says it: signedness or float, and bits"
)]
pub enum DType {
    Bool,
    S8,
    S16,
    S32,
    S64,
    U8,
    U16,
    U32,
    U64,
    F16,
    Bf16,
    F32,
    F64,
    F8E3M4,
    F8E4M3,
    F8E4M3Fn,
    F8E4M3Fnuz,
    F8E4M3B11Fnuz,
    F8E5M2,
    F8E5M2Fnuz,
    F8E8M0Fnu,
    /// Complex: two `f32`, the real part first.
    C64,
    /// Complex: two `f64`, the real part first.
    C128,
}

impl DType {
    /// All element types, from narrow to wide within each family.
    pub const ALL: [DType; 23] = [
        DType::Bool,
        DType::S8,
        DType::S16,
        DType::S32,
        DType::S64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::F16,
        DType::Bf16,
        DType::F32,
        DType::F64,
        DType::F8E3M4,
        DType::F8E4M3,
        DType::F8E4M3Fn,
        DType::F8E4M3Fnuz,
        DType::F8E4M3B11Fnuz,
        DType::F8E5M2,
        DType::F8E5M2Fnuz,
        DType::F8E8M0Fnu,
        DType::C64,
        DType::C128,
    ];

    /// The element types that halite's operations compute with.
    pub fn computed() -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(|dtype| dtype.is_computed())
    }

    /// Returns whether halite's operations compute with it.
    pub const fn is_computed(self) -> bool {
        matches!(self, DType::Bool) || self.is_integer() || self.is_float()
    }

    /// Size in bytes of one element on the host and in row-major device memory.
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::S8 | DType::U8 => 1,
            DType::F8E3M4
            | DType::F8E4M3
            | DType::F8E4M3Fn
            | DType::F8E4M3Fnuz
            | DType::F8E4M3B11Fnuz
            | DType::F8E5M2
            | DType::F8E5M2Fnuz
            | DType::F8E8M0Fnu => 1,
            DType::S16 | DType::U16 | DType::F16 | DType::Bf16 => 2,
            DType::S32 | DType::U32 | DType::F32 => 4,
            DType::S64 | DType::U64 | DType::F64 | DType::C64 => 8,
            DType::C128 => 16,
        }
    }

    /// Returns whether it is `f16`, `bf16`, `f32` or `f64`.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16 | DType::F32 | DType::F64)
    }

    /// Returns whether it is a signed or unsigned integer; `bool` is not.
    pub const fn is_integer(self) -> bool {
        self.is_signed_integer() || self.is_unsigned_integer()
    }

    /// Returns whether it is `s8` to `s64`.
    pub const fn is_signed_integer(self) -> bool {
        matches!(self, DType::S8 | DType::S16 | DType::S32 | DType::S64)
    }

    /// Returns whether it is `u8` to `u64`.
    pub const fn is_unsigned_integer(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    /// The usual short name: `f32`, `bf16`, `s32`, `u8`, `bool`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::S8 => "s8",
            DType::S16 => "s16",
            DType::S32 => "s32",
            DType::S64 => "s64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F8E3M4 => "f8e3m4",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E4M3Fn => "f8e4m3fn",
            DType::F8E4M3Fnuz => "f8e4m3fnuz",
            DType::F8E4M3B11Fnuz => "f8e4m3b11fnuz",
            DType::F8E5M2 => "f8e5m2",
            DType::F8E5M2Fnuz => "f8e5m2fnuz",
            DType::F8E8M0Fnu => "f8e8m0fnu",
            DType::C64 => "c64",
            DType::C128 => "c128",
        }
    }

    /// The element type with this [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A Rust type with the same bits as an element of a tensor.
///
/// Reads check the bits where not all are valid (`bool`). A complex number is its real and its
/// imaginary part. 8-bit floats have no Rust type; read their bytes.
pub trait Element:
    bytemuck::NoUninit + bytemuck::CheckedBitPattern + PartialEq + fmt::Debug + Send + Sync
{
    /// The element type.
    const DTYPE: DType;

    /// The elements of these bytes, each of them checked.
    #[doc(hidden)]
    fn of_bytes(bytes: &[u8]) -> Result<&[Self], CheckedCastError> {
        bytemuck::checked::try_cast_slice(bytes)
    }

    /// The elements of these bytes, each of them checked.
    #[doc(hidden)]
    fn of_bytes_mut(bytes: &mut [u8]) -> Result<&mut [Self], CheckedCastError> {
        bytemuck::checked::try_cast_slice_mut(bytes)
    }
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;
}

/// Types without invalid bits. A debug build would look at each element all the same.
macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $rust {
            const DTYPE: DType = DType::$dtype;

            fn of_bytes(bytes: &[u8]) -> Result<&[Self], CheckedCastError> {
                Ok(bytemuck::try_cast_slice(bytes)?)
            }

            fn of_bytes_mut(bytes: &mut [u8]) -> Result<&mut [Self], CheckedCastError> {
                Ok(bytemuck::try_cast_slice_mut(bytes)?)
            }
        })*
    };
}

elements! {
    i8 => S8, i16 => S16, i32 => S32, i64 => S64, u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    half::f16 => F16, half::bf16 => Bf16, f32 => F32, f64 => F64, [f32; 2] => C64, [f64; 2] => C128,
}
