//! Comparison of results, by type and tolerance.

use halite_stablehlo::{ElementClass, ElementType, RankedType};

use crate::operations::numbers::{distance, epsilon, float, is_flushed};

/// The difference that results may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tolerance {
    /// No difference, also of the bits of NaN.
    Bits,
    /// No difference of values; NaN may have any bits.
    Exact,
    /// Numbers between the results. Complex results are measured by their larger part.
    Ulps(u64),
    /// A multiple of the distance between 1 and the next number.
    Absolute(f64),
}

/// The first element in which `found` and `expected`, both of type `ty`, differ, and how.
pub(crate) fn difference(
    ty: &RankedType,
    [found, expected]: [&[u8]; 2],
    tolerance: Tolerance,
) -> Option<(usize, String)> {
    let size = ty.element.size();
    let pairs = found.chunks_exact(size).zip(expected.chunks_exact(size));
    for (at, (found, expected)) in pairs.enumerate() {
        if !agrees(ty.element, [found, expected], tolerance) {
            let [found, expected] = [found, expected].map(|bytes| shown(ty.element, bytes));
            return Some((at, format!("at {at} of {ty}: {found}, not {expected}")));
        }
    }
    None
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn agrees(element: ElementType, [found, expected]: [&[u8]; 2], tolerance: Tolerance) -> bool {
    if found == expected {
        return true;
    }
    match (element.class(), tolerance) {
        (ElementClass::Complex, Tolerance::Ulps(_) | Tolerance::Absolute(_)) => {
            let part = element.part().expect("complex numbers have parts");
            let parts = |bytes: &[u8]| {
                let (re, im) = bytes.split_at(part.size());
                [re, im].map(|bytes| float(part, word(bytes)))
            };
            complex_agrees(part, [parts(found), parts(expected)], tolerance)
        }
        (ElementClass::Complex, _) => {
            let part = element.part().expect("complex numbers have parts");
            let size = part.size();
            let mut parts = found.chunks_exact(size).zip(expected.chunks_exact(size));
            parts.all(|(found, expected)| agrees(part, [found, expected], tolerance))
        }
        (ElementClass::Float, _) => float_agrees(element, [word(found), word(expected)], tolerance),
        _ => false,
    }
}

fn float_agrees(element: ElementType, [found, expected]: [u64; 2], tolerance: Tolerance) -> bool {
    let [x, y] = [found, expected].map(|bits| float(element, bits));
    // A result that XLA flushes. `f8E8M0FNU` has no 0, and NaN instead.
    let is_zero = |bits| match element {
        ElementType::F8E8M0Fnu => float(element, bits).is_nan(),
        _ => float(element, bits) == 0.0,
    };
    if is_flushed(element, found) && is_zero(expected)
        || is_flushed(element, expected) && is_zero(found)
    {
        return tolerance != Tolerance::Bits;
    }
    match tolerance {
        Tolerance::Bits => false,
        _ if x.is_nan() || y.is_nan() => x.is_nan() && y.is_nan(),
        Tolerance::Exact => false,
        Tolerance::Ulps(limit) => {
            distance(element, found, expected).is_some_and(|ulps| ulps <= limit)
        }
        Tolerance::Absolute(limit) => x == y || (x - y).abs() <= limit * epsilon(element),
    }
}

fn complex_agrees(part: ElementType, [x, y]: [[f64; 2]; 2], tolerance: Tolerance) -> bool {
    let is_nan = |z: [f64; 2]| z.iter().any(|part| part.is_nan());
    if is_nan(x) || is_nan(y) {
        return is_nan(x) && is_nan(y);
    }
    let limit = match tolerance {
        Tolerance::Ulps(limit) => limit as f64 * y[0].abs().max(y[1].abs()),
        Tolerance::Absolute(limit) => limit,
        Tolerance::Bits | Tolerance::Exact => 0.0,
    };
    x == y || (0..2).all(|at| (x[at] - y[at]).abs() <= limit * epsilon(part))
}

/// The value of an element.
pub(crate) fn shown(element: ElementType, bytes: &[u8]) -> String {
    let bits = word(bytes);
    match (element.class(), element.part()) {
        (_, Some(part)) => {
            let (re, im) = bytes.split_at(part.size());
            format!("({}, {})", shown(part, re), shown(part, im))
        }
        (ElementClass::Float, _) => format!("{:?} (0x{bits:X})", float(element, bits)),
        (ElementClass::Signed, _) => {
            let unused = 64 - 8 * element.size();
            format!("{}", (bits << unused) as i64 >> unused)
        }
        _ => bits.to_string(),
    }
}
