//! Rounding to floats of at most 8 bits (<https://arxiv.org/abs/2209.05433>, OCP Microscaling
//! Formats, and the types of LLVM's `APFloat`).

use crate::ElementType;

/// A format: sign, exponent and mantissa from the highest bit.
struct Format {
    mantissa_bits: u32,
    bias: i32,
    /// The code of the largest finite number; codes of positive numbers ascend.
    largest: u8,
    /// The code of numbers that are too large, without their sign.
    overflow: u8,
    /// The code of a NaN; formats without one have the largest number.
    nan: u8,
    sign: u8,
    /// Whether the code of -0 is a NaN.
    unsigned_zero: bool,
}

const fn format(element: ElementType) -> Option<Format> {
    // Bits of the mantissa, bias, and codes of the largest number, of overflow and of NaN.
    let (mantissa_bits, bias, largest, overflow, nan) = match element {
        ElementType::F4E2M1Fn => (1, 1, 0x07, 0x07, 0x07),
        ElementType::F6E2M3Fn => (3, 1, 0x1f, 0x1f, 0x1f),
        ElementType::F6E3M2Fn => (2, 3, 0x1f, 0x1f, 0x1f),
        ElementType::F8E3M4 => (4, 3, 0x6f, 0x70, 0x78),
        ElementType::F8E4M3 => (3, 7, 0x77, 0x78, 0x7c),
        ElementType::F8E4M3Fn => (3, 7, 0x7e, 0x7f, 0x7f),
        ElementType::F8E4M3Fnuz => (3, 8, 0x7f, 0x80, 0x80),
        ElementType::F8E4M3B11Fnuz => (3, 11, 0x7f, 0x80, 0x80),
        ElementType::F8E5M2 => (2, 15, 0x7b, 0x7c, 0x7e),
        ElementType::F8E5M2Fnuz => (2, 16, 0x7f, 0x80, 0x80),
        ElementType::F8E8M0Fnu => (0, 127, 0xfe, 0xff, 0xff),
        _ => return None,
    };
    Some(Format {
        mantissa_bits,
        bias,
        largest,
        overflow,
        nan,
        sign: match element {
            ElementType::F8E8M0Fnu => 0,
            _ => 1 << (element.bits() - 1),
        },
        unsigned_zero: nan == 0x80,
    })
}

/// The code of the nearest number, ties to even.
pub(super) fn encode(element: ElementType, value: f64) -> u8 {
    let Some(format) = format(element) else {
        return 0;
    };
    if value.is_nan() {
        return format.nan;
    }
    let magnitude = value.abs();
    let code = format.nearest(magnitude);
    let sign = if value.is_sign_negative() {
        format.sign
    } else {
        0
    };
    match code {
        0 if format.unsigned_zero => 0,
        code => code | sign,
    }
}

impl Format {
    /// The number that a positive code means.
    fn decode(&self, code: u8) -> f64 {
        let exponent = i32::from(code >> self.mantissa_bits);
        let fraction = f64::from(code & ((1 << self.mantissa_bits) - 1));
        let one = f64::from(1_u32 << self.mantissa_bits);
        match exponent {
            // Subnormal.
            0 if self.sign != 0 => (1 - self.bias).exp2() * (fraction / one),
            _ => (exponent - self.bias).exp2() * (1.0 + fraction / one),
        }
    }

    fn nearest(&self, magnitude: f64) -> u8 {
        // The first code above `magnitude`, if any.
        let (mut low, mut high) = (0_u8, self.largest);
        if magnitude >= self.decode(high) {
            // Half a step above the largest number, where the next one would round to.
            let largest = self.decode(high);
            let step = largest - self.decode(high - 1);
            let tie = largest + step / 2.0;
            let odd = high % 2 == 1;
            let over = magnitude > tie || (magnitude == tie && odd);
            return if over { self.overflow } else { high };
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.decode(middle) <= magnitude {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let above = low;
        let Some(below) = above.checked_sub(1) else {
            return 0;
        };
        let (down, up) = (
            magnitude - self.decode(below),
            self.decode(above) - magnitude,
        );
        // Without a mantissa, powers of 2 have no even code to prefer: ties go up.
        let even = if below % 2 == 0 && self.mantissa_bits > 0 {
            below
        } else {
            above
        };
        match down.total_cmp(&up) {
            std::cmp::Ordering::Less => below,
            std::cmp::Ordering::Equal => even,
            std::cmp::Ordering::Greater => above,
        }
    }
}

trait Exp2 {
    /// 2 to this power.
    fn exp2(self) -> f64;
}

impl Exp2 for i32 {
    fn exp2(self) -> f64 {
        f64::from(self).exp2()
    }
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
            (ElementType::F8E3M4, 0.015625, 0x01),
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
