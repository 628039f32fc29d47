//! Rules of scans and checkpoints, whose bodies run again backwards, or are computed again.
//!
//! The body is recorded once more with values of its own, and pulled back through. What the way
//! back then uses of the way there, its *residuals*, comes from: what the operation was given; what
//! is computed again; for a scan, what does not change from turn to turn and is computed once
//! outside; and what the operation gives beside its results from now on.

use std::collections::{HashMap, HashSet};

use halite_core::TensorType;
use halite_ir::{Binary, Graph, Op, Remat, Unary};

use super::{Back, Step, Tape, pull_back_through};
use crate::{
    Tensor,
    control::{ScanOf, stack},
    special::wide,
    trace::{Id, Recorded, Region},
};

/// A body with values of its own, and what flows back through it.
pub(super) struct Linear {
    pub(super) forward: Region,
    /// Those of `forward`.
    pub(super) nodes: Vec<Recorded>,
    /// Takes what flows back into the outputs `flowing` of `forward`, gives what flows back into
    /// its inputs `reached`.
    pub(super) backward: Region,
    pub(super) flowing: Vec<usize>,
    pub(super) reached: Vec<usize>,
}

impl<'t> Step<'_, 't> {
    /// A scan in the other direction. It carries what flows back into the carried values, and the
    /// sum so far of what flows back into each invariant one; what flows back into slices it
    /// stacks.
    #[track_caller]
    pub(super) fn scan(&self, of: ScanOf, body: &Graph) -> Back<'t> {
        let mut back = self.nothing();
        if of.length == 0 {
            // The last carried values are the first.
            back[..of.carried].copy_from_slice(&self.cotangents[..of.carried]);
            return back;
        }
        let Ok(linear) = self.linear(body, of.carried) else {
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
        let captured = trace.captured(&[backward]);
        let kept = kept_of_turns(self, &linear, of, &captured);
        let first_scanned = forward.inputs.len() - of.scanned;
        let is_invariant = |&input: &usize| input >= of.carried && input < first_scanned;

        let mut outside: HashMap<Id, Tensor<'t>> = (0..first_scanned)
            .filter(is_invariant)
            .map(|input| (forward.inputs[input], self.x(input)))
            .collect();
        trace.recompute(nodes, &kept.computed_once, &mut outside);
        let of_turns = self.more_results(
            forward,
            &kept.stacked,
            |at| at >= of.carried,
            |region| of.op(trace.region_graph(region)),
            |ty| stack(&ty, of.length),
        );

        let split = flowing.partition_point(|&output| output < of.carried);
        let (carried, ys) = flowing.split_at(split);
        let summed: Vec<usize> = reached.iter().copied().filter(is_invariant).collect();
        let sum_type = |&input: &usize| self.ty(input).with_dtype(wide(self.ty(input).dtype()));
        let slices: Vec<Id> = forward.inputs[first_scanned..]
            .iter()
            .chain(&kept.stacked)
            .copied()
            .collect();
        let mut initial: Vec<Tensor<'t>> = Vec::with_capacity(carried.len() + summed.len());
        for &output in carried {
            initial.push(self.cotangents[output].unwrap_or_else(|| self.y(output).zeros_like()));
        }
        for input in &summed {
            initial.push(trace.full(0.0, &sum_type(input)));
        }
        let mut scanned: Vec<Tensor<'t>> = Vec::new();
        for &output in ys {
            scanned.push(self.cotangents[output].expect("something flows back into it"));
        }
        scanned.extend((first_scanned..forward.inputs.len()).map(|input| self.x(input)));
        scanned.extend(of_turns);
        let types: Vec<TensorType> = (initial.iter().map(|tensor| tensor.ty()))
            .chain(
                scanned
                    .iter()
                    .map(|tensor| TensorType::new(tensor.dtype(), &tensor.dims()[1..])),
            )
            .collect();
        let (mut region, outputs) = trace.region(&types, |inputs| {
            let (of_carried, rest) = inputs.split_at(carried.len());
            let (sums, rest) = rest.split_at(summed.len());
            let (of_ys, residuals) = rest.split_at(ys.len());
            let mut values = outside;
            values.extend(slices.iter().copied().zip(residuals.iter().copied()));
            trace.recompute(nodes, &captured, &mut values);
            values.extend(
                backward
                    .inputs
                    .iter()
                    .copied()
                    .zip(of_carried.iter().chain(of_ys).copied()),
            );
            trace.replay_nodes(trace.nodes_of(backward.scope), &mut values);
            let mut gradients = HashMap::new();
            for (&input, &id) in reached.iter().zip(&backward.outputs) {
                gradients.insert(input, values[&id]);
            }
            let mut outputs = Vec::new();
            for (&input, g) in carried.iter().zip(of_carried) {
                outputs.push(
                    gradients
                        .get(&input)
                        .copied()
                        .unwrap_or_else(|| g.zeros_like()),
                );
            }
            for (input, &sum) in summed.iter().zip(sums) {
                outputs.push(sum + gradients[input].convert(sum.dtype()));
            }
            outputs.extend(
                reached
                    .iter()
                    .filter(|&&input| input >= first_scanned)
                    .map(|input| gradients[input]),
            );
            outputs
        });
        if outputs.is_empty() {
            return back;
        }
        if outputs.iter().any(|output| output.is_error()) {
            return self.broken();
        }
        region.outputs = outputs.iter().map(|output| output.id).collect();

        // Slices that the way back makes no use of are not handed to it.
        let used = trace.used_in(&region);
        let mut at = initial.len();
        scanned.retain(|_| {
            let keep = used.contains(&region.inputs[at]);
            match keep {
                true => at += 1,
                false => {
                    region.inputs.remove(at);
                }
            }
            keep
        });
        let of_back = ScanOf {
            carried: initial.len(),
            scanned: scanned.len(),
            length: of.length,
            reverse: !of.reverse,
        };
        let mut results = trace
            .scan_of(of_back, region, &initial, &scanned, self.node.origin)
            .into_iter();
        for &input in carried {
            back[input] = results.next();
        }
        for &input in &summed {
            back[input] = results
                .next()
                .map(|sum| sum.convert(self.ty(input).dtype()));
        }
        for &input in reached.iter().filter(|&&input| input >= first_scanned) {
            back[input] = results.next();
        }
        back
    }

    /// The body computed again, and pulled back through.
    #[track_caller]
    pub(super) fn checkpoint(&self, body: &Graph, remat: Remat) -> Back<'t> {
        let Ok(linear) = self.linear(body, 0) else {
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
        let captured = trace.captured(&[backward]);
        let (needed, saved) = needed_again(nodes, &captured, remat);
        let op = |region: &Region| Op::Checkpoint {
            body: Box::new(trace.region_graph(region)),
            remat,
        };
        let saved_values = self.more_results(forward, &saved, |_| true, op, |ty| ty);

        let inputs: Vec<usize> = (0..forward.inputs.len())
            .filter(|&input| needed.contains(&forward.inputs[input]))
            .collect();
        let mut given: Vec<Tensor<'t>> = inputs.iter().map(|&input| self.x(input)).collect();
        given.extend(flowing.iter().filter_map(|&output| self.cotangents[output]));
        // In one body, compilers would see that the same is computed twice, and keep it instead.
        // The way back through a scan is another body than the way there.
        if self.node.scope == trace.scope() && !given.is_empty() {
            given = trace.optimization_barrier(&given);
        }
        let (again, cotangents) = given.split_at(inputs.len());
        let mut values: HashMap<Id, Tensor<'t>> = inputs
            .iter()
            .map(|&input| forward.inputs[input])
            .zip(again.iter().copied())
            .collect();
        values.extend(saved.iter().copied().zip(saved_values));
        trace.recompute(nodes, &captured, &mut values);
        values.extend(
            backward
                .inputs
                .iter()
                .copied()
                .zip(cotangents.iter().copied()),
        );
        trace.replay_nodes(trace.nodes_of(backward.scope), &mut values);
        let mut back = self.nothing();
        for (&input, &id) in reached.iter().zip(&backward.outputs) {
            back[input] = Some(values[&id]);
        }
        back
    }

    /// The body, whose first `carried` outputs become its first inputs, pulled back through.
    ///
    /// # Errors
    /// If there was a mistake on the way back.
    #[track_caller]
    pub(super) fn linear(&self, body: &Graph, carried: usize) -> Result<Linear, ()> {
        let trace = self.trace;
        // Values of its own: one input may be made from another outside, and that is not the body's
        // to follow.
        let (mut forward, linear) = trace.region(&body.input_types(), |inputs| {
            let outputs = match self.node.regions.first() {
                Some(region) => trace.replay(region, inputs),
                // It was given as a graph.
                None => trace.inline(body, inputs),
            };
            let nodes = trace.nodes_of(trace.scope());
            let mut wanted: Vec<bool> = (0..inputs.len()).map(|input| self.wants(input)).collect();
            let (wrt, of_outputs) = loop {
                let wrt: Vec<Tensor<'t>> = inputs
                    .iter()
                    .zip(&wanted)
                    .filter(|(_, wanted)| **wanted)
                    .map(|(&input, _)| input)
                    .collect();
                let tape = Tape::new(trace, &nodes, &wrt);
                let of_outputs: Vec<bool> = outputs
                    .iter()
                    .map(|output| tape.is_wanted(output.id))
                    .collect();
                // What a turn makes from something wanted is wanted in the next.
                match (0..carried).find(|&at| of_outputs[at] && !wanted[at]) {
                    Some(at) => wanted[at] = true,
                    None => break (wrt, of_outputs),
                }
            };
            let matters =
                |output: usize| of_outputs[output] || (output < carried && wanted[output]);
            let mut flows: Vec<bool> = self
                .cotangents
                .iter()
                .enumerate()
                .map(|(output, g)| g.is_some() && matters(output))
                .collect();
            loop {
                // Scans within may give more results since the last way back.
                let nodes = trace.nodes_of(trace.scope());
                let flowing: Vec<usize> =
                    (0..outputs.len()).filter(|&output| flows[output]).collect();
                let types: Vec<TensorType> =
                    flowing.iter().map(|&output| outputs[output].ty()).collect();
                let (mut backward, gradients) = trace.region(&types, |cotangents| {
                    let seeds: Vec<_> = flowing
                        .iter()
                        .zip(cotangents)
                        .map(|(&output, &cotangent)| (outputs[output], cotangent))
                        .collect();
                    pull_back_through(trace, &nodes, &seeds, &wrt)
                });
                let mut found = (0..inputs.len())
                    .filter(|&input| wanted[input])
                    .zip(gradients);
                let mut reached = Vec::new();
                for (input, gradient) in found
                    .by_ref()
                    .filter_map(|(input, gradient)| Some((input, gradient?)))
                {
                    if gradient.is_error() {
                        return Err(());
                    }
                    reached.push(input);
                    backward.outputs.push(gradient.id);
                }
                // What flows back into a carried value flows back into the turn before.
                match reached
                    .iter()
                    .find(|&&input| input < carried && !flows[input])
                {
                    Some(&input) => flows[input] = true,
                    None => return Ok((outputs, backward, flowing, reached)),
                }
            }
        });
        let (outputs, backward, flowing, reached) = linear?;
        forward.outputs = outputs.iter().map(|output| output.id).collect();
        let nodes = trace.nodes_of(forward.scope);
        Ok(Linear {
            forward,
            nodes,
            backward,
            flowing,
            reached,
        })
    }

    /// The results that are `values` of `forward`: among its outputs that are `of_this_kind` there
    /// may be some already, the others the operation gives from now on. `whole` is the type of a
    /// result, by that of the value.
    pub(super) fn more_results(
        &self,
        forward: &Region,
        values: &[Id],
        of_this_kind: impl Fn(usize) -> bool,
        op: impl Fn(&Region) -> Op,
        whole: impl Fn(TensorType) -> TensorType,
    ) -> Vec<Tensor<'t>> {
        let mut forward = forward.clone();
        let there = forward.outputs.clone();
        let known = |id: Id| (0..there.len()).find(|&at| there[at] == id && of_this_kind(at));
        let more: Vec<Id> = values
            .iter()
            .copied()
            .filter(|&id| known(id).is_none())
            .collect();
        let types: Vec<TensorType> = more
            .iter()
            .map(|&id| whole(self.trace.type_of(id)))
            .collect();
        let mut new = Vec::new();
        if !more.is_empty() {
            forward.outputs.extend(&more);
            new = self.trace.extend(self.node, op(&forward), forward, types);
        }
        let mut new = new.into_iter();
        values
            .iter()
            .map(|&id| known(id).map_or_else(|| new.next().expect("one for each"), |at| self.y(at)))
            .collect()
    }
}

/// What the way back through a scan cannot make from what the scan was given.
struct Kept {
    /// One of each turn.
    stacked: Vec<Id>,
    /// The same in all turns.
    computed_once: Vec<Id>,
}

/// What to keep of each turn so that `residuals` can be had: little, and only what is dear to
/// compute.
fn kept_of_turns(step: &Step<'_, '_>, linear: &Linear, of: ScanOf, residuals: &[Id]) -> Kept {
    let Linear { forward, nodes, .. } = linear;
    let trace = step.trace;
    let operands = |node: &Recorded| -> HashSet<Id> { node.operands.iter().copied().collect() };
    let bytes = |id: Id| trace.type_of(id).bytes();
    let (carried, given) = forward.inputs.split_at(of.carried);
    let invariant = &given[..given.len() - of.scanned];
    let mut same: HashSet<Id> = invariant.iter().copied().collect();
    for node in nodes {
        if operands(node).iter().all(|id| same.contains(id)) {
            same.extend(&node.results);
        }
    }

    // From the last to the first: rather than what is cheap, what it is made from, if that is not
    // more.
    let mut needed: HashSet<Id> = residuals.iter().copied().collect();
    for node in nodes.iter().rev().filter(|node| is_cheap(&node.op)) {
        if !needed.contains(&node.results[0]) {
            continue;
        }
        let operands = operands(node);
        let free = |id: &Id| same.contains(id) || given.contains(id) || needed.contains(id);
        let price: usize = operands
            .iter()
            .filter(|id| !free(id))
            .map(|&id| bytes(id))
            .sum();
        if price <= bytes(node.results[0]) {
            needed.extend(operands);
        }
    }

    // From the first to the last: what can be made from what is there already is.
    let mut kept = Kept {
        stacked: carried
            .iter()
            .copied()
            .filter(|id| needed.contains(id))
            .collect(),
        computed_once: vec![],
    };
    let mut there: HashSet<Id> = given.iter().chain(&kept.stacked).copied().collect();
    for node in nodes {
        if is_cheap(&node.op) && operands(node).iter().all(|id| there.contains(id)) {
            there.extend(&node.results);
            continue;
        }
        for &id in node.results.iter().filter(|id| needed.contains(id)) {
            if same.contains(&id) {
                kept.computed_once.push(id)
            } else {
                kept.stacked.push(id)
            }
            there.insert(id);
        }
    }
    kept
}

/// What must be there to compute `residuals` again, and which of it is saved.
fn needed_again(nodes: &[Recorded], residuals: &[Id], remat: Remat) -> (HashSet<Id>, Vec<Id>) {
    let mut needed: HashSet<Id> = residuals.iter().copied().collect();
    let mut saved = Vec::new();
    for node in nodes.iter().rev() {
        if !node.results.iter().any(|id| needed.contains(id)) {
            continue;
        }
        let save = match remat {
            Remat::Full => false,
            Remat::SaveDots => matches!(node.op, Op::Dot(_) | Op::Convolution(_)),
        };
        if save {
            saved.extend(&node.results);
        } else {
            needed.extend(&node.operands);
        }
    }
    (needed, saved)
}

/// Takes hardly longer to compute again than to read back: of one result, without transcendental
/// functions, sums or products.
pub(super) fn is_cheap(op: &Op) -> bool {
    match op {
        Op::Constant(_) | Op::Iota { .. } | Op::PartitionId | Op::ReplicaId | Op::AxisIndex(_) => {
            true
        }
        Op::Broadcast { .. } | Op::Reshape { .. } | Op::Transpose { .. } | Op::Reverse { .. } => {
            true
        }
        Op::Slice { .. } | Op::DynamicSlice { .. } | Op::Pad { .. } => true,
        Op::Convert(_) | Op::BitcastConvert(_) | Op::ReducePrecision { .. } => true,
        Op::Compare(_) | Op::Select | Op::Clamp => true,
        Op::StopGradient | Op::ShardingConstraint(_) => true,
        Op::Unary(unary) => match unary {
            Unary::Abs
            | Unary::Ceil
            | Unary::Floor
            | Unary::IsFinite
            | Unary::Negate
            | Unary::Not
            | Unary::Sign => true,
            Unary::RoundNearestAfz
            | Unary::RoundNearestEven
            | Unary::CountLeadingZeros
            | Unary::PopulationCount => true,
            Unary::Cbrt
            | Unary::Cosine
            | Unary::Erf
            | Unary::Exponential
            | Unary::ExponentialMinusOne
            | Unary::Log => false,
            Unary::LogPlusOne
            | Unary::Logistic
            | Unary::Rsqrt
            | Unary::Sine
            | Unary::Sqrt
            | Unary::Tan
            | Unary::Tanh => false,
        },
        Op::Binary(binary) => match binary {
            Binary::Add
            | Binary::Subtract
            | Binary::Multiply
            | Binary::Maximum
            | Binary::Minimum => true,
            Binary::And | Binary::Or | Binary::Xor => true,
            Binary::ShiftLeft | Binary::ShiftRightArithmetic | Binary::ShiftRightLogical => true,
            Binary::Atan2 | Binary::Divide | Binary::Power | Binary::Remainder => false,
        },
        Op::Concatenate { .. } | Op::DynamicUpdateSlice | Op::Gather(_) | Op::Scatter(_) => false,
        Op::Dot(_)
        | Op::Convolution(_)
        | Op::Reduce { .. }
        | Op::ArgReduce { .. }
        | Op::ReduceWindow { .. } => false,
        Op::SelectAndScatter { .. } | Op::Sort { .. } => false,
        Op::While { .. } | Op::Scan { .. } | Op::Checkpoint { .. } | Op::Case { .. } => false,
        Op::OptimizationBarrier | Op::CustomCall(_) | Op::ShardMap(_) => false,
        Op::AllReduce { .. }
        | Op::AllGather { .. }
        | Op::ReduceScatter { .. }
        | Op::AllToAll { .. } => false,
        Op::CollectivePermute { .. } => false,
    }
}
