//! Convolutions as calls of halite's own kernels, which programs for XLA's CPU plugin run through
//! custom calls.
//!
//! The kernels take channels last: inputs `[batch, spatial.., features]`, kernels `[spatial..,
//! features / groups, outputs]`, results `[batch, spatial.., outputs]`. Convolutions with other
//! dimension numbers stay, and so do those in a program that the compiler partitions, because it
//! would gather the operands of a call.

use std::collections::HashMap;

use halite_core::{DType, Kernels, TensorType};

use super::{Rewriter, dead_code, map_regions};
use crate::{Attribute, ConvDims, Convolution, CustomCall, Graph, Node, Op, Value};

/// Replaces convolutions of `f32` and `bf16` by calls of halite's kernels.
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
pub fn with_kernels(graph: Graph, kernels: Kernels, devices: usize) -> Graph {
    // Calls do not use the reversed kernels of input gradients.
    dead_code(replaced(graph, kernels, devices == 1))
}

/// The graph with calls, in all of it if its values are those of one device.
fn replaced(graph: Graph, kernels: Kernels, one_device: bool) -> Graph {
    let (mut rewriter, nodes, outputs) = Rewriter::of(graph);
    let mut reversals = HashMap::new();
    for mut node in nodes {
        rewriter.map_operands(&mut node);
        let inside = one_device || is_manual(&node.op);
        map_regions(&mut node.op, |body| replaced(body, kernels, inside));
        if one_device
            && let Some((product, operands)) = product(&rewriter, &node, &reversals)
            && product.is_called(kernels)
        {
            let result = rewriter.types[node.results[0].index()].clone();
            node.op = Op::CustomCall(product.call(result));
            node.operands = operands;
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

/// Returns whether the values of its regions are those of one device: a [`ShardMap`](crate::ShardMap)
/// over all axes of the mesh.
pub(super) fn is_manual(op: &Op) -> bool {
    matches!(op, Op::ShardMap(map) if map.manual.len() == map.mesh.len())
}

/// A reversed tensor.
struct Reversal {
    operand: Value,
    dims: Vec<usize>,
}

/// The product that a convolution computes, and the operands of its kernel.
fn product(
    rewriter: &Rewriter,
    node: &Node,
    reversals: &HashMap<Value, Reversal>,
) -> Option<(Product, Vec<Value>)> {
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
    Some((product, operands))
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
    low: i64,
    high: usize,
}

impl Spatial {
    /// A dimension of these sizes, with the least padding after the input; `None` if it has other
    /// sizes with that padding.
    fn new(sizes: [usize; 3], stride: usize, dilation: usize, low: i64) -> Option<Self> {
        let [input, kernel, output] = sizes;
        let extent = kernel
            .checked_sub(1)?
            .checked_mul(dilation)?
            .checked_add(1)?;
        let reach = output
            .checked_sub(1)?
            .checked_mul(stride)?
            .checked_add(extent)?;
        let before = usize::try_from(low.checked_add(i64::try_from(input).ok()?)?).ok()?;
        let high = reach.saturating_sub(before);
        let positions = (before + high - extent) / stride + 1;
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
        let dtypes = [left, right, result].map(|ty| ty.dtype());
        let is_empty = [left, right, result]
            .map(|ty| ty.dims().contains(&0))
            .contains(&true);
        if is_empty || !DTYPES.contains(&dtypes) || conv.reversal.contains(&true) {
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
        let (ones, groups, other_groups) = match kind {
            Kind::Result => (&conv.input_dilation, conv.feature_groups, conv.batch_groups),
            // The kernel of an input gradient in groups is regrouped first, and stays.
            Kind::InputGradient => (&conv.strides, 1, conv.feature_groups * conv.batch_groups),
            Kind::KernelGradient => (&conv.input_dilation, conv.batch_groups, conv.feature_groups),
        };
        if other_groups != 1 || ones.iter().any(|&step| step != 1) {
            return None;
        }
        let [input, kernel, output] = match kind {
            Kind::Result => [left, right, result],
            Kind::InputGradient => [result, right, left],
            Kind::KernelGradient => [left, result, right],
        };
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

    /// Returns whether the program calls a kernel for it.
    fn is_called(&self, kernels: Kernels) -> bool {
        match kernels {
            Kernels::Off => false,
            Kernels::On => self.is_bounded() && self.pays(),
            Kernels::All => self.is_bounded(),
        }
    }

    /// Returns whether an image and the kernel are of a size that the kernels take.
    fn is_bounded(&self) -> bool {
        let count = |features: usize, size: fn(&Spatial) -> usize| {
            let sizes = self.spatial.iter().map(size);
            sizes.fold(features as f64, |all, here| all * here as f64)
        };
        let elements = [
            count(self.features, |dim| {
                dim.input + dim.low.unsigned_abs() as usize + dim.high
            }),
            count(self.features * self.outputs, |dim| dim.kernel),
            count(self.outputs, |dim| dim.output),
        ];
        elements.into_iter().all(|count| count <= MOST_ELEMENTS)
    }

    /// Returns whether the kernel is likely faster than XLA's code: decision 0046 has measurements.
    fn pays(&self) -> bool {
        let is_wide = match self.kind {
            Kind::KernelGradient => true,
            Kind::Result | Kind::InputGradient => self.features.min(self.outputs) >= LEAST_FEATURES,
        };
        is_wide && self.groups == 1 && self.multiplications() >= LEAST_WORK
    }

    /// The call of the kernel, with a result of this type.
    fn call(&self, result: TensorType) -> CustomCall {
        CustomCall {
            target: self.kind.target().to_owned(),
            attributes: self.attributes(),
            results: vec![result],
            ..CustomCall::default()
        }
    }

    /// Multiplications of numbers, those with padding included.
    fn multiplications(&self) -> f64 {
        let features = self.features as f64 / self.groups as f64 * self.outputs as f64;
        let positions = self.spatial.iter().map(|dim| dim.output * dim.kernel);
        positions.fold(self.batch as f64 * features, |all, here| all * here as f64)
    }

    fn attributes(&self) -> Vec<(String, Attribute)> {
        let sizes = [
            ("batch", self.batch),
            ("features", self.features),
            ("outputs", self.outputs),
            ("groups", self.groups),
        ];
        let sizes = sizes.map(|(name, size)| (name.to_owned(), int(size)));
        let spatial = self.spatial.iter().enumerate().flat_map(|(index, dim)| {
            [
                ("input", int(dim.input)),
                ("kernel", int(dim.kernel)),
                ("stride", int(dim.stride)),
                ("dilation", int(dim.dilation)),
                ("low", Attribute::Int(dim.low)),
                ("high", int(dim.high)),
            ]
            .map(|(name, value)| (format!("{name}{index}"), value))
        });
        sizes.into_iter().chain(spatial).collect()
    }
}

fn int(size: usize) -> Attribute {
    Attribute::Int(size as i64)
}

/// Types of the elements of the operands and of the result.
const DTYPES: [[DType; 3]; 3] = [
    [DType::F32; 3],
    [DType::Bf16; 3],
    [DType::Bf16, DType::Bf16, DType::F32],
];
/// Most elements of an image or a kernel.
const MOST_ELEMENTS: f64 = (1 << 24) as f64;
/// Least number of features of results and input gradients, an estimate: vectors of the kernels are
/// that wide.
const LEAST_FEATURES: usize = 16;
/// Least number of multiplications of a call, an estimate: for fewer, calling takes longer than it
/// saves.
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
