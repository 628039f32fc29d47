//! Operations that have a counterpart without a look at their surroundings.

use halite_core::{DType, Result};
use halite_ir::{Binary, Comparison, ConvDims, Convolution, Dot, Gather, Literal, Op, Unary};
use halite_stablehlo::{
    BinaryOp, ComparisonDirection, ComparisonOrder, ConvolutionAttributes, ConvolutionDims, Dense,
    DotAttributes, GatherAttributes, OpKind, Operation, UnaryOp,
};

use super::{Scope, array_type, unsupported};

/// The operation for `kind`; `None` if its results are its operands.
pub(super) fn convert(
    scope: &Scope<'_>,
    operation: &Operation,
    kind: &OpKind,
) -> Result<Option<Op>> {
    let result = || {
        let ty = scope.ty(operation.results[0]);
        array_type(ty)
            .ok_or_else(|| unsupported(format!("the result is {ty}, which has no arrays")))
    };
    Ok(Some(match kind {
        OpKind::Constant(dense) => Op::Constant(literal(dense)?),
        OpKind::Iota { dim } => Op::Iota {
            ty: result()?,
            dim: *dim,
        },
        OpKind::Unary(op) => Op::Unary(unary(*op)?),
        OpKind::Binary(op) => Op::Binary(binary(*op)?),
        OpKind::Compare { direction, order } => {
            let float = scope
                .graph
                .ty(scope.value(operation.operands[0]))
                .dtype()
                .is_float();
            if float && *order == Some(ComparisonOrder::TotalOrder) {
                return Err(unsupported("floats in total order, outside of a sort"));
            }
            Op::Compare(comparison(*direction))
        }
        OpKind::Select => Op::Select,
        OpKind::Clamp => Op::Clamp,
        OpKind::Convert => Op::Convert(result()?.dtype()),
        OpKind::BitcastConvert => Op::BitcastConvert(result()?.dtype()),
        OpKind::ReducePrecision { exponent, mantissa } => Op::ReducePrecision {
            exponent: *exponent,
            mantissa: *mantissa,
        },
        OpKind::BroadcastInDim { mapping } => Op::Broadcast {
            dims: result()?.dims().to_vec(),
            mapping: mapping.clone(),
        },
        OpKind::Reshape => Op::Reshape {
            dims: result()?.dims().to_vec(),
        },
        OpKind::Transpose { permutation } => Op::Transpose {
            permutation: permutation.clone(),
        },
        OpKind::Reverse { dims } => Op::Reverse { dims: dims.clone() },
        OpKind::Concatenate { dim } => Op::Concatenate { dim: *dim },
        OpKind::Slice {
            starts,
            limits,
            strides,
        } => Op::Slice {
            starts: starts.clone(),
            limits: limits.clone(),
            strides: strides.clone(),
        },
        OpKind::DynamicSlice { sizes } => Op::DynamicSlice {
            sizes: sizes.clone(),
        },
        OpKind::DynamicUpdateSlice => Op::DynamicUpdateSlice,
        OpKind::Pad {
            low,
            high,
            interior,
        } => Op::Pad {
            low: low.clone(),
            high: high.clone(),
            interior: interior.clone(),
        },
        OpKind::Gather(attributes) => Op::Gather(gather(attributes)),
        OpKind::DotGeneral(attributes) => Op::Dot(dot(attributes, result()?.dtype())),
        OpKind::Convolution(attributes) => {
            Op::Convolution(convolution(attributes, result()?.dtype()))
        }
        OpKind::GetDimensionSize { dim } => {
            let size = scope.graph.ty(scope.value(operation.operands[0])).dims()[*dim];
            let size = i32::try_from(size)
                .map_err(|_| unsupported(format!("dimension {dim} has {size} elements")))?;
            Op::Constant(Literal::splat(size, []))
        }
        OpKind::OptimizationBarrier if operation.operands.is_empty() => return Ok(None),
        OpKind::OptimizationBarrier => Op::OptimizationBarrier,
        OpKind::ShardingConstraint(_) | OpKind::PropagationBarrier(_) => return Ok(None),
        // How GSPMD annotates values.
        OpKind::CustomCall(call) if call.target == "Sharding" => return Ok(None),
        OpKind::CustomCall(call) => {
            return Err(unsupported(format!("custom call `{}`", call.target)));
        }
        OpKind::Map { .. }
        | OpKind::Fft { .. }
        | OpKind::Cholesky { .. }
        | OpKind::TriangularSolve { .. }
        | OpKind::BatchNormTraining { .. }
        | OpKind::BatchNormInference { .. }
        | OpKind::BatchNormGrad { .. }
        | OpKind::Rng { .. }
        | OpKind::RngBitGenerator { .. }
        | OpKind::Tuple
        | OpKind::GetTupleElement { .. }
        | OpKind::AfterAll
        | OpKind::AllReduce(_)
        | OpKind::AllGather { .. }
        | OpKind::AllToAll { .. }
        | OpKind::ReduceScatter { .. }
        | OpKind::CollectivePermute { .. }
        | OpKind::CollectiveBroadcast(_)
        | OpKind::PartitionId
        | OpKind::ReplicaId
        | OpKind::ManualComputation(_) => {
            return Err(unsupported("the operation cannot be traced"));
        }
        OpKind::Call { .. }
        | OpKind::Composite { .. }
        | OpKind::While
        | OpKind::Case
        | OpKind::If
        | OpKind::Reduce { .. }
        | OpKind::ReduceWindow(_)
        | OpKind::SelectAndScatter(_)
        | OpKind::Sort { .. }
        | OpKind::Scatter(_) => unreachable!("the importer has a function for {kind:?}"),
    }))
}

fn literal(dense: &Dense) -> Result<Literal> {
    let Some(ty) = dense.ty.tensor_type() else {
        return Err(unsupported(format!("{} has no arrays", dense.ty)));
    };
    if dense.is_splat() {
        Literal::from_element(&dense.bytes, ty)
    } else {
        Literal::from_bytes(&dense.bytes, ty)
    }
}

fn unary(op: UnaryOp) -> Result<Unary> {
    Ok(match op {
        UnaryOp::Abs => Unary::Abs,
        UnaryOp::Cbrt => Unary::Cbrt,
        UnaryOp::Ceil => Unary::Ceil,
        UnaryOp::CountLeadingZeros => Unary::CountLeadingZeros,
        UnaryOp::Cosine => Unary::Cosine,
        UnaryOp::Exponential => Unary::Exponential,
        UnaryOp::ExponentialMinusOne => Unary::ExponentialMinusOne,
        UnaryOp::Floor => Unary::Floor,
        UnaryOp::IsFinite => Unary::IsFinite,
        UnaryOp::Log => Unary::Log,
        UnaryOp::LogPlusOne => Unary::LogPlusOne,
        UnaryOp::Logistic => Unary::Logistic,
        UnaryOp::Negate => Unary::Negate,
        UnaryOp::Not => Unary::Not,
        UnaryOp::Popcnt => Unary::PopulationCount,
        UnaryOp::RoundNearestAfz => Unary::RoundNearestAfz,
        UnaryOp::RoundNearestEven => Unary::RoundNearestEven,
        UnaryOp::Rsqrt => Unary::Rsqrt,
        UnaryOp::Sign => Unary::Sign,
        UnaryOp::Sine => Unary::Sine,
        UnaryOp::Sqrt => Unary::Sqrt,
        UnaryOp::Tan => Unary::Tan,
        UnaryOp::Tanh => Unary::Tanh,
        UnaryOp::Imag | UnaryOp::Real => return Err(unsupported("complex numbers")),
    })
}

fn binary(op: BinaryOp) -> Result<Binary> {
    Ok(match op {
        BinaryOp::Add => Binary::Add,
        BinaryOp::And => Binary::And,
        BinaryOp::Atan2 => Binary::Atan2,
        BinaryOp::Divide => Binary::Divide,
        BinaryOp::Maximum => Binary::Maximum,
        BinaryOp::Minimum => Binary::Minimum,
        BinaryOp::Multiply => Binary::Multiply,
        BinaryOp::Or => Binary::Or,
        BinaryOp::Power => Binary::Power,
        BinaryOp::Remainder => Binary::Remainder,
        BinaryOp::ShiftLeft => Binary::ShiftLeft,
        BinaryOp::ShiftRightArithmetic => Binary::ShiftRightArithmetic,
        BinaryOp::ShiftRightLogical => Binary::ShiftRightLogical,
        BinaryOp::Subtract => Binary::Subtract,
        BinaryOp::Xor => Binary::Xor,
        BinaryOp::Complex => return Err(unsupported("complex numbers")),
    })
}

fn comparison(direction: ComparisonDirection) -> Comparison {
    match direction {
        ComparisonDirection::Eq => Comparison::Eq,
        ComparisonDirection::Ne => Comparison::Ne,
        ComparisonDirection::Ge => Comparison::Ge,
        ComparisonDirection::Gt => Comparison::Gt,
        ComparisonDirection::Le => Comparison::Le,
        ComparisonDirection::Lt => Comparison::Lt,
    }
}

fn gather(attributes: &GatherAttributes) -> Gather {
    Gather {
        offset_dims: attributes.offset_dims.clone(),
        collapsed_slice_dims: attributes.collapsed_slice_dims.clone(),
        operand_batching_dims: attributes.operand_batching_dims.clone(),
        indices_batching_dims: attributes.start_indices_batching_dims.clone(),
        start_index_map: attributes.start_index_map.clone(),
        index_vector_dim: attributes.index_vector_dim,
        slice_sizes: attributes.slice_sizes.clone(),
    }
}

fn dot(attributes: &DotAttributes, result: DType) -> Dot {
    Dot {
        left_batch: attributes.lhs_batching.clone(),
        right_batch: attributes.rhs_batching.clone(),
        left_contract: attributes.lhs_contracting.clone(),
        right_contract: attributes.rhs_contracting.clone(),
        result,
    }
}

fn convolution(attributes: &ConvolutionAttributes, result: DType) -> Convolution {
    let dims = |dims: &ConvolutionDims| ConvDims {
        batch: dims.batch,
        feature: dims.feature,
        spatial: dims.spatial.clone(),
    };
    Convolution {
        input: dims(&attributes.input),
        kernel: dims(&attributes.kernel),
        output: dims(&attributes.output),
        strides: attributes.strides.clone(),
        padding: attributes.padding.clone(),
        input_dilation: attributes.input_dilation.clone(),
        kernel_dilation: attributes.kernel_dilation.clone(),
        reversal: attributes.reversal.clone(),
        feature_groups: attributes.feature_groups,
        batch_groups: attributes.batch_groups,
        result,
    }
}
