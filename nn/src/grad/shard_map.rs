//! The rule of code for one device of a mesh.

use halite_core::PartitionSpec;
use halite_ir::{Reduction, ShardMap};

use super::{Back, Step, pull_back};
use crate::Tensor;

impl<'t> Step<'_, 't> {
    /// Each device goes back through its own part, and through collectives to the others'.
    ///
    /// An output whose copies are the same along some axes counts as their mean, so each device begins with its share of
    /// what flows back. An input that every device along some axes got is one tensor: what flows back into it is the sum.
    #[track_caller]
    pub(super) fn shard_map(&self, map: &ShardMap) -> Back<'t> {
        let inputs: Vec<Tensor<'t>> = (0..self.node.operands.len()).map(|operand| self.x(operand)).collect();
        let wanted: Vec<usize> = (0..inputs.len()).filter(|&input| self.wants(input)).collect();
        let seeded: Vec<(usize, Tensor<'t>)> =
            self.cotangents.iter().enumerate().filter_map(|(output, g)| Some((output, (*g)?))).collect();
        let output_types = map.body.output_types();
        let types: Vec<_> =
            map.body.input_types().into_iter().chain(seeded.iter().map(|&(output, _)| output_types[output].clone())).collect();
        let (region, gradients) = self.trace.manual_region(map, &types, |parts| {
            let (parts, cotangents) = parts.split_at(inputs.len());
            let outputs = match self.node.regions.first() {
                Some(region) => self.trace.replay(region, parts),
                // It was given as a graph.
                None => self.trace.inline(&map.body, parts),
            };
            let mut seeds = Vec::with_capacity(seeded.len());
            for (&(output, _), &cotangent) in seeded.iter().zip(cotangents) {
                let copies: usize = map.axes_not_in(&map.outputs[output]).iter().map(|(_, size)| size).product();
                seeds.push((outputs[output], if copies == 1 { cotangent } else { cotangent / copies as f64 }));
            }
            let wrt: Vec<Tensor<'t>> = wanted.iter().map(|&input| parts[input]).collect();
            let mut gradients = Vec::with_capacity(wrt.len());
            for (&input, (part, gradient)) in wanted.iter().zip(wrt.iter().zip(pull_back(self.trace, &seeds, &wrt))) {
                let shared = map.axes_not_in(&map.inputs[input]);
                gradients.push(match gradient {
                    Some(gradient) if !shared.is_empty() => gradient.all_reduce(Reduction::Sum, shared),
                    Some(gradient) => gradient,
                    None => part.zeros_like(),
                });
            }
            gradients
        });
        if gradients.iter().any(|gradient| gradient.is_error()) {
            return self.broken();
        }
        let specs = |inputs: &[usize]| inputs.iter().map(|&input| map.inputs[input].clone()).collect::<Vec<PartitionSpec>>();
        let seed_specs = seeded.iter().map(|&(output, _)| map.outputs[output].clone());
        let mut backward = ShardMap {
            mesh: map.mesh.clone(),
            manual: map.manual.clone(),
            inputs: map.inputs.iter().cloned().chain(seed_specs).collect(),
            outputs: specs(&wanted),
            body: Box::default(),
        };
        let operands: Vec<Tensor<'t>> = inputs.into_iter().chain(seeded.iter().map(|&(_, cotangent)| cotangent)).collect();
        let results = self.trace.shard_map_of(&mut backward, &operands, vec![region.giving(&gradients)], self.node.origin);
        let mut back = self.nothing();
        for (&input, gradient) in wanted.iter().zip(results) {
            back[input] = Some(gradient);
        }
        back
    }
}
