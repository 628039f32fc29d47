//! `bf16` and `f16` in registers of `f32`: rounding without a branch, for vectors.
//!
//! A sum, a difference, a product or a quotient of narrow numbers in `f32`, rounded again, is the
//! exact result rounded once, because `f32` has more than twice their bits. That does not hold for
//! products and quotients below the smallest normal number of `bf16`, which is that of `f32`, and
//! for results of transcendental functions: these are rounded [to odd](to_odd) first.

/// An `f64` as an `f32` that is never halfway between two numbers of a narrower format, unless it
/// is equal to one: what is inexact has an odd last bit.
#[inline(always)]
pub(crate) fn to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let wide = f64::from(nearest);
    let bits = nearest.to_bits();
    let towards_zero = if wide.abs() > x.abs() {
        bits.wrapping_sub(1)
    } else {
        bits
    };
    if wide == x || x.is_nan() {
        nearest
    } else {
        f32::from_bits(towards_zero | 1)
    }
}

/// An integer as [`to_odd`] rounds numbers.
#[inline(always)]
pub(crate) fn odd_from(value: i128) -> f32 {
    let nearest = value as f32;
    let back = nearest as i128;
    let bits = nearest.to_bits();
    let towards_zero = bits - u32::from(back.unsigned_abs() > value.unsigned_abs());
    if back == value {
        nearest
    } else {
        f32::from_bits(towards_zero | 1)
    }
}

/// The quiet NaN with the sign of a number.
#[inline(always)]
fn nan(bits: u32) -> f32 {
    f32::from_bits(bits & 0x8000_0000 | 0x7fc0_0000)
}

/// The nearest number of `bf16`, the even one of two.
#[inline(always)]
pub(crate) fn round_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let odd = bits >> 16 & 1;
    let nearest = bits.wrapping_add(0x7fff + odd) & 0xffff_0000;
    if x.is_nan() {
        nan(bits)
    } else {
        f32::from_bits(nearest)
    }
}

/// The bits of the smallest normal number of `f16`, and of 2^16, as `f32`.
const LEAST_F16: u32 = 0x3880_0000;
const BEYOND_F16: u32 = 0x4780_0000;
/// The difference of the exponents' biases of `f32` and `f16`, as bits of `f32`.
const BIAS: u32 = 112 << 23;
/// The bits of 0.5, whose last place is the smallest number of `f16`.
const HALF: u32 = 0x3f00_0000;

/// The nearest number of `f16`, the even one of two.
#[inline(always)]
pub(crate) fn round_f16(x: f32) -> f32 {
    let bits = x.to_bits();
    let (sign, magnitude) = (bits & 0x8000_0000, bits & 0x7fff_ffff);
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_add(0xfff + odd) & !0x1fff;
    let normal = if normal >= BEYOND_F16 {
        0x7f80_0000
    } else {
        normal
    };
    let subnormal = (f32::from_bits(magnitude) + 0.5) - 0.5;
    let rounded = if magnitude < LEAST_F16 {
        subnormal.to_bits()
    } else {
        normal
    };
    if x.is_nan() {
        nan(bits)
    } else {
        f32::from_bits(sign | rounded)
    }
}

/// The number with these bits of `bf16`.
#[inline(always)]
pub(crate) fn from_bf16(bits: u16) -> u32 {
    u32::from(bits) << 16
}

/// The number with these bits of `f16`, as bits of `f32`.
#[inline(always)]
pub(crate) fn from_f16(bits: u16) -> u32 {
    let bits = u32::from(bits);
    let (sign, magnitude) = ((bits & 0x8000) << 16, bits & 0x7fff);
    let normal = (magnitude << 13).wrapping_add(BIAS);
    let subnormal = (f32::from_bits(HALF | magnitude) - 0.5).to_bits();
    let special = magnitude << 13 | 0x7f80_0000;
    let finite = if magnitude < 0x400 { subnormal } else { normal };
    sign | if magnitude >= 0x7c00 { special } else { finite }
}

/// The bits of a number of `bf16`, given as `f32`.
#[inline(always)]
pub(crate) fn to_bf16(bits: u32) -> u16 {
    (bits >> 16) as u16
}

/// The bits of a number of `f16`, given as bits of `f32`.
#[inline(always)]
pub(crate) fn to_f16(bits: u32) -> u16 {
    let (sign, magnitude) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    let normal = magnitude.wrapping_sub(BIAS) >> 13;
    let subnormal = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(HALF);
    let special = magnitude >> 13 & 0x3ff | 0x7c00;
    let finite = if magnitude < LEAST_F16 {
        subnormal
    } else {
        normal
    };
    let magnitude = if magnitude >= 0x7f80_0000 {
        special
    } else {
        finite
    };
    (sign | magnitude) as u16
}

#[cfg(test)]
pub(crate) mod tests {
    use half::{bf16, f16};

    use super::*;

    /// The nearest number of a format: bits of the mantissa, exponent of the smallest normal number,
    /// and largest number.
    fn nearest(x: f64, mantissa: i32, least: i32, largest: f64) -> f32 {
        if x == 0.0 || !x.is_finite() {
            return x as f32;
        }
        let exponent = ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(least);
        let unit = 2f64.powi(exponent - mantissa);
        let rounded = (x / unit).round_ties_even() * unit;
        let beyond = f32::INFINITY.copysign(x as f32);
        if rounded.abs() > largest {
            beyond
        } else {
            rounded as f32
        }
    }

    pub(crate) fn nearest_bf16(x: f64) -> f32 {
        nearest(x, 7, -126, f64::from(bf16::MAX))
    }

    pub(crate) fn nearest_f16(x: f64) -> f32 {
        nearest(x, 10, -14, f64::from(f16::MAX))
    }

    #[test]
    fn every_number_of_16_bits_is_kept() {
        for bits in 0..=u16::MAX {
            assert_eq!(to_bf16(from_bf16(bits)), bits);
            assert_eq!(to_f16(from_f16(bits)), bits);
            let (x, y) = (bf16::from_bits(bits), f16::from_bits(bits));
            if !x.is_nan() {
                assert_eq!(from_bf16(bits), x.to_f32().to_bits());
                assert_eq!(round_bf16(x.to_f32()).to_bits(), from_bf16(bits));
            }
            if !y.is_nan() {
                assert_eq!(from_f16(bits), y.to_f32().to_bits(), "{bits:x}");
                assert_eq!(round_f16(y.to_f32()).to_bits(), from_f16(bits), "{bits:x}");
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        // All exponents, both signs, NaNs and infinities; halves with even and odd neighbors.
        for high in 0..=u32::from(u16::MAX) {
            for low in [
                0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0xfff, 0x1000, 0x1001, 0x3000,
            ] {
                let x = f32::from_bits(high << 16 | low);
                if x.is_nan() {
                    assert!(round_bf16(x).is_nan() && round_f16(x).is_nan());
                    assert_eq!(round_f16(x).is_sign_negative(), x.is_sign_negative());
                    continue;
                }
                assert_eq!(round_bf16(x), bf16::from_f32(x).to_f32(), "{x:e}");
                assert_eq!(round_f16(x), f16::from_f32(x).to_f32(), "{x:e}");
            }
        }
    }

    #[test]
    fn rounding_to_odd_and_then_to_nearest_rounds_once() {
        for bits in 0..u32::from(u16::MAX) {
            for near in [-1e-12, -1e-7, 0.0, 1e-7, 1e-12] {
                for half in [0x8000, 0x1000, 0x3000] {
                    let x = f64::from(f32::from_bits(bits << 16 | half)) * (1.0 + near);
                    if x.is_nan() {
                        continue;
                    }
                    assert_eq!(round_bf16(to_odd(x)), nearest_bf16(x), "{x:e}");
                    assert_eq!(round_f16(to_odd(x)), nearest_f16(x), "{x:e}");
                }
            }
        }
    }
}
