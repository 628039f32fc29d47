//! PJRT's numbers of element types.

use halite_core::DType;
use halite_pjrt_sys::buffer::PJRT_Buffer_Type;

pub(crate) fn buffer_type(dtype: DType) -> PJRT_Buffer_Type {
    let number = dtype.pjrt_number();
    number.map_or(PJRT_Buffer_Type::INVALID, PJRT_Buffer_Type)
}

/// The element type with this number, if halite has it.
pub(crate) fn dtype_of(ty: PJRT_Buffer_Type) -> Option<DType> {
    DType::from_pjrt_number(ty.0)
}

#[cfg(test)]
mod tests {
    use halite_core::ElementType;
    use halite_pjrt_sys::ffi::XLA_FFI_DataType;

    use super::*;

    #[test]
    fn numbers_are_those_of_the_c_api() {
        for ty in ElementType::ALL {
            let name = ty.hlo_name().unwrap().to_uppercase();
            let number = ty.pjrt_number().unwrap();
            assert_eq!(format!("{:?}", PJRT_Buffer_Type(number)), name);
            if let Some(number) = ty.hlo_number() {
                assert_eq!(format!("{:?}", XLA_FFI_DataType(number)), name);
            }
        }
    }
}
