//! Element types and dimensions as the C API has them.

use halite_core::{DType, TensorType};
use halite_pjrt_sys::buffer::PJRT_Buffer_Type as Type;

use crate::status::{Outcome, Status};

const TYPES: [(DType, Type); 23] = [
    (DType::Bool, Type::PRED),
    (DType::S8, Type::S8),
    (DType::S16, Type::S16),
    (DType::S32, Type::S32),
    (DType::S64, Type::S64),
    (DType::U8, Type::U8),
    (DType::U16, Type::U16),
    (DType::U32, Type::U32),
    (DType::U64, Type::U64),
    (DType::F16, Type::F16),
    (DType::Bf16, Type::BF16),
    (DType::F32, Type::F32),
    (DType::F64, Type::F64),
    (DType::F8E3M4, Type::F8E3M4),
    (DType::F8E4M3, Type::F8E4M3),
    (DType::F8E4M3Fn, Type::F8E4M3FN),
    (DType::F8E4M3Fnuz, Type::F8E4M3FNUZ),
    (DType::F8E4M3B11Fnuz, Type::F8E4M3B11FNUZ),
    (DType::F8E5M2, Type::F8E5M2),
    (DType::F8E5M2Fnuz, Type::F8E5M2FNUZ),
    (DType::F8E8M0Fnu, Type::F8E8M0FNU),
    (DType::C64, Type::C64),
    (DType::C128, Type::C128),
];

/// The C enum's value of an element type.
pub(crate) fn buffer_type(dtype: DType) -> Type {
    let found = TYPES.iter().find(|(known, _)| *known == dtype);
    found.map_or(Type::INVALID, |(_, r#type)| *r#type)
}

/// The tensor type that a caller describes.
///
/// # Errors
/// UNIMPLEMENTED for an element type that halite does not have; INVALID_ARGUMENT for a negative
/// dimension, and for more bytes than memory can have.
pub(crate) fn tensor_type(r#type: Type, dims: &[i64]) -> Outcome<TensorType> {
    let dtype = TYPES.iter().find(|(_, known)| *known == r#type);
    let (dtype, _) = dtype.ok_or_else(|| {
        let known: Vec<_> = TYPES.iter().map(|(dtype, _)| dtype.name()).collect();
        Status::unimplemented(format!(
            "element type {type:?} is not supported; supported are {}",
            known.join(", ")
        ))
    })?;
    let size = |&dim: &i64| {
        usize::try_from(dim)
            .map_err(|_| Status::invalid(format!("dimensions {dims:?} have a negative one")))
    };
    let dims = dims.iter().map(size).collect::<Outcome<Vec<_>>>()?;
    let ty = TensorType::new(*dtype, dims);
    ty.checked_bytes()?;
    Ok(ty)
}

/// The dimensions of a type.
pub(crate) fn dims_of(ty: &TensorType) -> Box<[i64]> {
    ty.dims().iter().map(|&dim| dim as i64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_has_a_number() {
        for dtype in DType::ALL {
            let ty = tensor_type(buffer_type(dtype), &[2, 0]).unwrap();
            assert_eq!(ty, TensorType::new(dtype, [2, 0]));
        }
        assert!(tensor_type(Type::S4, &[]).is_err());
        assert!(tensor_type(Type::F32, &[-1]).is_err());
        assert!(tensor_type(Type::F32, &[i64::MAX, 4]).is_err());
    }
}
