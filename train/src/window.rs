//! Metrics of a task, accumulated on the device.

use std::sync::Arc;

use halite_core::{Array, Client, DType, DTypePolicy, HostArray, Mesh, Result, Sharding};
use halite_data::Loader;
use halite_ir::{Literal, Op};
use halite_nn::{ArraySpec, Mean, ShardedType, Tensor, Trace};

use crate::{
    cause::{self, Batches, Cause, Target},
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
    /// A window of these metrics, of which one may use fields of the batch as class indices.
    pub(crate) fn new(
        names: impl IntoIterator<Item = Arc<str>>,
        targets: impl IntoIterator<Item = Target>,
    ) -> Self {
        Window {
            names: names.into_iter().collect(),
            targets: targets.into_iter().collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn of<const N: usize>(names: [&str; N]) -> Self {
        Window::new(names.map(Arc::from), [])
    }

    /// Fields of the batch that a loss uses as class indices.
    pub(crate) fn targets(&self) -> &[Target] {
        &self.targets
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
    pub(crate) fn add<'t>(
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
