//! Floating-point formats of at most 16 bits, as bits and as `f64`.
//!
//! Every value of these formats is an `f64`, so that decoding is exact and encoding rounds once, to
//! nearest, ties to even. Formats are those of the OCP specifications for 8-bit floats and
//! microscaling formats, and of IEEE 754.

use halite_stablehlo::ElementType;

/// A binary floating-point format: a sign, an exponent and a mantissa.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    specials: Specials,
}

/// Encodings that are not finite numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Specials {
    /// Infinities and NaN have an exponent of ones.
    Ieee,
    /// All ones is NaN; there are no infinities (`FN`).
    OnesAreNan,
    /// The bits of -0 are NaN; there are no infinities (`FNUZ`).
    NegativeZeroIsNan,
    /// All bits are finite (`f4E2M1FN`, `f6E2M3FN`, `f6E3M2FN`).
    None,
}

impl Format {
    /// The format of IEEE 754 with these numbers of bits.
    fn ieee(exponent: u32, mantissa: u32) -> Self {
        Format {
            exponent,
            mantissa,
            bias: (1 << (exponent.clamp(1, 15) - 1)) - 1,
            specials: Specials::Ieee,
        }
    }

    /// The format of an element type; `None` for types with another structure.
    pub(super) fn of(element: ElementType) -> Option<Self> {
        let format = |exponent, mantissa, bias, specials| Format {
            exponent,
            mantissa,
            bias,
            specials,
        };
        Some(match element {
            ElementType::F16 => Format::ieee(5, 10),
            ElementType::Bf16 => Format::ieee(8, 7),
            ElementType::F8E3M4 => Format::ieee(3, 4),
            ElementType::F8E4M3 => Format::ieee(4, 3),
            ElementType::F8E5M2 => Format::ieee(5, 2),
            ElementType::F8E4M3Fn => format(4, 3, 7, Specials::OnesAreNan),
            ElementType::F8E4M3Fnuz => format(4, 3, 8, Specials::NegativeZeroIsNan),
            ElementType::F8E4M3B11Fnuz => format(4, 3, 11, Specials::NegativeZeroIsNan),
            ElementType::F8E5M2Fnuz => format(5, 2, 16, Specials::NegativeZeroIsNan),
            ElementType::F4E2M1Fn => format(2, 1, 1, Specials::None),
            ElementType::F6E2M3Fn => format(2, 3, 1, Specials::None),
            ElementType::F6E3M2Fn => format(3, 2, 3, Specials::None),
            _ => return None,
        })
    }

    fn sign_bit(self) -> u64 {
        1 << (self.exponent + self.mantissa)
    }

    fn exponent_of_ones(self) -> u64 {
        ((1 << self.exponent) - 1) << self.mantissa
    }

    /// Bits of the largest finite number.
    fn largest(self) -> u64 {
        match self.specials {
            Specials::Ieee => self.exponent_of_ones() - 1,
            Specials::OnesAreNan => self.sign_bit() - 2,
            Specials::NegativeZeroIsNan | Specials::None => self.sign_bit() - 1,
        }
    }

    /// The number with these bits.
    pub(super) fn decode(self, bits: u64) -> f64 {
        let magnitude = bits & (self.sign_bit() - 1);
        let is_nan = match self.specials {
            Specials::Ieee => magnitude > self.exponent_of_ones(),
            Specials::OnesAreNan => magnitude == self.sign_bit() - 1,
            Specials::NegativeZeroIsNan => bits == self.sign_bit(),
            Specials::None => false,
        };
        let value = if is_nan {
            f64::NAN
        } else if self.specials == Specials::Ieee && magnitude == self.exponent_of_ones() {
            f64::INFINITY
        } else {
            let exponent = (magnitude >> self.mantissa) as i32;
            let fraction = magnitude & ((1 << self.mantissa) - 1);
            let hidden = if exponent == 0 { 0 } else { 1 << self.mantissa };
            let scale = exponent.max(1) - self.bias - self.mantissa as i32;
            (fraction + hidden) as f64 * power_of_two(scale)
        };
        if bits & self.sign_bit() == 0 {
            value
        } else {
            -value
        }
    }

    /// The bits of the nearest number. What is too large becomes infinite, else NaN, else the
    /// largest number, whichever the format has first; NaN becomes -0 in formats without it.
    pub(super) fn encode(self, value: f64) -> u64 {
        let sign = if value.is_sign_negative() {
            self.sign_bit()
        } else {
            0
        };
        if value.is_nan() {
            return match self.specials {
                Specials::Ieee => sign | self.exponent_of_ones() | 1 << (self.mantissa.max(1) - 1),
                Specials::OnesAreNan => sign | (self.sign_bit() - 1),
                Specials::NegativeZeroIsNan | Specials::None => self.sign_bit(),
            };
        }
        let magnitude = self.encode_magnitude(value.abs());
        match (magnitude, self.specials) {
            (Some(0), Specials::NegativeZeroIsNan) => 0,
            (Some(bits), _) => sign | bits,
            (None, Specials::Ieee) => sign | self.exponent_of_ones(),
            (None, Specials::OnesAreNan) => sign | (self.sign_bit() - 1),
            (None, Specials::NegativeZeroIsNan) => self.sign_bit(),
            (None, Specials::None) => sign | self.largest(),
        }
    }

    /// Bits of a number that is not negative; `None` if it rounds to more than the largest.
    fn encode_magnitude(self, value: f64) -> Option<u64> {
        if value.is_infinite() {
            return None;
        }
        let exponent = exponent_of(value).max(1 - self.bias);
        // Exact: a power of two times a number that does not become subnormal.
        let scaled = value / power_of_two(exponent - self.mantissa as i32);
        let rounded = scaled.round_ties_even() as u64;
        let exponents = (exponent + self.bias - 1) as u64;
        let bits = (exponents << self.mantissa) + rounded;
        (bits <= self.largest()).then_some(bits)
    }
}

/// `f8E8M0FNU`: the exponent of a power of two; all ones is NaN.
pub(super) fn decode_e8m0(bits: u8) -> f64 {
    if bits == 0xff {
        f64::NAN
    } else {
        power_of_two(i32::from(bits) - 127)
    }
}

/// The nearest power of two, ties up; NaN for what is not positive. Same as XLA; constants of the
/// text differ, where MLIR reads the magnitude.
pub(super) fn encode_e8m0(value: f64) -> u8 {
    if !(value > 0.0 && value.is_finite()) {
        return 0xff;
    }
    let exponent = exponent_of(value);
    let ratio = value / power_of_two(exponent);
    (exponent + 127 + i32::from(ratio >= 1.5)).clamp(0, 0xff) as u8
}

/// The exponent of a finite number, that of the smallest normal `f64` if it is smaller.
fn exponent_of(value: f64) -> i32 {
    ((value.to_bits() >> 52 & 0x7ff) as i32).max(1) - 1023
}

fn power_of_two(exponent: i32) -> f64 {
    2f64.powi(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formats() -> impl Iterator<Item = (ElementType, Format)> {
        ElementType::ALL
            .into_iter()
            .filter_map(|ty| Some((ty, Format::of(ty)?)))
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
    fn extremes_are_those_of_the_specifications() {
        let largest = |ty| {
            let format = Format::of(ty).unwrap();
            format.decode(format.largest())
        };
        assert_eq!(largest(ElementType::F16), 65504.0);
        assert_eq!(largest(ElementType::F8E4M3Fn), 448.0);
        assert_eq!(largest(ElementType::F8E4M3), 240.0);
        assert_eq!(largest(ElementType::F8E5M2), 57344.0);
        assert_eq!(largest(ElementType::F8E4M3Fnuz), 240.0);
        assert_eq!(largest(ElementType::F8E4M3B11Fnuz), 30.0);
        assert_eq!(largest(ElementType::F8E3M4), 15.5);
        assert_eq!(largest(ElementType::F4E2M1Fn), 6.0);
        assert_eq!(largest(ElementType::F6E2M3Fn), 7.5);
        assert_eq!(largest(ElementType::F6E3M2Fn), 28.0);
    }

    #[test]
    fn overflow_follows_the_format() {
        let encode = |ty, value| Format::of(ty).unwrap().encode(value);
        assert_eq!(encode(ElementType::F16, 65520.0), 0x7c00);
        assert_eq!(encode(ElementType::F8E4M3Fn, 465.0), 0x7f);
        assert_eq!(encode(ElementType::F8E4M3Fnuz, -300.0), 0x80);
        assert_eq!(encode(ElementType::F4E2M1Fn, -1e9), 0xf);
    }
}
