//! The choice of residuals: which values of a forward pass are saved for the backward pass, and
//! which it recomputes.

use std::{collections::HashSet, ops::Range, sync::Arc};

use halite_ir::{Op, Remat};

use crate::{
    Trace,
    control::ScanSpec,
    trace::{Id, Recorded},
};

/// How an operation with a body saves residuals.
pub(super) enum ResidualPolicy {
    /// A scan saves a value per iteration, stacked. It saves few bytes, and only what is expensive
    /// to recompute from the slices of its scanned inputs; its carried inputs exist in no other
    /// place. What is the same in all iterations is computed once, outside of the backward scan.
    Scan(ScanSpec),
    /// A checkpoint or branch recomputes everything but what [`Remat`] names.
    Recompute(Remat),
    /// A `shard_map` saves, on each device, what is expensive to recompute. Scalars are always
    /// recomputed, for the parts of all devices are stacked along the first dimension.
    ShardMap {
        /// Whether each output is already split over the devices as residuals are.
        per_device: Vec<bool>,
    },
}

/// The values of the forward pass that the backward pass is given.
pub(super) struct Residuals {
    /// Saved by the forward pass.
    pub(super) saved: Vec<Id>,
    /// Computed once from the invariant inputs of a scan.
    pub(super) hoisted: Vec<Id>,
}

impl Residuals {
    pub(super) fn all(&self) -> impl Iterator<Item = Id> + '_ {
        self.saved.iter().chain(&self.hoisted).copied()
    }

    pub(super) fn retain(&mut self, is_used: impl Fn(Id) -> bool) {
        self.saved.retain(|&id| is_used(id));
        self.hoisted.retain(|&id| is_used(id));
    }
}

impl ResidualPolicy {
    /// Number of inputs that an iteration takes from the outputs of the one before.
    pub(super) fn carried(&self) -> usize {
        match self {
            ResidualPolicy::Scan(spec) => spec.carried,
            ResidualPolicy::Recompute(_) | ResidualPolicy::ShardMap { .. } => 0,
        }
    }

    /// Whether the backward pass is given an input of the body.
    pub(super) fn gives_input(&self, input: usize) -> bool {
        input >= self.carried()
    }

    /// Range of the loop-invariant inputs among the `inputs` of a scan.
    pub(super) fn invariant(&self, inputs: usize) -> Range<usize> {
        match self {
            ResidualPolicy::Scan(spec) => spec.carried..inputs - spec.scanned,
            ResidualPolicy::Recompute(_) | ResidualPolicy::ShardMap { .. } => 0..0,
        }
    }

    /// Whether an output of the body is in the form of a residual.
    pub(super) fn saves_output(&self, output: usize) -> bool {
        match self {
            ResidualPolicy::Scan(spec) => output >= spec.carried,
            ResidualPolicy::Recompute(_) => true,
            ResidualPolicy::ShardMap { per_device } => per_device[output],
        }
    }

    /// Chooses residuals from which the values `used` of the forward pass can be recomputed.
    pub(super) fn choose(
        &self,
        trace: &Trace,
        nodes: &[Arc<Recorded>],
        inputs: &[Id],
        used: &[Id],
    ) -> Residuals {
        match self {
            ResidualPolicy::Scan(spec) => {
                let (carried, given) = inputs.split_at(spec.carried);
                let invariant = &inputs[self.invariant(inputs.len())];
                Iterations::new(trace, nodes, invariant).choose(carried, given, used)
            }
            ResidualPolicy::Recompute(remat) => save_first(nodes, used, |node, _| match remat {
                Remat::Full => false,
                Remat::SaveDots => is_product(&node.op),
            }),
            ResidualPolicy::ShardMap { .. } => save_first(nodes, used, |node, wanted| {
                let has_scalar = || wanted.iter().any(|&id| trace.tensor(id).rank() == 0);
                !node.op.rules().is_cheap && !has_scalar()
            }),
        }
    }
}

/// Saves what `is_saved` accepts, given an operation and its results in use, and recomputes what
/// is computed from there.
fn save_first(
    nodes: &[Arc<Recorded>],
    used: &[Id],
    is_saved: impl Fn(&Recorded, &[Id]) -> bool,
) -> Residuals {
    let mut needed: HashSet<Id> = used.iter().copied().collect();
    let mut saved = Vec::new();
    for node in nodes.iter().rev() {
        let results = node.results.iter().copied();
        let wanted: Vec<Id> = results.filter(|id| needed.contains(id)).collect();
        if wanted.is_empty() {
            continue;
        }
        if is_saved(node, &wanted) {
            saved.extend(wanted);
        } else {
            needed.extend(&node.operands);
        }
    }
    Residuals {
        saved,
        hoisted: vec![],
    }
}

/// Whether it is a product of matrices, a convolution, or a function of them with a gradient rule of
/// its own, such as attention.
fn is_product(op: &Op) -> bool {
    match op {
        Op::Dot(..) | Op::Convolution(..) => true,
        Op::CustomCall(call) => call.decomposition.is_some(),
        _ => false,
    }
}

/// The forward pass of one iteration of a scan.
struct Iterations<'a> {
    trace: &'a Trace,
    nodes: &'a [Arc<Recorded>],
    /// Values that are the same in all iterations.
    invariant: HashSet<Id>,
}

impl<'a> Iterations<'a> {
    fn new(trace: &'a Trace, nodes: &'a [Arc<Recorded>], inputs: &[Id]) -> Self {
        let mut invariant: HashSet<Id> = inputs.iter().copied().collect();
        for node in nodes {
            if node.operands.iter().all(|id| invariant.contains(id)) {
                invariant.extend(&node.results);
            }
        }
        Iterations {
            trace,
            nodes,
            invariant,
        }
    }

    fn choose(&self, carried: &[Id], given: &[Id], used: &[Id]) -> Residuals {
        let needed = self.needed_values(given, used);
        let mut chosen = Residuals {
            saved: (carried.iter().copied())
                .filter(|id| needed.contains(id))
                .collect(),
            hoisted: vec![],
        };
        // Forward: elementwise functions of known values are recomputed.
        let mut known: HashSet<Id> = given.iter().chain(&chosen.saved).copied().collect();
        for node in self.nodes {
            if is_recomputed(&node.op) && node.operands.iter().all(|id| known.contains(id)) {
                known.extend(&node.results);
                continue;
            }
            for &id in node.results.iter().filter(|id| needed.contains(id)) {
                if self.invariant.contains(&id) {
                    chosen.hoisted.push(id);
                } else {
                    chosen.saved.push(id);
                }
                known.insert(id);
            }
        }
        chosen
    }

    /// The values `used`, and the operands of cheap operations among them that have no more bytes
    /// than the result: saving such operands instead lets the backward pass recompute the result.
    /// Operations are judged one at a time, in backward order; operands that two of them share are
    /// counted for both.
    fn needed_values(&self, given: &[Id], used: &[Id]) -> HashSet<Id> {
        let bytes = |id: Id| self.trace.tensor(id).ty().bytes();
        let given: HashSet<Id> = given.iter().copied().collect();
        let mut needed: HashSet<Id> = used.iter().copied().collect();
        for node in self
            .nodes
            .iter()
            .rev()
            .filter(|node| node.op.rules().is_cheap)
        {
            if !needed.contains(&node.results[0]) {
                continue;
            }
            let operands: HashSet<Id> = node.operands.iter().copied().collect();
            let is_free =
                |id: &Id| self.invariant.contains(id) || given.contains(id) || needed.contains(id);
            let price: usize = (operands.iter())
                .filter(|id| !is_free(id))
                .map(|&id| bytes(id))
                .sum();
            if price <= bytes(node.results[0]) {
                needed.extend(operands);
            }
        }
        needed
    }
}

/// Returns whether the backward pass recomputes the one result from operands that it has: any
/// elementwise function, transcendental ones included. The compiler fuses it with its users, which
/// takes about as long as storing and loading the result on a CPU, and less on an accelerator.
fn is_recomputed(op: &Op) -> bool {
    op.rules().is_cheap || matches!(op, Op::Unary(_) | Op::Binary(_))
}
