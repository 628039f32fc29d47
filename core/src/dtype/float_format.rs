//! Binary floating-point formats, as bits and as `f64`.
//!
//! Every value of these formats is an `f64`, so decoding is exact and encoding rounds once. Formats
//! are those of IEEE 754 and of the OCP specifications for 8-bit floats and microscaling formats.

/// A binary floating-point format: a sign, an exponent and a mantissa, from the highest bit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FloatFormat {
    /// Bits of the exponent.
    pub exponent_bits: u32,
    /// Bits of the mantissa, without the hidden one.
    pub mantissa_bits: u32,
    /// What the exponent's code exceeds the exponent by.
    pub bias: i32,
    /// Encodings that are not finite numbers.
    pub specials: SpecialValues,
    /// Whether there is a sign. A format without it has powers of two alone, and no zero.
    pub is_signed: bool,
}

/// Encodings of a [`FloatFormat`] that are not finite numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SpecialValues {
    /// Infinities and NaN have an exponent of ones.
    Ieee,
    /// All ones is NaN; there are no infinities (`FN`).
    OnesAreNan,
    /// The bits of -0 are NaN; there are no infinities (`FNUZ`).
    NegativeZeroIsNan,
    /// All bits are finite numbers.
    AllFinite,
}

impl FloatFormat {
    /// The format of IEEE 754 with these numbers of bits.
    pub(super) const fn ieee(exponent_bits: u32, mantissa_bits: u32) -> Self {
        let bias = (1 << (exponent_bits - 1)) - 1;
        FloatFormat::new(exponent_bits, mantissa_bits, bias, SpecialValues::Ieee)
    }

    /// A format with a sign.
    pub(super) const fn new(
        exponent_bits: u32,
        mantissa_bits: u32,
        bias: i32,
        specials: SpecialValues,
    ) -> Self {
        FloatFormat {
            exponent_bits,
            mantissa_bits,
            bias,
            specials,
            is_signed: true,
        }
    }

    /// A format of powers of two.
    pub(super) const fn exponents(exponent_bits: u32, bias: i32) -> Self {
        FloatFormat {
            exponent_bits,
            mantissa_bits: 0,
            bias,
            specials: SpecialValues::OnesAreNan,
            is_signed: false,
        }
    }

    /// The bit above exponent and mantissa: the sign, in formats that have it.
    const fn sign_bit(self) -> u64 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    const fn exponent_of_ones(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }

    /// Bits of the largest finite number.
    pub const fn largest(self) -> u64 {
        match self.specials {
            SpecialValues::Ieee => self.exponent_of_ones() - 1,
            SpecialValues::OnesAreNan => self.sign_bit() - 2,
            SpecialValues::NegativeZeroIsNan | SpecialValues::AllFinite => self.sign_bit() - 1,
        }
    }

    /// The number with these bits; bits above the format's are not part of it.
    #[inline]
    pub const fn decode(self, bits: u64) -> f64 {
        let magnitude = bits & (self.sign_bit() - 1);
        let is_negative = self.is_signed && bits & self.sign_bit() != 0;
        let is_nan = match self.specials {
            SpecialValues::Ieee => magnitude > self.exponent_of_ones(),
            SpecialValues::OnesAreNan => magnitude == self.sign_bit() - 1,
            SpecialValues::NegativeZeroIsNan => is_negative && magnitude == 0,
            SpecialValues::AllFinite => false,
        };
        let value = if is_nan {
            f64::NAN
        } else if matches!(self.specials, SpecialValues::Ieee)
            && magnitude == self.exponent_of_ones()
        {
            f64::INFINITY
        } else {
            let exponent = (magnitude >> self.mantissa_bits) as i32;
            let fraction = magnitude & ((1 << self.mantissa_bits) - 1);
            let (hidden, exponent) = if self.is_signed && exponent == 0 {
                (0, 1)
            } else {
                (1 << self.mantissa_bits, exponent)
            };
            let scale = exponent - self.bias - self.mantissa_bits as i32;
            (fraction + hidden) as f64 * power_of_two(scale)
        };
        if is_negative { -value } else { value }
    }

    /// The bits of the nearest number, ties to even. What is too large becomes infinite, else NaN,
    /// else the largest number, whichever the format has first; NaN becomes -0 in formats without
    /// it. In a format without a sign ties go up, and what is not positive becomes NaN, as in XLA.
    pub fn encode(self, value: f64) -> u64 {
        if !self.is_signed {
            return self.encode_power(value);
        }
        let sign = if value.is_sign_negative() {
            self.sign_bit()
        } else {
            0
        };
        if value.is_nan() {
            return match self.specials {
                SpecialValues::Ieee => {
                    sign | self.exponent_of_ones() | 1 << (self.mantissa_bits.max(1) - 1)
                }
                SpecialValues::OnesAreNan => sign | (self.sign_bit() - 1),
                SpecialValues::NegativeZeroIsNan | SpecialValues::AllFinite => self.sign_bit(),
            };
        }
        let magnitude = self.encode_magnitude(value.abs());
        match (magnitude, self.specials) {
            (Some(0), SpecialValues::NegativeZeroIsNan) => 0,
            (Some(bits), _) => sign | bits,
            (None, SpecialValues::Ieee) => sign | self.exponent_of_ones(),
            (None, SpecialValues::OnesAreNan) => sign | (self.sign_bit() - 1),
            (None, SpecialValues::NegativeZeroIsNan) => self.sign_bit(),
            (None, SpecialValues::AllFinite) => sign | self.largest(),
        }
    }

    /// Bits of a number that is not negative; `None` if it rounds to more than the largest.
    fn encode_magnitude(self, value: f64) -> Option<u64> {
        if value.is_infinite() {
            return None;
        }
        let exponent = exponent_of(value).max(1 - self.bias);
        // Exact: a power of two times a number that does not become subnormal.
        let scaled = value / power_of_two(exponent - self.mantissa_bits as i32);
        let rounded = scaled.round_ties_even() as u64;
        let exponents = (exponent + self.bias - 1) as u64;
        let bits = (exponents << self.mantissa_bits) + rounded;
        (bits <= self.largest()).then_some(bits)
    }

    /// Bits of the nearest power of two.
    fn encode_power(self, value: f64) -> u64 {
        let nan = self.sign_bit() - 1;
        if !(value > 0.0 && value.is_finite()) {
            return nan;
        }
        let exponent = exponent_of(value);
        let ratio = value / power_of_two(exponent);
        let code = exponent + self.bias + i32::from(ratio >= 1.5);
        (code.max(0) as u64).min(nan)
    }
}

/// The exponent of a finite number, that of the smallest normal `f64` if it is smaller.
fn exponent_of(value: f64) -> i32 {
    ((value.to_bits() >> 52 & 0x7ff) as i32).max(1) - 1023
}

/// Two to a power that is an `f64`: from -1074 to 1023.
const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(if exponent >= -1022 {
        ((exponent + 1023) as u64) << 52
    } else {
        1 << (exponent + 1074)
    })
}

#[cfg(test)]
mod tests {
    use super::FloatFormat;
    use crate::ElementType;

    /// Formats with a sign of at most 16 bits.
    fn formats() -> impl Iterator<Item = (ElementType, FloatFormat)> {
        ElementType::ALL
            .into_iter()
            .filter(|ty| ty.bits() <= 16)
            .filter_map(|ty| Some((ty, ty.float_format()?)))
            .filter(|(_, format)| format.is_signed)
    }

    #[test]
    fn every_number_round_trips() {
        let mut checked = 0;
        for (ty, format) in formats() {
            for bits in 0..2 * format.sign_bit() {
                let value = format.decode(bits);
                if !value.is_nan() {
                    assert_eq!(format.encode(value), bits, "{ty} {value}");
                    checked += 1;
                }
            }
        }
        assert!(checked > 2 * 60_000);
    }

    #[test]
    fn powers_of_two_round_trip() {
        let format = ElementType::F8E8M0Fnu.float_format().unwrap();
        for bits in 0..255 {
            assert_eq!(format.encode(format.decode(bits)), bits);
        }
        assert!(format.decode(0xff).is_nan());
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 2f64.powi(128)] {
            assert_eq!(format.encode(value), 0xff, "{value}");
        }
        assert_eq!(format.encode(3.0), 0x81);
    }

    #[test]
    fn wide_formats_are_those_of_rust() {
        let single = ElementType::F32.float_format().unwrap();
        for value in [0.0f32, -0.0, 1.5, 1e-45, f32::MIN_POSITIVE, f32::MAX] {
            assert_eq!(single.decode(value.to_bits().into()), value.into());
            assert_eq!(single.encode(value.into()), value.to_bits().into());
        }
        let double = ElementType::F64.float_format().unwrap();
        for value in [0.0, -0.0, 1.5, 5e-324, f64::MIN_POSITIVE, f64::MAX] {
            assert_eq!(double.decode(value.to_bits()).to_bits(), value.to_bits());
            assert_eq!(double.encode(value), value.to_bits());
        }
    }

    #[test]
    fn halfway_rounds_to_even() {
        for (ty, format) in formats() {
            for bits in 0..format.largest() {
                let (low, high) = (format.decode(bits), format.decode(bits + 1));
                let even = bits + bits % 2;
                assert_eq!(format.encode((low + high) / 2.0), even, "{ty} {low}");
                assert_eq!(
                    format.encode(low + (high - low) * 0.499),
                    bits,
                    "{ty} {low}"
                );
                assert_eq!(
                    format.encode(low + (high - low) * 0.501),
                    bits + 1,
                    "{ty} {low}"
                );
            }
        }
    }

    #[test]
    fn overflow_follows_the_format() {
        let encode = |ty: ElementType, value| ty.float_format().unwrap().encode(value);
        assert_eq!(encode(ElementType::F16, 65520.0), 0x7c00);
        assert_eq!(encode(ElementType::F8E4M3Fn, 465.0), 0x7f);
        assert_eq!(encode(ElementType::F8E4M3Fnuz, -300.0), 0x80);
        assert_eq!(encode(ElementType::F4E2M1Fn, -1e9), 0xf);
    }
}
