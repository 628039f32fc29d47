//! Linearization: a function as a forward pass that gives residuals, and a backward pass that maps
//! cotangents of the outputs to cotangents of the inputs.
//!
//! The bodies of `scan`, `checkpoint`, `case` and `shard_map` are differentiated this way: the body
//! is recorded in a trace of its own and pulled back through there. The backward pass then uses
//! values of the forward pass. Its [`ResidualPolicy`] decides which of these are *residuals*, which the
//! forward pass gives as further outputs; the backward pass recomputes the others from residuals
//! and from inputs of the body.

use std::{collections::HashSet, sync::Arc};

use halite_ir::{Graph, Op};

use super::{
    Step, Tape, pull_back,
    residuals::{ResidualPolicy, Residuals},
};
use crate::{
    Tensor, Trace, shard_map,
    trace::{Id, Recorded, Region},
};

/// A function as a forward and a backward pass.
pub(super) struct Linearized {
    /// The function, whose outputs are followed by residuals.
    pub(super) forward: Graph,
    /// Positions of the residuals among the outputs of `forward`.
    pub(super) residuals: Vec<usize>,
    /// Computes from the invariant inputs of a scan what all iterations of the backward pass use.
    /// Gives nothing for other operations.
    pub(super) hoisted: Graph,
    /// Maps [`BackwardInputs`] to the cotangents of the active inputs.
    pub(super) backward: Graph,
    /// Inputs of the function whose values the backward pass uses.
    pub(super) primals: Vec<usize>,
    /// Outputs with cotangents, ascending.
    pub(super) seeded_outputs: Vec<usize>,
    /// Inputs with cotangents, ascending.
    pub(super) active_inputs: Vec<usize>,
}

/// The inputs of a backward pass, in its order.
#[derive(Clone, Copy, Default)]
pub(super) struct BackwardInputs<'a, 't> {
    pub(super) primals: &'a [Tensor<'t>],
    pub(super) hoisted: &'a [Tensor<'t>],
    pub(super) residuals: &'a [Tensor<'t>],
    pub(super) cotangents: &'a [Tensor<'t>],
}

impl Linearized {
    /// Records the backward pass, and returns the cotangents of the active inputs.
    pub(super) fn pull_back<'t>(
        &self,
        trace: &'t Trace,
        inputs: BackwardInputs<'_, 't>,
    ) -> Vec<Tensor<'t>> {
        let BackwardInputs {
            primals,
            hoisted,
            residuals,
            cotangents,
        } = inputs;
        trace.inline(
            &self.backward,
            &[primals, hoisted, residuals, cotangents].concat(),
        )
    }
}

impl<'t> Step<'_, 't> {
    /// Linearizes a body of the operation, whose inputs are the operands from `first` on and whose
    /// outputs are the results.
    ///
    /// # Errors
    /// If there is a mistake in the backward pass; it is recorded.
    pub(super) fn linearize(
        &self,
        body: &Graph,
        first: usize,
        policy: ResidualPolicy,
    ) -> Result<Linearized, ()> {
        let trace = Trace::new();
        shard_map::enter_manual(&trace, shard_map::manual_axes(self.trace));
        let function = Function::new(&trace, body, policy);
        let active = (first..self.node.operands.len()).map(|operand| self.wants(operand));
        let seeded = self.cotangents.iter().map(Option::is_some);
        let linearized = function.linearize(active.collect(), seeded.collect());
        self.trace
            .recording
            .borrow_mut()
            .mistakes
            .append(&mut trace.mistakes());
        linearized
    }

    /// Makes the operation return the residuals, and returns them. Unless all of them are results of
    /// it already, it is widened: recorded again as `widened`, with further results.
    ///
    /// # Errors
    /// If a residual is too large; the mistake is recorded.
    pub(super) fn save_residuals(
        &self,
        linear: &Linearized,
        widened: impl FnOnce(Graph) -> Op,
    ) -> Result<Vec<Tensor<'t>>, ()> {
        let known = self.node.results.len();
        let mut new = Vec::new();
        if linear.forward.outputs().len() > known {
            let op = widened(linear.forward.clone());
            let widened = self.trace.recording.borrow_mut().widen(self.node, op);
            let ids = widened.map_err(|error| {
                let message = format!(
                    "its gradient saves a value for each step: {}",
                    error.message()
                );
                (self.trace).fail_at(self.node.origin, error.op(), message, None);
            })?;
            new = ids.into_iter().map(|id| self.trace.tensor(id)).collect();
        }
        let residuals = (linear.residuals.iter())
            .map(|&at| {
                if at < known {
                    self.y(at)
                } else {
                    new[at - known]
                }
            })
            .collect();
        Ok(residuals)
    }
}

/// A function that is recorded to be linearized.
struct Function<'t> {
    trace: &'t Trace,
    inputs: Vec<Tensor<'t>>,
    outputs: Vec<Tensor<'t>>,
    policy: ResidualPolicy,
}

/// The backward pass as recorded: it uses values of the forward pass freely.
struct Transposed {
    region: Region,
    seeded_outputs: Vec<usize>,
    active_inputs: Vec<usize>,
}

/// The backward pass without what is cut off: it uses residuals and inputs, and recomputes the rest.
struct Cut {
    nodes: Vec<Arc<Recorded>>,
    residuals: Residuals,
    primals: Vec<usize>,
}

impl<'t> Function<'t> {
    fn new(trace: &'t Trace, body: &Graph, policy: ResidualPolicy) -> Self {
        let inputs: Vec<Tensor<'t>> = body
            .input_types()
            .into_iter()
            .map(|ty| trace.tensor(trace.recording.borrow_mut().record(ty, false, None)))
            .collect();
        Function {
            trace,
            outputs: trace.inline(body, &inputs),
            inputs,
            policy,
        }
    }

    /// Linearizes with respect to the `active` inputs, for cotangents of the `seeded` outputs.
    fn linearize(&self, active: Vec<bool>, seeded: Vec<bool>) -> Result<Linearized, ()> {
        let Transposed {
            region,
            seeded_outputs,
            active_inputs,
        } = self.transpose(active, seeded)?;
        let (trace, policy) = (self.trace, &self.policy);
        let inputs: Vec<Id> = self.inputs.iter().map(|input| input.id).collect();
        let outputs: Vec<Id> = self.outputs.iter().map(|output| output.id).collect();
        let forward = trace.recording.borrow().visible_nodes();
        let Cut {
            nodes: backward,
            residuals: Residuals { saved, hoisted },
            primals,
        } = self.cut(&forward, &inputs, &region);

        let mut forward_outputs = outputs.clone();
        let residuals = saved.iter().map(|&id| {
            let is_known = |&at: &usize| outputs[at] == id && policy.saves_output(at);
            (0..outputs.len()).find(is_known).unwrap_or_else(|| {
                forward_outputs.push(id);
                forward_outputs.len() - 1
            })
        });
        let residuals = residuals.collect();
        let invariant = &inputs[policy.invariant(inputs.len())];
        let invariant_ids = invariant.iter().copied().collect();
        let hoisted_nodes = needed(&forward, &hoisted, &invariant_ids);
        let backward_inputs: Vec<Id> = (primals.iter().map(|&at| inputs[at]))
            .chain(hoisted.iter().chain(&saved).copied())
            .chain(region.inputs.iter().copied())
            .collect();
        let recording = trace.recording.borrow();
        Ok(Linearized {
            forward: recording.subgraph(&forward, &inputs, &forward_outputs),
            residuals,
            hoisted: recording.subgraph(&hoisted_nodes, invariant, &hoisted),
            backward: recording.subgraph(&backward, &backward_inputs, &region.outputs),
            primals,
            seeded_outputs,
            active_inputs,
        })
    }

    /// Chooses the residuals, and cuts the backward pass off the forward pass there.
    fn cut(&self, forward: &[Arc<Recorded>], inputs: &[Id], region: &Region) -> Cut {
        let recorded = needed(region.nodes(), &region.outputs, &HashSet::new());
        let used = free_values(&recorded, region);
        let mut residuals = self.policy.choose(self.trace, forward, inputs, &used);
        let primals = (0..inputs.len()).filter(|&input| self.policy.gives_input(input));
        let given = primals.clone().map(|input| inputs[input]);
        let given: HashSet<Id> = given.chain(residuals.all()).collect();
        // With the operations of the forward pass that recompute values.
        let nodes: Vec<_> = forward.iter().chain(&recorded).cloned().collect();
        let nodes = needed(&nodes, &region.outputs, &given);

        // The choice may contain values that the backward pass turns out not to use.
        let operands = nodes.iter().flat_map(|node| &node.operands);
        let used: HashSet<Id> = operands.chain(&region.outputs).copied().collect();
        residuals.retain(|id| used.contains(&id));
        let primals = primals.filter(|&at| used.contains(&inputs[at])).collect();
        Cut {
            nodes,
            residuals,
            primals,
        }
    }

    /// Pulls back through the function. The cotangent of a carried output of a scan is that of the
    /// same input in the next iteration, so both grow until nothing changes.
    fn transpose(&self, active: Vec<bool>, mut seeded: Vec<bool>) -> Result<Transposed, ()> {
        let (trace, carried) = (self.trace, self.policy.carried());
        let (active, active_outputs) = self.propagate(active);
        for (output, seeded) in seeded.iter_mut().enumerate() {
            *seeded &= active_outputs[output] || (output < carried && active[output]);
        }
        let wrt: Vec<usize> = (0..active.len()).filter(|&input| active[input]).collect();
        let wrt_tensors: Vec<Tensor<'t>> = wrt.iter().map(|&input| self.inputs[input]).collect();
        loop {
            let seeded_outputs: Vec<usize> =
                (0..seeded.len()).filter(|&output| seeded[output]).collect();
            let outputs = seeded_outputs.iter().map(|&output| self.outputs[output]);
            let types: Vec<_> = outputs.clone().map(|output| output.ty()).collect();
            let (region, gradients) = trace.region(&types, |cotangents| {
                let seeds: Vec<_> = outputs.zip(cotangents.iter().copied()).collect();
                pull_back(trace, &seeds, &wrt_tensors)
            });
            let (active_inputs, gradients): (Vec<usize>, Vec<Tensor<'t>>) =
                (wrt.iter().zip(gradients))
                    .filter_map(|(&input, gradient)| Some((input, gradient?)))
                    .unzip();
            if gradients.iter().any(|gradient| gradient.is_error()) {
                return Err(());
            }
            let mut is_fixed_point = true;
            for &input in active_inputs.iter().filter(|&&input| input < carried) {
                is_fixed_point &= seeded[input];
                seeded[input] = true;
            }
            if is_fixed_point {
                return Ok(Transposed {
                    region: region.giving(&gradients),
                    seeded_outputs,
                    active_inputs,
                });
            }
        }
    }

    /// The active inputs and outputs: a carried value that is active after an iteration is active
    /// in the next one.
    fn propagate(&self, mut active: Vec<bool>) -> (Vec<bool>, Vec<bool>) {
        let nodes = self.trace.recording.borrow().visible_nodes();
        loop {
            let inputs = self.inputs.iter().zip(&active);
            let wrt: Vec<Tensor<'t>> = inputs
                .filter(|(_, active)| **active)
                .map(|(&input, _)| input)
                .collect();
            let tape = Tape::new(self.trace, &nodes, &wrt);
            let outputs: Vec<bool> = (self.outputs.iter())
                .map(|output| tape.is_active(output.id))
                .collect();
            let mut is_fixed_point = true;
            for carried in (0..self.policy.carried()).filter(|&at| outputs[at]) {
                is_fixed_point &= active[carried];
                active[carried] = true;
            }
            if is_fixed_point {
                return (active, outputs);
            }
        }
    }
}

/// The nodes that `outputs` are computed by, from values that are `known`.
fn needed(nodes: &[Arc<Recorded>], outputs: &[Id], known: &HashSet<Id>) -> Vec<Arc<Recorded>> {
    let mut wanted: HashSet<Id> = outputs.iter().copied().collect();
    let mut chosen = Vec::new();
    for node in nodes.iter().rev() {
        if (node.results.iter()).any(|id| wanted.contains(id) && !known.contains(id)) {
            wanted.extend(&node.operands);
            chosen.push(node.clone());
        }
    }
    chosen.reverse();
    chosen
}

/// Values from outside of the region that these nodes of it, or its outputs, use.
fn free_values(nodes: &[Arc<Recorded>], region: &Region) -> Vec<Id> {
    let results = nodes.iter().flat_map(|node| &node.results);
    let mut seen: HashSet<Id> = results.chain(&region.inputs).copied().collect();
    let operands = nodes.iter().flat_map(|node| &node.operands);
    let used = operands.chain(&region.outputs).copied();
    used.filter(|&id| seen.insert(id)).collect()
}
