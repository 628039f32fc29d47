//! Element types and dimensions as the C API has them.

use halite_core::{DType, TensorType};
use halite_pjrt_sys::buffer::PJRT_Buffer_Type as Type;

use crate::status::{Outcome, Status};

/// The C enum's value of an element type.
pub(crate) fn buffer_type(dtype: DType) -> Type {
    dtype.pjrt_number().map_or(Type::INVALID, Type)
}

/// The tensor type that a caller describes.
///
/// # Errors
/// UNIMPLEMENTED for an element type that halite does not have; INVALID_ARGUMENT for a negative
/// dimension, and for more bytes than memory can have.
pub(crate) fn tensor_type(r#type: Type, dims: &[i64]) -> Outcome<TensorType> {
    let dtype = DType::from_pjrt_number(r#type.0).ok_or_else(|| {
        let known = DType::ALL.map(DType::name);
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
    let ty = TensorType::new(dtype, dims);
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
