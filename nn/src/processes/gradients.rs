//! The gradient of the mean loss over all samples of all processes.

use std::panic::Location;

use super::shards::SumShards;
use crate::{Mean, Processes, Tensor, Trace, context, grad, special::wide};

impl Trace {
    /// The loss of the samples of this process, in the form of which the gradient is taken.
    ///
    /// If the processes have exchanged values to compute it, as
    /// [`BatchNorm`](crate::BatchNorm) does in training, its weight is that of all processes: the
    /// losses of the processes have to be weighted before their gradients are exchanged.
    #[track_caller]
    pub fn loss_of_process<'t>(&'t self, loss: Mean<'t>) -> Mean<'t> {
        if !context::has_exchanged(self) {
            return loss;
        }
        context::set_total_weight(self);
        Mean {
            weight: self.process_sums("weight of the loss", &[loss.weight])[0],
            ..loss
        }
    }

    /// The mean of the losses and of the gradients over all samples of all processes, from a
    /// [loss of this process](Self::loss_of_process) and the gradients of its value. Metrics that are
    /// reported since the last call become means over all processes, too.
    ///
    /// They equal those of one process with all samples, as long as a sample's weight does not
    /// depend on the parameters. A process whose loss has weight 0 counts for nothing.
    #[track_caller]
    pub fn mean_over_processes<'t>(
        &'t self,
        loss: Mean<'t>,
        gradients: Vec<Tensor<'t>>,
    ) -> (Mean<'t>, Vec<Tensor<'t>>) {
        mean_by(self, loss, gradients, |_, gradients, scalars| {
            let all = [gradients, scalars].concat();
            let mut sums = self.process_sums("gradients", &all);
            let scalars = sums.split_off(gradients.len());
            SumShards {
                shards: sums,
                scalars,
            }
        })
    }

    /// As [`mean_over_processes`](Self::mean_over_processes), with the [shards](crate::ProcessShards) of
    /// this process in the place of the gradients. A parameter that the loss does not depend on has
    /// no gradient still, which is whole.
    #[track_caller]
    pub fn mean_shards_over_processes<'t>(
        &'t self,
        loss: Mean<'t>,
        gradients: Vec<Tensor<'t>>,
    ) -> (Mean<'t>, Vec<Tensor<'t>>) {
        mean_by(self, loss, gradients, |processes, gradients, scalars| {
            super::shards::process_sum_shards(self, processes, "gradients", gradients, scalars)
        })
    }
}

/// The means, from the sums that `sum` returns of weighted gradients and of scalars.
#[track_caller]
fn mean_by<'t>(
    cx: &'t Trace,
    loss: Mean<'t>,
    gradients: Vec<Tensor<'t>>,
    sum: impl FnOnce(&Processes, &[Tensor<'t>], &[Tensor<'t>]) -> SumShards<'t>,
) -> (Mean<'t>, Vec<Tensor<'t>>) {
    let Some(processes) = cx.processes() else {
        return (loss, gradients);
    };
    let _site = cx.called_from(Location::caller());
    let (none, is_total) = (
        grad::without_gradient(cx, &gradients),
        context::take_total_weight(cx),
    );
    let counts = loss.weight.ne(0.0);
    let weighted = |gradient: &Tensor<'t>| {
        let gradient = gradient.convert(wide(gradient.dtype()));
        if is_total {
            gradient
        } else {
            // 0 times what is not finite is not 0.
            let weight = loss.weight.convert(gradient.dtype());
            counts.select(gradient * weight, 0.0)
        }
    };
    let kept = 0..gradients.len();
    let kept: Vec<usize> = kept
        .filter(|&index| !none.contains_key(&gradients[index].id))
        .collect();
    let summed: Vec<Tensor<'t>> = (kept.iter())
        .map(|&index| weighted(&gradients[index]))
        .collect();
    let metrics = context::own_metrics(cx);
    let mut scalars = vec![loss.total, loss.weight];
    scalars.extend(metrics.iter().flat_map(|mean| [mean.total, mean.weight]));
    let SumShards {
        shards,
        scalars: sums,
    } = sum(&processes, &summed, &scalars);
    let sums = sums.into_iter().zip(&scalars);
    let mut sums = sums.map(|(sum, scalar)| sum.convert(scalar.dtype()));
    let mut next = || sums.next().expect("a sum for each scalar");
    let (total, weight) = (next(), next());
    let (weight, divisor) = if is_total {
        (loss.weight, None)
    } else {
        (weight, Some(weight.eq(0.0).select(weight + 1.0, weight)))
    };
    let mut means = gradients;
    for (index, sum) in kept.into_iter().zip(shards) {
        let mean = divisor.map_or(sum, |divisor| sum / divisor.convert(sum.dtype()));
        means[index] = mean.convert(means[index].dtype());
    }
    let mean = |_| Mean {
        total: next(),
        weight: next(),
    };
    context::share_metrics(cx, metrics.iter().map(mean).collect());
    (Mean { total, weight }, means)
}
