//! Conversions between float types, rounded to nearest, ties to even.

use bytemuck::{cast_slice, cast_slice_mut};
use half::{bf16, f16, slice::HalfFloatSliceExt};
use halite_core::{DType, Error, Result};

/// Returns whether [`convert`] has this conversion.
pub(crate) fn converts(from: DType, to: DType) -> bool {
    from == to || from.is_float() && to.is_float()
}

/// Converts `from` to the elements `into`, of as many. Both are aligned for their types.
pub(crate) fn convert(from: &[u8], dtype: DType, to: DType, into: &mut [u8]) -> Result<()> {
    match (dtype, to) {
        _ if dtype == to => into.copy_from_slice(from),
        (DType::Bf16, DType::F32) => {
            cast_slice::<_, bf16>(from).convert_to_f32_slice(cast_slice_mut(into));
        }
        (DType::F16, DType::F32) => {
            cast_slice::<_, f16>(from).convert_to_f32_slice(cast_slice_mut(into));
        }
        (DType::F32, DType::Bf16) => {
            cast_slice_mut::<_, bf16>(into).convert_from_f32_slice(cast_slice(from));
        }
        (DType::F32, DType::F16) => {
            cast_slice_mut::<_, f16>(into).convert_from_f32_slice(cast_slice(from));
        }
        (DType::F16, _) => by_f64(cast_slice(from), f16::to_f64, to, into)?,
        (DType::Bf16, _) => by_f64(cast_slice(from), bf16::to_f64, to, into)?,
        (DType::F32, _) => by_f64(cast_slice(from), |value: f32| value.into(), to, into)?,
        (DType::F64, _) => by_f64(cast_slice(from), |value: f64| value, to, into)?,
        _ => {
            let message = format!("{dtype} as {to}: both must be floats");
            return Err(Error::invalid("weights", message));
        }
    }
    Ok(())
}

/// Each value is exact in `f64`, so that it is rounded once.
fn by_f64<T: Copy>(from: &[T], wide: impl Fn(T) -> f64, to: DType, into: &mut [u8]) -> Result<()> {
    fn each<T: Copy, U: bytemuck::Pod>(from: &[T], into: &mut [u8], convert: impl Fn(T) -> U) {
        let into: &mut [U] = cast_slice_mut(into);
        into.iter_mut()
            .zip(from)
            .for_each(|(into, &value)| *into = convert(value));
    }
    match to {
        DType::F16 => each(from, into, |value| f16::from_f64(wide(value))),
        DType::Bf16 => each(from, into, |value| bf16::from_f64(wide(value))),
        DType::F32 => each(from, into, |value| wide(value) as f32),
        DType::F64 => each(from, into, wide),
        _ => return Err(Error::invalid("weights", format!("a float as {to}"))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use halite_core::HostArray;

    use super::*;

    #[test]
    fn floats_are_rounded_as_host_arrays_do() {
        let values = [
            0.0,
            -0.0,
            1.0 / 3.0,
            257.0,
            1e-40,
            65519.9,
            3.4e38,
            f32::INFINITY,
            -2.5,
        ];
        let array = HostArray::from_slice(&values, [9]).unwrap();
        let floats = [DType::F16, DType::Bf16, DType::F32, DType::F64];
        for from in floats {
            let from = array.to_float(from).unwrap();
            for to in floats {
                let expected = from.to_float(to).unwrap();
                let mut into = HostArray::zeros(expected.ty().clone());
                convert(from.bytes(), from.ty().dtype(), to, into.bytes_mut()).unwrap();
                assert_eq!(into, expected, "{} to {to}", from.ty());
            }
        }
    }
}
