//! Products of matrices in place of dots of tensors of higher rank.

use halite_core::TensorType;

use super::{Rewriter, map_regions};
use crate::{DotAttributes, Graph, Node, Op, Value};

/// Rewrites each dot without batch dimensions as a product of two matrices, between reshapes that
/// move no elements. A dot is left unchanged if the contracted dimensions of an operand are neither
/// its first nor its last ones, or if an operand is a vector or is contracted over all dimensions.
///
/// XLA's CPU compiler transposes the operands of a dot with several contracting dimensions in a
/// loop of scalar loads; a matrix is passed to the kernel with a flag instead.
///
/// Only for programs of one device: a reshape that merges a sharded dimension with another may make
/// a partitioner move elements between devices.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn matrix_products(graph: Graph) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    for mut node in nodes {
        map_regions(&mut node.op, matrix_products);
        rewriter.map_operands(&mut node);
        let Some([left, right]) = matrices(&rewriter.new, &node) else {
            rewriter.keep(node);
            continue;
        };
        let ty = rewriter.result_type(&node);
        let graph = &mut rewriter.new;
        let reshape = |graph: &mut Graph, x: Value, dims: &[usize]| {
            let (op, ty) = (
                Op::Reshape { dims: dims.into() },
                graph.ty(x).with_dims(dims),
            );
            graph.push_typed(op, vec![x], vec![ty], node.origin)[0]
        };
        let operands = vec![
            reshape(graph, node.operands[0], &left.dims()),
            reshape(graph, node.operands[1], &right.dims()),
        ];
        let dot = Op::Dot(
            DotAttributes {
                lhs_batching: vec![],
                rhs_batching: vec![],
                lhs_contracting: vec![left.contract()],
                rhs_contracting: vec![right.contract()],
                ..DotAttributes::default()
            },
            ty.dtype(),
        );
        let types = vec![ty.with_dims([left.free, right.free])];
        let product = graph.push_typed(dot, operands, types, node.origin)[0];
        let result = reshape(graph, product, ty.dims());
        rewriter.replace(node.results[0], result);
    }
    rewriter.finish(outputs)
}

/// An operand of a dot as a matrix.
struct Matrix {
    /// True if the contracted dimensions are the first ones.
    contracts_first: bool,
    /// Number of elements in the contracted dimensions.
    contracted: usize,
    /// Number of elements in the other dimensions.
    free: usize,
}

/// Returns the operands of a dot as matrices; `None` if they are matrices already, or have no such
/// form.
fn matrices(graph: &Graph, node: &Node) -> Option<[Matrix; 2]> {
    let Op::Dot(dot, ..) = &node.op else {
        return None;
    };
    let [left, right] = [0, 1].map(|operand| graph.ty(node.operands[operand]));
    if !dot.lhs_batching.is_empty() || (left.rank(), right.rank()) == (2, 2) {
        return None;
    }
    // The order of summation is free, but the same for both operands.
    let contracted = dot.lhs_contracting.iter().zip(&dot.rhs_contracting);
    let mut pairs: Vec<(usize, usize)> = contracted.map(|(&left, &right)| (left, right)).collect();
    pairs.sort_unstable();
    let (lhs_contracting, rhs_contracting): (Vec<usize>, Vec<usize>) = pairs.into_iter().unzip();
    Some([
        Matrix::new(left, &lhs_contracting)?,
        Matrix::new(right, &rhs_contracting)?,
    ])
}

impl Matrix {
    /// Returns `None` if the contracted dimensions are not the first or the last ones, in order, or
    /// are all of them.
    fn new(ty: &TensorType, contract: &[usize]) -> Option<Self> {
        let (dims, count) = (ty.dims(), contract.len());
        let contracts = |start: usize| contract.iter().copied().eq(start..start + count);
        if count == 0 || count == dims.len() || !(contracts(0) || contracts(dims.len() - count)) {
            return None;
        }
        let contracts_first = contracts(0);
        let (first, last) = match contracts_first {
            true => dims.split_at(count),
            false => dims.split_at(dims.len() - count),
        };
        let [first, last] = [first, last].map(|dims| dims.iter().product());
        Some(Matrix {
            contracts_first,
            contracted: if contracts_first { first } else { last },
            free: if contracts_first { last } else { first },
        })
    }

    fn dims(&self) -> [usize; 2] {
        match self.contracts_first {
            true => [self.contracted, self.free],
            false => [self.free, self.contracted],
        }
    }

    /// Returns the contracted dimension.
    fn contract(&self) -> usize {
        usize::from(!self.contracts_first)
    }
}
