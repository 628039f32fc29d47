//! Shape inference: the types of results from an operation and the types of its operands.
//!
//! Operations that StableHLO has follow its [`rules`]; what they do not say is here: operations of
//! our own, and what halite computes with. Arguments may be arbitrary: dimensions out of range or
//! duplicated, sizes that overflow, wrong counts. Errors name the wrong number and what would work;
//! nothing here panics.

mod collective;
mod control;
mod local;
mod shard_map;

use halite_core::{Error, Result, TensorType};
use halite_stablehlo::rules::{self, Check};

use crate::Op;

/// Infers the types of the results of `op` on operands of these types.
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_ir::{BinaryOp, Op, infer};
///
/// let (x, y) = (TensorType::new(DType::F32, [3, 4]), TensorType::new(DType::F32, [4, 3]));
/// let error = infer(&Op::Binary(BinaryOp::Add), &[&x, &y]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "add: f32[3, 4] and f32[4, 3] differ; elementwise operations need equal types (broadcast first)"
/// );
/// ```
///
/// # Errors
/// If the operands do not fit: with the operation, the types, and what would work.
pub fn infer(op: &Op, operands: &[&TensorType]) -> Result<Vec<TensorType>> {
    checked(op, operands).map_err(|message| Error::invalid(op.name(), message))
}

fn checked(op: &Op, operands: &[&TensorType]) -> Check<Vec<TensorType>> {
    operands.iter().try_for_each(|operand| usable(operand))?;
    let results = results(op, Infer { operands })?;
    results.iter().try_for_each(usable)?;
    Ok(results)
}

fn results(op: &Op, cx: Infer<'_>) -> Check<Vec<TensorType>> {
    let x = cx.operands;
    match op {
        Op::Constant(literal) => {
            let [] = rules::take(x)?;
            one(Ok(literal.ty().clone()))
        }
        Op::Iota { ty, dim } => one(rules::iota(x, ty, *dim)),
        Op::Unary(unary) => one(cx.unary(*unary)),
        Op::Binary(binary) => one(rules::binary(x, *binary)),
        Op::Compare(_) => one(rules::compare(x, None)),
        Op::Select => one(rules::select(x)),
        Op::Clamp => one(cx.clamp()),
        Op::Convert(dtype) => one(rules::convert(x, (*dtype).into())),
        Op::BitcastConvert(dtype) => one(cx.bitcast_convert(*dtype)),
        Op::ReducePrecision { exponent, mantissa } => {
            one(cx.reduce_precision(*exponent, *mantissa))
        }
        Op::Broadcast { dims, mapping } => one(rules::broadcast(x, dims, mapping)),
        Op::Reshape { dims } => one(rules::reshape(x, dims)),
        Op::Transpose { permutation } => one(rules::transpose(x, permutation)),
        Op::Reverse { dims } => one(rules::reverse(x, dims)),
        Op::Concatenate { dim } => one(rules::concatenate(x, *dim)),
        Op::Slice {
            starts,
            limits,
            strides,
        } => one(rules::slice(x, starts, limits, strides)),
        Op::DynamicSlice { sizes } => one(rules::dynamic_slice(x, sizes)),
        Op::DynamicUpdateSlice => one(rules::dynamic_update_slice(x)),
        Op::Pad {
            low,
            high,
            interior,
        } => one(rules::pad(x, low, high, interior)),
        Op::Gather(gather) => one(rules::gather(x, gather)),
        Op::Scatter(scatter, combine) => one(cx.scatter(scatter, *combine)),
        Op::Dot(dot, result) => one(cx.dot(dot, *result)),
        Op::Convolution(convolution, result) => one(cx.convolution(convolution, *result)),
        Op::Reduce { kind, dims } => one(cx.reduce(*kind, dims)),
        Op::ArgReduce { kind: _, dim } => cx.arg_reduce(*dim),
        Op::ReduceWindow { kind, window } => one(cx.reduce_window(*kind, window)),
        Op::SelectAndScatter { kind: _, window } => one(cx.select_and_scatter(window)),
        Op::Sort { dim, .. } => rules::sort(x, *dim),
        Op::Cholesky { lower: _ } => one(cx.solved(rules::cholesky(x))),
        Op::TriangularSolve(triangular) => {
            one(cx.solved(rules::triangular_solve(x, triangular.left_side)))
        }
        Op::While {
            carried,
            condition,
            body,
        } => cx.while_loop(*carried, condition, body),
        Op::Scan {
            carried,
            scanned,
            length,
            reverse: _,
            residuals,
            body,
        } => cx.scan(*carried, *scanned, *length, *residuals, body),
        Op::Checkpoint { body, remat: _ } => cx.checkpoint(body),
        Op::Case { branches } => cx.case(branches),
        Op::StopGradient | Op::PropagationBarrier => one(cx.identity()),
        Op::OptimizationBarrier => cx.optimization_barrier(),
        Op::CustomCall(call) => cx.custom_call(call),
        Op::AllReduce { kind, groups } => cx.all_reduce(*kind, groups),
        Op::AllGather { dim, groups } => cx.all_gather(*dim, groups),
        Op::ReduceScatter { kind, dim, groups } => cx.reduce_scatter(*kind, *dim, groups),
        Op::AllToAll {
            split,
            concat,
            groups,
        } => cx.all_to_all(*split, *concat, groups),
        Op::CollectivePermute { pairs, groups } => cx.collective_permute(pairs, groups),
        Op::PartitionId | Op::ReplicaId => cx.device_id(),
        Op::AxisIndex(axes) => cx.axis_index(axes),
        Op::ShardMap(map) => cx.shard_map(map),
        Op::ShardingConstraint(spec) => cx.sharding_constraint(spec),
        Op::Unsharded { dims } => cx.unsharded(dims),
    }
}

/// Inference for one operation, of the types of its operands.
#[derive(Clone, Copy)]
struct Infer<'a> {
    operands: &'a [&'a TensorType],
}

impl Infer<'_> {
    /// The operands for a message: `2 (f32[3], f32[4])`.
    fn listed(self) -> String {
        rules::listed(self.operands)
    }

    fn identity(self) -> Check<TensorType> {
        let [x] = rules::take(self.operands)?;
        Ok(x.clone())
    }
}

fn fail<T>(message: impl Into<String>) -> Check<T> {
    Err(message.into())
}

fn one(result: Check<TensorType>) -> Check<Vec<TensorType>> {
    Ok(vec![result?])
}

/// Checks that halite computes with the elements, and that the size does not overflow.
fn usable(ty: &TensorType) -> Check {
    if !ty.dtype().is_computed() {
        return fail(format!(
            "{ty} has elements of type {}, which halite does not compute with; programs from \
             elsewhere can",
            ty.dtype()
        ));
    }
    match ty.checked_bytes() {
        Ok(_) => Ok(()),
        Err(_) => fail(format!("{ty} is larger than any address space")),
    }
}
