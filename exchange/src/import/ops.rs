//! Operations that have a counterpart without a look at their surroundings.

use halite_core::Result;
use halite_ir::{Literal, Op, Triangular};
use halite_stablehlo::{
    BinaryOp, ComparisonOrder, Dense, DotAttributes, OpKind, Operation, Transposition, UnaryOp,
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
        OpKind::Unary(UnaryOp::Imag | UnaryOp::Real) | OpKind::Binary(BinaryOp::Complex) => {
            return Err(unsupported("complex numbers"));
        }
        OpKind::Unary(op) => Op::Unary(*op),
        OpKind::Binary(op) => Op::Binary(*op),
        OpKind::Compare { direction, order } => {
            let float = scope
                .graph
                .ty(scope.value(operation.operands[0]))
                .dtype()
                .is_float();
            if float && *order == Some(ComparisonOrder::TotalOrder) {
                return Err(unsupported("floats in total order, outside of a sort"));
            }
            Op::Compare(*direction)
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
        OpKind::Gather(attributes) => Op::Gather((**attributes).clone()),
        OpKind::DotGeneral(attributes) => {
            // The algorithm is a hint of the backend that the program was written for.
            let attributes = DotAttributes {
                algorithm: None,
                ..(**attributes).clone()
            };
            Op::Dot(attributes, result()?.dtype())
        }
        OpKind::Convolution(attributes) => {
            Op::Convolution((**attributes).clone(), result()?.dtype())
        }
        OpKind::Cholesky { lower } => Op::Cholesky { lower: *lower },
        OpKind::TriangularSolve {
            left_side,
            lower,
            unit_diagonal,
            transpose,
        } => Op::TriangularSolve(Triangular {
            left_side: *left_side,
            lower: *lower,
            unit_diagonal: *unit_diagonal,
            transposed: *transpose != Transposition::No,
        }),
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
