//! The checks of StableHLO's test programs: custom calls `check.expect_eq`, `check.expect_close`
//! and `check.expect_almost_eq`, which fail the run if the computed tensor is not the expected one.

use halite_core::{Error, ErrorKind, Result};
use halite_stablehlo::{Attribute, Attributes};

use super::{
    index::strides,
    operation::exactly,
    tensor::{Tensor, Wide},
};

/// Tolerance of `expect_almost_eq`, absolute.
const TOLERANCE: f64 = 0.001;

/// Checks that the first operand equals the second, as far as the check `name` requires.
pub(super) fn check(name: &str, operands: &[&Tensor], attributes: &Attributes) -> Result<()> {
    let [computed, expected] = exactly(operands)?;
    if computed.ty != expected.ty {
        let message = format!("`check.{name}` of {} and {}", computed.ty, expected.ty);
        return Err(Error::invalid("run", message));
    }
    let number = |name: &str, default: f64| match attributes.get(name) {
        Some(&Attribute::Int(value, _)) => value as f64,
        Some(&Attribute::Float(value, _)) => value,
        _ => default,
    };
    let allowed: Box<dyn Fn(f64, f64, f64) -> bool> = match name {
        "expect_eq" | "eq" => Box::new(|x, y, _| x == y),
        "expect_almost_eq" => {
            let tolerance = number("tolerance", TOLERANCE);
            Box::new(move |x, y, _| x == y || (x - y).abs() <= tolerance)
        }
        "expect_close" => {
            let low = number("min_ulp_difference", 0.0);
            let high = number("max_ulp_difference", 2.0);
            Box::new(move |_, _, ulps| (low..=high).contains(&ulps))
        }
        _ => {
            let message = format!(
                "unknown check `check.{name}`; expected expect_eq, expect_almost_eq or expect_close"
            );
            return Err(Error::new(ErrorKind::Unsupported, "run", message));
        }
    };
    let is_right = |x: f64, y: f64, ulps: f64| (x.is_nan() && y.is_nan()) || allowed(x, y, ulps);
    let wrong = match (computed.wide()?, expected.wide()?) {
        (Wide::Int(x), Wide::Int(y)) => x.iter().zip(&y).position(|(x, y)| x != y),
        (Wide::Float(x), Wide::Float(y)) => (0..x.len()).find(|&at| {
            let ulps = ulps_between(computed.element(at), expected.element(at));
            !is_right(x[at], y[at], ulps)
        }),
        (Wide::Complex(x), Wide::Complex(y)) => (0..x.len()).find(|&at| {
            let half = computed.ty.element.size() / 2;
            let (left, right) = (computed.element(at), expected.element(at));
            let re = ulps_between(&left[..half], &right[..half]);
            let im = ulps_between(&left[half..], &right[half..]);
            !is_right(x[at].re, y[at].re, re) || !is_right(x[at].im, y[at].im, im)
        }),
        _ => None,
    };
    let Some(at) = wrong else {
        return Ok(());
    };
    let message = format!(
        "`check.{name}` failed at {:?} of {}: computed {}, expected {}",
        index_of(at, &computed.ty.dims),
        computed.ty,
        shown(computed, at)?,
        shown(expected, at)?
    );
    Err(Error::invalid("run", message))
}

fn shown(x: &Tensor, at: usize) -> Result<String> {
    Ok(match x.scalar_at(at).wide()? {
        Wide::Int(values) => values[0].to_string(),
        Wide::Float(values) => format!("{:?}", values[0]),
        Wide::Complex(values) => format!("({:?}, {:?})", values[0].re, values[0].im),
    })
}

/// The index of an element among row-major ones.
fn index_of(position: usize, dims: &[usize]) -> Vec<usize> {
    strides(dims)
        .iter()
        .zip(dims)
        .map(|(stride, dim)| position / stride % dim)
        .collect()
}

/// Number of representable numbers from one float to another, of little-endian bytes.
fn ulps_between(x: &[u8], y: &[u8]) -> f64 {
    let ordered = |bytes: &[u8]| {
        let bits = bytes
            .iter()
            .rev()
            .fold(0u128, |bits, &byte| bits << 8 | u128::from(byte));
        let sign = 1u128 << (8 * bytes.len() - 1);
        let magnitude = (bits & (sign - 1)) as i128;
        if bits & sign == 0 {
            magnitude
        } else {
            -magnitude
        }
    };
    (ordered(x) - ordered(y)).unsigned_abs() as f64
}

#[cfg(test)]
mod tests {
    use halite_stablehlo::{ElementType, RankedType};

    use super::*;

    fn floats(values: &[f32]) -> Tensor {
        let bytes = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        Tensor::new(RankedType::new(ElementType::F32, [values.len()]), bytes)
    }

    #[test]
    fn failed_check_names_the_element() {
        let (x, y) = (floats(&[1.0, 2.0]), floats(&[1.0, 2.5]));
        let error = check("expect_eq", &[&x, &y], &Attributes::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "run: `check.expect_eq` failed at [1] of tensor<2xf32>: computed 2.0, expected 2.5"
        );
    }

    #[test]
    fn neighbors_are_close() {
        let (x, y) = (
            floats(&[1.0, f32::NAN]),
            floats(&[1.0 + f32::EPSILON, f32::NAN]),
        );
        check("expect_close", &[&x, &y], &Attributes::default()).unwrap();
        let far = floats(&[1.0 + 3.0 * f32::EPSILON, 0.0]);
        check("expect_close", &[&x, &far], &Attributes::default()).unwrap_err();
        check("expect_almost_eq", &[&x, &y], &Attributes::default()).unwrap();
    }
}
