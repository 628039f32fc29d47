//! Convolutions of narrow operands with results of their type.

use halite_core::DType;

use super::{Rewriter, map_regions};
use crate::{Graph, Op};

/// Gives each convolution of two `bf16` or `f16` operands with a result in `f32` a result of their
/// type, which is then converted. The library still sums in `f32`, and rounds each sum once.
///
/// For XLA's CUDA plugin: cuDNN has no such convolution with a result in `f32`, and XLA converts
/// the operands to `f32` instead.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn narrow_convolutions(graph: Graph) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    for mut node in nodes {
        rewriter.map_operands(&mut node);
        map_regions(&mut node.op, narrow_convolutions);
        let [x, y] = node.operands[..] else {
            rewriter.keep(node);
            continue;
        };
        let narrow = rewriter.new.ty(x).dtype();
        let both =
            matches!(narrow, DType::Bf16 | DType::F16) && rewriter.new.ty(y).dtype() == narrow;
        match &mut node.op {
            Op::Convolution(_, result) if both && *result == DType::F32 => {
                *result = narrow;
                let wide = rewriter.result_type(&node);
                let new = &mut rewriter.new;
                let types = vec![wide.with_dtype(narrow)];
                let result = new.push_typed(node.op, node.operands, types, node.origin)[0];
                let convert = Op::Convert(DType::F32);
                let value = new.push_typed(convert, vec![result], vec![wide], node.origin)[0];
                rewriter.replace(node.results[0], value);
            }
            _ => rewriter.keep(node),
        }
    }
    rewriter.finish(outputs)
}
