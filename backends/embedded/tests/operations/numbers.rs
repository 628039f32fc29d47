//! Elements as bits: random ones, their values, and distances between them.

use halite_stablehlo::{ElementClass, ElementType};

use crate::operations::random::Random;

/// Values that inputs have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Range {
    /// Any bits, among them NaN, infinities and extremes, but no denormals that XLA flushes.
    Any,
    /// Any bits.
    WithDenormals,
    /// Zero, and finite numbers of a magnitude between 1/64 and 4; integers up to 4.
    Small,
    /// As `Small`, without zeros and negative numbers.
    Positive,
}

/// Bits of the mantissa and of the exponent, and the bias of the exponent.
fn format(element: ElementType) -> (u32, u32, i32) {
    match element.float_format() {
        Some(it) if it.is_signed => (it.mantissa_bits, it.exponent_bits, it.bias),
        _ => panic!("{element} has no sign, exponent and mantissa"),
    }
}

/// Whether a type has numbers that [`is_flushed`].
pub(crate) fn has_flushed(element: ElementType) -> bool {
    let part = element.part().unwrap_or(element);
    matches!(
        part,
        ElementType::Bf16 | ElementType::F32 | ElementType::F64 | ElementType::F8E8M0Fnu
    )
}

/// Whether XLA's plugin takes the number as 0: it computes in `f32`, at least, and flushes
/// denormals.
pub(crate) fn is_flushed(element: ElementType, bits: u64) -> bool {
    let smallest = match element {
        ElementType::F64 => f64::MIN_POSITIVE,
        ElementType::F32 | ElementType::Bf16 | ElementType::F8E8M0Fnu => f32::MIN_POSITIVE.into(),
        _ => return false,
    };
    let value = float(element, bits);
    value != 0.0 && value.abs() < smallest
}

/// Whether an element is 0, of either sign.
pub(crate) fn is_zero(element: ElementType, bytes: &[u8]) -> bool {
    let bits = bytes
        .iter()
        .rev()
        .fold(0, |bits, &byte| bits << 8 | u64::from(byte));
    match element.class() {
        ElementClass::Float => float(element, bits) == 0.0,
        _ => bits == 0,
    }
}

/// Distance between 1 and the next number.
pub(crate) fn epsilon(element: ElementType) -> f64 {
    match element.part().unwrap_or(element) {
        ElementType::F8E8M0Fnu => 1.0,
        float => 2f64.powi(-(format(float).0 as i32)),
    }
}

/// The value of a float.
pub(crate) fn float(element: ElementType, bits: u64) -> f64 {
    match element {
        ElementType::F64 => return f64::from_bits(bits),
        ElementType::F32 => return f32::from_bits(bits as u32).into(),
        ElementType::F8E8M0Fnu if bits == 0xff => return f64::NAN,
        ElementType::F8E8M0Fnu => return 2f64.powi(bits as i32 - 127),
        _ => {}
    }
    let (mantissa, exponent, bias) = format(element);
    let sign_bit = 1 << (mantissa + exponent);
    let magnitude = bits & (sign_bit - 1);
    let ones = ((1 << exponent) - 1) << mantissa;
    let name = element.name();
    let value = if name.ends_with("FNUZ") && bits == sign_bit
        || name.ends_with("FN") && magnitude == sign_bit - 1
        || !name.contains("FN") && magnitude > ones
    {
        f64::NAN
    } else if !name.contains("FN") && magnitude == ones {
        f64::INFINITY
    } else {
        let (code, fraction) = (magnitude >> mantissa, magnitude & ((1 << mantissa) - 1));
        let hidden = u64::from(code > 0) << mantissa;
        (hidden + fraction) as f64 * 2f64.powi(code.max(1) as i32 - bias - mantissa as i32)
    };
    if bits & sign_bit == 0 { value } else { -value }
}

/// Bits of a random element.
pub(crate) fn draw(random: &mut Random, element: ElementType, range: Range) -> Vec<u8> {
    let bits = match element.class() {
        ElementClass::Complex => {
            let part = element.part().expect("complex numbers have parts");
            return [(); 2].map(|()| draw(random, part, range)).concat();
        }
        ElementClass::Bool => random.next() & 1,
        ElementClass::Float => loop {
            let bits = draw_float(random, element, range);
            if range == Range::WithDenormals || !is_flushed(element, bits) {
                break bits;
            }
        },
        ElementClass::Signed | ElementClass::Unsigned => draw_integer(random, element, range),
    };
    bits.to_le_bytes()[..element.size()].to_vec()
}

fn draw_integer(random: &mut Random, element: ElementType, range: Range) -> u64 {
    let is_signed = element.class() == ElementClass::Signed;
    let bits = element.bits();
    let small = random.below(5) as u64;
    let extended = match (range, random.below(8)) {
        (Range::Positive, _) => small.clamp(1, 3),
        (Range::Small, _) if is_signed => small.wrapping_sub(2),
        (Range::Small, _) => small.min(3),
        (_, 0) => 1 << (bits - 1),
        (_, 1) => (1 << (bits - 1)) - 1,
        (_, 2) => u64::MAX,
        (_, 3 | 4) => small,
        (_, 5) => random.next() % 100,
        _ => random.next(),
    };
    // Types of less than a byte are extended to one.
    let unused = 64 - bits;
    if is_signed {
        ((extended << unused) as i64 >> unused) as u64
    } else {
        extended << unused >> unused
    }
}

fn draw_float(random: &mut Random, element: ElementType, range: Range) -> u64 {
    let (low, high) = (1.0 / 64.0, 4.0);
    if matches!(range, Range::Any | Range::WithDenormals) && random.percent(60) {
        return draw_special(random, element);
    }
    if range != Range::Positive && random.percent(5) && element != ElementType::F8E8M0Fnu {
        return 0;
    }
    loop {
        let bits = match element {
            ElementType::F64 | ElementType::F32 => {
                let unit = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
                let magnitude = low + (high - low) * unit;
                let signed = if random.percent(50) {
                    magnitude
                } else {
                    -magnitude
                };
                match element {
                    ElementType::F64 => signed.to_bits(),
                    _ => (signed as f32).to_bits().into(),
                }
            }
            _ => random.next() & ((1 << element.bits()) - 1),
        };
        let value = float(element, bits);
        let is_wanted = range != Range::Positive || value > 0.0;
        if is_wanted && (low..=high).contains(&value.abs()) {
            return bits;
        }
    }
}

/// Zeros, infinities, NaN, extremes of the exponent, halves, or any bits.
fn draw_special(random: &mut Random, element: ElementType) -> u64 {
    let all = u64::MAX >> (64 - element.bits());
    if element == ElementType::F8E8M0Fnu {
        return random.next() & all;
    }
    let (mantissa, exponent, bias) = format(element);
    let sign = all - all / 2;
    let ones = ((1 << exponent) - 1) << mantissa;
    let half = ((bias - 1) as u64) << mantissa;
    let any = random.next() & all;
    let magnitude = match random.below(12) {
        0 | 1 => 0,
        2 => ones,
        3 => ones | 1 << (mantissa - 1),
        4 => ones - 1,
        5 => 1 << mantissa,
        6 => any & ((1 << mantissa) - 1),
        7 => half,
        8 => half + ((random.below(4) as u64 + 1) << mantissa),
        // Numbers with a fraction of 1/2.
        9 => half + (2 << mantissa) + (1 << (mantissa - 1)),
        _ => any & (sign - 1),
    };
    magnitude | if random.percent(50) { sign } else { 0 }
}

/// Bits of 1 in the client's type for `element`.
pub(crate) fn one(element: ElementType) -> Vec<u8> {
    let of = |element: ElementType| match element.class() {
        ElementClass::Float if element == ElementType::F8E8M0Fnu => 127,
        ElementClass::Float => {
            let (mantissa, _, bias) = format(element);
            (bias as u64) << mantissa
        }
        _ => 1u64,
    };
    match element.part() {
        Some(part) => {
            let mut bytes = of(part).to_le_bytes()[..part.size()].to_vec();
            bytes.resize(element.size(), 0);
            bytes
        }
        None => {
            let carrier = carrier(element);
            of(carrier).to_le_bytes()[..carrier.size()].to_vec()
        }
    }
}

/// Bits of the lowest or highest number of a type that is not complex, in the client's type for it.
pub(crate) fn extreme(element: ElementType, is_lowest: bool) -> Vec<u8> {
    let bits = element.bits();
    let all = u64::MAX >> (64 - bits);
    let extended = match (element.class(), is_lowest) {
        (ElementClass::Signed, true) => u64::MAX << (bits - 1),
        (ElementClass::Signed, false) => all / 2,
        (ElementClass::Float, _) if element == ElementType::F8E8M0Fnu => {
            if is_lowest {
                0
            } else {
                254
            }
        }
        (ElementClass::Float, _) => {
            let carrier = carrier(element);
            let all = u64::MAX >> (64 - carrier.bits());
            let sign = if is_lowest { all - all / 2 } else { 0 };
            let (mantissa, exponent, _) = format(carrier);
            let ones = ((1 << exponent) - 1) << mantissa;
            // The bits of infinity, or of the largest number where there is none.
            sign + match carrier.name() {
                name if name.ends_with("FNUZ") => all / 2,
                name if name.ends_with("FN") => all / 2 - 1,
                _ => ones,
            }
        }
        (_, true) => 0,
        (_, false) => all,
    };
    extended.to_le_bytes()[..carrier(element).size()].to_vec()
}

/// The type of arrays of clients that holds every element of another type.
pub(crate) fn carrier(element: ElementType) -> ElementType {
    match element {
        ElementType::S2 | ElementType::S4 => ElementType::S8,
        ElementType::U2 | ElementType::U4 => ElementType::U8,
        ElementType::F4E2M1Fn | ElementType::F6E2M3Fn | ElementType::F6E3M2Fn => ElementType::F32,
        other => other,
    }
}

/// Numbers between two floats of one type; `None` if one of them is NaN.
pub(crate) fn distance(element: ElementType, x: u64, y: u64) -> Option<u64> {
    if float(element, x).is_nan() || float(element, y).is_nan() {
        return None;
    }
    let sign = 1u64 << (element.bits() - 1);
    let ordered = |bits: u64| match element {
        ElementType::F8E8M0Fnu => i128::from(bits),
        _ if bits & sign == 0 => i128::from(bits),
        _ => -i128::from(bits - sign),
    };
    u64::try_from(ordered(x).abs_diff(ordered(y))).ok()
}
