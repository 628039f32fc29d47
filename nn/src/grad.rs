//! Reverse-mode differentiation: [`grad()`] appends the gradient of a loss to the trace that
//! computed it.
//!
//! There is one vector-Jacobian product per operation, written in tensor operators, so the gradient
//! is an ordinary part of the program and has a gradient itself. Operations with bodies are
//! [linearized](linearize) first. Reaching an operation without a derivative is a mistake, never a
//! silent zero; only derivatives that are zero almost everywhere, such as that of `floor`, are
//! zero.
//!
//! Nothing here touches an operation that is not between the leaves and the loss.

mod across;
mod elementwise;
mod index;
mod linearize;
mod product;
mod reduce;
mod regions;
mod residuals;
mod scan;
mod shape;
mod shard_map;

use std::{collections::HashMap, panic::Location, sync::Arc};

use halite_core::{TensorType, tree::Tree};
use halite_ir::{Op, Unary};

use crate::{
    Tensor, Trace,
    control::ScanSpec,
    trace::{Id, Recorded},
};

/// The gradient of `loss`, a float scalar, by every leaf of `wrt`; all leaves are floats. It is
/// zero for a leaf that the loss does not depend on, and [`optim::update`](crate::optim::update)
/// leaves such a parameter alone, as PyTorch does.
///
/// A loss that depends on no leaf at all, because of `stop_gradient`, `argmax` or a conversion to
/// integers in between, is a mistake, and so is a leaf of integers. Use [`vjp`] where zeros are
/// intended.
///
/// In a program of many devices with explicit collectives it is the gradient of the sum of all
/// devices' losses.
///
/// ```
/// use halite_core::{DType, TensorType, tree::Leaf};
/// use halite_nn::{Trace, grad};
///
/// let cx = &Trace::new();
/// let x = cx.input(TensorType::new(DType::F32, [3]), "x");
/// let loss = (x * x).sum_all();
/// let Leaf(slope) = grad(loss, &Leaf(x)); // 2 x
/// assert_eq!(slope.ty().to_string(), "f32[3]");
/// let Leaf(curvature) = grad(slope.sum_all(), &Leaf(x)); // 2
/// assert_eq!(curvature.ty().to_string(), "f32[3]");
/// assert!(cx.mistakes().is_empty());
/// ```
#[track_caller]
pub fn grad<'t, M: Tree<Leaf = Tensor<'t>>>(loss: Tensor<'t>, wrt: &M) -> M {
    let ty = loss.ty();
    if ty.rank() != 0 || !ty.dtype().is_float() {
        let advice = if ty.dtype().is_float() {
            "reduce it first, as by `mean_all`"
        } else {
            "integers have no gradient"
        };
        let error = loss.mistake("grad", || {
            format!("the loss is {ty}; it must be a scalar of floats: {advice}")
        });
        return wrt.with_leaves(
            wrt.leaves()
                .into_iter()
                .map(|leaf| error.trace.error_like(Some(leaf.ty()))),
        );
    }
    let (cx, location) = (loss.trace, Location::caller());
    let leaves: Vec<Tensor<'t>> = wrt.leaves().into_iter().copied().collect();
    let names = || {
        let name =
            |(path, leaf): (String, &Tensor<'t>)| leaf.name().map_or(path, |name| name.to_string());
        let named = wrt
            .named()
            .into_iter()
            .zip(&leaves)
            .map(move |(named, leaf)| (name(named), leaf.ty()));
        named.map(|(name, ty)| {
            if name.is_empty() {
                (format!("a tensor {ty}"), ty)
            } else {
                (format!("`{name}` ({ty})"), ty)
            }
        })
    };
    let integers: Vec<String> = names()
        .filter(|(_, ty)| !ty.dtype().is_float())
        .map(|(name, _)| name)
        .collect();
    if !integers.is_empty() && leaves.iter().all(|leaf| !leaf.is_error()) {
        let message = format!(
            "{}: only floats have a gradient; leave it out, or convert it to floats before the loss uses it. `vjp` \
             returns zeros for it",
            listed(integers)
        );
        cx.fail("grad", message, None);
        return wrt.with_leaves(
            leaves
                .into_iter()
                .map(|leaf| cx.error_like(Some(leaf.ty()))),
        );
    }
    let Ok(gradients) = checked_pull_back(cx, &[loss], &[loss.ones_like()], &leaves, location)
    else {
        return wrt.with_leaves(
            leaves
                .into_iter()
                .map(|leaf| cx.error_like(Some(leaf.ty()))),
        );
    };
    let is_used = used(cx, &[loss], &leaves, &gradients);
    if !leaves.is_empty() && !is_used.contains(&true) {
        let made = loss
            .origin()
            .map_or(String::new(), |line| format!(", computed at {line},"));
        let message = format!(
            "the loss{made} depends on none of {}: every path is cut, as by `stop_gradient`, `argmax`, a \
             comparison or a conversion to integers; nothing would be learned",
            listed(names().map(|(name, _)| name).collect())
        );
        cx.fail("grad", message, None);
        return wrt.with_leaves(
            leaves
                .into_iter()
                .map(|leaf| cx.error_like(Some(leaf.ty()))),
        );
    }
    wrt.with_leaves(or_zeros(cx, &leaves, gradients, &is_used, location))
}

/// The first few of many names.
fn listed(names: Vec<String>) -> String {
    const MOST: usize = 4;
    match names.len().saturating_sub(MOST) {
        0 => names.join(", "),
        more => format!("{}, and {more} more", names[..MOST].join(", ")),
    }
}

/// Whether the outputs depend on each leaf. A leaf that is used only through `floor` has a zero
/// gradient; an unused one has none.
fn used<'t>(
    trace: &'t Trace,
    outputs: &[Tensor<'t>],
    leaves: &[Tensor<'t>],
    gradients: &[Option<Tensor<'t>>],
) -> Vec<bool> {
    let mut used: Vec<bool> = gradients.iter().map(Option::is_some).collect();
    if used.contains(&false) {
        for output in outputs {
            let depends = trace.depends_on(output.id, leaves);
            used.iter_mut()
                .zip(depends)
                .for_each(|(used, depends)| *used |= depends);
        }
    }
    used
}

/// The gradients, and zeros for leaves without one. Zeros of leaves that are not used are
/// remembered as such: see [`Trace::without_gradient`].
fn or_zeros<'t>(
    trace: &'t Trace,
    leaves: &[Tensor<'t>],
    gradients: Vec<Option<Tensor<'t>>>,
    is_used: &[bool],
    location: &'static Location<'static>,
) -> Vec<Tensor<'t>> {
    let _site = trace.called_from(location);
    let one =
        |((leaf, gradient), &is_used): ((&Tensor<'t>, Option<Tensor<'t>>), &bool)| match gradient {
            Some(gradient) => gradient,
            None if is_used => leaf.zeros_like(),
            None => {
                // A separate tensor: other code may use the same zero.
                let none = leaf.zeros_like().stop_gradient();
                trace
                    .context
                    .no_gradient
                    .borrow_mut()
                    .insert(none.id, trace.origin(location));
                none
            }
        };
    leaves.iter().zip(gradients).zip(is_used).map(one).collect()
}

/// The sum, over all `outputs`, of the gradient of `output * cotangent` by every leaf of `wrt`:
/// the vector-Jacobian product. Cotangents have the types of the outputs.
#[track_caller]
pub fn vjp<'t, M: Tree<Leaf = Tensor<'t>>>(
    outputs: &[Tensor<'t>],
    cotangents: &[Tensor<'t>],
    wrt: &M,
) -> M {
    let leaves: Vec<Tensor<'t>> = wrt.leaves().into_iter().copied().collect();
    let Some(trace) = outputs
        .first()
        .or(leaves.first())
        .map(|tensor| tensor.trace)
    else {
        return wrt.with_leaves(leaves);
    };
    let location = Location::caller();
    wrt.with_leaves(
        match checked_pull_back(trace, outputs, cotangents, &leaves, location) {
            Ok(gradients) => {
                let is_used = used(trace, outputs, &leaves, &gradients);
                or_zeros(trace, &leaves, gradients, &is_used, location)
            }
            Err(_) => leaves
                .iter()
                .map(|leaf| trace.error_like(Some(leaf.ty())))
                .collect(),
        },
    )
}

/// The cotangents of `leaves`, after checks of the arguments. `None` is zero.
fn checked_pull_back<'t>(
    trace: &'t Trace,
    outputs: &[Tensor<'t>],
    cotangents: &[Tensor<'t>],
    leaves: &[Tensor<'t>],
    location: &'static Location<'static>,
) -> Result<Vec<Option<Tensor<'t>>>, Tensor<'t>> {
    check_given(trace, outputs, cotangents, leaves, location)?;
    let seeds: Vec<_> = outputs
        .iter()
        .copied()
        .zip(cotangents.iter().copied())
        .collect();
    Ok(pull_back(trace, &seeds, leaves))
}

fn check_given<'t>(
    trace: &'t Trace,
    outputs: &[Tensor<'t>],
    cotangents: &[Tensor<'t>],
    leaves: &[Tensor<'t>],
    location: &'static Location<'static>,
) -> Result<(), Tensor<'t>> {
    let fail = |message: String| Err(trace.fail_at(location, "grad", message, None));
    if outputs.len() != cotangents.len() {
        return fail(format!(
            "{} outputs and {} cotangents; there must be one for each",
            outputs.len(),
            cotangents.len()
        ));
    }
    for (output, cotangent) in outputs.iter().zip(cotangents) {
        if !output.is_error() && !cotangent.is_error() && output.ty() != cotangent.ty() {
            return fail(format!(
                "the output is {}, its cotangent {}; the types must be equal",
                output.ty(),
                cotangent.ty()
            ));
        }
    }
    if let Some(error) = outputs
        .iter()
        .chain(cotangents)
        .find(|tensor| tensor.is_error())
    {
        return Err(*error);
    }
    for tensor in outputs.iter().chain(cotangents).chain(leaves) {
        if !trace.can_use(*tensor) {
            return fail(format!("{} {}", tensor.ty(), crate::trace::STRAY));
        }
    }
    Ok(())
}

/// The cotangents of `wrt`, given pairs of a tensor and its cotangent. `None` is zero.
pub(crate) fn pull_back<'t>(
    trace: &'t Trace,
    seeds: &[(Tensor<'t>, Tensor<'t>)],
    wrt: &[Tensor<'t>],
) -> Vec<Option<Tensor<'t>>> {
    pull_back_through(trace, &trace.visible_nodes(), seeds, wrt)
}

/// Like [`pull_back`], only through `nodes`.
fn pull_back_through<'t>(
    trace: &'t Trace,
    nodes: &[Arc<Recorded>],
    seeds: &[(Tensor<'t>, Tensor<'t>)],
    wrt: &[Tensor<'t>],
) -> Vec<Option<Tensor<'t>>> {
    let tape = Tape::new(trace, nodes, wrt);
    let mut cotangent_of: HashMap<Id, Tensor<'t>> = HashMap::new();
    for &(output, cotangent) in seeds {
        if tape.is_active(output.id) {
            add_into(&mut cotangent_of, output.id, cotangent);
        }
    }
    for node in nodes.iter().rev() {
        let cotangents: Vec<Option<Tensor<'t>>> = node
            .results
            .iter()
            .map(|id| cotangent_of.get(id).copied())
            .collect();
        if cotangents.iter().all(Option::is_none)
            || !node.operands.iter().any(|&id| tape.is_active(id))
        {
            continue;
        }
        let _site = trace.located_at(node.origin);
        let step = Step {
            trace,
            tape: &tape,
            node,
            cotangents,
        };
        let back = step.pull();
        debug_assert_eq!(
            back.len(),
            node.operands.len(),
            "the rule of {:?} gives a cotangent per operand",
            node.op
        );
        for (&id, cotangent) in node.operands.iter().zip(back) {
            if let Some(cotangent) = cotangent.filter(|_| tape.is_active(id)) {
                debug_assert!(
                    cotangent.is_error() || cotangent.ty() == trace.type_of(id),
                    "the cotangent of {} by {:?} is {}",
                    trace.type_of(id),
                    node.op,
                    cotangent.ty()
                );
                add_into(&mut cotangent_of, id, cotangent);
            }
        }
    }
    wrt.iter()
        .map(|tensor| cotangent_of.get(&tensor.id).copied())
        .collect()
}

#[track_caller]
fn add_into<'t>(sums: &mut HashMap<Id, Tensor<'t>>, id: Id, cotangent: Tensor<'t>) {
    let sum = match sums.get(&id) {
        Some(&so_far) => so_far + cotangent,
        None => cotangent,
    };
    sums.insert(id, sum);
}

/// The operations that a backward pass goes through.
struct Tape<'a> {
    nodes: &'a [Arc<Recorded>],
    /// By tensor: whether it depends on one of the leaves.
    active: Vec<bool>,
    /// By tensor: the index of the operation that computed it.
    made_by: HashMap<Id, usize>,
}

impl<'a> Tape<'a> {
    fn new(trace: &Trace, nodes: &'a [Arc<Recorded>], wrt: &[Tensor<'_>]) -> Self {
        let mut active = vec![false; trace.tensor_count()];
        for tensor in wrt {
            active[tensor.id as usize] = tensor.dtype().is_float();
        }
        let mut made_by = HashMap::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let is_active =
                !is_flat(&node.op) && node.operands.iter().any(|&id| active[id as usize]);
            for &id in &node.results {
                made_by.insert(id, index);
                active[id as usize] |= is_active && trace.type_of(id).dtype().is_float();
            }
        }
        Tape {
            nodes,
            active,
            made_by,
        }
    }

    fn is_active(&self, id: Id) -> bool {
        // Tensors of the backward pass itself are not on the tape.
        self.active.get(id as usize).copied().unwrap_or(false)
    }

    fn maker(&self, id: Id) -> Option<&'a Recorded> {
        self.made_by.get(&id).map(|&index| &*self.nodes[index])
    }

    /// Whether a tensor is the constant 0.
    fn is_zero(&self, id: Id) -> bool {
        match self.maker(id) {
            Some(Recorded {
                op: Op::Constant(literal),
                ..
            }) => literal
                .as_splat()
                .is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0)),
            Some(Recorded {
                op: Op::Broadcast { .. },
                operands,
                ..
            }) => self.is_zero(operands[0]),
            _ => false,
        }
    }
}

/// Whether the derivative is zero wherever it exists.
fn is_flat(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(
            Unary::Ceil
                | Unary::Floor
                | Unary::RoundNearestAfz
                | Unary::RoundNearestEven
                | Unary::Sign
        ) | Op::Compare(_)
            | Op::StopGradient
    )
}

/// An operation with the cotangents of its results.
struct Step<'a, 't> {
    trace: &'t Trace,
    tape: &'a Tape<'a>,
    node: &'a Recorded,
    /// By result; `None` is zero. At least one is not.
    cotangents: Vec<Option<Tensor<'t>>>,
}

/// The cotangent of each operand; `None` is zero.
type Back<'t> = Vec<Option<Tensor<'t>>>;

impl<'t> Step<'_, 't> {
    /// The vector-Jacobian product of the operation.
    #[track_caller]
    fn pull(&self) -> Back<'t> {
        match &self.node.op {
            Op::Constant(_) | Op::Iota { .. } | Op::PartitionId | Op::ReplicaId | Op::AxisIndex(_) => vec![],
            // The result is `bool`.
            Op::Compare(_) => self.nothing(),
            Op::Unary(unary) => vec![self.unary(*unary)],
            Op::Binary(binary) => self.binary(*binary),
            Op::Select => self.select(),
            Op::Clamp => self.clamp(),
            Op::Convert(_) => vec![Some(self.g().convert(self.ty(0).dtype()))],
            Op::BitcastConvert(_) => self.none("the bits of a number have no derivative; use `convert` to keep the value"),
            Op::ReducePrecision { exponent, mantissa } => vec![Some(self.g().reduce_precision(*exponent, *mantissa))],

            Op::Broadcast { dims: _, mapping } => vec![Some(self.broadcast(mapping))],
            Op::Reshape { dims: _ } => vec![Some(self.g().reshape(self.ty(0).dims()))],
            Op::Transpose { permutation } => vec![Some(self.g().transpose(shape::inverse(permutation)))],
            Op::Reverse { dims } => vec![Some(self.g().reverse(dims))],
            Op::Concatenate { dim } => self.concatenate(*dim),
            Op::Slice { starts, limits: _, strides } => vec![Some(self.slice(starts, strides))],
            Op::DynamicSlice { sizes: _ } => self.dynamic_slice(),
            Op::DynamicUpdateSlice => self.dynamic_update_slice(),
            Op::Pad { low, high, interior } => self.pad(low, high, interior),
            Op::Gather(gather) => self.gather(gather),
            Op::Scatter(scatter) => self.scatter(scatter),

            Op::Dot(dot) => self.dot(dot),
            Op::Convolution(convolution) => self.convolution(convolution),

            Op::Reduce { kind, dims } => self.reduce(*kind, dims),
            Op::ArgReduce { kind: _, dim } => self.arg_reduce(*dim),
            Op::ReduceWindow { kind, window } => self.reduce_window(*kind, window),
            Op::SelectAndScatter { kind, window } => self.select_and_scatter(*kind, window),
            Op::Sort { dim, descending } => self.sort(*dim, *descending),

            Op::While { .. } => self.none(
                "it has a dynamic trip count and cannot be differentiated in reverse mode; use `scan` or `repeat`, or take \
                 the gradient inside its body",
            ),
            Op::Scan { carried, scanned, length, reverse, body } => {
                self.scan(ScanSpec { carried: *carried, scanned: *scanned, length: *length, reverse: *reverse }, body)
            }
            Op::Checkpoint { body, remat } => self.checkpoint(body, *remat),
            Op::Case { branches } => self.case(branches),
            Op::StopGradient => self.nothing(),
            Op::OptimizationBarrier => self.optimization_barrier(),
            Op::CustomCall(call) => self.none(&format!(
                "the derivative of `{}` is unknown; give it to `vjp` in two parts, with its own backward call between them",
                call.target
            )),

            Op::AllReduce { kind, groups } => self.all_reduce(*kind, groups),
            Op::AllGather { dim, groups } => {
                vec![Some(self.g().reduce_scatter(halite_ir::Reduction::Sum, *dim, groups.clone()))]
            }
            Op::ReduceScatter { kind, dim, groups } => self.reduce_scatter(*kind, *dim, groups),
            Op::AllToAll { split, concat, groups } => vec![Some(self.g().all_to_all(*concat, *split, groups.clone()))],
            Op::CollectivePermute { pairs, groups } => {
                let back: Vec<_> = pairs.iter().map(|&(from, to)| (to, from)).collect();
                vec![Some(self.g().collective_permute(back, groups.clone()))]
            }
            Op::ShardMap(map) => self.shard_map(map),
            Op::ShardingConstraint(spec) => vec![Some(self.g().sharding_constraint(spec.clone()))],
        }
    }

    /// The cotangent of the only result.
    fn g(&self) -> Tensor<'t> {
        self.cotangents[0].expect("an operation is pulled back through if a result has a cotangent")
    }

    fn x(&self, operand: usize) -> Tensor<'t> {
        self.trace.tensor(self.node.operands[operand])
    }

    fn y(&self, result: usize) -> Tensor<'t> {
        self.trace.tensor(self.node.results[result])
    }

    fn ty(&self, operand: usize) -> TensorType {
        self.trace.type_of(self.node.operands[operand])
    }

    /// Whether the cotangent of an operand is requested.
    fn wants(&self, operand: usize) -> bool {
        self.tape.is_active(self.node.operands[operand])
    }

    /// Zero cotangents for all operands.
    fn nothing(&self) -> Back<'t> {
        vec![None; self.node.operands.len()]
    }

    /// The cotangent that `rule` computes, if it is requested.
    fn if_wanted(&self, operand: usize, rule: impl FnOnce() -> Tensor<'t>) -> Option<Tensor<'t>> {
        self.wants(operand).then(rule)
    }

    /// Records a mistake: the operation has no derivative.
    fn none(&self, advice: &str) -> Back<'t> {
        let op = self.node.op.name();
        let message = format!("`{op}` has no gradient here: {advice}; or apply `stop_gradient`");
        self.trace.fail_at(self.node.origin, "grad", message, None);
        self.broken()
    }

    /// Error tensors for all operands, after a mistake in the backward pass.
    fn broken(&self) -> Back<'t> {
        self.node
            .operands
            .iter()
            .map(|&id| Some(self.trace.error_like(Some(self.trace.type_of(id)))))
            .collect()
    }
}
