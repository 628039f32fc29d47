//! Comparison of results with what is expected, in units in the last place.

use std::fmt;

use half::{bf16, f16};
use halite_core::{DType, HostArray};

/// One element, as its bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Element {
    pub(crate) dtype: DType,
    bits: u64,
}

impl Element {
    /// All elements of an array.
    pub(crate) fn all(array: &HostArray) -> Vec<Element> {
        let dtype = array.ty().dtype();
        let element = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            let bits = u64::from_le_bytes(word);
            Element { dtype, bits }
        };
        array
            .bytes()
            .chunks_exact(dtype.size())
            .map(element)
            .collect()
    }

    /// Its value; integers of 64 bits are rounded.
    pub(crate) fn value(self) -> f64 {
        let bits = self.bits;
        match self.dtype {
            DType::F16 => f16::from_bits(bits as u16).to_f64(),
            DType::Bf16 => bf16::from_bits(bits as u16).to_f64(),
            DType::F32 => f32::from_bits(bits as u32).into(),
            DType::F64 => f64::from_bits(bits),
            dtype if dtype.is_signed_integer() => {
                let unused = 64 - 8 * dtype.size();
                (((bits << unused) as i64) >> unused) as f64
            }
            _ => bits as f64,
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self.value() == 0.0
    }

    /// Whether it is a float below the normal ones, and not 0.
    pub(crate) fn is_subnormal(self) -> bool {
        let value = self.value().abs();
        self.dtype.is_float() && value != 0.0 && value < least_normal(self.dtype)
    }

    /// Whether it is a float so small that what is computed from it may be subnormal.
    pub(crate) fn is_tiny(self) -> bool {
        let value = self.value().abs();
        self.dtype.is_float() && value != 0.0 && value <= 4.0 * least_normal(self.dtype)
    }

    /// Whether it is a finite float of at least half the size of the largest.
    pub(crate) fn is_large(self) -> bool {
        let value = self.value();
        self.dtype.is_float() && value.is_finite() && value.abs() >= largest(self.dtype) / 2.0
    }

    /// A float as zero of its sign, if it is subnormal.
    pub(crate) fn flushed(self) -> Element {
        let sign = 1 << (8 * self.dtype.size() - 1);
        let bits = if self.is_subnormal() {
            self.bits & sign
        } else {
            self.bits
        };
        Element { bits, ..self }
    }

    /// Distance in units in the last place; 0 for any two NaN. `None` between NaN and a number,
    /// between infinity and a number, between zeros of different signs, and between different values
    /// that are not floats.
    pub(crate) fn apart(self, other: Element) -> Option<u64> {
        if self.bits == other.bits {
            return Some(0);
        }
        let (a, b) = (self.value(), other.value());
        if !self.dtype.is_float() {
            return None;
        }
        match (a.is_nan(), b.is_nan()) {
            (true, true) => Some(0),
            (false, false) if a == 0.0 && b == 0.0 => None,
            _ if a.is_infinite() != b.is_infinite() => None,
            (false, false) => Some(self.order().abs_diff(other.order())),
            _ => None,
        }
    }

    /// A number that grows by one from each float to the next.
    fn order(self) -> i64 {
        let sign = 1 << (8 * self.dtype.size() - 1);
        let magnitude = (self.bits & (sign - 1)) as i64;
        if self.bits & sign == 0 {
            magnitude
        } else {
            -magnitude
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value();
        match self.dtype {
            DType::Bool => write!(f, "{}", self.bits != 0),
            dtype if dtype.is_float() && value.is_nan() && value.is_sign_negative() => {
                write!(f, "-NaN")
            }
            dtype if dtype.is_float() && (1e-4..1e6).contains(&value.abs()) => {
                write!(f, "{value}")
            }
            dtype if dtype.is_float() => write!(f, "{value:e}"),
            DType::U64 => write!(f, "{}", self.bits),
            _ if self.dtype.is_unsigned_integer() => write!(f, "{value}"),
            _ => write!(f, "{}", value as i64),
        }
    }
}

/// Inputs whose subnormal numbers are zeros.
pub(crate) fn flushed(inputs: &[HostArray]) -> Vec<HostArray> {
    let flushed = |input: &HostArray| {
        let mut flushed = input.clone();
        let elements = Element::all(input);
        let size = input.ty().dtype().size();
        for (bytes, element) in flushed.bytes_mut().chunks_exact_mut(size).zip(elements) {
            bytes.copy_from_slice(&element.flushed().bits.to_le_bytes()[..size]);
        }
        flushed
    };
    inputs.iter().map(flushed).collect()
}

/// Distance from 1 to the next larger float.
pub(crate) fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::EPSILON.to_f64(),
        DType::Bf16 => bf16::EPSILON.to_f64(),
        DType::F32 => f32::EPSILON.into(),
        _ => f64::EPSILON,
    }
}

fn least_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::MIN_POSITIVE.to_f64(),
        DType::Bf16 => bf16::MIN_POSITIVE.to_f64(),
        DType::F32 => f32::MIN_POSITIVE.into(),
        _ => f64::MIN_POSITIVE,
    }
}

fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::MAX.to_f64(),
        DType::Bf16 => bf16::MAX.to_f64(),
        DType::F32 => f32::MAX.into(),
        _ => f64::MAX,
    }
}
