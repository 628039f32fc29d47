//! What a user writes to train a model.

use halite_core::tree::Family;
use halite_nn::{Mean, Trace, Traced};

/// A model, the batches it learns from, and what is to become small.
///
/// ```
/// use halite_core::tree::{Leaf, Tree};
/// use halite_nn::{Mean, Tensor, Trace};
/// use halite_train::Task;
///
/// #[derive(Tree, Default)]
/// struct Point<L> { x: L, y: L, weight: L }
///
/// #[derive(Tree)]
/// struct Line<L> { slope: L, offset: L }
///
/// struct Fit;
/// impl Task for Fit {
///     type Model = Line<()>;
///     type Batch = Point<()>;
///
///     fn loss<'t>(&self, _cx: &'t Trace, model: &Line<Tensor<'t>>, batch: &Point<Tensor<'t>>) -> Mean<'t> {
///         let error = batch.x * model.slope + model.offset - batch.y;
///         Mean::weighted(error * error, batch.weight)
///     }
/// }
/// ```
pub trait Task: Send + Sync + 'static {
    /// The model: `Mlp<()>`.
    type Model: Family;

    /// A batch: `Labeled<()>`. Its leaves are the fields of the dataset, in order, and then, if
    /// there is one more leaf, the weight of each sample, `f32[batch]`: 0 for samples that only
    /// fill up the last batch.
    type Batch: Family<Of<()>: Default>;

    /// The loss of a batch, traced. Metrics are reported with [`cx.metric`](Trace::metric).
    ///
    /// It is called for training and for validation; [`cx.is_training`](Trace::is_training) tells
    /// them apart.
    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Traced<'t, Self::Model>,
        batch: &Traced<'t, Self::Batch>,
    ) -> Mean<'t>;
}

/// A task whose model can be asked, not only scored.
pub trait Predict: Task {
    /// What it answers for a batch; the first dimension of every leaf counts the samples.
    type Output: Family;

    /// The answer for a batch, traced in evaluation mode.
    fn predict<'t>(
        &self,
        cx: &'t Trace,
        model: &Traced<'t, Self::Model>,
        batch: &Traced<'t, Self::Batch>,
    ) -> Traced<'t, Self::Output>;
}
