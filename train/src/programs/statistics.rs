//! The running statistics of averaged weights, as PyTorch's `update_bn` computes them: those of the
//! steps are of other weights.

use std::sync::Arc;

use halite_core::{
    Client, Mesh, TensorType,
    tree::{Empty, Leaf, Tree},
};
use halite_nn::{
    Function, Jit, Param, Tensor, Trace,
    optim::{Averages, averaged, is_averaged},
};

use super::{discover::set_samples, step::StepParts};
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

/// A leaf of the model that has an average.
struct Place {
    /// Index among the leaves of the model.
    index: usize,
    is_state: bool,
}

fn places(params: &impl Tree<Leaf = Param>) -> Vec<Place> {
    let params = params.leaves().into_iter().enumerate();
    params
        .filter(|(_, param)| is_averaged(param))
        .map(|(index, param)| Place {
            index,
            is_state: param.is_state,
        })
        .collect()
}

/// The averages from which a batch starts: the states are those of the model at the first batch.
/// `own` are all leaves of the model.
fn started<'t>(
    places: &[Place],
    own: &[&Tensor<'t>],
    whole: Vec<Tensor<'t>>,
    is_first: Tensor<'t>,
) -> Vec<Tensor<'t>> {
    let started = places.iter().zip(whole).map(|(place, average)| {
        if place.is_state {
            is_first.select(own[place.index].convert(average.dtype()), average)
        } else {
            average
        }
    });
    started.collect()
}

/// The program for a model that has averages and state; `types` are those of whole averages.
pub(super) fn statistics<K: Task, O>(
    client: &Client,
    mesh: &Arc<Mesh>,
    parts: &StepParts<'_, K, O>,
    strategy: &Strategy,
    types: Vec<TensorType>,
) -> Option<Statistics<K>> {
    let is_state = |param: &Param| param.is_state && is_averaged(param);
    let has_state = parts.params.leaves().into_iter().any(is_state);
    if parts.options.average.is_none() || !has_state {
        return None;
    }
    let (task, processes) = (parts.task.clone(), parts.options.processes.clone());
    let is_divided = parts.options.state(strategy).shards.is_some();
    let places = places(&**parts.params);
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
            let whole = started(&places, &model.leaves(), whole, is_first);
            let whole = averages.with_leaves(whole);
            let model = averaged::<K::Model, Tensor<'_>>(&model, &whole);
            let model = model.map_leaves(|_, leaf| *leaf);
            let fields = Tree::leaf_refs(&batch);
            let fields: Vec<Tensor<'_>> = fields.leaves().into_iter().map(|leaf| **leaf).collect();
            set_samples(cx, &fields);
            let loss = losses(task.updates(), cx, &model, &batch);
            _ = loss.unwrap_or_else(|| task.loss(cx, &model, &batch));
            _ = cx.metrics();
            let leaves = model.leaves();
            let next = places.iter().zip(&shards).map(|(place, &shard)| {
                if !place.is_state {
                    return shard;
                }
                let statistic = cx.updated(*leaves[place.index]).convert(shard.dtype());
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
    let function = function
        .named("statistics of averages")
        .precision(parts.options.precision);
    Some(
        function
            .axis_roles(strategy.axis_roles(mesh))
            .jit(client)
            .on(mesh),
    )
}
