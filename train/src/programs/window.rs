//! Metrics of a task, accumulated on the device.

use std::sync::Arc;

use halite_core::{
    Array, Client, DType, DTypePolicy, Error, HostArray, Mesh, Result, Sharding, TensorType,
    tree::{Family, Tree},
};
use halite_data::Loader;
use halite_ir::{Literal, Op};
use halite_nn::{ArraySpec, ClassTarget, Mean, Padded, ShardedType, Tensor, Trace, Traced};

use super::{BatchTypes, LOSS, ModelArrays, batch_types};
use crate::{
    MetricValues, Task,
    cause::{self, Batches, Cause, Target},
    finite,
    loss_scale::LOSS_SCALE,
};

/// The name of the metrics' window among a checkpoint's arrays.
pub(crate) const WINDOW: &str = "window";

/// On-device accumulator of the metrics of several steps: one small array with, for each metric, the
/// sum of values, the sum of weights, and the first step at which it was not finite.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    names: Arc<[Arc<str>]>,
    /// Fields of the batch that a loss uses as class indices.
    targets: Arc<[Target]>,
}

/// One metric of a window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WindowMetric {
    pub(crate) name: Arc<str>,
    pub(crate) total: f64,
    pub(crate) weight: f64,
    /// The first step, counted from 1, at which its value was not finite.
    pub(crate) bad_step: Option<u64>,
}

impl WindowMetric {
    /// The weighted mean; 0 if the sum of weights is 0.
    pub(crate) fn mean(&self) -> f64 {
        if self.weight > 0.0 {
            self.total / self.weight
        } else {
            0.0
        }
    }
}

impl Window {
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(names: [&str; N]) -> Self {
        Window {
            names: names.into_iter().map(Arc::from).collect(),
            targets: Arc::default(),
        }
    }

    /// The metrics, in order.
    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// This window for a training step, which under a scaled loss also reports the scale.
    pub(crate) fn of_step(self, precision: &DTypePolicy) -> Self {
        let own = precision.loss_scale.map(|_| Arc::from(LOSS_SCALE));
        Window {
            names: self.names.iter().cloned().chain(own).collect(),
            ..self
        }
    }

    /// Values of an empty window.
    pub(crate) fn empty(&self) -> HostArray {
        HostArray::from_slice(&self.start(), [3 * self.names.len()])
            .expect("three numbers a metric")
    }

    /// Type of the window: replicated.
    pub(crate) fn sharded_type(&self) -> ShardedType {
        ShardedType::replicated(self.empty().ty().clone())
    }

    /// Spec of the window on the devices of `mesh`: replicated.
    pub(crate) fn spec(&self, mesh: &Arc<Mesh>) -> ArraySpec {
        ArraySpec::new(self.empty().ty().clone(), &Sharding::replicated(mesh))
    }

    /// Puts an empty window on every device of `mesh`.
    pub(crate) fn upload(&self, client: &Client, mesh: &Arc<Mesh>) -> Result<Array> {
        let client = client.unattributed();
        Array::upload(&client, &self.empty(), &Sharding::replicated(mesh))
    }

    /// The window of a task's evaluation, for a model on devices.
    pub(crate) fn discover_for<K: Task>(
        task: &K,
        model: &ModelArrays<K>,
        batch: &<K::Batch as Family>::Of<ArraySpec>,
        loader: &Loader,
    ) -> Result<Self> {
        let types = Tree::leaf_refs(model).map_leaves(|_, array| array.ty().clone());
        let pass = Pass {
            padding: padding("dataset", loader),
            is_training: false,
        };
        discover(task, &types, &batch_types::<K>(batch), &pass)
    }

    /// Mean of each metric over a pass through `loader`, by name, from the window of the pass.
    ///
    /// # Errors
    /// If one is not finite, with the cause if it is in the data.
    pub(crate) fn means(&self, window: &HostArray, loader: &Loader) -> Result<MetricValues> {
        let metrics = self.read(window)?;
        finite::check_scores(&metrics, || cause::of_pass(loader, &self.targets))?;
        Ok(metrics
            .into_iter()
            .map(|metric| (metric.name.clone(), metric.mean()))
            .collect())
    }

    /// Searches the batch of a step, and the batch before it, for the cause of a metric that is not
    /// finite. A gradient that is not finite shows in the loss of the next step.
    pub(crate) fn cause(&self, loader: &Loader, batches: &Batches, step: u64) -> Cause {
        let steps = [step, step.saturating_sub(1)];
        cause::of_steps(loader, batches, &self.targets, steps)
    }

    /// The metrics of a window that was read back.
    pub(crate) fn read(&self, window: &HostArray) -> Result<Vec<WindowMetric>> {
        let values = window.as_slice::<f32>()?;
        let count = self.names.len();
        let metric = |(index, name): (usize, &Arc<str>)| {
            let bad = values[2 * count + index];
            WindowMetric {
                name: name.clone(),
                total: values[index].into(),
                weight: values[count + index].into(),
                bad_step: bad.is_finite().then(|| bad as u64 + 1),
            }
        };
        Ok(self.names.iter().enumerate().map(metric).collect())
    }

    /// Adds this step's loss and metrics to a window.
    pub(super) fn add<'t>(
        &self,
        cx: &'t Trace,
        window: Tensor<'t>,
        loss: Mean<'t>,
        step: Tensor<'t>,
    ) -> Tensor<'t> {
        let metrics: Vec<Mean<'t>> = std::iter::once(loss)
            .chain(cx.metrics().into_iter().map(|(_, mean)| mean))
            .collect();
        let scalar = |value: Tensor<'t>| value.convert(DType::F32).reshape([1]);
        let totals = metrics.iter().map(|mean| scalar(mean.total));
        let weights = metrics.iter().map(|mean| scalar(mean.weight));
        let never = cx.scalar(f64::INFINITY, DType::F32);
        let is_finite = |value: Tensor<'t>| value.convert(DType::F32).is_finite();
        let bad = metrics.iter().map(|mean| {
            let both = is_finite(mean.total).and(is_finite(mean.weight));
            scalar(both.select(never, step.convert(DType::F32)))
        });
        let parts: Vec<Tensor<'t>> = totals.chain(weights).chain(bad).collect();
        let now = cx.push_one(Op::Concatenate { dim: 0 }, &parts);
        let is_sum: Vec<bool> = (0..parts.len())
            .map(|index| index < 2 * metrics.len())
            .collect();
        let is_sum = Literal::new(&is_sum, [parts.len()]).expect("one flag a number");
        cx.push_one(Op::Constant(is_sum), &[])
            .select(window + now, window.minimum(now))
    }

    fn start(&self) -> Vec<f32> {
        let count = self.names.len();
        (0..3 * count)
            .map(|index| {
                if index < 2 * count {
                    0.0
                } else {
                    f32::INFINITY
                }
            })
            .collect()
    }
}

/// What is done with the loss of a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pass {
    pub(crate) is_training: bool,
    /// Why the last batch has rows of padding, if it has some.
    pub(crate) padding: Option<String>,
}

/// Why the last batch of `loader` has rows of padding, if it has some: the end of a message.
pub(crate) fn padding(which: &str, loader: &Loader) -> Option<String> {
    let (rows, samples) = (loader.padding(), loader.dataset().len());
    let rows_are = match rows {
        0 => return None,
        1 => "1 row of the last batch is".to_owned(),
        rows => format!("{rows} rows of the last batch are"),
    };
    let size = loader.options().batch_size;
    Some(format!(
        "{rows_are} padding, as the {samples} samples of the {which} are not divisible by the batch \
         size {size}"
    ))
}

/// Finds the metrics that a task reports, by tracing it without running it.
///
/// # Errors
/// All mistakes of the task's code at once: a loss or metric that counts padding like samples is
/// one.
pub(crate) fn discover<K: Task>(
    task: &K,
    model: &<K::Model as Family>::Of<TensorType>,
    batch: &BatchTypes<K>,
    pass: &Pass,
) -> Result<Window> {
    let cx = Trace::new();
    let key = (pass.is_training).then(|| cx.input(TensorType::new(DType::U32, [2]), "key"));
    cx.set_mode(pass.is_training, key);
    let model: Traced<'_, K::Model> =
        Tree::leaf_refs(model).map_leaves(|path, ty| cx.input(ty.clone(), path.to_string()));
    let mut batch_names = Vec::new();
    let batch = Tree::leaf_refs(batch).map_leaves(|path, spec| {
        let name = format!("batch.{path}");
        let tensor = cx.input(spec.ty.clone(), name.as_str());
        batch_names.push(name);
        tensor
    });
    let loss = task.loss(&cx, &model, &batch);
    let leaves: Vec<Tensor<'_>> = batch.leaves().into_iter().copied().collect();
    if let (Some(reason), Some((&weight, fields))) = (&pass.padding, leaves.split_last()) {
        let batch = Padded {
            fields,
            weight,
            reason,
        };
        cx.require_weight(loss, batch);
    }
    // Reports mistakes before anything is compiled.
    cx.check()?;
    if loss.total.rank() != 0 || loss.weight.rank() != 0 {
        let message = format!(
            "the loss is the mean of a total {} and a weight {}; both must be scalars, as \
             `Mean::of` and `Mean::weighted` make them",
            loss.total.ty(),
            loss.weight.ty()
        );
        return Err(Error::invalid("fit", message));
    }
    if cx.metrics().iter().any(|(name, _)| **name == *LOSS) {
        let message = format!(
            "the task reports a metric `{LOSS}`, which is the name of the value that it returns; \
             give it another name"
        );
        return Err(Error::invalid("fit", message));
    }
    let names =
        std::iter::once(Arc::from(LOSS)).chain(cx.metrics().into_iter().map(|(name, _)| name));
    let target = |classes: ClassTarget| {
        let field = batch_names
            .iter()
            .position(|name| **name == *classes.input)?;
        Some(Target { field, classes })
    };
    Ok(Window {
        names: names.collect(),
        targets: cx.class_targets().into_iter().filter_map(target).collect(),
    })
}
