//! Rounding of literals to floats of at most 8 bits (<https://arxiv.org/abs/2209.05433>, OCP
//! Microscaling Formats, and the types of LLVM's `APFloat`).

use halite_core::SpecialValues;

use crate::ElementType;

/// The code of the nearest number, ties to even; 0 for types that are no floats.
pub(super) fn encode(element: ElementType, value: f64) -> u8 {
    let Some(format) = element.float_format() else {
        return 0;
    };
    let code = if value.is_nan() && format.specials == SpecialValues::AllFinite {
        format.largest()
    } else if value.is_nan() {
        format.encode(f64::NAN)
    } else if format.is_signed {
        format.encode(value)
    } else {
        // Powers of two have no sign and no 0; literals mean the magnitude.
        let magnitude = value.abs().max(f64::MIN_POSITIVE);
        if magnitude > 1.25 * format.decode(format.largest()) {
            format.encode(f64::NAN)
        } else {
            format.encode(magnitude)
        }
    };
    code as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_floats_round_to_nearest_even() {
        let cases = [
            (ElementType::F8E4M3Fn, 1.0, 0x38),
            (ElementType::F8E4M3Fn, -0.5, 0xb0),
            (ElementType::F8E4M3Fn, 448.0, 0x7e),
            (ElementType::F8E4M3Fn, 464.0, 0x7e),
            (ElementType::F8E4M3Fn, 465.0, 0x7f),
            (ElementType::F8E4M3Fn, 1.0625, 0x38),
            (ElementType::F8E4M3Fn, 1.1875, 0x3a),
            (ElementType::F8E5M2, 1e9, 0x7c),
            (ElementType::F8E5M2, f64::NAN, 0x7e),
            (ElementType::F8E5M2Fnuz, -0.0, 0x00),
            (ElementType::F8E4M3Fnuz, 1e9, 0x80),
            (ElementType::F8E4M3, 0.001953125, 0x01),
            (ElementType::F8E8M0Fnu, 2.0, 0x80),
            (ElementType::F8E8M0Fnu, 3.0, 0x81),
            (ElementType::F8E8M0Fnu, 0.0, 0x00),
            (ElementType::F4E2M1Fn, -6.0, 0x0f),
            (ElementType::F4E2M1Fn, 2.5, 0x04),
            (ElementType::F6E3M2Fn, 28.0, 0x1f),
        ];
        for (element, value, code) in cases {
            assert_eq!(encode(element, value), code, "{value} as {element}");
        }
    }
}
