//! Conversions between float types, rounded once, to nearest, ties to even.

use bytemuck::{cast_slice, cast_slice_mut};
use half::{bf16, f16, slice::HalfFloatSliceExt};
#[cfg(feature = "models")]
use halite_core::HostArray;
use halite_core::{DType, Error, Result};

/// Returns whether [`convert`] has this conversion.
#[cfg(feature = "models")]
pub(crate) fn converts(from: DType, to: DType) -> bool {
    from == to || from.is_float() && to.is_float()
}

/// An array with its elements in this type.
#[cfg(feature = "models")]
pub(crate) fn converted(array: HostArray, dtype: DType) -> Result<HostArray> {
    if dtype == array.ty().dtype() {
        return Ok(array);
    }
    let mut into = HostArray::try_zeros(array.ty().with_dtype(dtype))?;
    convert(array.bytes(), array.ty().dtype(), dtype, into.bytes_mut())?;
    Ok(into)
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
        DType::F16 => each(from, into, |value| f16::from_f32(to_odd(wide(value)))),
        DType::Bf16 => each(from, into, |value| bf16::from_f32(to_odd(wide(value)))),
        DType::F32 => each(from, into, |value| wide(value) as f32),
        DType::F64 => each(from, into, wide),
        _ => return Err(Error::invalid("weights", format!("a float as {to}"))),
    }
    Ok(())
}

/// Rounds to the neighbor in `f32` whose last bit is 1, unless `value` is exact, so that rounding
/// the result to fewer bits is as if `value` itself had been rounded.
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let wide = f64::from(nearest);
    if wide == value || nearest.to_bits() & 1 == 1 || !nearest.is_finite() {
        return nearest;
    }
    // Magnitudes are in the order of their bits.
    f32::from_bits(if wide.abs() < value.abs() {
        nearest.to_bits() + 1
    } else {
        nearest.to_bits() - 1
    })
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

    #[test]
    fn doubles_are_rounded_once() {
        // Just above the middle of two neighbors, which `f32` does not tell from the middle.
        let (small, tiny) = (2f64.powi(-40), 2f64.powi(-70));
        let values = [
            1.0 + 2f64.powi(-8) + small,
            1.0 + 2f64.powi(-11) + small,
            -1.0 - 2f64.powi(-11) - small,
            1.0 + 2f64.powi(-11),
            1.0 + 3.0 * 2f64.powi(-11) - small,
            2f64.powi(-25) + tiny,
            1e300,
        ];
        let array = HostArray::from_slice(&values, [7]).unwrap();
        let wide = |dtype| {
            let narrow = converted(array.clone(), dtype).unwrap();
            let wide = converted(narrow, DType::F64).unwrap();
            wide.as_slice::<f64>().unwrap().to_vec()
        };
        let bf16 = wide(DType::Bf16);
        assert_eq!(bf16[..2], [1.0 + 2f64.powi(-7), 1.0]);
        let ulp = 2f64.powi(-10);
        let f16 = wide(DType::F16);
        assert_eq!(f16[1..5], [1.0 + ulp, -1.0 - ulp, 1.0, 1.0 + ulp]);
        assert_eq!(f16[5..], [2f64.powi(-24), f64::INFINITY]);
    }
}
