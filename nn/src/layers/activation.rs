use std::panic::Location;

use crate::{Tensor, check::check};

/// Activation function as a value, for models whose activation is a setting.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// x
    Identity,
    /// [`Tensor::relu`]
    #[default]
    Relu,
    /// [`Tensor::relu6`]
    Relu6,
    /// [`Tensor::leaky_relu`] with this slope.
    LeakyRelu(f64),
    /// [`Tensor::elu`] with this scale.
    Elu(f64),
    /// [`Tensor::selu`]
    Selu,
    /// [`Tensor::gelu`]
    Gelu,
    /// [`Tensor::gelu_tanh`]
    GeluTanh,
    /// [`Tensor::silu`]
    Silu,
    /// [`Tensor::mish`]
    Mish,
    /// [`Tensor::softplus`]
    Softplus,
    /// [`Tensor::sigmoid`]
    Sigmoid,
    /// [`Tensor::hard_sigmoid`]
    HardSigmoid,
    /// [`Tensor::hard_swish`]
    HardSwish,
    /// [`Tensor::tanh`]
    Tanh,
}

impl Activation {
    /// Applies the function to every element of `x`.
    #[track_caller]
    pub fn forward<'t>(&self, x: Tensor<'t>) -> Tensor<'t> {
        match *self {
            Activation::Identity => x,
            Activation::Relu => x.relu(),
            Activation::Relu6 => x.relu6(),
            Activation::LeakyRelu(slope) => x.leaky_relu(slope),
            Activation::Elu(scale) => x.elu(scale),
            Activation::Selu => x.selu(),
            Activation::Gelu => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
            Activation::Silu => x.silu(),
            Activation::Mish => x.mish(),
            Activation::Softplus => x.softplus(),
            Activation::Sigmoid => x.sigmoid(),
            Activation::HardSigmoid => x.hard_sigmoid(),
            Activation::HardSwish => x.hard_swish(),
            Activation::Tanh => x.tanh(),
        }
    }
}

/// For 16-bit floats these compute in `f32` and round once.
///
/// Functions of the form x h(x) clamp the argument of h to where it is not constant yet in any
/// float type. Beyond, the slope of h is 0, and x times the cotangent may be infinite: 0 * inf is
/// NaN.
impl<'t> Tensor<'t> {
    /// min(max(x, 0), 6)
    #[track_caller]
    pub fn relu6(self) -> Tensor<'t> {
        self.clamp(0.0, 6.0)
    }

    /// `x` where positive, else `slope * x`.
    #[track_caller]
    pub fn leaky_relu(self, slope: f64) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        check!(self.check_float("leaky relu"));
        self.widened(|x| x.gt(0.0).select(x, x * slope))
    }

    /// `x` where positive, else `scale * (e^x - 1)`.
    #[track_caller]
    pub fn elu(self, scale: f64) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        check!(self.check_float("elu"));
        self.widened(|x| {
            let positive = x.gt(0.0);
            // The unselected branch must be finite too, or its gradient is NaN.
            positive.select(x, positive.select(x.zeros_like(), x).exp_m1() * scale)
        })
    }

    /// Scaled [`elu`](Self::elu), which preserves mean 0 and variance 1 (Klambauer et al. 2017).
    #[track_caller]
    pub fn selu(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        check!(self.check_float("selu"));
        self.widened(|x| x.elu(1.673_263_242_354_377_2) * 1.050_700_987_355_480_5)
    }

    /// Gaussian error linear unit: `x (1 + erf(x / sqrt(2))) / 2`.
    #[track_caller]
    pub fn gelu(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        check!(self.check_float("gelu"));
        self.widened(|x| {
            // Halved before the product, which would overflow where the result does not.
            let near = x.clamp(-40.0, 40.0) * std::f64::consts::FRAC_1_SQRT_2;
            x * ((near.erf() + 1.0) * 0.5)
        })
    }

    /// Tanh approximation of [`gelu`](Self::gelu), as in GPT-2:
    /// `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³))) / 2`.
    #[track_caller]
    pub fn gelu_tanh(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        check!(self.check_float("gelu"));
        self.widened(|x| {
            let near = x.clamp(-10.0, 10.0);
            let inner = near * (near * 0.044_715 * near + 1.0);
            let inner = inner * (2.0 / std::f64::consts::PI).sqrt();
            x * ((inner.tanh() + 1.0) * 0.5)
        })
    }

    /// x / (1 + e^-x), also called swish.
    #[track_caller]
    pub fn silu(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        check!(self.check_float("silu"));
        self.widened(|x| x * x.clamp(-800.0, 800.0).sigmoid())
    }

    /// x tanh(log(1 + e^x))
    #[track_caller]
    pub fn mish(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        check!(self.check_float("mish"));
        self.widened(|x| x * x.clamp(-800.0, 800.0).softplus().tanh())
    }

    /// log(1 + e^x)
    #[track_caller]
    pub fn softplus(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        check!(self.check_float("softplus"));
        self.widened(|x| {
            // Beyond the bound the result rounds to x, and below it e^x is finite.
            let beyond = x.gt(40.0);
            beyond.select(x, beyond.select(x.zeros_like(), x).exp().log_1p())
        })
    }

    /// log(1 / (1 + e^-x))
    #[track_caller]
    pub fn log_sigmoid(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        check!(self.check_float("log sigmoid"));
        -(-self).softplus()
    }

    /// min(max(x + 3, 0), 6) / 6
    #[track_caller]
    pub fn hard_sigmoid(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        check!(self.check_float("hard sigmoid"));
        self.widened(|x| (x + 3.0).relu6() * (1.0 / 6.0))
    }

    /// x min(max(x + 3, 0), 6) / 6
    #[track_caller]
    pub fn hard_swish(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        check!(self.check_float("hard swish"));
        self.widened(|x| x * x.hard_sigmoid())
    }

    /// Gated linear unit: the first half of the last dimension times the
    /// [`sigmoid`](Self::sigmoid) of the second, `[.., 2 n]` to `[.., n]`.
    #[track_caller]
    pub fn glu(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        check!(self.check_float("glu"));
        self.widened(|x| {
            let halves = x.split(x.rank().saturating_sub(1), 2);
            halves[0] * halves[1].clamp(-800.0, 800.0).sigmoid()
        })
    }
}
