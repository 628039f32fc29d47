//! The rule of code for one device of a mesh.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use halite_core::{PartitionSpec, TensorType};
use halite_ir::{Op, Reduction, ShardMap};

use super::{
    Back, Step,
    scan::{Linear, is_cheap},
};
use crate::{
    Tensor, Trace,
    trace::{Id, Recorded},
};

impl<'t> Step<'_, 't> {
    /// Each device goes back through its own part, and through collectives to the others'.
    ///
    /// An output whose copies are the same along some axes counts as their mean, so each device
    /// begins with its share of what flows back. An input that every device along some axes got is
    /// one tensor: what flows back into it is the sum.
    ///
    /// What a device needs again of the way there it keeps: the operation gives it beside its
    /// results from now on, cut along the first dimension, each device its own. What is cheap is
    /// computed again, and so are scalars, which cannot be cut.
    #[track_caller]
    pub(super) fn shard_map(&self, map: &ShardMap) -> Back<'t> {
        let Ok(linear) = self.linear(&map.body, 0) else {
            return self.broken();
        };
        let Linear {
            forward,
            nodes,
            backward,
            flowing,
            reached,
        } = &linear;
        let trace = self.trace;
        if reached.is_empty() {
            return self.nothing();
        }
        let captured = trace.captured(&[backward]);
        let (needed, kept) = kept(trace, nodes, &captured);
        let each_its_own = PartitionSpec::replicated().split(0, &map.manual);
        let op = |region: &crate::trace::Region| {
            let mut map = with_body(map, map.inputs.clone(), map.outputs.clone());
            map.outputs
                .resize(region.outputs.len(), each_its_own.clone());
            *map.body = trace.region_graph(region);
            Op::ShardMap(map)
        };
        let whole = |ty: TensorType| {
            map.whole(&ty, &each_its_own)
                .expect("a part has a first dimension, and its whole a size")
        };
        let kept_parts = self.more_results(
            forward,
            &kept,
            |at| map.outputs[at] == each_its_own,
            op,
            whole,
        );

        let inputs: Vec<usize> = (0..forward.inputs.len())
            .filter(|&input| needed.contains(&forward.inputs[input]))
            .collect();
        let ids = inputs
            .iter()
            .map(|&input| forward.inputs[input])
            .chain(kept.iter().copied())
            .collect::<Vec<Id>>();
        let types: Vec<TensorType> = ids
            .iter()
            .chain(&backward.inputs)
            .map(|&id| trace.type_of(id))
            .collect();
        let (region, gradients) = trace.manual_region(map, &types, |parts| {
            let (residuals, cotangents) = parts.split_at(ids.len());
            let mut values: HashMap<Id, Tensor<'t>> =
                ids.iter().copied().zip(residuals.iter().copied()).collect();
            trace.recompute(nodes, &captured, &mut values);
            for ((&output, &id), &cotangent) in flowing.iter().zip(&backward.inputs).zip(cotangents)
            {
                let copies: usize = map
                    .axes_not_in(&map.outputs[output])
                    .iter()
                    .map(|(_, size)| size)
                    .product();
                values.insert(
                    id,
                    if copies == 1 {
                        cotangent
                    } else {
                        cotangent / copies as f64
                    },
                );
            }
            trace.replay_nodes(trace.nodes_of(backward.scope), &mut values);
            let mut gradients = Vec::with_capacity(reached.len());
            for (&input, &id) in reached.iter().zip(&backward.outputs) {
                let (gradient, shared) = (values[&id], map.axes_not_in(&map.inputs[input]));
                gradients.push(if shared.is_empty() {
                    gradient
                } else {
                    gradient.all_reduce(Reduction::Sum, shared)
                });
            }
            gradients
        });
        if gradients.iter().any(|gradient| gradient.is_error()) {
            return self.broken();
        }
        let mut operands: Vec<Tensor<'t>> = inputs
            .iter()
            .map(|&input| self.x(input))
            .chain(kept_parts)
            .collect();
        operands.extend(flowing.iter().filter_map(|&output| self.cotangents[output]));
        let specs = inputs.iter().map(|&input| map.inputs[input].clone());
        let specs = specs.chain(kept.iter().map(|_| each_its_own.clone()));
        let specs = specs.chain(flowing.iter().map(|&output| map.outputs[output].clone()));
        let mut way_back = with_body(
            map,
            specs.collect(),
            reached
                .iter()
                .map(|&input| map.inputs[input].clone())
                .collect(),
        );
        let results = trace.shard_map_of(
            &mut way_back,
            &operands,
            vec![region.giving(&gradients)],
            self.node.origin,
        );
        let mut back = self.nothing();
        for (&input, gradient) in reached.iter().zip(results) {
            back[input] = Some(gradient);
        }
        back
    }
}

/// The same mesh and axes; the body is to be set.
fn with_body(map: &ShardMap, inputs: Vec<PartitionSpec>, outputs: Vec<PartitionSpec>) -> ShardMap {
    let ShardMap { mesh, manual, .. } = map;
    ShardMap {
        mesh: mesh.clone(),
        manual: manual.iter().map(Arc::clone).collect(),
        inputs,
        outputs,
        body: Box::default(),
    }
}

/// What must be there so that `residuals` can be had, and which of it is kept from the way there.
fn kept(trace: &Trace, nodes: &[Recorded], residuals: &[Id]) -> (HashSet<Id>, Vec<Id>) {
    let mut needed: HashSet<Id> = residuals.iter().copied().collect();
    let mut kept = Vec::new();
    for node in nodes.iter().rev() {
        let wanted: Vec<Id> = node
            .results
            .iter()
            .copied()
            .filter(|id| needed.contains(id))
            .collect();
        if wanted.is_empty() {
            continue;
        }
        if is_cheap(&node.op) || wanted.iter().any(|&id| trace.type_of(id).rank() == 0) {
            needed.extend(&node.operands);
        } else {
            kept.extend(wanted);
        }
    }
    (needed, kept)
}
