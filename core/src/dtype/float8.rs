//! 8-bit floats.

use super::DType;

/// The value of an 8-bit float with these bits; `None` for other types.
///
/// The formats are those of the OCP 8-bit floating-point and microscaling specifications, and of
/// StableHLO: `fn` has no infinities, `fnuz` neither infinities nor -0.
pub fn float8(dtype: DType, bits: u8) -> Option<f64> {
    let (mantissa, bias) = match dtype {
        DType::F8E3M4 => (4, 3),
        DType::F8E4M3 | DType::F8E4M3Fn => (3, 7),
        DType::F8E4M3Fnuz => (3, 8),
        DType::F8E4M3B11Fnuz => (3, 11),
        DType::F8E5M2 => (2, 15),
        DType::F8E5M2Fnuz => (2, 16),
        DType::F8E8M0Fnu if bits == 0xff => return Some(f64::NAN),
        DType::F8E8M0Fnu => return Some(2f64.powi(i32::from(bits) - 127)),
        _ => return None,
    };
    let (magnitude, infinity) = (bits & 0x7f, 0x80 - (1 << mantissa));
    let value = match dtype {
        DType::F8E4M3Fn if magnitude == 0x7f => f64::NAN,
        DType::F8E4M3Fn => finite(magnitude, mantissa, bias),
        DType::F8E4M3Fnuz | DType::F8E4M3B11Fnuz | DType::F8E5M2Fnuz if bits == 0x80 => f64::NAN,
        DType::F8E4M3Fnuz | DType::F8E4M3B11Fnuz | DType::F8E5M2Fnuz => {
            finite(magnitude, mantissa, bias)
        }
        _ if magnitude > infinity => f64::NAN,
        _ if magnitude == infinity => f64::INFINITY,
        _ => finite(magnitude, mantissa, bias),
    };
    Some(if bits & 0x80 == 0 { value } else { -value })
}

fn finite(magnitude: u8, mantissa: i32, bias: i32) -> f64 {
    let (exponent, fraction) = (magnitude >> mantissa, magnitude & ((1 << mantissa) - 1));
    let (hidden, exponent) = match exponent {
        0 => (0, 1),
        _ => (1 << mantissa, i32::from(exponent)),
    };
    f64::from(fraction + hidden) * 2f64.powi(exponent - bias - mantissa)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_specifications() {
        let check = |dtype, bits, expected: f64| assert_eq!(float8(dtype, bits), Some(expected));
        check(DType::F8E4M3Fn, 0x7e, 448.0);
        check(DType::F8E4M3Fn, 0x01, 2f64.powi(-9));
        check(DType::F8E4M3Fn, 0xb8, -1.0);
        check(DType::F8E4M3, 0x77, 240.0);
        check(DType::F8E4M3, 0x78, f64::INFINITY);
        check(DType::F8E5M2, 0x7b, 57344.0);
        check(DType::F8E5M2, 0xfc, f64::NEG_INFINITY);
        check(DType::F8E3M4, 0x6f, 15.5);
        check(DType::F8E4M3Fnuz, 0x7f, 240.0);
        check(DType::F8E4M3B11Fnuz, 0x7f, 30.0);
        check(DType::F8E5M2Fnuz, 0x7f, 57344.0);
        check(DType::F8E8M0Fnu, 0x7f, 1.0);
        assert!(float8(DType::F8E4M3Fn, 0xff).unwrap().is_nan());
        assert!(float8(DType::F8E5M2Fnuz, 0x80).unwrap().is_nan());
        assert!(float8(DType::F8E8M0Fnu, 0xff).unwrap().is_nan());
        assert_eq!(float8(DType::U8, 1), None);
    }
}
