//! Convolutions with reversed kernels, in batch groups or not. XLA's GPU compiler takes a batch
//! group for another dimension to sum over where cuDNN has no such convolution (a kernel that is
//! reversed along some dimensions alone, or more than three spatial dimensions), and forgets the
//! groups where it makes the gradient of an input of one (a kernel that a `reverse` gives, or a
//! dilated input).

use std::mem;

use super::Append;
use crate::{ConvolutionAttributes, Graph, Node, Op, Value, passes::faults::rewritten};

/// Reverses kernels before the convolution, and moves batch groups into the features, but those of
/// an ordinary gradient of a kernel.
pub(super) fn without(graph: Graph) -> Graph {
    rewritten(graph, &|graph, node| {
        let origin = node.origin;
        let Op::Convolution(conv, ..) = &mut node.op else {
            return None;
        };
        let is_regrouped =
            conv.batch_groups > 1 && !is_kernel_gradient(graph, conv, node.operands[1]);
        let append = &mut Append { graph, origin };
        if is_regrouped {
            node.operands[0] = in_feature_groups(append, conv, node.operands[0]);
        }
        node.operands[1] = reversed(append, conv, node.operands[1]);
        None
    })
}

/// Whether a convolution with this kernel is the ordinary gradient of a kernel, which cuDNN has, or
/// is left in batch groups that XLA moves itself.
fn is_kernel_gradient(graph: &Graph, conv: &ConvolutionAttributes, kernel: Value) -> bool {
    conv.strides.len() <= 3
        && conv.input_dilation.iter().all(|&dilation| dilation == 1)
        && !conv.reversal.contains(&true)
        && !is_reverse(graph, kernel)
}

/// The input of a convolution, with its batch groups in the features.
pub(super) fn in_feature_groups(
    append: &mut Append<'_>,
    conv: &mut ConvolutionAttributes,
    input: Value,
) -> Value {
    if conv.batch_groups == 1 {
        return input;
    }
    let groups = mem::replace(&mut conv.batch_groups, 1);
    conv.feature_groups = groups;
    let (batch, feature) = (conv.input.batch, conv.input.feature);
    let mut dims = append.ty(input).dims().to_vec();
    dims[batch] /= groups;
    let mut split = dims.clone();
    split.insert(batch, groups);
    let value = append.reshape(input, split);
    let permutation = (0..dims.len()).flat_map(|dim| {
        let group = (dim == feature).then_some(batch);
        group.into_iter().chain([dim + usize::from(dim >= batch)])
    });
    let value = append.transpose(value, permutation.collect());
    dims[feature] *= groups;
    append.reshape(value, dims)
}

/// The kernel of a convolution, reversed as the convolution does.
pub(super) fn reversed(
    append: &mut Append<'_>,
    conv: &mut ConvolutionAttributes,
    kernel: Value,
) -> Value {
    let reversal = conv.reversal.iter_mut().map(mem::take);
    let spatial = conv.kernel.spatial.iter().zip(reversal);
    let mut dims: Vec<usize> = (spatial.filter(|(_, is_reversed)| *is_reversed))
        .map(|(&dim, _)| dim)
        .collect();
    dims.sort_unstable();
    match dims.is_empty() {
        true => kernel,
        false => append.push(Op::Reverse { dims }, &[kernel]),
    }
}

/// Whether a value is reversed, perhaps in another order of dimensions or another type.
fn is_reverse(graph: &Graph, value: Value) -> bool {
    let maker =
        |value| (graph.nodes().iter().rev()).find(|node: &&Node| node.results.contains(&value));
    let mut next = maker(value);
    while let Some(node) = next {
        next = match node.op {
            Op::Reverse { .. } => return true,
            Op::Reshape { .. } | Op::Transpose { .. } | Op::Convert(_) => maker(node.operands[0]),
            _ => None,
        };
    }
    false
}
