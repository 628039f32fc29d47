//! Negative log likelihood of log probabilities.

use std::panic::Location;

use super::{CrossEntropy, Samples, class_index, classified, error_of_samples, is_class};
use crate::{Mean, Tensor, check::Checked, context, special::wide};

/// `-log_probabilities[target]` of each sample (`torch.nn.functional.nll_loss`), for models that end
/// in [`log_softmax`](Tensor::log_softmax). `log_probabilities: [.., classes]`, `target: [..]` of
/// integers; returns `[..]`.
///
/// A target out of range gives NaN. [`NllLoss`] has the options; of logits,
/// [`cross_entropy`](crate::cross_entropy) is the more exact loss.
#[track_caller]
pub fn nll_loss<'t>(log_probabilities: Tensor<'t>, target: Tensor<'t>) -> Tensor<'t> {
    let _site = (log_probabilities.trace()).called_from(Location::caller());
    match NllLoss::new().each(log_probabilities, target) {
        Ok(each) => each.loss,
        Err(error) => error_of_samples(error, target),
    }
}

/// Negative log likelihood with options, like `torch.nn.NLLLoss`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NllLoss<'t> {
    options: CrossEntropy<'t>,
}

impl<'t> NllLoss<'t> {
    /// Negative log likelihood with default options: [`nll_loss`].
    pub fn new() -> Self {
        NllLoss::default()
    }

    /// Ignores samples with this target: -100, or the id of padding.
    pub fn ignore(mut self, target: i32) -> Self {
        self.options.ignore = Some(target);
        self
    }

    /// Sets a weight for each class, `[classes]`. The mean is weighted by that of each sample's class.
    pub fn class_weights(mut self, weights: Tensor<'t>) -> Self {
        self.options.class_weights = Some(weights);
        self
    }

    /// Sets a weight for each sample, `[..]` like the target; 0 leaves it out.
    pub fn weights(mut self, weights: Tensor<'t>) -> Self {
        self.options.weights = Some(weights);
        self
    }

    /// Computes the mean over the batch. `log_probabilities: [.., classes]`, `target: [..]` of
    /// integers.
    #[track_caller]
    pub fn loss(&self, log_probabilities: Tensor<'t>, target: Tensor<'t>) -> Mean<'t> {
        let _site = (log_probabilities.trace()).called_from(Location::caller());
        match self.each(log_probabilities, target) {
            Ok(each) => self.options.weighted_mean(each),
            Err(error) => Mean::failed(error),
        }
    }

    /// The losses of the samples, ignored ones among them.
    #[track_caller]
    fn each(&self, log_probabilities: Tensor<'t>, target: Tensor<'t>) -> Checked<'t, Samples<'t>> {
        const NAME: &str = "nll loss";
        classified(NAME, log_probabilities, target)?;
        self.options.check_weights(NAME, log_probabilities)?;
        let logs = log_probabilities.convert(wide(log_probabilities.dtype()));
        let (last, ignored) = (logs.rank() - 1, self.options.ignore);
        let classes = logs.dims()[last];
        context::expect_classes(logs.trace(), target, classes, ignored);
        let target = class_index(target, ignored);
        let hit = is_class(target, classes);
        let class_weight = self.options.class_weights.map(|weights| {
            let weights = weights.convert(logs.dtype()).broadcast_to(logs.dims());
            hit.select(weights, 0.0).sum([last])
        });
        let mut loss = -hit.select(logs, 0.0).sum([last]);
        if let Some(weight) = class_weight {
            loss = loss.weighted_by(weight);
        }
        let known = target.ge(0.0).and(target.lt(classes as f64));
        Ok(Samples {
            loss: known.select(loss, f64::NAN),
            target,
            class_weight,
        })
    }
}
