//! Metrics of a task, accumulated on the device.

use std::{collections::HashMap, sync::Arc};

use halite_core::{Array, Client, DType, DTypePolicy, HostArray, Mesh, Result, Sharding};
use halite_data::Loader;
use halite_ir::{Literal, Op};
use halite_nn::{ArraySpec, Mean, ShardedType, Tensor, Trace};

use crate::{
    cause::{self, Batches, Cause, Target},
    loss_scale::LOSS_SCALE,
    metrics::CollectedMetrics,
};

/// Name of the count of skipped steps among the extras.
const SKIPPED: &str = "skipped";

/// The name of the metrics' window among a checkpoint's arrays.
pub(crate) const WINDOW: &str = "window";

/// On-device accumulator of the metrics of several steps: one small array with, for each metric, the
/// sum of values, the sum of weights, and the first step at which it was not finite. The
/// [extras](Extras) of a training step follow.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    names: Arc<[Arc<str>]>,
    /// Fields of the batch that a loss uses as class indices.
    targets: Arc<[Target]>,
    extras: Extras,
    /// Metrics that are computed from the rows of a whole data set, of an evaluation.
    collected: Arc<CollectedMetrics>,
}

/// What a window has besides the metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// The number of steps that were skipped.
    pub(crate) counts_skipped: bool,
    /// Paths of the parameters of which it has the first step with a gradient that was not finite.
    pub(crate) watched: Arc<[Arc<str>]>,
}

/// Values of the extras in one step.
#[derive(Default)]
pub(crate) struct ExtraValues<'t> {
    /// Whether the step is done, if steps may be skipped: a `bool` scalar.
    pub(crate) is_done: Option<Tensor<'t>>,
    /// Whether the gradients of the watched parameters are finite, if there are some.
    pub(crate) are_finite: Vec<Tensor<'t>>,
}

/// Extras of a window that was read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ReadExtras {
    /// Steps that were skipped.
    pub(crate) skipped: u64,
    /// The first watched parameter whose gradient was not finite, in the order of the model, and
    /// the step, counted from 1.
    pub(crate) anomaly: Option<(Arc<str>, u64)>,
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
        weighted_mean(self.total, self.weight)
    }
}

/// The mean of values whose sum, each times its weight, is `total`; 0 if the sum of weights is 0.
pub(crate) fn weighted_mean(total: f64, weight: f64) -> f64 {
    if weight > 0.0 { total / weight } else { 0.0 }
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
            extras: Extras::default(),
            collected: Arc::default(),
        }
    }

    /// This window of an evaluation that also collects rows.
    pub(crate) fn collecting(self, collected: CollectedMetrics) -> Self {
        Window {
            collected: Arc::new(collected),
            ..self
        }
    }

    /// Metrics that are computed from the rows of a whole data set.
    pub(crate) fn collected(&self) -> &CollectedMetrics {
        &self.collected
    }

    /// Names of all results of an evaluation: those of the window, then the collected ones.
    pub(crate) fn result_names(&self) -> Vec<Arc<str>> {
        let collected = self.collected.result_names();
        self.names.iter().cloned().chain(collected).collect()
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
    pub(crate) fn of_step(self, precision: &DTypePolicy, extras: Extras) -> Self {
        let own = precision.loss_scale.map(|_| Arc::from(LOSS_SCALE));
        Window {
            names: self.names.iter().cloned().chain(own).collect(),
            extras,
            ..self
        }
    }

    /// This window with one more metric.
    pub(crate) fn and(self, name: &str) -> Self {
        Window {
            names: self
                .names
                .iter()
                .cloned()
                .chain([Arc::from(name)])
                .collect(),
            ..self
        }
    }

    /// Values of an empty window.
    pub(crate) fn empty(&self) -> HostArray {
        let values = self.start();
        HostArray::from_slice(&values, [values.len()]).expect("as many values as the dimension")
    }

    /// Names of the extras, in their order.
    pub(crate) fn extras(&self) -> Vec<String> {
        let Extras {
            counts_skipped,
            watched,
        } = &self.extras;
        let skipped = counts_skipped.then(|| SKIPPED.to_string());
        let watched = watched.iter().map(|path| format!("gradient of {path}"));
        skipped.into_iter().chain(watched).collect()
    }

    /// The window `saved` in a checkpoint of a run with these `extras`, and its skipped steps if
    /// this window does not count them. The metrics and the extras that both have continue, other
    /// extras start at 0.
    pub(crate) fn continued(
        &self,
        saved: &HostArray,
        extras: &[String],
    ) -> Result<(HostArray, u64)> {
        let (mut values, saved) = (self.start(), saved.as_slice::<f32>()?);
        let metrics = 3 * self.names.len();
        let (of_metrics, of_extras) = saved.split_at(metrics.min(saved.len()));
        values[..of_metrics.len()].copy_from_slice(of_metrics);
        let of_extras: HashMap<&str, f32> = (extras.iter().map(String::as_str))
            .zip(of_extras.iter().copied())
            .collect();
        for (value, name) in values[metrics..].iter_mut().zip(self.extras()) {
            *value = of_extras.get(&*name).copied().unwrap_or(*value);
        }
        let skipped = if self.extras.counts_skipped {
            0
        } else {
            of_extras.get(SKIPPED).map_or(0, |skipped| *skipped as u64)
        };
        Ok((HostArray::from_slice(&values, [values.len()])?, skipped))
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

    /// The extras of a window that was read back.
    pub(crate) fn read_extras(&self, window: &HostArray) -> Result<ReadExtras> {
        let values = &window.as_slice::<f32>()?[3 * self.names.len()..];
        let (skipped, steps) = values.split_at(usize::from(self.extras.counts_skipped));
        let watched = self.extras.watched.iter().zip(steps);
        let bad = watched.filter(|(_, step)| step.is_finite());
        // The first of those with the least step.
        let first = bad.reduce(|first, one| if one.1 < first.1 { one } else { first });
        Ok(ReadExtras {
            skipped: skipped.iter().sum::<f32>() as u64,
            anomaly: first.map(|(path, step)| (path.clone(), *step as u64 + 1)),
        })
    }

    /// Adds this step's loss, metrics and extras to a window. The metrics of a step that is skipped
    /// do not count.
    pub(crate) fn add<'t>(
        &self,
        cx: &'t Trace,
        window: Tensor<'t>,
        loss: Mean<'t>,
        step: Tensor<'t>,
        extras: ExtraValues<'t>,
    ) -> Tensor<'t> {
        let metrics = cx.metrics().into_iter().map(|(_, mean)| mean);
        let counted = |value: Tensor<'t>| match extras.is_done {
            Some(is_done) => is_done.select(value, value.zeros_like()),
            None => value,
        };
        let metrics: Vec<Mean<'t>> = std::iter::once(loss)
            .chain(metrics)
            .map(|mean| Mean {
                total: counted(mean.total),
                weight: counted(mean.weight),
            })
            .collect();
        let scalar = |value: Tensor<'t>| value.convert(DType::F32).reshape([1]);
        let totals = metrics.iter().map(|mean| scalar(mean.total));
        let weights = metrics.iter().map(|mean| scalar(mean.weight));
        let never = cx.scalar(f64::INFINITY, DType::F32);
        let is_finite = |value: Tensor<'t>| value.convert(DType::F32).is_finite();
        let step_unless = |fine: Tensor<'t>| scalar(fine.select(never, step.convert(DType::F32)));
        let bad = metrics.iter().map(|mean| {
            let both = is_finite(mean.total).and(is_finite(mean.weight));
            step_unless(both)
        });
        let skipped = extras.is_done.map(|is_done| scalar(!is_done));
        let anomalies = extras.are_finite.iter().map(|fine| step_unless(*fine));
        let parts: Vec<Tensor<'t>> = (totals.chain(weights).chain(bad))
            .chain(skipped)
            .chain(anomalies)
            .collect();
        let now = cx.push_one(Op::Concatenate { dim: 0 }, &parts);
        let is_sum: Vec<bool> = (0..parts.len()).map(|index| self.is_sum(index)).collect();
        let is_sum = Literal::new(&is_sum, [parts.len()]).expect("one flag a number");
        cx.push_one(Op::Constant(is_sum), &[])
            .select(window + now, window.minimum(now))
    }

    fn start(&self) -> Vec<f32> {
        let Extras {
            counts_skipped,
            watched,
        } = &self.extras;
        let length = 3 * self.names.len() + usize::from(*counts_skipped) + watched.len();
        let start = |index| {
            if self.is_sum(index) {
                0.0
            } else {
                f32::INFINITY
            }
        };
        (0..length).map(start).collect()
    }

    /// Whether values at this place of the window add up; of the others the least is kept.
    fn is_sum(&self, index: usize) -> bool {
        let metrics = self.names.len();
        index < 2 * metrics || (self.extras.counts_skipped && index == 3 * metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_continues_field_by_field() {
        let window = |counts_skipped, watched: &[&str]| Window {
            extras: Extras {
                counts_skipped,
                watched: watched.iter().copied().map(Arc::from).collect(),
            },
            ..Window::of(["loss"])
        };
        let continued = |from: &Window, to: &Window, saved: &[f32]| {
            let saved = HostArray::from_slice(saved, [saved.len()]).unwrap();
            let (values, skipped) = to.continued(&saved, &from.extras()).unwrap();
            (values.as_slice::<f32>().unwrap().to_vec(), skipped)
        };
        let (skips, watches) = (window(true, &[]), window(false, &["w"]));
        let both = window(true, &["v", "w"]);
        let none = f32::INFINITY;
        // The same length, with other fields.
        let saved = [2.0, 1.0, none, 3.0];
        let expected = (vec![2.0, 1.0, none, none], 3);
        assert_eq!(continued(&skips, &watches, &saved), expected);
        let saved = [2.0, 1.0, none, 7.0];
        let expected = (vec![2.0, 1.0, none, 0.0], 0);
        assert_eq!(continued(&watches, &skips, &saved), expected);
        let expected = (vec![2.0, 1.0, none, 0.0, none, 7.0], 0);
        assert_eq!(continued(&watches, &both, &saved), expected);
    }
}
