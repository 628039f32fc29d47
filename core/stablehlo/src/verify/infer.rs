//! Types of results, by operation.

use crate::{ElementType, OpKind, Type};

use super::{
    collective::{self, AllToAll},
    contraction, control, elementwise, gather, linalg, reduce, shape, sharding,
    typed::{Check, Typed, scalar},
};

/// Checks operands, attributes and regions, and returns the types that the results must have.
pub(super) fn infer(op: &Typed<'_>) -> Check<Vec<Type>> {
    if !has_regions(op.kind()) {
        op.check_region_count(0)?;
    }
    match op.kind() {
        OpKind::Constant(value) => {
            let [] = op.tensors()?;
            Ok(vec![Type::Tensor(value.ty.clone())])
        }
        OpKind::Iota { dim } => shape::iota(op, *dim),

        OpKind::Unary(unary) => elementwise::unary(op, *unary),
        OpKind::Binary(binary) => elementwise::binary(op, *binary),
        OpKind::Compare { order, .. } => elementwise::compare(op, *order),
        OpKind::Select => elementwise::select(op),
        OpKind::Clamp => elementwise::clamp(op),
        OpKind::Convert => elementwise::convert(op),
        OpKind::BitcastConvert => elementwise::bitcast_convert(op),
        OpKind::ReducePrecision { exponent, .. } => elementwise::reduce_precision(op, *exponent),

        OpKind::BroadcastInDim { mapping } => shape::broadcast_in_dim(op, mapping),
        OpKind::Reshape => shape::reshape(op),
        OpKind::Transpose { permutation } => shape::transpose(op, permutation),
        OpKind::Reverse { dims } => shape::reverse(op, dims),
        OpKind::Concatenate { dim } => shape::concatenate(op, *dim),
        OpKind::Slice {
            starts,
            limits,
            strides,
        } => shape::slice(op, starts, limits, strides),
        OpKind::DynamicSlice { sizes } => shape::dynamic_slice(op, sizes),
        OpKind::DynamicUpdateSlice => shape::dynamic_update_slice(op),
        OpKind::Pad {
            low,
            high,
            interior,
        } => shape::pad(op, low, high, interior),
        OpKind::GetDimensionSize { dim } => shape::get_dimension_size(op, *dim),
        OpKind::Gather(attributes) => gather::gather(op, attributes),
        OpKind::Scatter(attributes) => gather::scatter(op, attributes),

        OpKind::DotGeneral(attributes) => contraction::dot_general(op, attributes),
        OpKind::Convolution(attributes) => contraction::convolution(op, attributes),

        OpKind::Reduce { dims } => reduce::reduce(op, dims),
        OpKind::ReduceWindow(windows) => reduce::reduce_window(op, windows),
        OpKind::SelectAndScatter(windows) => reduce::select_and_scatter(op, windows),
        OpKind::Sort { dim, .. } => reduce::sort(op, *dim),
        OpKind::Map { dims } => reduce::map(op, dims),

        OpKind::While => control::while_loop(op),
        OpKind::If => {
            op.check_region_count(2)?;
            control::branches(op, ElementType::Bool)
        }
        OpKind::Case => control::branches(op, ElementType::S32),
        OpKind::Call { function } => control::call(op, function),
        OpKind::Composite { decomposition, .. } => control::call(op, decomposition),
        OpKind::CustomCall(call) => control::custom_call(op, &call.functions),
        OpKind::OptimizationBarrier => control::identity(op),
        OpKind::Tuple => control::tuple(op),
        OpKind::GetTupleElement { index } => control::get_tuple_element(op, *index),
        OpKind::AfterAll => control::after_all(op),

        OpKind::Fft { transform, lengths } => linalg::fft(op, *transform, lengths),
        OpKind::Cholesky { .. } => linalg::cholesky(op),
        OpKind::TriangularSolve { left_side, .. } => linalg::triangular_solve(op, *left_side),
        OpKind::BatchNormTraining { feature, .. } => linalg::batch_norm_training(op, *feature),
        OpKind::BatchNormInference { feature, .. } => linalg::batch_norm_inference(op, *feature),
        OpKind::BatchNormGrad { feature, .. } => linalg::batch_norm_grad(op, *feature),
        OpKind::Rng { distribution } => linalg::rng(op, *distribution),
        OpKind::RngBitGenerator { algorithm } => linalg::rng_bit_generator(op, *algorithm),

        OpKind::AllReduce(collective) => collective::all_reduce(op, collective),
        OpKind::AllGather { dim, collective } => collective::all_gather(op, *dim, collective),
        OpKind::AllToAll {
            split,
            concat,
            parts,
            collective,
        } => {
            let attributes = AllToAll {
                split: *split,
                concat: *concat,
                parts: *parts,
            };
            collective::all_to_all(op, attributes, collective)
        }
        OpKind::ReduceScatter { dim, collective } => {
            collective::reduce_scatter(op, *dim, collective)
        }
        OpKind::CollectivePermute { pairs, channel } => {
            collective::collective_permute(op, pairs, *channel)
        }
        OpKind::CollectiveBroadcast(collective) => collective::collective_broadcast(op, collective),
        OpKind::PartitionId | OpKind::ReplicaId => {
            let [] = op.tensors()?;
            Ok(vec![scalar(ElementType::U32)])
        }

        OpKind::ShardingConstraint(constraint) => sharding::constraint(op, constraint),
        OpKind::PropagationBarrier(_) => sharding::operand(op).map(|ty| vec![ty]),
        OpKind::ManualComputation(manual) => sharding::manual_computation(op, manual),
    }
}

/// Returns whether operations of this kind have regions, whose number the rules check then.
fn has_regions(kind: &OpKind) -> bool {
    matches!(
        kind,
        OpKind::Scatter(_)
            | OpKind::Reduce { .. }
            | OpKind::ReduceWindow(_)
            | OpKind::SelectAndScatter(_)
            | OpKind::Sort { .. }
            | OpKind::Map { .. }
            | OpKind::While
            | OpKind::If
            | OpKind::Case
            | OpKind::AllReduce(_)
            | OpKind::ReduceScatter { .. }
            | OpKind::ManualComputation(_)
    )
}
