//! Inverse trigonometric and hyperbolic functions of floats.
//!
//! A branch that is not taken gets a clamped operand, so that it has a finite derivative, too.

use super::{Built, builder::Value};

/// From here on, e^-x does not change sinh(x) and cosh(x).
const LARGE: f64 = 20.0;

/// From here on, 1 does not change x² + 1 and x² - 1.
const HUGE: f64 = 1e9;

pub(super) fn square<'b>(operands: &[Value<'b>]) -> Built<'b> {
    let &[z] = operands else {
        return Err("one tensor");
    };
    if z.element().part().is_none() {
        return Ok(vec![z * z]);
    }
    let (x, y) = (z.real(), z.imag());
    let product = x * y;
    Ok(vec![((x - y) * (x + y)).complex(product + product)])
}

pub(super) fn asin(x: Value<'_>) -> Value<'_> {
    x.atan2(((1.0 - x) * (1.0 + x)).sqrt())
}

pub(super) fn acos(x: Value<'_>) -> Value<'_> {
    // acos(x) = 2 atan(sqrt((1 - x) / (1 + x))), exact on both sides of 0.
    (1.0 - x).sqrt().atan2((1.0 + x).sqrt()) * 2.0
}

pub(super) fn atan(x: Value<'_>) -> Value<'_> {
    x.atan2(x.constant(1.0))
}

pub(super) fn sinh(x: Value<'_>) -> Value<'_> {
    odd(x, |size| {
        let grown = size.min(x.constant(LARGE)).exp_m1();
        let small = (grown + grown / (grown + 1.0)) * 0.5;
        size.lt(LARGE).select(small, half_exp(size))
    })
}

pub(super) fn cosh(x: Value<'_>) -> Value<'_> {
    let size = x.abs();
    let grown = size.min(x.constant(LARGE)).exp();
    let small = (grown + 1.0 / grown) * 0.5;
    size.lt(LARGE).select(small, half_exp(size))
}

/// `e^x / 2`, which may be finite where `e^x` is not.
fn half_exp(x: Value<'_>) -> Value<'_> {
    let root = (x * 0.5).exp();
    (root * 0.5) * root
}

pub(super) fn asinh(x: Value<'_>) -> Value<'_> {
    odd(x, |size| {
        let near = size.min(x.constant(HUGE));
        let square = near * near;
        let small = (near + square / ((square + 1.0).sqrt() + 1.0)).ln_1p();
        // The sum loses the sign of a zero.
        let small = size.eq(0.0).select(size, small);
        size.lt(HUGE).select(small, ln_double(size, HUGE))
    })
}

pub(super) fn acosh(x: Value<'_>) -> Value<'_> {
    let over = x.min(x.constant(HUGE)) - 1.0;
    let small = (over + over.sqrt() * (over + 2.0).sqrt()).ln_1p();
    x.lt(HUGE).select(small, ln_double(x, HUGE))
}

pub(super) fn atanh(x: Value<'_>) -> Value<'_> {
    (x.ln_1p() - (-x).ln_1p()) * 0.5
}

/// An odd function by its values at numbers that are not negative. The derivative of an absolute
/// value is 0 at 0, which is not that of the function: both signs are selected.
pub(super) fn odd<'b>(x: Value<'b>, of: impl FnOnce(Value<'b>) -> Value<'b>) -> Value<'b> {
    let negative = x.lt(0.0);
    let value = of(negative.select(-x, x));
    negative.select(-value, value)
}

/// `ln(2 x)` from `least` on.
fn ln_double(x: Value<'_>, least: f64) -> Value<'_> {
    x.max(x.constant(least)).ln() + std::f64::consts::LN_2
}

/// A number that is not negative with the sign of `x`.
pub(super) fn copysign<'b>(size: Value<'b>, x: Value<'b>) -> Value<'b> {
    let bits = super::bits::bits(x);
    let negative = bits.compare(crate::ComparisonDirection::Lt, bits.integer(0));
    negative.select(-size, size)
}
