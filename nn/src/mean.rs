//! Weighted means that combine exactly over many batches.

use std::panic::Location;

use halite_core::TensorType;

use crate::{Tensor, special::wide};

/// Weighted mean as two sums, so that means of several batches combine to the exact mean of all
/// samples.
///
/// Both sums are in `f32`, or in `f64` for values in `f64`.
///
/// The loss and the metrics of a task are means with the weights of the batch:
/// `Mean::weighted(values, batch.weight)`, with a value for each sample. [`Mean::of`] counts the
/// padding of a last batch like samples.
#[derive(Clone, Copy, Debug)]
pub struct Mean<'t> {
    /// Sum of value times weight: a scalar.
    pub total: Tensor<'t>,
    /// Sum of weights: a scalar.
    pub weight: Tensor<'t>,
}

/// What [`Trace::metric`](crate::Trace::metric) takes: a mean. A tensor is none, since its padding
/// would count.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a mean over samples",
    label = "expected a `Mean`",
    note = "with a value for each sample, `batch.mean(values)` or `Mean::weighted(values, \
            batch.weight)` leaves out the padding of the last batch",
    note = "`Mean::of(values)` is for values that are not of samples"
)]
pub trait IntoMean<'t> {
    /// The mean.
    fn into_mean(self) -> Mean<'t>;
}

impl<'t> IntoMean<'t> for Mean<'t> {
    fn into_mean(self) -> Mean<'t> {
        self
    }
}

impl<'t> Mean<'t> {
    /// Weighted mean of `values` and `weights` of the same dimensions.
    ///
    /// A weight of 0 leaves a sample out, also if its value is not finite: the gradient of the mean
    /// is 0 through it, as long as elementwise operations, sums and largest elements computed it. A
    /// product of matrices multiplies all of its operands, so the inputs of a layer must be finite.
    /// Weights have derivatives, also where they are 0 and the value is finite.
    #[track_caller]
    pub fn weighted(values: Tensor<'t>, weights: Tensor<'t>) -> Self {
        let cx = values.trace();
        let _site = cx.called_from(Location::caller());
        let dtype = wide(values.dtype());
        let like = TensorType::scalar(dtype);
        if values.is_error() || weights.is_error() {
            return Mean::failed(cx.error_like(Some(like)));
        }
        // No broadcasting: [n] with [n, 1] would be a mean of n² products.
        if values.dims() != weights.dims() {
            let message = format!(
                "values {} and weights {}; expected equal dimensions",
                values.ty(),
                weights.ty()
            );
            return Mean::failed(cx.fail("weighted mean", message, Some(like)));
        }
        let (values, weights) = (values.convert(dtype), weights.convert(dtype));
        Mean {
            total: values.weighted_by(weights).sum_all(),
            weight: weights.sum_all(),
        }
    }

    /// Mean with equal weights: every element counts as one sample.
    #[track_caller]
    pub fn of(values: Tensor<'t>) -> Self {
        let _site = values.trace().called_from(Location::caller());
        let dtype = wide(values.dtype());
        let count = values.dims().iter().map(|&size| size as f64).product();
        Mean {
            total: values.convert(dtype).sum_all(),
            weight: values.trace().scalar(count, dtype),
        }
    }

    /// Mean after a mistake elsewhere.
    pub(crate) fn failed(error: Tensor<'t>) -> Self {
        Mean {
            total: error,
            weight: error,
        }
    }

    /// The mean, a scalar; 0 if all weights are 0.
    #[track_caller]
    pub fn value(self) -> Tensor<'t> {
        let nothing = self.weight.eq(self.weight * 0.0);
        let weight = nothing.select(self.weight + 1.0, self.weight);
        self.total / weight
    }
}
