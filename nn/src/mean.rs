//! Weighted means that can be put together over many batches without loss.

use crate::Tensor;

/// A weighted mean as its two sums, so that means of several batches become the exact mean of all samples.
#[derive(Clone, Copy, Debug)]
pub struct Mean<'t> {
    /// Sum of value times weight: a scalar.
    pub total: Tensor<'t>,
    /// Sum of weights: a scalar.
    pub weight: Tensor<'t>,
}

impl<'t> Mean<'t> {
    /// `values` and `weights` of the same dimensions; a weight of 0 leaves a sample out.
    #[track_caller]
    pub fn weighted(values: Tensor<'t>, weights: Tensor<'t>) -> Self {
        Mean { total: (values * weights).sum_all(), weight: weights.sum_all() }
    }

    /// All values count the same.
    #[track_caller]
    pub fn of(values: Tensor<'t>) -> Self {
        let count = values.ty().elements() as f64;
        Mean { total: values.sum_all(), weight: values.trace().scalar(count, values.dtype()) }
    }

    /// The mean: a scalar; 0 if nothing counts.
    #[track_caller]
    pub fn value(self) -> Tensor<'t> {
        let nothing = self.weight.eq(self.weight * 0.0);
        let weight = nothing.select(self.weight + 1.0, self.weight);
        self.total / weight
    }
}

impl<'t> From<Tensor<'t>> for Mean<'t> {
    /// A scalar counts as one sample; of a larger tensor every element does.
    fn from(values: Tensor<'t>) -> Self {
        Mean::of(values)
    }
}
