//! Convolutions that halite's kernels compute.

use halite_core::{DType, TensorType};

use crate::{Attribute, ConvolutionAttributes, ConvolutionDims, CustomCall};

/// Types of a convolution's operands and result.
pub(super) struct Types<'a> {
    pub(super) left: &'a TensorType,
    pub(super) right: &'a TensorType,
    pub(super) result: &'a TensorType,
}

/// The tensor that a convolution computes, in terms of the convolution of a forward pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
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
pub(super) struct Product {
    pub(super) kind: Kind,
    /// Type of the elements of the operands.
    pub(super) dtype: DType,
    pub(super) batch: usize,
    pub(super) features: usize,
    pub(super) outputs: usize,
    pub(super) groups: usize,
    pub(super) spatial: Vec<Spatial>,
}

/// A spatial dimension.
#[derive(Debug)]
pub(super) struct Spatial {
    pub(super) input: usize,
    pub(super) kernel: usize,
    pub(super) output: usize,
    pub(super) input_dilation: usize,
    pub(super) stride: usize,
    pub(super) dilation: usize,
    pub(super) low: i64,
    pub(super) high: usize,
}

/// Distances of elements of the input, of windows, and of elements of a window.
struct Steps {
    input_dilation: usize,
    stride: usize,
    dilation: usize,
}

impl Spatial {
    /// A dimension of these sizes, with the least padding after the input; `None` if it has other
    /// sizes with that padding.
    fn new(sizes: [usize; 3], steps: Steps, low: i64) -> Option<Self> {
        let [input, kernel, output] = sizes;
        let Steps {
            input_dilation,
            stride,
            dilation,
        } = steps;
        let spread =
            |size: usize, step: usize| size.checked_sub(1)?.checked_mul(step)?.checked_add(1);
        let extent = spread(kernel, dilation)?;
        let reach = output
            .checked_sub(1)?
            .checked_mul(stride)?
            .checked_add(extent)?;
        let spread = i64::try_from(spread(input, input_dilation)?).ok()?;
        let before = usize::try_from(low.checked_add(spread)?).ok()?;
        let high = reach.saturating_sub(before);
        let positions = (before + high - extent) / stride + 1;
        (positions == output).then_some(Spatial {
            input,
            kernel,
            output,
            input_dilation,
            stride,
            dilation,
            low,
            high,
        })
    }
}

impl Product {
    /// Recognizes a convolution as the gradient rule and `Tensor::conv` record it.
    pub(super) fn of(conv: &ConvolutionAttributes, types: &Types<'_>) -> Option<Self> {
        let Types {
            left,
            right,
            result,
        } = types;
        let dtypes = [left, right, result].map(|ty| ty.dtype());
        let is_empty = [left, right, result]
            .map(|ty| ty.dims().contains(&0))
            .contains(&true);
        if is_empty || !DTYPES.contains(&dtypes) {
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
        let (groups, other_groups) = match kind {
            Kind::Result | Kind::InputGradient => (conv.feature_groups, conv.batch_groups),
            Kind::KernelGradient => (conv.batch_groups, conv.feature_groups),
        };
        // The kernel of an input gradient is reversed, by the convolution or before it.
        let is_reversed = |&reversed: &bool| reversed && kind != Kind::InputGradient;
        if other_groups != 1 || conv.reversal.iter().any(is_reversed) {
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
            let (by, window, step) = (
                conv.input_dilation[dim],
                conv.kernel_dilation[dim],
                conv.strides[dim],
            );
            let (steps, low) = match kind {
                Kind::Result => ([by, step, window], low),
                Kind::KernelGradient => ([by, window, step], low),
                Kind::InputGradient => {
                    let extent = (sizes[1].checked_sub(1)?).checked_mul(window)?;
                    let low = i64::try_from(extent).ok()?.checked_sub(low)?;
                    ([step, by, window], low)
                }
            };
            let [input_dilation, stride, dilation] = steps;
            let steps = Steps {
                input_dilation,
                stride,
                dilation,
            };
            Spatial::new(sizes, steps, low)
        });
        Some(Product {
            kind,
            dtype: dtypes[0],
            batch: input.dims()[0],
            features: input.dims()[rank - 1],
            outputs: output.dims()[rank - 1],
            groups,
            spatial: dims.collect::<Option<_>>()?,
        })
    }

    /// Returns whether an image and the kernel are of a size that the kernels take.
    pub(super) fn is_bounded(&self) -> bool {
        let count = |features: usize, size: fn(&Spatial) -> usize| {
            let sizes = self.spatial.iter().map(size);
            sizes.fold(features as f64, |all, here| all * here as f64)
        };
        let elements = [
            count(self.features, |dim| {
                dim.input + dim.low.unsigned_abs() as usize + dim.high
            }),
            count(self.features / self.groups * self.outputs, |dim| dim.kernel),
            count(self.outputs, |dim| dim.output),
        ];
        elements.into_iter().all(|count| count <= MOST_ELEMENTS)
    }

    /// The call of the kernel, with a result of this type.
    pub(super) fn call(&self, result: TensorType) -> CustomCall {
        CustomCall {
            target: self.kind.target().to_owned(),
            attributes: self.attributes(),
            results: vec![result],
            ..CustomCall::default()
        }
    }

    /// Multiplications of numbers, those with padding included, but not those with zeros between
    /// elements.
    pub(super) fn multiplications(&self) -> f64 {
        let features = self.features as f64 / self.groups as f64 * self.outputs as f64;
        let positions = self.spatial.iter().map(|dim| {
            // A window of a dilated input has some elements of it only.
            let taps = dim.kernel as f64 / dim.input_dilation as f64;
            dim.output as f64 * taps.max(1.0)
        });
        positions.fold(self.batch as f64 * features, |all, here| all * here)
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
            let dilated = dim.input_dilation != 1;
            let sizes = [
                ("input", int(dim.input)),
                ("kernel", int(dim.kernel)),
                ("stride", int(dim.stride)),
                ("dilation", int(dim.dilation)),
                ("low", Attribute::Int(dim.low)),
                ("high", int(dim.high)),
            ];
            let last = dilated.then(|| ("input_dilation", int(dim.input_dilation)));
            let all = sizes.into_iter().chain(last);
            all.map(move |(name, value)| (format!("{name}{index}"), value))
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
/// Dimension numbers of inputs and results: `[batch, spatial.., features]`.
fn channels_last(spatial: usize) -> ConvolutionDims {
    ConvolutionDims {
        batch: 0,
        feature: spatial + 1,
        spatial: (1..=spatial).collect(),
    }
}

/// Dimension numbers of kernels: `[spatial.., features / groups, outputs]`.
fn kernel_layout(spatial: usize) -> ConvolutionDims {
    ConvolutionDims {
        batch: spatial + 1,
        feature: spatial,
        spatial: (0..spatial).collect(),
    }
}

/// Dimension numbers with batch and features exchanged.
fn exchanged(dims: &ConvolutionDims) -> ConvolutionDims {
    ConvolutionDims {
        batch: dims.feature,
        feature: dims.batch,
        spatial: dims.spatial.clone(),
    }
}
