//! Names and numbers of element types in the formats of others.

use super::table::{DType, ElementType};

/// Methods of both enums for columns of the table.
macro_rules! columns {
    ($( $(#[$doc:meta])* $column:ident: $value:ty, $get:ident, $from:ident($key:ty); )*) => {
        impl DType {
            $( column! { $(#[$doc])* $column: $value, $get, $from($key) } )*
        }

        impl ElementType {
            $( column! { $(#[$doc])* $column: $value, $get, $from($key) } )*
        }
    };
}

macro_rules! column {
    ($(#[$doc:meta])* $column:ident: $value:ty, $get:ident, $from:ident($key:ty)) => {
        $(#[$doc])*
        pub const fn $get(self) -> Option<$value> {
            self.row().$column
        }

        #[doc = concat!("The element type with this [`", stringify!($get), "`](Self::", stringify!($get), ").")]
        pub fn $from(value: $key) -> Option<Self> {
            Self::ALL.into_iter().find(|ty| ty.$get() == Some(value))
        }
    };
}

columns! {
    /// Name of XLA's `PrimitiveType`: `pred`, `s32`, `f8e4m3fn`.
    hlo_name: &'static str, hlo_name, from_hlo_name(&str);
    /// Number in XLA's `PrimitiveType`, and in `XLA_FFI_DataType`.
    hlo: u32, hlo_number, from_hlo_number(u32);
    /// Number in the C API's `PJRT_Buffer_Type`.
    pjrt: u32, pjrt_number, from_pjrt_number(u32);
    /// Code in MLIR bytecode of the dialect `builtin`; integers and complex numbers have none of
    /// their own.
    builtin: u32, builtin_number, from_builtin_number(u32);
    /// Code in portable artifacts of StableHLO; complex numbers have none of their own.
    vhlo: u32, vhlo_number, from_vhlo_number(u32);
    /// Code in artifacts of `jax.export`.
    jax: u32, jax_number, from_jax_number(u32);
    /// Name in headers of safetensors files: `BOOL`, `I32`, `F8_E4M3`.
    safetensors: &'static str, safetensors_name, from_safetensors_name(&str);
    /// Kind and bytes in NumPy's files, without the byte order: `b1`, `i4`. Types of the package
    /// `ml_dtypes`, which are saved as bytes without a type, have none.
    numpy: &'static str, numpy_name, from_numpy_name(&str);
    /// Name in PyTorch: `bool`, `int32`, `float8_e4m3fn`.
    torch: &'static str, torch_name, from_torch_name(&str);
    /// Class of storages in PyTorch's pickles: `BoolStorage`, `IntStorage`.
    torch_storage: &'static str, torch_storage_name, from_torch_storage_name(&str);
}
