//! The backward pass: cotangents from the outputs back to the leaves, one operation at a time.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use halite_core::TensorType;
use halite_ir::{Op, UnaryOp};

use super::{left_out::LeftOut, shape};
use crate::{
    Tensor, Trace,
    control::ScanSpec,
    trace::{Id, Recorded},
};

/// The cotangents of `wrt`, given pairs of a tensor and its cotangent. `None` is zero.
pub(super) fn pull_back<'t>(
    trace: &'t Trace,
    seeds: &[(Tensor<'t>, Tensor<'t>)],
    wrt: &[Tensor<'t>],
) -> Vec<Option<Tensor<'t>>> {
    let least = wrt.iter().map(|leaf| leaf.id).min();
    let nodes = trace.recording.borrow().computing(
        seeds.iter().map(|(output, _)| output.id),
        least.unwrap_or(Id::MAX),
    );
    let tape = Tape::new(trace, &nodes, wrt);
    let mut sums = Cotangents::default();
    for &(output, cotangent) in seeds {
        if tape.is_active(output.id) {
            sums.add(output.id, cotangent, None);
        }
    }
    for node in nodes.iter().rev() {
        if !node.results.iter().any(|id| sums.of.contains_key(id))
            || !node.operands.iter().any(|&id| tape.is_active(id))
        {
            continue;
        }
        let _site = trace.located_at(node.origin);
        let (back, left_out) = sums.pull(trace, &tape, node);
        debug_assert_eq!(
            back.len(),
            node.operands.len(),
            "the rule of {:?} gives a cotangent per operand",
            node.op
        );
        for (&id, cotangent) in node.operands.iter().zip(back) {
            if let Some(cotangent) = cotangent.filter(|_| tape.is_active(id)) {
                debug_assert!(
                    cotangent.is_error() || cotangent.ty() == trace.tensor(id).ty(),
                    "the cotangent of {} by {:?} is {}",
                    trace.tensor(id).ty(),
                    node.op,
                    cotangent.ty()
                );
                sums.add(id, cotangent, left_out.clone());
            }
        }
    }
    wrt.iter().map(|tensor| sums.cleared(tensor.id)).collect()
}

/// The sums of the cotangents so far.
#[derive(Default)]
struct Cotangents<'t> {
    of: HashMap<Id, Tensor<'t>>,
    /// Elements that are left out of some of the sums, and may not be 0 yet.
    left_out: HashMap<Id, LeftOut<'t>>,
}

impl<'t> Cotangents<'t> {
    #[track_caller]
    fn add(&mut self, id: Id, cotangent: Tensor<'t>, left_out: Option<LeftOut<'t>>) {
        let Some(&sum) = self.of.get(&id) else {
            self.of.insert(id, cotangent);
            left_out.map(|left_out| self.left_out.insert(id, left_out));
            return;
        };
        let cleared = |x, left_out: &Option<LeftOut<'t>>| match left_out {
            Some(left_out) => left_out.clear(x),
            None => x,
        };
        let before = self.left_out.remove(&id);
        let (sum, left_out) = match (before, left_out) {
            (Some(before), Some(new)) if before.is_like(&new) => {
                (sum + cotangent, Some(before.or_dirty(new.is_dirty())))
            }
            (before, new) => {
                let sum = cleared(sum, &before) + cleared(cotangent, &new);
                let both = before.zip(new);
                (
                    sum,
                    both.map(|(before, new)| before.in_both(&new, &sum.dims())),
                )
            }
        };
        self.of.insert(id, sum);
        left_out.map(|left_out| self.left_out.insert(id, left_out));
    }

    /// The sum for a tensor, with 0 for all elements that are left out; `None` is zero.
    #[track_caller]
    fn cleared(&self, id: Id) -> Option<Tensor<'t>> {
        let sum = *self.of.get(&id)?;
        Some((self.left_out.get(&id)).map_or(sum, |left_out| left_out.clear(sum)))
    }

    /// The cotangents of the operands of a node, and the elements that are left out of all of them.
    #[track_caller]
    fn pull(
        &self,
        trace: &'t Trace,
        tape: &Tape<'t>,
        node: &Recorded,
    ) -> (Back<'t>, Option<LeftOut<'t>>) {
        let step = |cotangents| Step {
            trace,
            tape,
            node,
            cotangents,
        };
        if let [result] = node.results[..]
            && let Some(after) = self.left_out.get(&result)
        {
            let raw = step(vec![self.of.get(&result).copied()]);
            if let Some(before) = raw.left_out_before(after) {
                return (raw.pull(), Some(before));
            }
        }
        let step = step(node.results.iter().map(|&id| self.cleared(id)).collect());
        let after = (node.results.first()).and_then(|result| self.left_out.get(result));
        match step.leave_out(after) {
            Some((back, left_out)) => (back, Some(left_out)),
            None => (step.pull(), None),
        }
    }
}

/// The tensors that a backward pass goes through.
pub(super) struct Tape<'t> {
    trace: &'t Trace,
    /// Those that depend on one of the leaves.
    active: HashSet<Id>,
}

impl<'t> Tape<'t> {
    /// The tape of these operations, which are in program order.
    pub(super) fn new(trace: &'t Trace, nodes: &[Arc<Recorded>], wrt: &[Tensor<'t>]) -> Self {
        #[cfg(test)]
        VISITED.with(|visited| visited.set(visited.get() + nodes.len()));
        let floats = wrt.iter().filter(|leaf| leaf.dtype().is_float());
        let mut active: HashSet<Id> = floats.map(|leaf| leaf.id).collect();
        for node in nodes {
            if !is_flat(&node.op) && node.operands.iter().any(|id| active.contains(id)) {
                let results = node.results.iter().copied();
                active.extend(results.filter(|&id| trace.tensor(id).dtype().is_float()));
            }
        }
        Tape { trace, active }
    }

    pub(super) fn is_active(&self, id: Id) -> bool {
        self.active.contains(&id)
    }

    /// Whether a tensor is the constant 0.
    pub(super) fn is_zero(&self, id: Id) -> bool {
        let Some(maker) = self.trace.recording.borrow().maker(id) else {
            return false;
        };
        match &maker.op {
            Op::Constant(literal) => literal
                .as_splat()
                .is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0)),
            Op::Broadcast { .. } => self.is_zero(maker.operands[0]),
            _ => false,
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Operations that tapes of this thread were made of.
    pub(super) static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Whether the derivative is zero wherever it exists.
fn is_flat(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(
            UnaryOp::Ceil
                | UnaryOp::Floor
                | UnaryOp::RoundNearestAfz
                | UnaryOp::RoundNearestEven
                | UnaryOp::Sign
        ) | Op::Compare(_)
            | Op::StopGradient
    )
}

/// An operation with the cotangents of its results.
pub(super) struct Step<'a, 't> {
    pub(super) trace: &'t Trace,
    pub(super) tape: &'a Tape<'t>,
    pub(super) node: &'a Recorded,
    /// By result; `None` is zero. At least one is not.
    pub(super) cotangents: Vec<Option<Tensor<'t>>>,
}

/// The cotangent of each operand; `None` is zero.
pub(super) type Back<'t> = Vec<Option<Tensor<'t>>>;

impl<'t> Step<'_, 't> {
    /// The vector-Jacobian product of the operation.
    #[track_caller]
    pub(super) fn pull(&self) -> Back<'t> {
        match &self.node.op {
            Op::Constant(_) | Op::Iota { .. } => vec![],
            Op::PartitionId | Op::ReplicaId | Op::AxisIndex(_) => vec![],
            // The result is `bool`.
            Op::Compare(_) => self.nothing(),
            Op::Unary(unary) => vec![self.unary(*unary)],
            Op::Binary(binary) => self.binary(*binary),
            Op::Select => self.select(),
            Op::Clamp => self.clamp(),
            Op::Convert(_) => vec![Some(self.g().convert(self.ty(0).dtype()))],
            Op::BitcastConvert(_) => self
                .none("the bits of a number have no derivative; use `convert` to keep the value"),
            Op::ReducePrecision { exponent, mantissa } => {
                vec![Some(self.g().reduce_precision(*exponent, *mantissa))]
            }

            Op::Broadcast { dims: _, mapping } => vec![Some(self.broadcast(mapping))],
            Op::Reshape { dims: _ } => vec![Some(self.g().reshape(self.ty(0).dims()))],
            Op::Transpose { permutation } => {
                vec![Some(self.g().transpose(shape::inverse(permutation)))]
            }
            Op::Reverse { dims } => vec![Some(self.g().reverse(dims))],
            Op::Concatenate { dim } => self.concatenate(*dim),
            Op::Slice {
                starts,
                limits: _,
                strides,
            } => vec![Some(self.slice(starts, strides))],
            Op::DynamicSlice { sizes: _ } => self.dynamic_slice(),
            Op::DynamicUpdateSlice => self.dynamic_update_slice(),
            Op::Pad {
                low,
                high,
                interior,
            } => self.pad(low, high, interior),
            Op::Gather(gather) => self.gather(gather),
            Op::Scatter(scatter, combine) => self.scatter(scatter, *combine),

            Op::Dot(dot, _) => self.dot(dot),
            Op::Convolution(convolution, _) => self.convolution(convolution),

            Op::Reduce { kind, dims } => self.reduce(*kind, dims),
            Op::ArgReduce { kind: _, dim } => self.arg_reduce(*dim),
            Op::ReduceWindow { kind, window } => self.reduce_window(*kind, window),
            Op::SelectAndScatter { kind, window } => self.select_and_scatter(*kind, window),
            Op::Sort { dim, .. } => self.sort(&self.node.op, *dim),

            Op::Cholesky { lower } => vec![Some(self.cholesky(*lower))],
            Op::TriangularSolve(triangular) => self.triangular_solve(*triangular),

            Op::While { .. } => self.none(
                "it has a dynamic trip count and cannot be differentiated in reverse mode; use \
                 `scan` or `repeat`, or take the gradient inside its body",
            ),
            Op::Scan {
                carried,
                scanned,
                length,
                reverse,
                residuals,
                body,
            } => {
                let spec = ScanSpec {
                    carried: *carried,
                    scanned: *scanned,
                    length: *length,
                    reverse: *reverse,
                    residuals: *residuals,
                };
                self.scan(spec, body)
            }
            Op::Checkpoint { body, remat } => self.checkpoint(body, *remat),
            Op::Case { branches } => self.case(branches),
            Op::StopGradient => self.nothing(),
            Op::OptimizationBarrier => self.optimization_barrier(),
            Op::CustomCall(call) => self.custom_call(call),

            Op::AllReduce { kind, groups } => self.all_reduce(*kind, groups),
            Op::AllGather { dim, groups } => self.all_gather(*dim, groups),
            Op::ReduceScatter { kind, dim, groups } => self.reduce_scatter(*kind, *dim, groups),
            Op::AllToAll {
                split,
                concat,
                groups,
            } => vec![Some(self.g().all_to_all(*concat, *split, groups.clone()))],
            Op::CollectivePermute { pairs, groups } => self.collective_permute(pairs, groups),
            Op::ShardMap(map) => self.shard_map(map),
            Op::ShardingConstraint(spec) => vec![Some(self.g().sharding_constraint(spec.clone()))],
            Op::Unsharded { dims } => {
                let op = Op::Unsharded { dims: dims.clone() };
                vec![Some(self.trace.push_one(op, &[self.g()]))]
            }
            Op::PropagationBarrier => vec![Some(self.g())],
        }
    }

    /// The cotangent of the only result.
    pub(super) fn g(&self) -> Tensor<'t> {
        self.cotangents[0].expect("an operation is pulled back through if a result has a cotangent")
    }

    pub(super) fn x(&self, operand: usize) -> Tensor<'t> {
        self.trace.tensor(self.node.operands[operand])
    }

    pub(super) fn y(&self, result: usize) -> Tensor<'t> {
        self.trace.tensor(self.node.results[result])
    }

    pub(super) fn ty(&self, operand: usize) -> TensorType {
        self.trace.tensor(self.node.operands[operand]).ty()
    }

    /// Whether the cotangent of an operand is requested.
    pub(super) fn wants(&self, operand: usize) -> bool {
        self.tape.is_active(self.node.operands[operand])
    }

    /// Zero cotangents for all operands.
    pub(super) fn nothing(&self) -> Back<'t> {
        vec![None; self.node.operands.len()]
    }

    /// The cotangent that `rule` computes, if it is requested.
    pub(super) fn if_wanted(
        &self,
        operand: usize,
        rule: impl FnOnce() -> Tensor<'t>,
    ) -> Option<Tensor<'t>> {
        self.wants(operand).then(rule)
    }

    /// Records a mistake: the operation has no derivative.
    pub(super) fn none(&self, advice: &str) -> Back<'t> {
        let op = self.node.op.name();
        let message = format!("`{op}` has no gradient here: {advice}; or apply `stop_gradient`");
        self.trace.fail_at(self.node.origin, "grad", message, None);
        self.broken()
    }

    /// Error tensors for all operands, after a mistake in the backward pass.
    pub(super) fn broken(&self) -> Back<'t> {
        self.node
            .operands
            .iter()
            .map(|&id| Some(self.trace.error_like(Some(self.trace.tensor(id).ty()))))
            .collect()
    }
}
