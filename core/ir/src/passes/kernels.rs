//! Convolutions as calls of halite's own kernels, which programs for XLA's CPU plugin run through
//! custom calls.
//!
//! The kernels take channels last: inputs `[batch, spatial.., features]`, kernels `[spatial..,
//! features / groups, outputs]`, results `[batch, spatial.., outputs]`. Convolutions with other
//! dimension numbers stay, and so do those in a program that the compiler partitions, because it
//! would gather the operands of a call.

use std::collections::HashMap;

use halite_core::{DType, TensorType};

use super::{Rewriter, dead_code, map_regions};
use crate::{Attribute, ConvDims, Convolution, CustomCall, Graph, Node, Op, Value};

/// Replaces `f32` convolutions by calls of halite's kernels, where these are faster than XLA's code
/// for CPUs.
///
/// | target | operands | result |
/// |---|---|---|
/// | `halite_convolution` | input, kernel | result |
/// | `halite_convolution_input_gradient` | kernel, gradient of the result | gradient of the input |
/// | `halite_convolution_kernel_gradient` | input, gradient of the result | gradient of the kernel |
///
/// Attributes are integers that describe the convolution whose result or gradient is computed:
/// `batch`, `features`, `outputs` and `groups`, and for each spatial dimension `i` its sizes
/// `input{i}` and `kernel{i}`, the steps `stride{i}` and `dilation{i}`, and the padding `low{i}` and
/// `high{i}`.
///
/// In a program for several `devices`, only the bodies of [`ShardMap`](crate::ShardMap)s over all
/// axes of the mesh have calls.
///
/// # Panics
/// If the graph is not valid, as [`verify`](crate::verify) says.
pub fn with_kernels(graph: Graph, devices: usize) -> Graph {
    // Calls do not use the reversed kernels of input gradients.
    dead_code(replaced(graph, devices == 1))
}

/// The graph with calls, in all of it if its values are those of one device.
fn replaced(graph: Graph, one_device: bool) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    let mut reversals = HashMap::new();
    for mut node in nodes {
        rewriter.map_operands(&mut node);
        let inside = one_device
            || matches!(&node.op, Op::ShardMap(map) if map.manual.len() == map.mesh.len());
        map_regions(&mut node.op, |body| replaced(body, inside));
        if one_device && let Some((call, operands)) = call(&rewriter, &node, &reversals) {
            node.op = Op::CustomCall(call);
            node.operands = operands;
        }
        let reversal = match &node.op {
            Op::Reverse { dims } => Some(Reversal {
                operand: node.operands[0],
                dims: dims.clone(),
            }),
            _ => None,
        };
        let result = node.results[0];
        rewriter.keep(node);
        reversals.extend(reversal.map(|reversal| (rewriter.value(result), reversal)));
    }
    rewriter.finish(outputs)
}

/// A reversed tensor.
struct Reversal {
    operand: Value,
    dims: Vec<usize>,
}

/// The call that replaces a convolution, with its operands.
fn call(
    rewriter: &Rewriter,
    node: &Node,
    reversals: &HashMap<Value, Reversal>,
) -> Option<(CustomCall, Vec<Value>)> {
    let Op::Convolution(conv) = &node.op else {
        return None;
    };
    let [left, right] = node.operands[..] else {
        return None;
    };
    let types = Types {
        left: rewriter.new.ty(left),
        right: rewriter.new.ty(right),
        result: &rewriter.types[node.results[0].index()],
    };
    let product = Product::of(conv, &types)?;
    let operands = match product.kind {
        Kind::Result | Kind::KernelGradient => vec![left, right],
        Kind::InputGradient => vec![unreversed(right, types.right, reversals)?, left],
    };
    let call = CustomCall {
        target: product.kind.target().to_owned(),
        attributes: product.attributes(),
        results: vec![types.result.clone()],
        side_effect: false,
        attachment: None,
    };
    product.pays().then_some((call, operands))
}

/// The tensor that was reversed along the spatial dimensions to this kernel.
fn unreversed(
    kernel: Value,
    ty: &TensorType,
    reversals: &HashMap<Value, Reversal>,
) -> Option<Value> {
    let spatial = 0..ty.rank() - 2;
    let dims = reversals.get(&kernel).map_or(&[][..], |found| &found.dims);
    let whole = (spatial.clone()).all(|dim| dims.contains(&dim) || ty.dims()[dim] == 1);
    let only = dims.iter().all(|dim| spatial.contains(dim));
    (whole && only).then(|| reversals.get(&kernel).map_or(kernel, |found| found.operand))
}

/// Types of a convolution's operands and result.
struct Types<'a> {
    left: &'a TensorType,
    right: &'a TensorType,
    result: &'a TensorType,
}

/// The tensor that a convolution computes, in terms of the convolution of a forward pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Result,
    InputGradient,
    KernelGradient,
}

impl Kind {
    fn target(self) -> &'static str {
        match self {
            Kind::Result => "halite_convolution",
            Kind::InputGradient => "halite_convolution_input_gradient",
            Kind::KernelGradient => "halite_convolution_kernel_gradient",
        }
    }
}

/// A convolution of a forward pass, of which a kernel computes the result or a gradient.
#[derive(Debug)]
struct Product {
    kind: Kind,
    batch: usize,
    features: usize,
    outputs: usize,
    groups: usize,
    spatial: Vec<Spatial>,
}

/// A spatial dimension.
#[derive(Debug)]
struct Spatial {
    input: usize,
    kernel: usize,
    output: usize,
    stride: usize,
    dilation: usize,
    low: usize,
    high: usize,
}

impl Spatial {
    /// A dimension of these sizes, with the least padding after the input; `None` if the kernels do
    /// not have it.
    fn new(sizes: [usize; 3], stride: usize, dilation: usize, low: i64) -> Option<Self> {
        let [input, kernel, output] = sizes;
        if sizes.contains(&0) {
            return None;
        }
        let extent = (kernel - 1).checked_mul(dilation)?.checked_add(1)?;
        let low = usize::try_from(low).ok()?;
        let reach = (output - 1).checked_mul(stride)?.checked_add(extent)?;
        let before = input.checked_add(low)?;
        let high = reach.saturating_sub(before);
        let positions = (before + high).checked_sub(extent)? / stride + 1;
        (positions == output).then_some(Spatial {
            input,
            kernel,
            output,
            stride,
            dilation,
            low,
            high,
        })
    }
}

impl Product {
    /// Recognizes a convolution as the gradient rule and `Tensor::conv` record it.
    fn of(conv: &Convolution, types: &Types<'_>) -> Option<Self> {
        let Types {
            left,
            right,
            result,
        } = types;
        let f32s = [left, right, result].map(|ty| ty.dtype() == DType::F32);
        if f32s.contains(&false) || conv.reversal.contains(&true) {
            return None;
        }
        let rank = left.rank();
        let spatial = conv.strides.len();
        let (last, layout) = (channels_last(spatial), kernel_layout(spatial));
        let roles = [&conv.input, &conv.kernel, &conv.output];
        let kind = if roles == [&last, &layout, &last] {
            Kind::Result
        } else if roles == [&last, &exchanged(&layout), &last] {
            Kind::InputGradient
        } else if roles == [&exchanged(&last), &exchanged(&last), &exchanged(&layout)] {
            Kind::KernelGradient
        } else {
            return None;
        };
        let is_one = |steps: &[usize]| steps.iter().all(|&step| step == 1);
        let (fits, input, kernel, output, groups) = match kind {
            Kind::Result => (
                is_one(&conv.input_dilation) && conv.batch_groups == 1,
                left,
                right,
                result,
                conv.feature_groups,
            ),
            // The kernel of an input gradient in groups is regrouped first.
            Kind::InputGradient => (
                is_one(&conv.strides) && conv.batch_groups == 1 && conv.feature_groups == 1,
                result,
                right,
                left,
                1,
            ),
            Kind::KernelGradient => (
                is_one(&conv.input_dilation) && conv.feature_groups == 1,
                left,
                result,
                right,
                conv.batch_groups,
            ),
        };
        if !fits {
            return None;
        }
        let dims = (0..spatial).map(|dim| {
            let sizes = [
                input.dims()[1 + dim],
                kernel.dims()[dim],
                output.dims()[1 + dim],
            ];
            let low = conv.padding[dim].0;
            let (window, step) = (conv.kernel_dilation[dim], conv.strides[dim]);
            match kind {
                Kind::Result => Spatial::new(sizes, step, window, low),
                Kind::KernelGradient => Spatial::new(sizes, window, step, low),
                Kind::InputGradient => {
                    let extent = (sizes[1].checked_sub(1)?).checked_mul(window)?;
                    let low = i64::try_from(extent).ok()?.checked_sub(low)?;
                    Spatial::new(sizes, conv.input_dilation[dim], window, low)
                }
            }
        });
        Some(Product {
            kind,
            batch: input.dims()[0],
            features: input.dims()[rank - 1],
            outputs: output.dims()[rank - 1],
            groups,
            spatial: dims.collect::<Option<_>>()?,
        })
    }

    /// Returns whether the kernel is faster than XLA's code.
    fn pays(&self) -> bool {
        let work = self.multiplications();
        match self.kind {
            Kind::KernelGradient => work >= LEAST_WORK,
            Kind::Result | Kind::InputGradient => false,
        }
    }

    /// Multiplications of numbers, those with padding included.
    fn multiplications(&self) -> f64 {
        let features = self.features as f64 / self.groups as f64 * self.outputs as f64;
        let positions = self.spatial.iter().map(|dim| dim.output * dim.kernel);
        positions.fold(self.batch as f64 * features, |all, here| all * here as f64)
    }

    fn attributes(&self) -> Vec<(String, Attribute)> {
        let int = |name: String, value: usize| (name, Attribute::Int(value as i64));
        let sizes = [
            ("batch", self.batch),
            ("features", self.features),
            ("outputs", self.outputs),
            ("groups", self.groups),
        ];
        let sizes = sizes.map(|(name, value)| int(name.to_owned(), value));
        let spatial = self.spatial.iter().enumerate().flat_map(|(index, dim)| {
            [
                ("input", dim.input),
                ("kernel", dim.kernel),
                ("stride", dim.stride),
                ("dilation", dim.dilation),
                ("low", dim.low),
                ("high", dim.high),
            ]
            .map(|(name, value)| int(format!("{name}{index}"), value))
        });
        sizes.into_iter().chain(spatial).collect()
    }
}

/// Least number of multiplications of a call: below it, calling takes longer than it saves.
const LEAST_WORK: f64 = 1e6;

/// Dimension numbers of inputs and results: `[batch, spatial.., features]`.
fn channels_last(spatial: usize) -> ConvDims {
    ConvDims {
        batch: 0,
        feature: spatial + 1,
        spatial: (1..=spatial).collect(),
    }
}

/// Dimension numbers of kernels: `[spatial.., features / groups, outputs]`.
fn kernel_layout(spatial: usize) -> ConvDims {
    ConvDims {
        batch: spatial + 1,
        feature: spatial,
        spatial: (0..spatial).collect(),
    }
}

/// Dimension numbers with batch and features exchanged.
fn exchanged(dims: &ConvDims) -> ConvDims {
    ConvDims {
        batch: dims.feature,
        feature: dims.batch,
        spatial: dims.spatial.clone(),
    }
}
