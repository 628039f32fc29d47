//! Initialization of a tensor, on the device.

use halite_core::TensorType;

use crate::{
    Tensor, Trace,
    rng::{self, normal_of, stretched, truncated_of},
    special::wide,
};

/// Initialization of a parameter.
///
/// Fans are counted with the convention of halite's layers: the last dimension counts outputs, the
/// one before it inputs, the others are the window of a kernel (`Linear: [in, out]`,
/// `Conv2d: [height, width, in, out]`). Both fans of a tensor of one dimension are its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// 0
    Zeros,
    /// 1
    Ones,
    /// A constant.
    Constant(f64),
    /// Uniform in `[low, high)`.
    Uniform {
        /// Lower bound, inclusive.
        low: f64,
        /// Upper bound, exclusive.
        high: f64,
    },
    /// Normal.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Normal, truncated at two standard deviations from the mean. (The standard deviation after
    /// truncation is 0.88 `std`.)
    TruncatedNormal {
        /// Mean.
        mean: f64,
        /// Standard deviation before truncation.
        std: f64,
    },
    /// Mean 0, variance `scale / fan`.
    VarianceScaling {
        /// Product of variance and fan.
        scale: f64,
        /// Fan that the variance is divided by.
        mode: Fan,
        /// Distribution with that variance.
        distribution: Distribution,
    },
}

/// Divisor of a variance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fan {
    /// Number of inputs of one output.
    In,
    /// Number of outputs of one input.
    Out,
    /// Mean of both.
    Average,
}

/// Distribution of a given variance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Distribution {
    /// Normal, truncated at two standard deviations, and scaled to have the given variance after
    /// truncation.
    TruncatedNormal,
    /// Normal.
    Normal,
    /// Uniform around 0.
    Uniform,
}

impl Init {
    /// LeCun et al. 1998: variance `1 / fan_in`; truncated normal.
    pub const fn lecun_normal() -> Self {
        Init::scaled(1.0, Fan::In, Distribution::TruncatedNormal)
    }

    /// LeCun et al. 1998: variance `1 / fan_in`; uniform.
    pub const fn lecun_uniform() -> Self {
        Init::scaled(1.0, Fan::In, Distribution::Uniform)
    }

    /// Glorot and Bengio 2010 ("Xavier"): variance `2 / (fan_in + fan_out)`; normal.
    pub const fn glorot_normal() -> Self {
        Init::scaled(1.0, Fan::Average, Distribution::Normal)
    }

    /// Glorot and Bengio 2010 ("Xavier"): variance `2 / (fan_in + fan_out)`; uniform.
    pub const fn glorot_uniform() -> Self {
        Init::scaled(1.0, Fan::Average, Distribution::Uniform)
    }

    /// He et al. 2015 ("Kaiming"): variance `2 / fan_in`, which keeps the variance through a ReLU;
    /// normal.
    pub const fn he_normal() -> Self {
        Init::scaled(2.0, Fan::In, Distribution::Normal)
    }

    /// He et al. 2015 ("Kaiming"): variance `2 / fan_in`, which keeps the variance through a ReLU;
    /// uniform.
    pub const fn he_uniform() -> Self {
        Init::scaled(2.0, Fan::In, Distribution::Uniform)
    }

    /// PyTorch's default for weights and biases of linear and convolution layers:
    /// `kaiming_uniform(a = sqrt(5))`, which is uniform within `1 / sqrt(fan_in)`.
    pub fn torch_default(fan_in: usize) -> Self {
        let bound = 1.0 / (fan_in.max(1) as f64).sqrt();
        Init::Uniform {
            low: -bound,
            high: bound,
        }
    }

    const fn scaled(scale: f64, mode: Fan, distribution: Distribution) -> Self {
        Init::VarianceScaling {
            scale,
            mode,
            distribution,
        }
    }

    /// True if initialization needs a random key.
    pub const fn is_random(&self) -> bool {
        !matches!(self, Init::Zeros | Init::Ones | Init::Constant(_))
    }

    /// Initializes a tensor of type `ty`. `key` (`u32[2]`) is used only if the initialization [is
    /// random](Self::is_random).
    #[track_caller]
    pub fn sample<'t>(&self, key: Tensor<'t>, ty: &TensorType) -> Tensor<'t> {
        self.draw(key.trace(), || key, ty)
    }

    /// Initializes a tensor; `key` is asked for only if the initialization is random.
    pub(crate) fn draw<'t>(
        &self,
        cx: &'t Trace,
        key: impl FnOnce() -> Tensor<'t>,
        ty: &TensorType,
    ) -> Tensor<'t> {
        let constant = match *self {
            Init::Zeros => Some(0.0),
            Init::Ones => Some(1.0),
            Init::Constant(value) => Some(value),
            _ => None,
        };
        match constant {
            Some(value) => cx.full(value, ty),
            // Drawn and scaled in full precision, then rounded to 16 bits.
            None => self.of_unit(rng::unit(key(), ty.dims(), wide(ty.dtype())), ty),
        }
    }

    /// A random initialization of type `ty` from uniform numbers in `[0, 1)`.
    pub(crate) fn of_unit<'t>(&self, unit: Tensor<'t>, ty: &TensorType) -> Tensor<'t> {
        let number = |value: f64| unit.trace().scalar(value, unit.dtype());
        let between = |low: f64, high: f64| stretched(unit, number(low), number(high));
        let value = match *self {
            Init::Zeros | Init::Ones | Init::Constant(_) => unit,
            Init::Uniform { low, high } => between(low, high),
            Init::Normal { mean, std } => moved(normal_of(unit), mean, std),
            Init::TruncatedNormal { mean, std } => moved(truncated_of(unit, -2.0, 2.0), mean, std),
            Init::VarianceScaling {
                scale,
                mode,
                distribution,
            } => {
                let (fan_in, fan_out) = fans(ty.dims());
                let fan = match mode {
                    Fan::In => fan_in,
                    Fan::Out => fan_out,
                    Fan::Average => (fan_in + fan_out) / 2.0,
                };
                let variance = scale / fan.max(1.0);
                match distribution {
                    // Divides by the standard deviation of a standard normal truncated at 2.
                    Distribution::TruncatedNormal => {
                        let std = variance.sqrt() / 0.879_625_661_034_239_8;
                        truncated_of(unit, -2.0, 2.0) * std
                    }
                    Distribution::Normal => normal_of(unit) * variance.sqrt(),
                    Distribution::Uniform => between(-1.0, 1.0) * (3.0 * variance).sqrt(),
                }
            }
        };
        value.convert(ty.dtype())
    }
}

fn moved<'t>(x: Tensor<'t>, mean: f64, std: f64) -> Tensor<'t> {
    let x = if std == 1.0 { x } else { x * std };
    if mean == 0.0 { x } else { x + mean }
}

/// Fan in and fan out.
fn fans(dims: &[usize]) -> (f64, f64) {
    match dims {
        [] => (1.0, 1.0),
        [only] => (*only as f64, *only as f64),
        [window @ .., inputs, outputs] => {
            let window: f64 = window.iter().map(|&size| size as f64).product();
            (window * *inputs as f64, window * *outputs as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fans_follow_layer_dimensions() {
        for (dims, expected) in [
            (&[][..], (1.0, 1.0)),
            (&[7], (7.0, 7.0)),
            (&[784, 512], (784.0, 512.0)),
            (&[3, 5, 16, 32], (240.0, 480.0)),
        ] {
            assert_eq!(fans(dims), expected, "{dims:?}");
        }
    }
}
