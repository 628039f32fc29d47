//! Element types, and their Rust types on the host.

mod element_type;
mod float_format;
mod names;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;

use bytemuck::checked::CheckedCastError;

use self::table::Row;
pub use self::{
    element_type::ElementClass,
    float_format::{FloatFormat, SpecialValues},
    table::{DType, ElementType},
};

impl DType {
    /// The element types that halite's operations compute with.
    pub fn computed() -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(|dtype| dtype.is_computed())
    }

    /// Returns whether halite's operations compute with it.
    pub const fn is_computed(self) -> bool {
        matches!(self, DType::Bool) || self.is_integer() || self.is_float()
    }

    /// Size in bytes of one element on the host and in row-major device memory.
    #[inline]
    pub const fn size(self) -> usize {
        self.element_type().size()
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
        (self.row().name).expect("element types of arrays have a name")
    }

    /// The element type with this [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// The name in MLIR text: `i1`, `i32`, `f8E4M3FN`.
    pub const fn mlir_name(self) -> &'static str {
        self.row().mlir
    }

    /// The format of a float.
    #[inline]
    pub const fn float_format(self) -> Option<FloatFormat> {
        self.element_type().float_format()
    }

    #[inline]
    const fn row(self) -> &'static Row {
        self.element_type().row()
    }
}

/// The value of an 8-bit float with these bits; `None` for other types.
pub fn float8(dtype: DType, bits: u8) -> Option<f64> {
    let format = dtype.float_format().filter(|_| dtype.size() == 1)?;
    Some(format.decode(bits.into()))
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
