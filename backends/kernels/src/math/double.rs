//! Functions of `f64`: those of the standard library, and the ones that it has in other forms.

macro_rules! of_std {
    ($($name:ident: $f:expr,)*) => {
        $(#[inline(always)]
        pub(crate) fn $name(x: f64) -> f64 {
            $f(x)
        })*
    };
}

of_std! {
    exp: f64::exp,
    exp_m1: f64::exp_m1,
    log: f64::ln,
    log_1p: f64::ln_1p,
    tanh: f64::tanh,
    logistic: |x: f64| 1.0 / (1.0 + (-x).exp()),
}

#[inline(always)]
pub(crate) fn power(x: f64, y: f64) -> f64 {
    x.powf(y)
}

#[inline(always)]
pub(crate) fn atan2(x: f64, y: f64) -> f64 {
    x.atan2(y)
}

/// The larger of both; NaN if one is. Zero is larger than negative zero.
#[inline(always)]
pub(crate) fn maximum(a: f64, b: f64) -> f64 {
    let larger = if a > b || a.is_nan() { a } else { b };
    if a == b {
        f64::from_bits(a.to_bits() & b.to_bits())
    } else {
        larger
    }
}

/// The smaller of both; NaN if one is. Negative zero is smaller than zero.
#[inline(always)]
pub(crate) fn minimum(a: f64, b: f64) -> f64 {
    let smaller = if a < b || a.is_nan() { a } else { b };
    if a == b {
        f64::from_bits(a.to_bits() | b.to_bits())
    } else {
        smaller
    }
}

/// -1, 0 or 1; zeros keep their sign, NaN is NaN.
#[inline(always)]
pub(crate) fn sign(x: f64) -> f64 {
    let sign = if x > 0.0 { 1.0 } else { -1.0 };
    if x == 0.0 || x.is_nan() { x } else { sign }
}

pub(crate) use libm::erf;
