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
        if !self.im.is_finite() {
            // An infinite or vanishing number without an angle.
            return match self.re {
                f64::NEG_INFINITY => Complex::new(0.0, 0f64.copysign(self.im)),
                f64::INFINITY => Complex::new(f64::INFINITY, f64::NAN),
                _ => Complex::new(f64::NAN, f64::NAN),
            };
        }
        Complex::polar_exp(self.re, self.im)
    }

    /// The number of absolute value `e^exponent` and argument `angle`, which may be finite where
    /// the power is not.
    fn polar_exp(exponent: f64, angle: f64) -> Self {
        if exponent.abs() < 700.0 {
            return Complex::polar(exponent.exp(), angle);
        }
        let root = (exponent / 2.0).exp();
        Complex::polar(root, angle).scale(root)
    }

    /// `exp(z) - 1`, exact for small z.
    pub(super) fn exp_m1(self) -> Self {
        if self.im == 0.0 {
            return Complex::new(self.re.exp_m1(), self.im);
        }
        let exp = self.exp();
        if !self.re.is_finite() || !self.im.is_finite() {
            return Complex::new(exp.re - 1.0, exp.im);
        }
        // exp(a) cos(b) - 1 = expm1(a) cos(b) - 2 sin²(b / 2)
        let half = (self.im / 2.0).sin();
        let re = self.re.exp_m1() * self.im.cos() - 2.0 * half * half;
        Complex::new(re, exp.im)
    }

    pub(super) fn ln(self) -> Self {
        Complex::new(self.abs().ln(), self.im.atan2(self.re))
    }

    /// `ln(1 + z)`, exact for small z.
    pub(super) fn ln_1p(self) -> Self {
        if self.im == 0.0 && self.re >= -1.0 {
            return Complex::new(self.re.ln_1p(), self.im);
        }
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

    /// `sin(z) = -i sinh(i z)`
    pub(super) fn sin(self) -> Self {
        let rotated = Complex::new(-self.im, self.re).sinh();
        Complex::new(rotated.im, -rotated.re)
    }

    /// `cos(z) = cosh(i z)`
    pub(super) fn cos(self) -> Self {
        Complex::new(-self.im, self.re).cosh()
    }

    fn sinh(self) -> Self {
        let Complex { re, im } = self;
        match (re == 0.0, im == 0.0) {
            (true, _) if im.is_finite() => Complex::new(re * im.cos(), im.sin()),
            (true, _) => Complex::new(re, f64::NAN),
            (_, true) => Complex::new(re.sinh(), im),
            _ if re.is_infinite() && !im.is_finite() => Complex::new(f64::INFINITY, f64::NAN),
            _ if re.abs() < 700.0 => Complex::new(re.sinh() * im.cos(), re.cosh() * im.sin()),
            _ => {
                let Complex { re: cos, im: sin } = Complex::polar_exp(re.abs(), im).scale(0.5);
                Complex::new(cos * re.signum(), sin)
            }
        }
    }

    fn cosh(self) -> Self {
        let Complex { re, im } = self;
        match (re == 0.0, im == 0.0) {
            (true, _) if im.is_finite() => Complex::new(im.cos(), re * im.sin()),
            (true, _) => Complex::new(f64::NAN, re),
            (_, true) if re.is_nan() => Complex::new(re, im),
            (_, true) => Complex::new(re.cosh(), re.signum() * im),
            _ if re.is_infinite() && !im.is_finite() => Complex::new(f64::INFINITY, f64::NAN),
            _ if re.abs() < 700.0 => Complex::new(re.cosh() * im.cos(), re.sinh() * im.sin()),
            _ => {
                let Complex { re: cos, im: sin } = Complex::polar_exp(re.abs(), im).scale(0.5);
                Complex::new(cos, sin * re.signum())
            }
        }
    }

    pub(super) fn tanh(self) -> Self {
        let Complex { re, im } = self;
        if im == 0.0 {
            return Complex::new(re.tanh(), im);
        }
        if re == 0.0 {
            return Complex::new(re, im.tan());
        }
        if re.is_infinite() && !im.is_finite() {
            return Complex::new(re.signum(), 0f64.copysign(im));
        }
        // Beyond this, the quotient is infinity by infinity.
        if re.abs() > 300.0 && im.is_finite() {
            return Complex::new(re.signum(), 0f64.copysign((2.0 * im).sin()));
        }
        let (sin, cos) = im.sin_cos();
        let (sinh, cosh) = (re.sinh(), re.cosh());
        let norm = sinh * sinh + cos * cos;
        Complex::new(sinh * cosh / norm, sin * cos / norm)
    }

    /// `tan(z) = -i tanh(i z)`
    pub(super) fn tan(self) -> Self {
        let rotated = Complex::new(-self.im, self.re).tanh();
        Complex::new(rotated.im, -rotated.re)
    }

    /// The number of absolute value 1 in this direction; 0 for 0.
    pub(super) fn sign(self) -> Self {
        if self.is_nan() {
            return Complex::new(f64::NAN, f64::NAN);
        }
        if self == Complex::default() {
            return self;
        }
        // The absolute value of a finite number may not be one.
        let half = self.scale(0.5);
        match self.abs() {
            f64::INFINITY => half.over(half.abs()),
            size => self.over(size),
        }
    }

    fn over(self, by: f64) -> Self {
        Complex::new(self.re / by, self.im / by)
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
        if exponent.im == 0.0 {
            return self.ln().scale(exponent.re).exp();
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

    /// Multiplies; the product of an infinity and a number other than 0 is infinite, as in the C
    /// standard (G.5.1).
    fn mul(self, other: Self) -> Self {
        let product = self.times(other);
        if !(product.re.is_nan() && product.im.is_nan()) {
            return product;
        }
        let (mut x, mut y, mut is_infinite) = (self, other, false);
        if x.is_infinite() {
            (x, y, is_infinite) = (x.boxed(), y.without_nan(), true);
        }
        if y.is_infinite() {
            (x, y, is_infinite) = (x.without_nan(), y.boxed(), true);
        }
        match is_infinite {
            true => x.times(y).scale(f64::INFINITY),
            false => product,
        }
    }
}

impl Complex {
    /// The product without regard to infinities.
    fn times(self, other: Self) -> Self {
        Complex::new(
            self.re * other.re - self.im * other.im,
            self.re * other.im + self.im * other.re,
        )
    }

    fn is_infinite(self) -> bool {
        self.re.is_infinite() || self.im.is_infinite()
    }

    fn is_finite(self) -> bool {
        self.re.is_finite() && self.im.is_finite()
    }

    /// Infinite parts are 1, others 0, with their signs.
    fn boxed(self) -> Self {
        let part = |part: f64| f64::from(u8::from(part.is_infinite())).copysign(part);
        Complex::new(part(self.re), part(self.im))
    }

    /// NaN is 0.
    fn without_nan(self) -> Self {
        let part = |part: f64| match part.is_nan() {
            true => 0f64.copysign(part),
            false => part,
        };
        Complex::new(part(self.re), part(self.im))
    }

    /// Divides by Smith's method, which does not overflow where the quotient does not.
    fn divided(self, other: Self) -> Self {
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

impl Div for Complex {
    type Output = Self;

    /// Divides; an infinity by a finite number is infinite, and a finite number by an infinity is
    /// 0, as in the C standard (G.5.1).
    fn div(self, other: Self) -> Self {
        let quotient = self.divided(other);
        if !(quotient.re.is_nan() && quotient.im.is_nan()) {
            return quotient;
        }
        if other == Complex::default() && !(self.re.is_nan() && self.im.is_nan()) {
            self.scale(f64::INFINITY.copysign(other.re))
        } else if self.is_infinite() && other.is_finite() {
            self.boxed().times(other.conj()).scale(f64::INFINITY)
        } else if self.is_finite() && other.is_infinite() {
            self.times(other.boxed().conj()).scale(0.0)
        } else {
            quotient
        }
    }
}

impl Neg for Complex {
    type Output = Self;
    fn neg(self) -> Self {
        Complex::new(-self.re, -self.im)
    }
}
