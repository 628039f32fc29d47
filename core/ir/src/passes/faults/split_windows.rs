//! Windows along dimensions that are whole on every device. XLA's partitioner computes some wrong
//! along a dimension that is sharded, and aborts the process on others.

use std::panic::Location;

use halite_core::{MeshShape, TensorType};

use crate::{
    ConvolutionAttributes, ConvolutionDims, Graph, Node, Op, Value, WindowAttributes,
    passes::{Rewriter, kernels::is_manual, map_regions},
};

/// Constrains operands and results of operations with windows, and the updates of scatters that
/// parts are filled up for, so that no dimension along which a window moves is sharded. Other
/// dimensions, such as a batch, are sharded as before, but for those of the features of a
/// convolution in groups.
pub(super) fn without(graph: Graph, mesh: &MeshShape) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    for mut node in nodes {
        if !is_manual(&node.op) {
            map_regions(&mut node.op, |body| without(body, mesh));
        }
        rewriter.map_operands(&mut node);
        let windows = Windows::of(&rewriter.new, &node, mesh);
        for (operand, dims) in node.operands.iter_mut().zip(windows.operands) {
            *operand = unsharded(&mut rewriter.new, *operand, dims, node.origin);
        }
        let (results, origin) = (node.results.clone(), node.origin);
        rewriter.keep(node);
        if !windows.result.is_empty() {
            let result = rewriter.value(results[0]);
            let whole = unsharded(&mut rewriter.new, result, windows.result, origin);
            rewriter.replace(results[0], whole);
        }
    }
    rewriter.finish(outputs)
}

/// The value, whole along these dimensions.
pub(super) fn unsharded(
    graph: &mut Graph,
    value: Value,
    dims: Vec<usize>,
    origin: Option<&'static Location<'static>>,
) -> Value {
    if dims.is_empty() {
        return value;
    }
    let ty = graph.ty(value).clone();
    graph.push_typed(Op::Unsharded { dims }, vec![value], vec![ty], origin)[0]
}

/// The dimensions along which the windows of an operation move.
#[derive(Default)]
struct Windows {
    /// Dimensions of each of the first operands.
    operands: Vec<Vec<usize>>,
    /// Dimensions of the result.
    result: Vec<usize>,
}

impl Windows {
    /// Those of an operation of `graph`; none of an operation without windows.
    fn of(graph: &Graph, node: &Node, mesh: &MeshShape) -> Self {
        let rank = |operand: usize| graph.ty(node.operands[operand]).rank();
        let alike = |operands: usize, moves: &dyn Fn(usize) -> bool| {
            let dims: Vec<usize> = (0..rank(0)).filter(|&dim| moves(dim)).collect();
            Windows {
                operands: vec![dims.clone(); operands],
                result: dims,
            }
        };
        match &node.op {
            Op::Pad {
                low,
                high,
                interior,
            } => alike(1, &|dim| (low[dim], high[dim], interior[dim]) != (0, 0, 0)),
            Op::ReduceWindow { window, .. } => alike(1, &|dim| moves(window, dim)),
            Op::SelectAndScatter { window, .. } => alike(2, &|dim| moves(window, dim)),
            Op::Scatter(scatter, ..) => {
                let uneven = |operand: usize, is_place: &dyn Fn(usize) -> bool| {
                    let dims = graph.ty(node.operands[operand]).dims();
                    let in_parts = |dim: usize| dims[dim].is_multiple_of(mesh.size());
                    let all = 0..dims.len();
                    all.filter(|&dim| is_place(dim) && !in_parts(dim)).collect()
                };
                let of_index = uneven(1, &|dim| dim != scatter.index_vector_dim);
                let of_update = uneven(2, &|dim| !scatter.update_window_dims.contains(&dim));
                Windows {
                    operands: vec![vec![], of_index, of_update],
                    result: vec![],
                }
            }
            Op::Convolution(conv, ..) => Self::of_convolution(
                conv,
                rank(0),
                sums_copies(conv, graph.ty(node.operands[0]), mesh),
            ),
            _ => Windows::default(),
        }
    }
}

impl Windows {
    /// Windows of a convolution: the spatial dimensions; in groups, also all dimensions of
    /// features, and those that it sums over if the partitioner may add copies of their parts.
    fn of_convolution(conv: &ConvolutionAttributes, rank: usize, sums_copies: bool) -> Self {
        let all_but = |open: &[usize]| (0..rank).filter(|dim| !open.contains(dim)).collect();
        let (input, kernel, output) = (&conv.input, &conv.kernel, &conv.output);
        if conv.feature_groups > 1 {
            return Windows {
                operands: vec![all_but(&[input.batch]), all_but(&[])],
                result: all_but(&[output.batch]),
            };
        }
        if conv.batch_groups > 1 {
            let summed = |dim| if sums_copies { vec![] } else { vec![dim] };
            return Windows {
                operands: vec![
                    all_but(&summed(input.feature)),
                    all_but(&summed(kernel.feature)),
                ],
                result: all_but(&[]),
            };
        }
        let spatial = |dims: &ConvolutionDims| all_but(&[dims.batch, dims.feature]);
        Windows {
            operands: vec![spatial(input), spatial(kernel)],
            result: spatial(output),
        }
    }
}

/// Whether the partitioner may add copies of a part of a kernel gradient in groups: no copies are
/// left where its batch is sharded over the only axis.
fn sums_copies(conv: &ConvolutionAttributes, input: &TensorType, mesh: &MeshShape) -> bool {
    let is_one_axis = mesh.axes().filter(|&(_, size)| size > 1).count() == 1;
    !is_one_axis || !input.dims()[conv.input.feature].is_multiple_of(mesh.size())
}

/// Whether a window does more along a dimension than to take each element.
fn moves(window: &WindowAttributes, dim: usize) -> bool {
    let steps = [
        window.sizes[dim],
        window.strides[dim],
        window.base_dilations[dim],
        window.window_dilations[dim],
    ];
    steps != [1; 4] || window.padding[dim] != (0, 0)
}
