//! Complex numbers of two `f64`.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Complex {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl From<f64> for Complex {
    fn from(re: f64) -> Self {
        Complex { re, im: 0.0 }
    }
}

impl Complex {
    pub(super) const ONE: Complex = Complex { re: 1.0, im: 0.0 };

    pub(super) fn new(re: f64, im: f64) -> Self {
        Complex { re, im }
    }

    /// The number of absolute value `radius` and argument `angle`.
    pub(super) fn polar(radius: f64, angle: f64) -> Self {
        Complex::new(radius * angle.cos(), radius * angle.sin())
    }

    pub(super) fn conj(self) -> Self {
        Complex::new(self.re, -self.im)
    }

    pub(super) fn abs(self) -> f64 {
        self.re.hypot(self.im)
    }

    pub(super) fn scale(self, by: f64) -> Self {
        Complex::new(self.re * by, self.im * by)
    }

    pub(super) fn exp(self) -> Self {
        if self.im == 0.0 {
            return Complex::new(self.re.exp(), self.im);
        }
        Complex::polar(self.re.exp(), self.im)
    }

    /// `exp(z) - 1`, exact for small z.
    pub(super) fn exp_m1(self) -> Self {
        // exp(a) cos(b) - 1 = expm1(a) cos(b) - 2 sin²(b / 2)
        let half = (self.im / 2.0).sin();
        let re = self.re.exp_m1() * self.im.cos() - 2.0 * half * half;
        Complex::new(re, self.re.exp() * self.im.sin())
    }

    pub(super) fn ln(self) -> Self {
        Complex::new(self.abs().ln(), self.im.atan2(self.re))
    }

    /// `ln(1 + z)`, exact for small z.
    pub(super) fn ln_1p(self) -> Self {
        let re = if self.abs() < 0.5 {
            0.5 * (self.re * (2.0 + self.re) + self.im * self.im).ln_1p()
        } else {
            (self + Complex::ONE).abs().ln()
        };
        Complex::new(re, self.im.atan2(1.0 + self.re))
    }

    /// The principal square root.
    pub(super) fn sqrt(self) -> Self {
        if self == Complex::default() {
            return Complex::new(0.0, self.im);
        }
        if self.im.is_infinite() {
            return Complex::new(f64::INFINITY, self.im);
        }
        let larger = ((self.abs() + self.re.abs()) / 2.0).sqrt();
        let smaller = self.im.abs() / (2.0 * larger);
        if self.re >= 0.0 {
            Complex::new(larger, smaller.copysign(self.im))
        } else {
            Complex::new(smaller, larger.copysign(self.im))
        }
    }

    pub(super) fn sin(self) -> Self {
        let (sin, cos) = self.re.sin_cos();
        Complex::new(sin * self.im.cosh(), cos * self.im.sinh())
    }

    pub(super) fn cos(self) -> Self {
        let (sin, cos) = self.re.sin_cos();
        Complex::new(cos * self.im.cosh(), -sin * self.im.sinh())
    }

    pub(super) fn tanh(self) -> Self {
        // Beyond this, the quotient is infinity by infinity.
        if self.re.abs() > 300.0 {
            return Complex::new(1f64.copysign(self.re), 0f64.copysign((2.0 * self.im).sin()));
        }
        let (sin, cos) = self.im.sin_cos();
        let (sinh, cosh) = (self.re.sinh(), self.re.cosh());
        let norm = sinh * sinh + cos * cos;
        Complex::new(sinh * cosh / norm, sin * cos / norm)
    }

    pub(super) fn tan(self) -> Self {
        // tan(z) = -i tanh(i z)
        let rotated = Complex::new(-self.im, self.re).tanh();
        Complex::new(rotated.im, -rotated.re)
    }

    pub(super) fn pow(self, exponent: Complex) -> Self {
        if exponent == Complex::default() {
            return Complex::ONE;
        }
        if self == Complex::default() {
            return if exponent.re > 0.0 {
                Complex::default()
            } else {
                f64::NAN.into()
            };
        }
        (exponent * self.ln()).exp()
    }

    /// The order of `maximum` and `minimum`: by real part, then by imaginary part.
    pub(super) fn is_above(self, other: Self) -> bool {
        self.re > other.re || (self.re == other.re && self.im > other.im)
    }

    pub(super) fn is_nan(self) -> bool {
        self.re.is_nan() || self.im.is_nan()
    }
}

impl Add for Complex {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Complex::new(self.re + other.re, self.im + other.im)
    }
}

impl Sub for Complex {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Complex::new(self.re - other.re, self.im - other.im)
    }
}

impl Mul for Complex {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Complex::new(
            self.re * other.re - self.im * other.im,
            self.re * other.im + self.im * other.re,
        )
    }
}

impl Div for Complex {
    type Output = Self;

    /// Divides by Smith's method, which does not overflow where the quotient does not.
    fn div(self, other: Self) -> Self {
        if other.im == 0.0 {
            return Complex::new(self.re / other.re, self.im / other.re);
        }
        if other.re.abs() >= other.im.abs() {
            let ratio = other.im / other.re;
            let scale = other.re + other.im * ratio;
            Complex::new(
                (self.re + self.im * ratio) / scale,
                (self.im - self.re * ratio) / scale,
            )
        } else {
            let ratio = other.re / other.im;
            let scale = other.re * ratio + other.im;
            Complex::new(
                (self.re * ratio + self.im) / scale,
                (self.im * ratio - self.re) / scale,
            )
        }
    }
}

impl Neg for Complex {
    type Output = Self;
    fn neg(self) -> Self {
        Complex::new(-self.re, -self.im)
    }
}
