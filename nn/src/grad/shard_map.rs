//! The gradient of a `shard_map`: each device runs the backward pass of its own part.

use halite_core::PartitionSpec;
use halite_ir::{Graph, Op, Reduction, ShardMap};

use super::{Back, Step, linearize::Linearized, residuals::ResidualPolicy};
use crate::{Tensor, shard_map};

impl<'t> Step<'_, 't> {
    /// Records a `shard_map` of the backward pass; cotangents reach other devices through the
    /// transposed collectives.
    ///
    /// An output with copies along some axes counts as their mean, so each device starts with its
    /// share of the cotangent. An input that is the same along some axes is one tensor, so its
    /// cotangent is summed over them. Residuals are split over the devices along the first
    /// dimension.
    #[track_caller]
    pub(super) fn shard_map(&self, map: &ShardMap) -> Back<'t> {
        let per_device = PartitionSpec::replicated().split(0, &map.manual);
        let policy = ResidualPolicy::ShardMap {
            per_device: map.outputs.iter().map(|spec| *spec == per_device).collect(),
        };
        let Ok(linear) = self.linearize(&map.body, 0, policy) else {
            return self.broken();
        };
        if linear.active_inputs.is_empty() {
            return self.nothing();
        }
        let residuals = self.save_residuals(&linear, |forward: Graph| {
            let mut outputs = map.outputs.clone();
            outputs.resize(forward.outputs().len(), per_device.clone());
            let body = Box::new(forward);
            Op::ShardMap(ShardMap {
                outputs,
                body,
                ..map.clone()
            })
        });
        let Ok(residuals) = residuals else {
            return self.broken();
        };
        let types = linear.backward.input_types();
        let (region, gradients) = shard_map::manual_region(self.trace, map, &types, |parts| {
            self.device_backward(map, &linear, parts)
        });
        if gradients.iter().any(|gradient| gradient.is_error()) {
            return self.broken();
        }
        let primals = linear.primals.iter();
        let mut operands: Vec<Tensor<'t>> = primals.clone().map(|&at| self.x(at)).collect();
        let mut inputs: Vec<PartitionSpec> = primals.map(|&at| map.inputs[at].clone()).collect();
        inputs.extend(residuals.iter().map(|_| per_device.clone()));
        operands.extend(residuals);
        inputs.extend(
            linear
                .seeded_outputs
                .iter()
                .map(|&at| map.outputs[at].clone()),
        );
        operands.extend(self.cotangents_of(&linear));
        let mut backward = ShardMap {
            mesh: map.mesh.clone(),
            manual: map.manual.clone(),
            inputs,
            outputs: (linear.active_inputs.iter())
                .map(|&input| map.inputs[input].clone())
                .collect(),
            body: Box::default(),
        };
        let (region, origin) = (region.giving(&gradients), self.node.origin);
        let results =
            shard_map::push_shard_map(self.trace, &mut backward, &operands, region, origin);
        let mut back = self.nothing();
        for (&input, gradient) in linear.active_inputs.iter().zip(results) {
            back[input] = Some(gradient);
        }
        back
    }

    /// The backward pass of one device.
    #[track_caller]
    fn device_backward(
        &self,
        map: &ShardMap,
        linear: &Linearized,
        parts: &[Tensor<'t>],
    ) -> Vec<Tensor<'t>> {
        let (given, cotangents) = parts.split_at(parts.len() - linear.seeded_outputs.len());
        let mut given = given.to_vec();
        for (&output, &cotangent) in linear.seeded_outputs.iter().zip(cotangents) {
            let axes = map.axes_not_in(&map.outputs[output]);
            let copies: usize = axes.iter().map(|(_, size)| size).product();
            given.push(if copies == 1 {
                cotangent
            } else {
                cotangent / copies as f64
            });
        }
        let gradients = self.trace.inline(&linear.backward, &given);
        let summed = |(&input, gradient): (&usize, Tensor<'t>)| {
            let shared = map.axes_not_in(&map.inputs[input]);
            if shared.is_empty() {
                gradient
            } else {
                gradient.all_reduce(Reduction::Sum, shared)
            }
        };
        linear
            .active_inputs
            .iter()
            .zip(gradients)
            .map(summed)
            .collect()
    }
}
