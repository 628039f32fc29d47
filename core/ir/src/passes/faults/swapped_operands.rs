//! Convolutions of small dilated inputs. XLA's CPU compiler swaps an input with a kernel of more
//! elements, and ends the process where it makes a wrong window for a dilated input.

use crate::{ConvolutionAttributes, Graph, Literal, Node, Op, passes::faults::rewritten};

/// Puts the zeros of each dilated input with fewer places than its kernel into a pad before the
/// convolution.
pub(super) fn without(graph: Graph) -> Graph {
    rewritten(graph, &|graph, node| {
        pad_input(graph, node);
        None
    })
}

fn pad_input(graph: &mut Graph, node: &mut Node) {
    let Op::Convolution(conv, ..) = &mut node.op else {
        return;
    };
    let [input, kernel] = [0, 1].map(|operand| graph.ty(node.operands[operand]).clone());
    if !is_swapped(conv, input.dims(), kernel.dims()) {
        return;
    }
    let (mut interior, mut dims) = (vec![0; input.rank()], input.dims().to_vec());
    for (dilation, &dim) in conv.input_dilation.iter_mut().zip(&conv.input.spatial) {
        interior[dim] = *dilation - 1;
        dims[dim] = (dims[dim].max(1) - 1) * *dilation + dims[dim].min(1);
        *dilation = 1;
    }
    let scalar = input.with_dims([]);
    let zero = Op::Constant(Literal::zero(&scalar));
    let zero = graph.push_typed(zero, vec![], vec![scalar], node.origin)[0];
    let pad = Op::Pad {
        low: vec![0; input.rank()],
        high: vec![0; input.rank()],
        interior,
    };
    let padded = vec![input.with_dims(dims)];
    let operands = vec![node.operands[0], zero];
    let value = graph.push_typed(pad, operands, padded.clone(), node.origin)[0];
    // Without the barrier, the compiler makes the pad a dilation again.
    let barrier = Op::OptimizationBarrier;
    node.operands[0] = graph.push_typed(barrier, vec![value], padded, node.origin)[0];
}

/// True if the kernel has more places than a dilated input.
fn is_swapped(conv: &ConvolutionAttributes, input: &[usize], kernel: &[usize]) -> bool {
    let places = |dims: &[usize], spatial: &[usize]| -> f64 {
        spatial.iter().map(|&dim| dims[dim] as f64).product()
    };
    conv.input_dilation.iter().any(|&dilation| dilation > 1)
        && places(kernel, &conv.kernel.spatial) > places(input, &conv.input.spatial)
}
