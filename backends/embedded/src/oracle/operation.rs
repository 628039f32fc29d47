//! Operations without regions: from their kind to the function that computes them.

use halite_core::Result;
use halite_stablehlo::{OpKind, RankedType, Type};

use super::{
    binary, dot,
    fft::fft,
    gather::gather,
    linalg::{TriangularSolve, cholesky},
    norm, random, shape,
    tensor::{Tensor, Value, Wide, tensor_type, unexpected},
    unary,
};

/// Operands that are tensors.
pub(super) fn tensors(operands: &[Value]) -> Result<Vec<&Tensor>> {
    operands.iter().map(Value::tensor).collect()
}

/// Operands of an operation that has `N` of them.
pub(super) fn exactly<'v, const N: usize>(tensors: &[&'v Tensor]) -> Result<[&'v Tensor; N]> {
    tensors.try_into().map_err(|_| {
        unexpected(
            &format!("{N} operands"),
            &format!("{} operands", tensors.len()),
        )
    })
}

/// Types of results, all of them tensors.
pub(super) fn tensor_types<'t>(types: &[&'t Type]) -> Result<Vec<&'t RankedType>> {
    types.iter().map(|ty| tensor_type(ty)).collect()
}

/// Computes an operation on tensors. `None` if it is of another family.
pub(crate) fn compute(
    kind: &OpKind,
    operands: &[Value],
    types: &[&Type],
) -> Result<Option<Vec<Value>>> {
    let several = |results: Vec<Tensor>| Ok(Some(results.into_iter().map(Value::Tensor).collect()));
    match kind {
        OpKind::BatchNormTraining { epsilon, feature } => {
            let types = three(&tensor_types(types)?)?;
            let x = exactly(&tensors(operands)?)?;
            several(norm::training(x, *epsilon, *feature, types)?.into())
        }
        OpKind::BatchNormGrad { epsilon, feature } => {
            let types = three(&tensor_types(types)?)?;
            let x = exactly(&tensors(operands)?)?;
            several(norm::gradient(x, *epsilon, *feature, types)?.into())
        }
        OpKind::RngBitGenerator { algorithm } => {
            let types = tensor_types(types)?;
            let [state] = exactly(&tensors(operands)?)?;
            let [state_type, ty] = types[..] else {
                return Err(unexpected("2 results", &format!("{} results", types.len())));
            };
            several(random::bit_generator(state, *algorithm, [state_type, ty])?.into())
        }
        _ => {
            let [Type::Tensor(ty)] = types else {
                return Ok(None);
            };
            let Ok(tensors) = tensors(operands) else {
                return Ok(None);
            };
            Ok(compute_one(kind, &tensors, ty)?.map(|result| vec![Value::Tensor(result)]))
        }
    }
}

fn three<'t>(types: &[&'t RankedType]) -> Result<[&'t RankedType; 3]> {
    types
        .try_into()
        .map_err(|_| unexpected("3 results", &format!("{} results", types.len())))
}

/// Computes an operation on tensors with one result. `None` if it is of another family.
fn compute_one(kind: &OpKind, x: &[&Tensor], ty: &RankedType) -> Result<Option<Tensor>> {
    Ok(Some(match (kind, x) {
        (OpKind::Constant(dense), []) => Tensor::constant(dense)?,
        (OpKind::Iota { dim }, []) => shape::iota(*dim, ty)?,
        (OpKind::Unary(op), [x]) => unary::unary(*op, x, ty)?,
        (OpKind::Binary(op), [x, y]) => binary::binary(*op, x, y, ty)?,
        (OpKind::Compare { direction, order }, &[x, y]) => {
            binary::compare(*direction, *order, [x, y], ty)?
        }
        (OpKind::Select, [predicate, x, y]) => binary::select(predicate, x, y)?,
        (OpKind::Clamp, [low, x, high]) => binary::clamp(low, x, high, ty)?,
        (OpKind::Convert, [x]) => unary::convert(x, ty)?,
        (OpKind::BitcastConvert, [x]) => unary::bitcast_convert(x, ty)?,
        (OpKind::ReducePrecision { exponent, mantissa }, [x]) => {
            unary::reduce_precision(x, *exponent, *mantissa, ty)?
        }
        (OpKind::BroadcastInDim { mapping }, [x]) => shape::broadcast_in_dim(x, mapping, ty)?,
        (OpKind::Reshape, [x]) => x.reshape(&ty.dims),
        (OpKind::Transpose { permutation }, [x]) => shape::transpose(x, permutation)?,
        (OpKind::Reverse { dims }, [x]) => shape::reverse(x, dims)?,
        (OpKind::Concatenate { dim }, x) => shape::concatenate(x, *dim, ty)?,
        (
            OpKind::Slice {
                starts, strides, ..
            },
            [x],
        ) => shape::slice(x, starts, strides, ty)?,
        (OpKind::DynamicSlice { .. }, [x, starts @ ..]) => shape::dynamic_slice(x, starts, ty)?,
        (OpKind::DynamicUpdateSlice, [x, update, starts @ ..]) => {
            shape::dynamic_update_slice(x, update, starts)?
        }
        (OpKind::Pad { low, interior, .. }, [x, value]) => shape::pad(x, value, low, interior, ty)?,
        (OpKind::Gather(attributes), [x, starts]) => gather(x, starts, attributes, ty)?,
        (OpKind::DotGeneral(attributes), [x, y]) => dot::dot_general(x, y, attributes, ty)?,
        (OpKind::Convolution(attributes), [x, y]) => dot::convolution(x, y, attributes, ty)?,
        (OpKind::Fft { transform, lengths }, [x]) => fft(x, *transform, lengths, ty)?,
        (OpKind::Cholesky { lower }, [x]) => cholesky(x, *lower, ty)?,
        (
            OpKind::TriangularSolve {
                left_side,
                lower,
                unit_diagonal,
                transpose,
            },
            [a, b],
        ) => {
            let solver = TriangularSolve {
                left_side: *left_side,
                lower: *lower,
                unit_diagonal: *unit_diagonal,
                transpose: *transpose,
            };
            solver.solve(a, b, ty)?
        }
        (OpKind::BatchNormInference { epsilon, feature }, x) => {
            norm::inference(exactly(x)?, *epsilon, *feature, ty)?
        }
        (OpKind::GetDimensionSize { dim }, [x]) => {
            Tensor::encode(ty, Wide::Int(vec![x.ty.dims[*dim] as i128]))?
        }
        _ => return Ok(None),
    }))
}
