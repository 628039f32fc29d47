//! Algebraic simplification: operations that are identities, and pairs that are one operation. Only
//! simplifications that are exact in every bit.

use halite_core::{DType, TensorType};

use super::{Rewriter, map_regions};
use crate::{BinaryOp, Graph, Literal, Node, Op, Value};

/// Drops operations whose result is their operand: `x * 1`, `x - 0`, a reshape to the same
/// dimensions, a conversion to the same type, a slice of everything. Merges two reshapes,
/// transposes or broadcasts into one.
///
/// `x + 0` of floats stays because it makes `-0` positive.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn identities(graph: Graph) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    // For each value of the graph, the node that computes it.
    let mut makers: Vec<Option<usize>> = vec![None; rewriter.new.value_count()];
    for mut node in nodes {
        rewriter.map_operands(&mut node);
        if let Some(same) = unchanged(&rewriter.new, &makers, &node) {
            rewriter.replace(node.results[0], same);
            continue;
        }
        map_regions(&mut node.op, identities);
        if let Some((op, operands)) = merged(&rewriter.new, &makers, &node) {
            node.op = op;
            node.operands = operands;
        }
        if let Some(&same) =
            (node.operands.first()).filter(|&&operand| noop(&node.op, rewriter.new.ty(operand)))
        {
            rewriter.replace(node.results[0], same);
            continue;
        }
        for result in &node.results {
            makers[result.index()] = Some(rewriter.new.nodes().len());
        }
        rewriter.keep(node);
    }
    rewriter.finish(outputs)
}

/// The value of the new graph that equals the node's only result.
fn unchanged(new: &Graph, makers: &[Option<usize>], node: &Node) -> Option<Value> {
    let Op::Binary(binary) = node.op else {
        return None;
    };
    let [left, right] = node.operands[..] else {
        return None;
    };
    let is =
        |value, number| splat(new, makers, value).is_some_and(|literal| is_number(literal, number));
    match binary {
        BinaryOp::Multiply if is(right, 1) => Some(left),
        BinaryOp::Multiply if is(left, 1) => Some(right),
        BinaryOp::Divide if is(right, 1) => Some(left),
        BinaryOp::Subtract if is(right, 0) => Some(left),
        BinaryOp::Add if !new.ty(left).dtype().is_float() && is(right, 0) => Some(left),
        BinaryOp::Add if !new.ty(left).dtype().is_float() && is(left, 0) => Some(right),
        _ => None,
    }
}

/// Whether the result is the first operand, of type `x`.
fn noop(op: &Op, x: &TensorType) -> bool {
    match op {
        Op::Convert(dtype) | Op::BitcastConvert(dtype) => *dtype == x.dtype(),
        Op::Reshape { dims } => dims == x.dims(),
        Op::Broadcast { dims, mapping } => {
            dims == x.dims() && mapping.iter().copied().eq(0..x.rank())
        }
        Op::Transpose { permutation } => permutation.iter().copied().eq(0..x.rank()),
        Op::Reverse { dims } => dims.iter().all(|&dim| x.dims()[dim] <= 1),
        Op::Slice {
            starts,
            limits,
            strides,
        } => {
            limits == x.dims()
                && starts.iter().all(|&start| start == 0)
                && strides.iter().all(|&stride| stride == 1)
        }
        Op::Pad {
            low,
            high,
            interior,
        } => {
            low.iter().chain(high).all(|&amount| amount == 0)
                && interior
                    .iter()
                    .zip(x.dims())
                    .all(|(&n, &size)| n == 0 || size <= 1)
        }
        Op::Reduce { kind: _, dims } => dims.is_empty(),
        Op::StopGradient => true,
        _ => false,
    }
}

/// The operation merged with the one that computes its operand.
fn merged(new: &Graph, makers: &[Option<usize>], node: &Node) -> Option<(Op, Vec<Value>)> {
    let maker = &new.nodes()[makers[node.operands.first()?.index()]?];
    let op = match (&node.op, &maker.op) {
        (Op::Reshape { dims }, Op::Reshape { .. }) => Op::Reshape { dims: dims.clone() },
        (
            Op::Transpose {
                permutation: second,
            },
            Op::Transpose { permutation: first },
        ) => Op::Transpose {
            permutation: second.iter().map(|&dim| first[dim]).collect(),
        },
        (
            Op::Broadcast {
                dims,
                mapping: second,
            },
            Op::Broadcast {
                dims: _,
                mapping: first,
            },
        ) => Op::Broadcast {
            dims: dims.clone(),
            mapping: first.iter().map(|&dim| second[dim]).collect(),
        },
        _ => return None,
    };
    Some((op, maker.operands.clone()))
}

/// The literal that equals all elements of `value`.
fn splat<'a>(new: &'a Graph, makers: &[Option<usize>], value: Value) -> Option<&'a Literal> {
    let maker = &new.nodes()[makers[value.index()]?];
    match &maker.op {
        Op::Constant(literal) => literal.as_splat().map(|_| literal),
        Op::Broadcast { .. } | Op::Reshape { .. } => splat(new, makers, maker.operands[0]),
        _ => None,
    }
}

/// Whether the elements equal `number`: 0 (not -0) or 1.
fn is_number(literal: &Literal, number: u8) -> bool {
    let Some(bytes) = literal.as_splat() else {
        return false;
    };
    let one = number == 1;
    match literal.ty().dtype() {
        DType::Bool
        | DType::S8
        | DType::S16
        | DType::S32
        | DType::S64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => {
            let mut expected = [0; 8];
            expected[if cfg!(target_endian = "little") {
                0
            } else {
                bytes.len() - 1
            }] = number;
            bytes == &expected[..bytes.len()]
        }
        DType::F16 => {
            bytes
                == half::f16::from_f32(if one { 1.0 } else { 0.0 })
                    .to_bits()
                    .to_ne_bytes()
        }
        DType::Bf16 => {
            bytes
                == half::bf16::from_f32(if one { 1.0 } else { 0.0 })
                    .to_bits()
                    .to_ne_bytes()
        }
        DType::F32 => bytes == (if one { 1.0f32 } else { 0.0 }).to_ne_bytes(),
        DType::F64 => bytes == (if one { 1.0f64 } else { 0.0 }).to_ne_bytes(),
        _ => false,
    }
}
