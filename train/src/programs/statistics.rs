//! The running statistics of averaged weights, as PyTorch's `update_bn` computes them: those of the
//! steps are of other weights.

use std::sync::Arc;

use halite_core::{
    Client, Mesh, TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_nn::{
    Function, Jit, Tensor, Trace,
    optim::{Averages, averaged, is_averaged},
};

use super::{ModelParams, discover::set_samples, step::StepParts};
use crate::{Task, strategy::Strategy, task::losses};

/// A model, a batch, a random key, and whether this batch is the first.
type Inputs<K> = (
    <K as Task>::Model,
    (<K as Task>::Batch, (Leaf<()>, Leaf<()>)),
);

/// From averages and a training batch to the averages with the statistics after it. The first batch
/// starts from the statistics of the model, not of the averages: computed again at the same step, as
/// after a resume, they are the same.
pub(crate) type Statistics<K> = Jit<Averages<()>, Inputs<K>, Empty<()>>;

/// The program for a model that has averages and state; `types` are those of whole averages.
pub(super) fn statistics<K: Task, O>(
    client: &Client,
    mesh: &Arc<Mesh>,
    parts: &StepParts<'_, K, O>,
    strategy: &Strategy,
    types: Vec<TensorType>,
) -> Option<Statistics<K>>
where
    ModelParams<K>: Send + Sync,
{
    let is_state = |param: &halite_nn::Param| param.is_state && is_averaged(param);
    let has_state = parts.params.leaves().into_iter().any(is_state);
    if parts.options.average.is_none() || !has_state {
        return None;
    }
    let (task, processes) = (parts.task.clone(), parts.options.processes.clone());
    let is_divided = parts.options.state(strategy).shards.is_some();
    // Of the leaves that have an average, in order: the place in the model, and whether it is state.
    let params = parts.params.leaves().into_iter().enumerate();
    let places: Vec<(usize, bool)> = params
        .filter(|(_, param)| is_averaged(param))
        .map(|(place, param)| (place, param.is_state))
        .collect();
    let function = Function::<Averages<()>, Inputs<K>, Empty<()>>::new(
        move |cx: &Trace, averages, (model, (batch, (Leaf(key), Leaf(is_first))))| {
            cx.set_mode(true, Some(key));
            let shards: Vec<Tensor<'_>> = averages.leaves().into_iter().copied().collect();
            if let Some(processes) = &processes {
                // It is there when the launch before is done.
                cx.set_processes(processes, shards[0].sum_all());
            }
            let whole = if is_divided {
                cx.gather_process_shards("averages", &shards, &types)
            } else {
                shards.clone()
            };
            let own = model.leaves();
            let starts = places
                .iter()
                .zip(whole)
                .map(|(&(place, is_state), average)| {
                    let of_model = || own[place].convert(average.dtype());
                    if is_state {
                        is_first.select(of_model(), average)
                    } else {
                        average
                    }
                });
            let whole = averages.with_leaves(starts.collect::<Vec<_>>());
            let model = averaged::<K::Model, Tensor<'_>>(&model, &whole);
            let model = model.map_leaves(|_, leaf| *leaf);
            let leaves: Vec<Tensor<'_>> = Tree::leaf_refs(&batch)
                .leaves()
                .into_iter()
                .map(|leaf| **leaf)
                .collect();
            set_samples(cx, &leaves);
            let loss = losses(task.updates(), cx, &model, &batch);
            _ = loss.unwrap_or_else(|| task.loss(cx, &model, &batch));
            _ = cx.metrics();
            let leaves = model.leaves();
            let next = places
                .iter()
                .zip(&shards)
                .map(|(&(place, is_state), &shard)| {
                    if !is_state {
                        return shard;
                    }
                    let statistic = cx.updated(*leaves[place]).convert(shard.dtype());
                    if is_divided {
                        cx.process_shards(&[statistic])[0]
                    } else {
                        statistic
                    }
                });
            let next = averages.with_leaves(next.collect::<Vec<_>>());
            cx.discard_updates();
            (next, Empty::new())
        },
    );
    let function = function.named("statistics of averages");
    let function = function.precision(parts.options.precision);
    Some(
        function
            .axis_roles(strategy.axis_roles(mesh))
            .jit(client)
            .on(mesh),
    )
}
