//! Shape inference: the types of results from an operation and the types of its operands.
//!
//! Arguments may be arbitrary: dimensions out of range or duplicated, sizes that overflow, wrong
//! counts. Errors name the wrong number and what would work; nothing here panics.

mod collective;
mod contract;
mod control;
mod elementwise;
mod index;
mod reduce;
mod shape;
mod shard_map;

use halite_core::{DType, Error, Result, TensorType};

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
    let cx = Infer {
        op: op.name(),
        operands,
    };
    for operand in operands {
        cx.usable(operand)?;
    }
    let results = match op {
        Op::Constant(literal) => cx.constant(literal),
        Op::Iota { ty, dim } => cx.iota(ty, *dim),
        Op::Unary(unary) => cx.unary(*unary),
        Op::Binary(binary) => cx.binary(*binary),
        Op::Compare(_) => cx.compare(),
        Op::Select => cx.select(),
        Op::Clamp => cx.clamp(),
        Op::Convert(dtype) => cx.convert(*dtype),
        Op::BitcastConvert(dtype) => cx.bitcast_convert(*dtype),
        Op::ReducePrecision { exponent, mantissa } => cx.reduce_precision(*exponent, *mantissa),
        Op::Broadcast { dims, mapping } => cx.broadcast(dims, mapping),
        Op::Reshape { dims } => cx.reshape(dims),
        Op::Transpose { permutation } => cx.transpose(permutation),
        Op::Reverse { dims } => cx.reverse(dims),
        Op::Concatenate { dim } => cx.concatenate(*dim),
        Op::Slice {
            starts,
            limits,
            strides,
        } => cx.slice(starts, limits, strides),
        Op::DynamicSlice { sizes } => cx.dynamic_slice(sizes),
        Op::DynamicUpdateSlice => cx.dynamic_update_slice(),
        Op::Pad {
            low,
            high,
            interior,
        } => cx.pad(low, high, interior),
        Op::Gather(gather) => cx.gather(gather),
        Op::Scatter(scatter, combine) => cx.scatter(scatter, *combine),
        Op::Dot(dot, result) => cx.dot(dot, *result),
        Op::Convolution(convolution, result) => cx.convolution(convolution, *result),
        Op::Reduce { kind, dims } => cx.reduce(*kind, dims),
        Op::ArgReduce { kind: _, dim } => cx.arg_reduce(*dim),
        Op::ReduceWindow { kind, window } => cx.reduce_window(*kind, window),
        Op::SelectAndScatter { kind: _, window } => cx.select_and_scatter(window),
        Op::Sort { dim, .. } => cx.sort(*dim),
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
        Op::StopGradient => cx.stop_gradient(),
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
        Op::PropagationBarrier => cx.propagation_barrier(),
    }?;
    for result in &results {
        cx.usable(result)?;
    }
    Ok(results)
}

/// Inference for one operation: its name for errors, and the operands' types.
#[derive(Clone, Copy)]
struct Infer<'a> {
    op: &'static str,
    operands: &'a [&'a TensorType],
}

impl<'a> Infer<'a> {
    fn fail<T>(self, message: impl Into<String>) -> Result<T> {
        Err(Error::invalid(self.op, message))
    }

    /// The operands, if there are `N`.
    fn take<const N: usize>(self) -> Result<&'a [&'a TensorType; N]> {
        match self.operands.try_into() {
            Ok(operands) => Ok(operands),
            Err(_) => self.fail(format!(
                "takes {N} operand{}, got {}",
                if N == 1 { "" } else { "s" },
                self.list()
            )),
        }
    }

    /// The operands for a message: `2 (f32[3], f32[4])`.
    fn list(self) -> String {
        if self.operands.is_empty() {
            return "none".to_string();
        }
        let types: Vec<String> = self.operands.iter().map(|ty| ty.to_string()).collect();
        format!("{} ({})", types.len(), types.join(", "))
    }

    /// Checks that the size of the type does not overflow.
    fn usable(self, ty: &TensorType) -> Result<()> {
        if !ty.dtype().is_computed() {
            return self.fail(format!(
                "{ty} has elements of type {}, which halite does not compute with; programs from \
                 elsewhere can",
                ty.dtype()
            ));
        }
        if ty.checked_bytes().is_err() {
            return self.fail(format!("{ty} is larger than any address space"));
        }
        Ok(())
    }

    /// Checks that `dim` is a dimension of `ty`.
    fn in_rank(self, what: &str, dim: usize, ty: &TensorType) -> Result<()> {
        if dim < ty.rank() {
            return Ok(());
        }
        match ty.rank() {
            0 => self.fail(format!("{what} {dim} of {ty}, which has no dimensions")),
            1 => self.fail(format!("{what} {dim} of {ty}, whose only dimension is 0")),
            rank => self.fail(format!(
                "{what} {dim} of {ty}, whose dimensions are 0 to {}",
                rank - 1
            )),
        }
    }

    /// Checks that `dims` are dimensions of `ty` without duplicates.
    fn distinct(self, what: &str, dims: &[usize], ty: &TensorType) -> Result<()> {
        for (i, &dim) in dims.iter().enumerate() {
            self.in_rank(what, dim, ty)?;
            if dims[..i].contains(&dim) {
                return self.fail(format!("{what} {dim} of {ty} appears twice in {dims:?}"));
            }
        }
        Ok(())
    }

    /// Checks that `dims` are dimensions of `ty` in ascending order.
    fn ascending(self, what: &str, dims: &[usize], ty: &TensorType) -> Result<()> {
        self.distinct(what, dims, ty)?;
        match dims.is_sorted() {
            true => Ok(()),
            false => self.fail(format!(
                "{what}s {dims:?} of {ty} must be in ascending order"
            )),
        }
    }

    /// Checks that `list` has one entry per dimension of `ty`.
    fn per_dimension<T: std::fmt::Debug>(
        self,
        what: &str,
        list: &[T],
        ty: &TensorType,
    ) -> Result<()> {
        match list.len() == ty.rank() {
            true => Ok(()),
            false => self.fail(format!(
                "{} {what} {list:?} for {ty}, which has {} dimensions",
                list.len(),
                ty.rank()
            )),
        }
    }

    /// Checks that all of `list` are 1 or more.
    fn positive(self, what: &str, list: &[usize]) -> Result<()> {
        match list.iter().position(|&value| value == 0) {
            None => Ok(()),
            Some(at) => self.fail(format!(
                "{what} {list:?}: number {at} is 0, it must be 1 or more"
            )),
        }
    }

    /// Checks that `allowed` accepts the element type; `what` describes the accepted types.
    fn element(self, ty: &TensorType, allowed: fn(DType) -> bool, what: &str) -> Result<()> {
        match allowed(ty.dtype()) {
            true => Ok(()),
            false => self.fail(format!(
                "{ty} has elements of type {}; takes {what}{}",
                ty.dtype(),
                hint(ty.dtype(), allowed)
            )),
        }
    }

    /// A size that came out of `i128` arithmetic.
    fn size(self, what: impl FnOnce() -> String, size: i128) -> Result<usize> {
        match usize::try_from(size) {
            Ok(size) => Ok(size),
            Err(_) if size < 0 => self.fail(format!("{} would have size {size}", what())),
            Err(_) => self.fail(format!(
                "{} would have size {size}, larger than any address space",
                what()
            )),
        }
    }
}

fn hint(dtype: DType, allowed: fn(DType) -> bool) -> &'static str {
    match (dtype, allowed(DType::F32)) {
        (DType::Bool, _) if !allowed(DType::Bool) => " (convert first)",
        (dtype, true) if dtype.is_integer() => " (convert first)",
        _ => "",
    }
}

fn is_number(dtype: DType) -> bool {
    dtype.is_integer() || dtype.is_float()
}

fn is_bool_or_integer(dtype: DType) -> bool {
    dtype == DType::Bool || dtype.is_integer()
}
