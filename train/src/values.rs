//! Elements of arrays as numbers.

use halite_core::{DType, Element, HostArray, Result};

/// The elements of an array as numbers.
pub(crate) fn values_of(array: &HostArray) -> Result<Vec<f64>> {
    fn as_f64<T: Element>(array: &HostArray, value: impl Fn(T) -> f64) -> Result<Vec<f64>> {
        Ok(array.as_slice::<T>()?.iter().map(|it| value(*it)).collect())
    }
    match array.ty().dtype() {
        DType::Bool => Ok(array.bytes().iter().map(|&byte| byte.into()).collect()),
        DType::U8 => as_f64(array, |value: u8| value.into()),
        DType::U16 => as_f64(array, |value: u16| value.into()),
        DType::U32 => as_f64(array, |value: u32| value.into()),
        DType::U64 => as_f64(array, |value: u64| value as f64),
        DType::S8 => as_f64(array, |value: i8| value.into()),
        DType::S16 => as_f64(array, |value: i16| value.into()),
        DType::S32 => as_f64(array, |value: i32| value.into()),
        DType::S64 => as_f64(array, |value: i64| value as f64),
        DType::F64 => as_f64(array, |value: f64| value),
        _ => as_f64(&array.to_float(DType::F64)?, |value: f64| value),
    }
}
