//! The numbers that schedules are evaluated with.

use std::ops::{Add, Div, Mul, Sub};

use crate::Tensor;

/// Arithmetic of schedules: `f64` on the host, `f32` or `f64` tensors on the device.
pub(super) trait Number:
    Copy
    + Add<Output = Self>
    + Add<f64, Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Mul<f64, Output = Self>
    + Div<Output = Self>
{
    fn power(self, exponent: Self) -> Self;
    fn cosine(self) -> Self;
    fn floored(self) -> Self;
    fn at_least(self, low: Self) -> Self;
    fn at_most(self, high: Self) -> Self;
    /// `yes` if this is less than `bound`, else `no`.
    fn before(self, bound: Self, yes: Self, no: Self) -> Self;
}

impl Number for f64 {
    fn power(self, exponent: Self) -> Self {
        self.powf(exponent)
    }
    fn cosine(self) -> Self {
        self.cos()
    }
    fn floored(self) -> Self {
        self.floor()
    }
    fn at_least(self, low: Self) -> Self {
        self.max(low)
    }
    fn at_most(self, high: Self) -> Self {
        self.min(high)
    }
    fn before(self, bound: Self, yes: Self, no: Self) -> Self {
        if self < bound { yes } else { no }
    }
}

impl Number for Tensor<'_> {
    fn power(self, exponent: Self) -> Self {
        self.pow(exponent)
    }
    fn cosine(self) -> Self {
        self.cos()
    }
    fn floored(self) -> Self {
        self.floor()
    }
    fn at_least(self, low: Self) -> Self {
        self.maximum(low)
    }
    fn at_most(self, high: Self) -> Self {
        self.minimum(high)
    }
    fn before(self, bound: Self, yes: Self, no: Self) -> Self {
        self.lt(bound).select(yes, no)
    }
}
