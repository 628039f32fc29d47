//! The traits of tasks: training and inference.

use std::{panic::Location, sync::Arc};

use halite_core::tree::Family;
use halite_data::Labeled;
use halite_nn::{Mean, Tensor, Trace, Traced};

/// Mean of each metric over a dataset, by name; the loss is among them.
pub type MetricValues = Vec<(Arc<str>, f64)>;

/// A model, its batches, and the loss to minimize.
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
    /// there is one more leaf, the weight of each sample, `f32[batch]`: 0 for the padding of the
    /// last batch.
    type Batch: Family<Of<()>: Default>;

    /// Computes the loss of a batch. [`cx.metric`](Trace::metric) reports further metrics.
    ///
    /// Both are means over samples with the weight of the batch: [`Weighted::mean`]. Where the last
    /// batch of a dataset is padded, one that does not depend on the weight is a mistake.
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

/// A batch with a weight for each sample, which makes means with it.
///
/// Methods of [`Labeled`]; a batch of one's own has them by three lines:
///
/// ```
/// use halite_core::tree::Tree;
/// use halite_nn::{Mean, Tensor};
/// use halite_train::Weighted;
///
/// #[derive(Tree, Default)]
/// struct Point<L> { x: L, y: L, weight: L }
///
/// impl<'t> Weighted<'t> for Point<Tensor<'t>> {
///     fn weight(&self) -> Tensor<'t> { self.weight }
/// }
///
/// fn loss<'t>(batch: &Point<Tensor<'t>>) -> Mean<'t> {
///     batch.mean((batch.x - batch.y).square())
/// }
/// ```
pub trait Weighted<'t> {
    /// Weight of each sample, `[batch]`: 0 for the padding of the last batch.
    fn weight(&self) -> Tensor<'t>;

    /// Mean of `values: [batch, ..]` with the weights of the samples, of which each holds for all
    /// values of its sample: [`Mean::weighted`].
    #[track_caller]
    fn mean(&self, values: Tensor<'t>) -> Mean<'t> {
        let _site = values.trace().called_from(Location::caller());
        let mut weights = self.weight();
        // Others have no mean, which `Mean::weighted` says with both types.
        if values.rank() > 1 && values.dims()[..1] == weights.dims() {
            for dim in 1..values.rank() {
                weights = weights.unsqueeze(dim);
            }
            weights = weights.broadcast_to(values.dims());
        }
        Mean::weighted(values, weights)
    }
}

impl<'t> Weighted<'t> for Labeled<Tensor<'t>> {
    fn weight(&self) -> Tensor<'t> {
        self.weight
    }
}

/// A task that supports inference.
pub trait Predict: Task {
    /// Output for a batch: `Leaf<()>` for one tensor. The first dimension of every leaf counts the
    /// samples.
    type Output: Family;

    /// Computes the output for a batch, traced in evaluation mode.
    fn predict<'t>(
        &self,
        cx: &'t Trace,
        model: &Traced<'t, Self::Model>,
        batch: &Traced<'t, Self::Batch>,
    ) -> <Self::Output as Family>::Bare<Tensor<'t>>;
}
