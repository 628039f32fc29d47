//! Convolutions, and products of a few rows with large matrices, as calls of halite's own kernels,
//! which programs for XLA's CPU plugin run through custom calls.
//!
//! The kernels take channels last: inputs `[batch, spatial.., features]`, kernels `[spatial..,
//! features / groups, outputs]`, results `[batch, spatial.., outputs]`. Convolutions with other
//! dimension numbers stay, and so do those in a program that the compiler partitions, because it
//! would gather the operands of a call.

mod choice;
mod few_rows;
mod product;

use std::collections::HashMap;

use halite_core::{Capabilities, Kernels};

use self::product::{Kind, Product, Types};
use super::{Rewriter, dead_code, map_regions};
use crate::{ConvolutionAttributes, Graph, Node, Op, Value};

/// Replaces convolutions of `f32` and `bf16`, and products of a few rows with a large matrix, by
/// calls of halite's kernels.
///
/// | target | operands | result |
/// |---|---|---|
/// | `halite_convolution` | input, kernel | result |
/// | `halite_convolution_input_gradient` | kernel, gradient of the result | gradient of the input |
/// | `halite_convolution_kernel_gradient` | input, gradient of the result | gradient of the kernel |
/// | `halite_few_rows` | rows, matrix or stack of matrices, index in the stack | product |
///
/// `halite_few_rows` has the attributes `rows`, `terms` and `columns`, and `transposed` if the
/// matrix is `[columns, terms]`. Attributes of the others are integers that describe the
/// convolution whose result or gradient is computed: `batch`, `features`, `outputs` and `groups`,
/// and for each spatial dimension `i` its sizes `input{i}` and `kernel{i}`, the steps `stride{i}`
/// and `dilation{i}`, the padding `low{i}` and `high{i}`, and, if it is not 1, the distance
/// `input_dilation{i}` of elements of the input.
///
/// Which ones is a function of the convolution and of
/// [`Capabilities::processor`]: those that were measured faster, decision 0046.
///
/// In a program for several `devices`, only the bodies of [`ShardMap`](crate::ShardMap)s over all
/// axes of the mesh have calls.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn with_kernels(graph: Graph, capabilities: &Capabilities, devices: usize) -> Graph {
    // Calls do not use the reversed kernels of input gradients.
    let one_device = devices == 1;
    let graph = match capabilities.kernels {
        Kernels::On | Kernels::All if one_device => {
            few_rows::narrow_matrices(graph, capabilities.kernels)
        }
        _ => graph,
    };
    dead_code(replaced(graph, capabilities, one_device))
}

/// Converts matrices that are stored in `bf16` where products of a few rows and gathers read them,
/// in the bodies of scans too, in place of the beginning of the program.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn narrow_matrices(graph: Graph) -> Graph {
    few_rows::narrow_matrices(graph, Kernels::On)
}

/// The graph with calls, in all of it if its values are those of one device.
fn replaced(graph: Graph, capabilities: &Capabilities, one_device: bool) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    let mut reversals = HashMap::new();
    for mut node in nodes {
        rewriter.map_operands(&mut node);
        let inside = one_device || is_manual(&node.op);
        map_regions(&mut node.op, |body| replaced(body, capabilities, inside));
        if one_device && capabilities.kernels != Kernels::Off {
            few_rows::call(&rewriter.new, &mut node, capabilities.kernels);
            few_rows::pass_stacks(&mut rewriter.new, &mut node);
        }
        if one_device
            && let Some((conv, product)) = product(&rewriter, &node)
            && is_called(&product, capabilities)
        {
            let result = rewriter.result_type(&node);
            if product.kind == Kind::InputGradient {
                let kernel = forward_kernel(&mut rewriter, &node, &conv, &product, &reversals);
                node.operands = vec![kernel, node.operands[0]];
            }
            node.op = Op::CustomCall(product.call(result));
        }
        let reversal = match &node.op {
            Op::Reverse { dims } => Some((node.results[0], node.operands[0], dims.clone())),
            _ => None,
        };
        rewriter.keep(node);
        if let Some((result, operand, dims)) = reversal {
            reversals.insert(rewriter.value(result), Reversal { operand, dims });
        }
    }
    rewriter.finish(outputs)
}

/// Returns whether the values of its regions are those of one device: a
/// [`ShardMap`](crate::ShardMap) over all axes of the mesh.
pub(super) fn is_manual(op: &Op) -> bool {
    matches!(op, Op::ShardMap(map) if map.manual.len() == map.mesh.len())
}

/// A reversed tensor.
struct Reversal {
    operand: Value,
    dims: Vec<usize>,
}

/// Returns whether the program calls a kernel for a product.
fn is_called(product: &Product, capabilities: &Capabilities) -> bool {
    match capabilities.kernels {
        Kernels::Off => false,
        Kernels::On => product.is_bounded() && choice::pays(product, &capabilities.processor),
        Kernels::All => product.is_bounded(),
    }
}

/// A convolution, and the product that it computes.
fn product(rewriter: &Rewriter, node: &Node) -> Option<(ConvolutionAttributes, Product)> {
    let Op::Convolution(conv, ..) = &node.op else {
        return None;
    };
    let [left, right] = node.operands[..] else {
        return None;
    };
    let types = Types {
        left: rewriter.new.ty(left),
        right: rewriter.new.ty(right),
        result: rewriter.new.ty(node.results[0]),
    };
    Some((conv.clone(), Product::of(conv, &types)?))
}

/// The kernel of the forward pass, given the convolution that computes its input gradient: reversed
/// back, and with its groups among its outputs again.
fn forward_kernel(
    rewriter: &mut Rewriter,
    node: &Node,
    conv: &ConvolutionAttributes,
    product: &Product,
    reversals: &HashMap<Value, Reversal>,
) -> Value {
    let kernel = node.operands[1];
    let ty = rewriter.new.ty(kernel).clone();
    let spatial = ty.rank() - 2;
    let found = reversals.get(&kernel);
    let is_reversed = |dim: usize| {
        let before = found.is_some_and(|found| found.dims.contains(&dim));
        before != conv.reversal[dim] || ty.dims()[dim] == 1
    };
    let only_spatial = |found: &Reversal| found.dims.iter().all(|&dim| dim < spatial);
    let (kernel, dims) = match found.filter(|found| only_spatial(found)) {
        Some(found) if (0..spatial).all(is_reversed) => (found.operand, vec![]),
        _ => {
            let dims = (0..spatial).filter(|&dim| !conv.reversal[dim] && ty.dims()[dim] != 1);
            (kernel, dims.collect())
        }
    };
    let mut push = |op: Op, operand: Value, dims: Vec<usize>| {
        let ty = ty.with_dims(dims);
        rewriter
            .new
            .push_typed(op, vec![operand], vec![ty], node.origin)[0]
    };
    let kernel = match dims.is_empty() {
        true => kernel,
        false => push(Op::Reverse { dims }, kernel, ty.dims().to_vec()),
    };
    if product.groups == 1 {
        return kernel;
    }
    let (groups, window) = (product.groups, &ty.dims()[..spatial]);
    let (features, outputs) = (product.features / groups, product.outputs / groups);
    let split = [window, &[groups, features, outputs]].concat();
    let exchanged = [window, &[features, groups, outputs]].concat();
    let merged = [window, &[features, groups * outputs]].concat();
    let order = (0..spatial).chain([spatial + 1, spatial, spatial + 2]);
    let permutation: Vec<usize> = order.collect();
    let kernel = push(
        Op::Reshape {
            dims: split.clone(),
        },
        kernel,
        split,
    );
    let kernel = match features {
        1 => kernel,
        _ => push(Op::Transpose { permutation }, kernel, exchanged),
    };
    push(
        Op::Reshape {
            dims: merged.clone(),
        },
        kernel,
        merged,
    )
}
