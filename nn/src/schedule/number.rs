//! The numbers that schedules are evaluated with.

use std::ops::{Add, Div, Mul, Sub};

use crate::Tensor;

/// A number of a [custom schedule](super::Schedule::custom): an `f64` on the host, or a scalar of
/// `f32` or `f64` on the device.
///
/// It has `+`, `-`, `*` and `/` with others of its kind and with `f64`.
#[derive(Clone, Copy, Debug)]
pub struct Number<'t>(Place<'t>);

#[derive(Clone, Copy, Debug)]
enum Place<'t> {
    Host(f64),
    Device(Tensor<'t>),
}

impl From<f64> for Number<'_> {
    fn from(value: f64) -> Self {
        Number(Place::Host(value))
    }
}

impl<'t> From<Tensor<'t>> for Number<'t> {
    fn from(value: Tensor<'t>) -> Self {
        Number(Place::Device(value))
    }
}

impl<'t> Number<'t> {
    /// This to the power of `exponent`.
    #[track_caller]
    pub fn powf(self, exponent: impl Into<Number<'t>>) -> Self {
        self.with(exponent, f64::powf, |a, b| a.pow(b))
    }

    /// Square root.
    #[track_caller]
    pub fn sqrt(self) -> Self {
        self.map(f64::sqrt, Tensor::sqrt)
    }

    /// Cosine, of radians.
    #[track_caller]
    pub fn cos(self) -> Self {
        self.map(f64::cos, Tensor::cos)
    }

    /// e to the power of this.
    #[track_caller]
    pub fn exp(self) -> Self {
        self.map(f64::exp, Tensor::exp)
    }

    /// Largest integer not above this.
    #[track_caller]
    pub fn floor(self) -> Self {
        self.map(f64::floor, Tensor::floor)
    }

    /// The larger of this and `other`.
    #[track_caller]
    pub fn max(self, other: impl Into<Number<'t>>) -> Self {
        self.with(other, f64::max, |a, b| a.maximum(b))
    }

    /// The smaller of this and `other`.
    #[track_caller]
    pub fn min(self, other: impl Into<Number<'t>>) -> Self {
        self.with(other, f64::min, |a, b| a.minimum(b))
    }

    /// `yes` if this is less than `bound`, else `no`. Both are evaluated.
    #[track_caller]
    pub fn if_below(
        self,
        bound: impl Into<Number<'t>>,
        yes: impl Into<Number<'t>>,
        no: impl Into<Number<'t>>,
    ) -> Self {
        let (bound, yes, no) = (bound.into(), yes.into(), no.into());
        let device = [self, bound, yes, no].into_iter().find_map(Self::on_device);
        match (device, [self, bound, yes, no].map(|number| number.0)) {
            (None, [Place::Host(a), Place::Host(b), _, _]) => {
                if a < b {
                    yes
                } else {
                    no
                }
            }
            (Some(like), _) => {
                let [a, b, yes, no] = [self, bound, yes, no].map(|number| number.beside(like));
                a.lt(b).select(yes, no).into()
            }
            (None, _) => unreachable!("no number is on the device"),
        }
    }

    /// The value on the host; `None` if it is on the device.
    pub(super) fn on_host(self) -> Option<f64> {
        match self.0 {
            Place::Host(value) => Some(value),
            Place::Device(_) => None,
        }
    }

    fn on_device(self) -> Option<Tensor<'t>> {
        match self.0 {
            Place::Host(_) => None,
            Place::Device(value) => Some(value),
        }
    }

    /// A tensor of the type of `like`.
    #[track_caller]
    pub(super) fn beside(self, like: Tensor<'t>) -> Tensor<'t> {
        match self.0 {
            Place::Host(value) => like.trace().scalar(value, like.dtype()),
            Place::Device(value) => value,
        }
    }

    #[track_caller]
    fn map(self, host: fn(f64) -> f64, device: fn(Tensor<'t>) -> Tensor<'t>) -> Self {
        match self.0 {
            Place::Host(value) => host(value).into(),
            Place::Device(value) => device(value).into(),
        }
    }

    #[track_caller]
    fn with(
        self,
        other: impl Into<Number<'t>>,
        host: fn(f64, f64) -> f64,
        device: fn(Tensor<'t>, Tensor<'t>) -> Tensor<'t>,
    ) -> Self {
        let other = other.into();
        match (self.0, other.0) {
            (Place::Host(a), Place::Host(b)) => host(a, b).into(),
            (Place::Device(a), _) => device(a, other.beside(a)).into(),
            (_, Place::Device(b)) => device(self.beside(b), b).into(),
        }
    }
}

macro_rules! operators {
    ($($Trait:ident $method:ident),*) => {$(
        impl<'t, R: Into<Number<'t>>> $Trait<R> for Number<'t> {
            type Output = Number<'t>;
            #[track_caller]
            fn $method(self, right: R) -> Number<'t> {
                self.with(right, |a, b| a.$method(b), |a, b| a.$method(b))
            }
        }

        impl<'t> $Trait<Number<'t>> for f64 {
            type Output = Number<'t>;
            #[track_caller]
            fn $method(self, right: Number<'t>) -> Number<'t> {
                Number::from(self).$method(right)
            }
        }
    )*};
}
operators!(Add add, Sub sub, Mul mul, Div div);
