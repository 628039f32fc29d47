//! PJRT's numbers of element types.

use halite_core::DType;
use halite_pjrt_sys::buffer::*;

pub(crate) fn buffer_type(dtype: DType) -> PJRT_Buffer_Type {
    match dtype {
        DType::Bool => PJRT_Buffer_Type::PRED,
        DType::S8 => PJRT_Buffer_Type::S8,
        DType::S16 => PJRT_Buffer_Type::S16,
        DType::S32 => PJRT_Buffer_Type::S32,
        DType::S64 => PJRT_Buffer_Type::S64,
        DType::U8 => PJRT_Buffer_Type::U8,
        DType::U16 => PJRT_Buffer_Type::U16,
        DType::U32 => PJRT_Buffer_Type::U32,
        DType::U64 => PJRT_Buffer_Type::U64,
        DType::F16 => PJRT_Buffer_Type::F16,
        DType::Bf16 => PJRT_Buffer_Type::BF16,
        DType::F32 => PJRT_Buffer_Type::F32,
        DType::F64 => PJRT_Buffer_Type::F64,
        DType::F8E3M4 => PJRT_Buffer_Type::F8E3M4,
        DType::F8E4M3 => PJRT_Buffer_Type::F8E4M3,
        DType::F8E4M3Fn => PJRT_Buffer_Type::F8E4M3FN,
        DType::F8E4M3Fnuz => PJRT_Buffer_Type::F8E4M3FNUZ,
        DType::F8E4M3B11Fnuz => PJRT_Buffer_Type::F8E4M3B11FNUZ,
        DType::F8E5M2 => PJRT_Buffer_Type::F8E5M2,
        DType::F8E5M2Fnuz => PJRT_Buffer_Type::F8E5M2FNUZ,
        DType::F8E8M0Fnu => PJRT_Buffer_Type::F8E8M0FNU,
        DType::C64 => PJRT_Buffer_Type::C64,
        DType::C128 => PJRT_Buffer_Type::C128,
    }
}

/// The element type with this number, if halite has it.
pub(crate) fn dtype_of(ty: PJRT_Buffer_Type) -> Option<DType> {
    DType::ALL
        .into_iter()
        .find(|dtype| buffer_type(*dtype) == ty)
}
