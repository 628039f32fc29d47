//! Reverse-mode differentiation: [`grad()`] appends the gradient of a loss to the trace that
//! computed it.
//!
//! There is one rule per operation, written in tensor operators, so the gradient is an ordinary
//! part of the program and has a gradient itself. An operation without a derivative that is reached
//! is a mistake, never a silent zero; zero is only what is zero almost everywhere, such as the
//! gradient of `floor`.
//!
//! Nothing here touches an operation that the loss does not depend on, or through which nothing
//! wanted flows.

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
/// integers on the way, is a mistake, and so is a leaf of integers. Where zeros are meant, [`vjp`]
/// gives them.
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
            "nothing flows back from it"
        };
        let error = loss.mistake("grad", || {
            format!("the loss is {ty}; it is to be a scalar of floats: {advice}")
        });
        return wrt.rebuild(
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
             gives zeros for it",
            listed(integers)
        );
        cx.fail("grad", message, None);
        return wrt.rebuild(
            leaves
                .into_iter()
                .map(|leaf| cx.error_like(Some(leaf.ty()))),
        );
    }
    let Ok(gradients) = flow_back(cx, &[loss], &[loss.ones_like()], &leaves, location) else {
        return wrt.rebuild(
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
            "the loss{made} depends on none of {}: every path to it is cut, as by `stop_gradient`, `argmax`, a \
             comparison or a conversion to integers; nothing would be learned",
            listed(names().map(|(name, _)| name).collect())
        );
        cx.fail("grad", message, None);
        return wrt.rebuild(
            leaves
                .into_iter()
                .map(|leaf| cx.error_like(Some(leaf.ty()))),
        );
    }
    wrt.rebuild(or_zeros(cx, &leaves, gradients, &is_used, location))
}

/// The first few of many names.
fn listed(names: Vec<String>) -> String {
    const MOST: usize = 4;
    match names.len().saturating_sub(MOST) {
        0 => names.join(", "),
        more => format!("{}, and {more} more", names[..MOST].join(", ")),
    }
}

/// Whether the outputs depend on each leaf. Zero is the gradient of a leaf that is used through
/// `floor` alone; one that is not used has none.
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
                // A tensor of its own: other code may use the same zero.
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
/// what flows back into `wrt` when `cotangents` flow back into `outputs`. Cotangents have the types
/// of the outputs.
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
        return wrt.rebuild(leaves);
    };
    let location = Location::caller();
    wrt.rebuild(
        match flow_back(trace, outputs, cotangents, &leaves, location) {
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

/// What flows back into `leaves`, after a check of what is given; `None` is zero.
fn flow_back<'t>(
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
            "{} outputs and {} cotangents; there is to be one for each",
            outputs.len(),
            cotangents.len()
        ));
    }
    for (output, cotangent) in outputs.iter().zip(cotangents) {
        if !output.is_error() && !cotangent.is_error() && output.ty() != cotangent.ty() {
            return fail(format!(
                "the output is {}, its cotangent {}; they are to be the same",
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

/// What flows back into `wrt` when each seed's second flows back into its first. `None` is zero.
pub(crate) fn pull_back<'t>(
    trace: &'t Trace,
    seeds: &[(Tensor<'t>, Tensor<'t>)],
    wrt: &[Tensor<'t>],
) -> Vec<Option<Tensor<'t>>> {
    pull_back_through(trace, &trace.visible_nodes(), seeds, wrt)
}

/// As [`pull_back`], through no other operations than these.
fn pull_back_through<'t>(
    trace: &'t Trace,
    nodes: &[Arc<Recorded>],
    seeds: &[(Tensor<'t>, Tensor<'t>)],
    wrt: &[Tensor<'t>],
) -> Vec<Option<Tensor<'t>>> {
    let tape = Tape::new(trace, nodes, wrt);
    let mut flowing: HashMap<Id, Tensor<'t>> = HashMap::new();
    for &(output, cotangent) in seeds {
        if tape.is_wanted(output.id) {
            add_into(&mut flowing, output.id, cotangent);
        }
    }
    for node in nodes.iter().rev() {
        let cotangents: Vec<Option<Tensor<'t>>> = node
            .results
            .iter()
            .map(|id| flowing.get(id).copied())
            .collect();
        if cotangents.iter().all(Option::is_none)
            || !node.operands.iter().any(|&id| tape.is_wanted(id))
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
            "a rule answers for every operand of {:?}",
            node.op
        );
        for (&id, cotangent) in node.operands.iter().zip(back) {
            if let Some(cotangent) = cotangent.filter(|_| tape.is_wanted(id)) {
                debug_assert!(
                    cotangent.is_error() || cotangent.ty() == trace.type_of(id),
                    "the cotangent of {} by {:?} is {}",
                    trace.type_of(id),
                    node.op,
                    cotangent.ty()
                );
                add_into(&mut flowing, id, cotangent);
            }
        }
    }
    wrt.iter()
        .map(|tensor| flowing.get(&tensor.id).copied())
        .collect()
}

#[track_caller]
fn add_into<'t>(flowing: &mut HashMap<Id, Tensor<'t>>, id: Id, cotangent: Tensor<'t>) {
    let sum = match flowing.get(&id) {
        Some(&so_far) => so_far + cotangent,
        None => cotangent,
    };
    flowing.insert(id, sum);
}

/// What a backward pass knows of the forward pass.
struct Tape<'a> {
    nodes: &'a [Arc<Recorded>],
    /// By tensor: whether something flows from it into what is wanted.
    wanted: Vec<bool>,
    /// By tensor: the node that made it.
    made_by: HashMap<Id, usize>,
}

impl<'a> Tape<'a> {
    fn new(trace: &Trace, nodes: &'a [Arc<Recorded>], wrt: &[Tensor<'_>]) -> Self {
        let mut wanted = vec![false; trace.tensor_count()];
        for tensor in wrt {
            wanted[tensor.id as usize] = tensor.dtype().is_float();
        }
        let mut made_by = HashMap::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let flows = !is_flat(&node.op) && node.operands.iter().any(|&id| wanted[id as usize]);
            for &id in &node.results {
                made_by.insert(id, index);
                wanted[id as usize] |= flows && trace.type_of(id).dtype().is_float();
            }
        }
        Tape {
            nodes,
            wanted,
            made_by,
        }
    }

    fn is_wanted(&self, id: Id) -> bool {
        // Tensors that the backward pass makes are not on the tape.
        self.wanted.get(id as usize).copied().unwrap_or(false)
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

/// The derivative is zero wherever there is one.
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

/// One operation, with what flows back into its results.
struct Step<'a, 't> {
    trace: &'t Trace,
    tape: &'a Tape<'a>,
    node: &'a Recorded,
    /// By result; `None` is zero. Not all are.
    cotangents: Vec<Option<Tensor<'t>>>,
}

/// What flows back into each operand; `None` is zero.
type Back<'t> = Vec<Option<Tensor<'t>>>;

impl<'t> Step<'_, 't> {
    /// One rule per operation.
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
            Op::BitcastConvert(_) => self.none("the bits of a number have no derivative; use `convert` to go on by value"),
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
                "a loop whose turns are counted only when it runs keeps nothing to go back with; use `scan` or `repeat`, whose \
                 turns are counted, or take the gradient inside its body",
            ),
            Op::Scan { carried, scanned, length, reverse, body } => {
                self.scan(ScanSpec { carried: *carried, scanned: *scanned, length: *length, reverse: *reverse }, body)
            }
            Op::Checkpoint { body, remat } => self.checkpoint(body, *remat),
            Op::Case { branches } => self.case(branches),
            Op::StopGradient => self.nothing(),
            Op::OptimizationBarrier => self.optimization_barrier(),
            Op::CustomCall(call) => self.none(&format!(
                "nothing is known of `{}`; give it to `vjp` in two parts, with its own backward call between them",
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

    /// What flows back into the one result.
    fn g(&self) -> Tensor<'t> {
        self.cotangents[0]
            .expect("something flows back into the result of an operation that is pulled through")
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

    /// Whether it matters what flows back into an operand.
    fn wants(&self, operand: usize) -> bool {
        self.tape.is_wanted(self.node.operands[operand])
    }

    /// Zero for every operand.
    fn nothing(&self) -> Back<'t> {
        vec![None; self.node.operands.len()]
    }

    /// What `rule` says if it matters.
    fn if_wanted(&self, operand: usize, rule: impl FnOnce() -> Tensor<'t>) -> Option<Tensor<'t>> {
        self.wants(operand).then(rule)
    }

    /// The mistake that gradients are taken through an operation without a derivative.
    fn none(&self, advice: &str) -> Back<'t> {
        let op = self.node.op.name();
        let message =
            format!("`{op}` has no gradient here: {advice}; or cut it off with `stop_gradient`");
        self.trace.fail_at(self.node.origin, "grad", message, None);
        self.broken()
    }

    /// Error tensors for all operands: something is wrong on the way back.
    fn broken(&self) -> Back<'t> {
        self.node
            .operands
            .iter()
            .map(|&id| Some(self.trace.error_like(Some(self.trace.type_of(id)))))
            .collect()
    }
}
