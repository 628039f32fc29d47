//! Tasks for training and inference: traits, and tasks from closures.

mod adapted;
mod alternating;

use std::{fmt, marker::PhantomData, panic::Location, sync::Arc};

use halite_core::{Tree, tree::Family};
use halite_data::Labeled;
use halite_nn::{Mean, Param, Tensor, Trace, Traced};

pub(crate) use self::alternating::{check_updates, losses};
pub use self::{
    adapted::AdaptedTask,
    alternating::{Alternating, Update},
};

/// Mean of each metric over a dataset, by name; the loss is among them.
pub type MetricValues = Vec<(Arc<str>, f64)>;

/// A model, its batches, and the loss to minimize.
///
/// [`task`] makes one from a closure. A custom type can have settings, and
/// [predict](Predict):
///
/// ```
/// use halite_core::Tree;
/// use halite_nn::{Mean, Tensor, Trace};
/// use halite_train::{Task, Weighted};
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
///         batch.mean(error * error)
///     }
/// }
///
/// impl<'t> Weighted<'t> for Point<Tensor<'t>> {
///     fn weight(&self) -> Tensor<'t> { self.weight }
/// }
/// ```
pub trait Task: Send + Sync + 'static {
    /// The model: `Mlp<()>`.
    type Model: Family<Of<Param>: Send + Sync>;

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

    /// The updates of a training step, if it has several: those of an [`Alternating`]. By default a
    /// step has one, of all trained parameters along the gradients of [`loss`](Self::loss).
    fn updates(&self) -> &[Update<Self::Model, Self::Batch>] {
        &[]
    }
}

/// Several owners of one task.
impl<K: Task> Task for Arc<K> {
    type Model = K::Model;
    type Batch = K::Batch;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Traced<'t, K::Model>,
        batch: &Traced<'t, K::Batch>,
    ) -> Mean<'t> {
        K::loss(self, cx, model, batch)
    }

    fn updates(&self) -> &[Update<K::Model, K::Batch>] {
        K::updates(self)
    }
}

/// A task for models like `model` and batches of inputs and targets ([`Labeled`]), from a closure
/// that computes the loss: see [`Task::loss`]. Only the Rust type of `model` counts here.
///
/// ```
/// use halite_backends::Accelerator;
/// # use halite_core::HostArray;
/// # use halite_data::InMemory;
/// use halite_nn::{Adam, Linear, mse};
/// use halite_train::{Trainer, Weighted, task};
///
/// # fn main() -> halite_core::Result<()> {
/// # let array = |name, dims: [usize; 2]| Ok::<_, halite_core::Error>((name, HostArray::from_slice(&vec![0.5f32; dims[0] * dims[1]], dims)?));
/// # let data = InMemory::new([array("x", [8, 3])?, array("y", [8, 1])?])?;
/// # let (train, test) = (data.clone(), data);
/// let model = Linear::new(3, 1);
/// let task = task(&model, |cx, model, batch| {
///     let error = model.forward(batch.input) - batch.target;
///     cx.metric("mae", batch.mean(error.abs()));
///     batch.mean(error.square())
/// });
/// let client = Accelerator::cpu().open()?;
/// let trainer = Trainer::builder(&client).epochs(2).batch_size(4).quiet(true).build()?;
/// let fitted = trainer.fit(task, model, Adam::new(0.1), train, test.clone())?;
/// let metrics = trainer.validate(task, &fitted.model, test)?; // closures that own nothing are `Copy`
/// assert_eq!(&*metrics[1].0, "mae");
/// # Ok(())
/// # }
/// ```
pub fn task<M, F>(model: &M, loss: F) -> LossTask<M::Family, Labeled<()>, F>
where
    M: Tree<Leaf = Param>,
    F: for<'t> Fn(&'t Trace, &Traced<'t, M::Family>, &Labeled<Tensor<'t>>) -> Mean<'t>
        + Send
        + Sync
        + 'static,
{
    task_on(model, Labeled::TEMPLATE, loss)
}

/// As [`task`], for batches of another type: `task_on(&model, Point::default(), |cx, model, batch|
/// ..)`. Only the Rust types of `model` and `batch` count here; see [`Task::Batch`].
pub fn task_on<M, B, F>(model: &M, batch: B, loss: F) -> LossTask<M::Family, B, F>
where
    M: Tree<Leaf = Param>,
    B: Family<Of<()>: Default>,
    F: for<'t> Fn(&'t Trace, &Traced<'t, M::Family>, &Traced<'t, B>) -> Mean<'t>
        + Send
        + Sync
        + 'static,
{
    let (_, _) = (model, batch);
    LossTask {
        loss,
        types: PhantomData,
    }
}

/// Task of a closure: [`task`] makes it. `M` and `B` are the [families](Family) of the model and of
/// the batch.
pub struct LossTask<M, B, F> {
    loss: F,
    types: PhantomData<fn() -> (M, B)>,
}

impl<M, B, F> Task for LossTask<M, B, F>
where
    M: Family<Of<Param>: Send + Sync>,
    B: Family<Of<()>: Default>,
    F: for<'t> Fn(&'t Trace, &Traced<'t, M>, &Traced<'t, B>) -> Mean<'t> + Send + Sync + 'static,
{
    type Model = M;
    type Batch = B;

    fn loss<'t>(&self, cx: &'t Trace, model: &Traced<'t, M>, batch: &Traced<'t, B>) -> Mean<'t> {
        (self.loss)(cx, model, batch)
    }
}

// Manual implementations: a derive would require the same traits of `M` and `B`.
impl<M, B, F: Clone> Clone for LossTask<M, B, F> {
    fn clone(&self) -> Self {
        LossTask {
            loss: self.loss.clone(),
            types: PhantomData,
        }
    }
}

impl<M, B, F: Copy> Copy for LossTask<M, B, F> {}

impl<M, B, F> fmt::Debug for LossTask<M, B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LossTask")
    }
}

/// A batch with a weight for each sample, which makes means with it.
///
/// Methods of [`Labeled`]; a custom batch has them by three lines:
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
