//! Inverse trigonometric and hyperbolic functions of complex numbers.
//!
//! Formulas of W. Kahan, Branch Cuts for Complex Elementary Functions (1987): the sign of a zero
//! says on which side of a branch cut a number is, so that parts are negated rather than numbers
//! subtracted from 0.

use std::f64::consts::{FRAC_PI_2, LN_2};

use super::{
    Built,
    builder::Value,
    elementary::{self, copysign},
};
use crate::ElementClass;

/// From here on, 1 + z is z.
const HUGE: f64 = 1e18;

pub(super) fn conj<'b>(operands: &[Value<'b>]) -> Built<'b> {
    match operands {
        &[z] if z.element().class() == ElementClass::Complex => {
            Ok(vec![z.real().complex(-z.imag())])
        }
        _ => Err("one tensor of complex numbers"),
    }
}

pub(super) fn sinh(z: Value<'_>) -> Value<'_> {
    let (x, y) = (z.real(), z.imag());
    let re = of_angle(x, y, elementary::sinh(x) * y.cos());
    let im = elementary::cosh(x) * y.sin();
    let re = x.eq(0.0).select(x * y.cos().sign(), re);
    let re = x.eq(0.0).and(re.ne(re)).select(x, re);
    re.complex(y.eq(0.0).select(y, im))
}

pub(super) fn cosh(z: Value<'_>) -> Value<'_> {
    let (x, y) = (z.real(), z.imag());
    let re = of_angle(x, y, elementary::cosh(x) * y.cos());
    let im = elementary::sinh(x) * y.sin();
    // Either factor may be a zero beside an infinity.
    let im = y.eq(0.0).select(x.sign() * y, im);
    let im = x.eq(0.0).and(im.ne(im)).select(x, im);
    re.complex(im)
}

/// The real part of a hyperbolic function: an infinity has no angle if `y` is infinite or NaN.
fn of_angle<'b>(x: Value<'b>, y: Value<'b>, re: Value<'b>) -> Value<'b> {
    let size = x.abs();
    let no_angle = (y * 0.0).ne(0.0);
    let is_infinite = size.eq(f64::INFINITY);
    is_infinite.and(no_angle).select(size, re)
}

pub(super) fn asin(z: Value<'_>) -> Value<'_> {
    let (x, y) = (z.real(), z.imag());
    let ((p, q), (r, s)) = (root(1.0 - x, -y), root(1.0 + x, y));
    let re = x.atan2(p * r - q * s);
    let im = elementary::asinh(p * s - q * r);
    let (far, size) = far(x, y);
    let re = far.select(x.atan2(y.abs()), re);
    re.complex(far.select(copysign(size, y), im))
}

pub(super) fn acos(z: Value<'_>) -> Value<'_> {
    let (x, y) = (z.real(), z.imag());
    let ((p, q), (r, s)) = (root(1.0 - x, -y), root(1.0 + x, y));
    let re = p.atan2(r) * 2.0;
    let im = elementary::asinh(r * q - s * p);
    let (far, size) = far(x, y);
    let re = far.select(y.abs().atan2(x), re);
    re.complex(far.select(copysign(size, -y), im))
}

pub(super) fn acosh(z: Value<'_>) -> Value<'_> {
    let (x, y) = (z.real(), z.imag());
    let ((p, q), (r, s)) = (root(x - 1.0, y), root(x + 1.0, y));
    let re = elementary::asinh(p * r + q * s);
    let im = q.atan2(r) * 2.0;
    let (far, size) = far(x, y);
    far.select(size, re).complex(far.select(y.atan2(x), im))
}

/// `-i asin(i z)`
pub(super) fn asinh(z: Value<'_>) -> Value<'_> {
    let rotated = asin((-z.imag()).complex(z.real()));
    rotated.imag().complex(-rotated.real())
}

pub(super) fn atanh<'b>(z: Value<'b>) -> Value<'b> {
    let (x, y) = (z.real(), z.imag());
    let to_one = 1.0 - x.abs();
    let square = y * y;
    let re = (4.0 * x.abs() / (to_one * to_one + square)).ln_1p() * 0.25;
    let im = (y + y).atan2(to_one * (1.0 + x.abs()) - square) * 0.5;
    let (larger, ratio) = scaled(x, y);
    let far = larger.ge(HUGE.sqrt());
    // 1 / z, without the square of |z|.
    let inverse = |part: Value<'b>| {
        let inverse = part.abs() / larger / larger / (ratio * ratio + 1.0);
        let is_infinite = larger.eq(f64::INFINITY);
        is_infinite.select(part.constant(0.0), inverse)
    };
    let re = copysign(far.select(inverse(x), re), x);
    let angle = FRAC_PI_2 - inverse(y);
    re.complex(far.select(copysign(angle, y), im))
}

/// `-i atanh(i z)`
pub(super) fn atan(z: Value<'_>) -> Value<'_> {
    let rotated = atanh((-z.imag()).complex(z.real()));
    rotated.imag().complex(-rotated.real())
}

/// The parts of the square root of a complex number. That of XLA takes an imaginary part of -0
/// for 0.
fn root<'b>(x: Value<'b>, y: Value<'b>) -> (Value<'b>, Value<'b>) {
    let (larger, ratio) = scaled(x, y);
    let size = larger * (ratio * ratio + 1.0).sqrt();
    let first = ((x.abs() + size) * 0.5).sqrt();
    let second = y.abs() * 0.5 / first;
    let second = size.eq(0.0).select(size, second);
    let positive = x.ge(0.0);
    let re = positive.select(first, second);
    (re, copysign(positive.select(second, first), y))
}

/// Whether a number is so large that 1 does not count beside it, and `ln(2 |z|)` if it is.
fn far<'b>(x: Value<'b>, y: Value<'b>) -> (Value<'b>, Value<'b>) {
    let (larger, ratio) = scaled(x, y);
    let size = larger.max(larger.constant(HUGE)).ln() + LN_2;
    (larger.ge(HUGE), size + (ratio * ratio).ln_1p() * 0.5)
}

/// The larger of both parts, and the smaller as a multiple of it.
fn scaled<'b>(x: Value<'b>, y: Value<'b>) -> (Value<'b>, Value<'b>) {
    let (x, y) = (x.abs(), y.abs());
    let (larger, smaller) = (x.max(y), x.min(y));
    let is_same = larger.eq(smaller);
    (
        larger,
        is_same.select(larger.constant(1.0), smaller / larger),
    )
}
