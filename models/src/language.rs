//! Language modeling: the next-token loss.

use halite_core::Tree;
use halite_nn::{CrossEntropy, Decay, Mean, Tensor, Trace, Transformer, correct};
use halite_train::{Task, Weighted};

/// Next-token prediction: cross-entropy loss in nats at every position, with accuracy as a metric.
/// The perplexity is the exponential of the loss.
///
/// A batch has windows `[batch, length + 1]` of token ids, as
/// [`TokenWindows`](halite_data::text::TokenWindows) returns them.
#[derive(Clone, Copy, Debug, Default)]
pub struct LanguageModel;

/// A batch of windows of text.
#[derive(Tree, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBatch<L> {
    /// Token ids, `[batch, length + 1]`: inputs are all but the last, targets all but the first.
    pub tokens: L,
    /// Sample weights: 1, or 0 for windows that only pad the last batch.
    pub weight: L,
}

impl<'t> Weighted<'t> for TokenBatch<Tensor<'t>> {
    fn weight(&self) -> Tensor<'t> {
        self.weight
    }
}

impl LanguageModel {
    /// Returns the weight-decay rule: weights and embedding tables decay, biases and scales do not.
    /// (Optimizers decide by rank by default, and the biases of attention heads have two
    /// dimensions.)
    pub fn decay() -> Decay {
        Decay::rule(|path, _| path.ends_with(".weight") || path.ends_with(".table"))
    }
}

impl Task for LanguageModel {
    type Model = Transformer<()>;
    type Batch = TokenBatch<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Transformer<Tensor<'t>>,
        batch: &TokenBatch<Tensor<'t>>,
    ) -> Mean<'t> {
        let tokens = batch.tokens;
        let last = tokens.dims()[1] - 1;
        let (inputs, targets) = (tokens.slice_dim(1, ..last), tokens.slice_dim(1, 1..));
        let weights = batch.weight.unsqueeze(1).broadcast_to(targets.dims());
        let logits = model.forward(inputs);
        cx.metric("accuracy", batch.mean(correct(logits, targets)));
        CrossEntropy::new().weights(weights).loss(logits, targets)
    }
}
