//! What an update rule is given for one parameter.

use std::panic::Location;

use halite_core::{DType, TensorType};

use super::{Decay, Named, clip::power_of_two};
use crate::{Schedule, Tensor, Trace};

/// The gradient of one parameter, and what an update rule needs besides.
///
/// All tensors are of `f64` for a parameter in `f64`, otherwise of `f32`, so that rates and bias
/// corrections have the precision of the parameter.
#[derive(Clone, Copy, Debug)]
pub struct Gradient<'t, 'a> {
    /// The gradient, of the dimensions of the parameter.
    pub grad: Tensor<'t>,
    /// The parameter before the update.
    pub param: Tensor<'t>,
    /// Where the run is.
    pub at: StepOf<'t>,
    /// Path and description of the parameter.
    pub named: Named<'a>,
    /// Number of the first update of the parameter, a scalar, if that is not the first of all.
    pub(super) first: Option<Tensor<'t>>,
}

/// Number of an update, and the factor of its learning rates.
#[derive(Clone, Copy, Debug)]
pub struct StepOf<'t> {
    /// Number of updates made before: a scalar.
    pub count: Tensor<'t>,
    /// Number of steps made before, at which schedules are evaluated: a scalar. It is more than
    /// `count` for parameters that some steps do not update.
    pub step: Tensor<'t>,
    /// Number of those updates that changed nothing, a scalar, if there may be some: their gradients
    /// were not finite under a loss scale. Bias corrections do not count them.
    pub skipped: Option<Tensor<'t>>,
    /// Factor of all learning rates, a scalar, if they have one: that of a
    /// [`Plateau`](crate::schedule::Plateau).
    pub rate_factor: Option<Tensor<'t>>,
}

/// The update of this number, without a factor of learning rates.
impl<'t> From<Tensor<'t>> for StepOf<'t> {
    fn from(count: Tensor<'t>) -> Self {
        StepOf {
            count,
            step: count,
            skipped: None,
            rate_factor: None,
        }
    }
}

impl<'t> StepOf<'t> {
    pub(super) fn convert(self, dtype: DType) -> Self {
        StepOf {
            count: self.count.convert(dtype),
            step: self.step.convert(dtype),
            skipped: self.skipped.map(|skipped| skipped.convert(dtype)),
            rate_factor: self.rate_factor.map(|factor| factor.convert(dtype)),
        }
    }
}

impl<'t> Gradient<'t, '_> {
    /// The trace.
    pub fn cx(&self) -> &'t Trace {
        self.grad.trace()
    }

    /// The value of a schedule at this step, times the factor of learning rates: a scalar.
    #[track_caller]
    pub fn rate(&self, schedule: &Schedule) -> Tensor<'t> {
        let rate = schedule.at(self.at.step);
        self.at.rate_factor.map_or(rate, |factor| rate * factor)
    }

    /// A number of the rule, which is an [argument of the program](Trace::hyperparameter): a scalar.
    #[track_caller]
    pub fn number(&self, name: &str, value: f64) -> Tensor<'t> {
        self.cx().hyperparameter(name, value, self.grad.dtype())
    }

    /// Number of this update of the parameter, counted from 1 without those that changed nothing: a
    /// scalar.
    pub fn count(&self) -> Tensor<'t> {
        let count = self.at.count + 1.0;
        match (self.first, self.at.skipped) {
            // It is not known which updates were skipped: most are before the first of such a parameter.
            (Some(first), _) => count - first,
            (None, Some(skipped)) => count - skipped,
            (None, None) => count,
        }
    }

    /// Dimensions of one layer: the last ones, without those that count the layers of a
    /// [`Stack`](crate::Stack).
    pub fn layer_dims(&self) -> Vec<usize> {
        let rank = self.named.param.ty.rank();
        (self.named.param.stacked.min(rank)..rank).collect()
    }

    /// Root of the sum of the squares of `x` in each layer, with the rank of `x`.
    #[track_caller]
    pub fn layer_norm(&self, x: Tensor<'t>) -> Tensor<'t> {
        let [root, scale] = self.scaled_norm(x);
        root * scale
    }

    /// The norm of `x` in each layer as two factors, of which the second is a power of two: squares of
    /// large elements are beyond their type.
    #[track_caller]
    pub(super) fn scaled_norm(&self, x: Tensor<'t>) -> [Tensor<'t>; 2] {
        let scale = self.layer_scale(x);
        let squares = (x * (1.0 / scale)).square();
        [squares.sum_keep(self.layer_dims()).sqrt(), scale]
    }

    /// Root of the mean of the squares of `x` in each layer, with the rank of `x`.
    #[track_caller]
    pub(super) fn layer_rms(&self, x: Tensor<'t>) -> Tensor<'t> {
        let scale = self.layer_scale(x);
        let squares = (x * (1.0 / scale)).square();
        squares.mean_keep(self.layer_dims()).sqrt() * scale
    }

    /// A power of two near the largest element of `x` in each layer.
    #[track_caller]
    fn layer_scale(&self, x: Tensor<'t>) -> Tensor<'t> {
        let dims = self.layer_dims();
        if x.dims().contains(&0) {
            x.sum_keep(&dims).ones_like()
        } else {
            power_of_two(x.abs().max_keep(&dims))
        }
    }

    /// Type of the parameter of one layer.
    pub(super) fn layer(&self) -> TensorType {
        self.named.param.layer_type()
    }

    /// This with `weight_decay * param` added to the gradient, if the parameter decays.
    #[track_caller]
    pub(super) fn decayed(self, weight_decay: f64, decay: &Decay) -> Self {
        if weight_decay == 0.0 || !decay.applies(self.named) {
            return self;
        }
        let weight_decay = self.number("weight_decay", weight_decay);
        Gradient {
            grad: self.grad + self.param * weight_decay,
            ..self
        }
    }

    /// `direction`, with `rate * weight_decay * param` added if the parameter decays.
    #[track_caller]
    pub(super) fn decoupled(
        &self,
        direction: Tensor<'t>,
        rate: Tensor<'t>,
        weight_decay: (f64, &Decay),
    ) -> Tensor<'t> {
        let (weight_decay, decay) = weight_decay;
        let _site = self.cx().called_from(Location::caller());
        if weight_decay == 0.0 || !decay.applies(self.named) {
            return direction;
        }
        direction + self.param * (rate * self.number("weight_decay", weight_decay))
    }

    /// `param` norm over `update` norm of each layer, times `coefficient`; 1 where a norm is 0.
    #[track_caller]
    pub(super) fn trust_ratio(&self, update: Tensor<'t>, coefficient: Tensor<'t>) -> Tensor<'t> {
        let [[param, of_param], [update, of_update]] =
            [self.param, update].map(|x| self.scaled_norm(x));
        let ratio = param * coefficient / update * (of_param / of_update);
        // A NaN is not hidden.
        let is_zero = param.eq(0.0).or(update.eq(0.0));
        is_zero.select(ratio.ones_like(), ratio)
    }
}
