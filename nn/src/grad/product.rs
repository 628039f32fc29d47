//! Rules of dot products and convolutions.

use halite_ir::{ConvolutionAttributes, ConvolutionDims, DotAttributes};

use super::{Back, Step, shape::inverse};
use crate::Tensor;

impl<'t> Step<'_, 't> {
    /// A dot product of the cotangent with the other operand, contracted over its free dimensions.
    #[track_caller]
    pub(super) fn dot(&self, dot: &DotAttributes) -> Back<'t> {
        let (left, right) = (self.x(0), self.x(1));
        // Products keep their operand type, in the backward pass as in the forward pass.
        let (g, result) = (self.g().convert(left.dtype()), self.g().dtype());
        let free = |rank: usize, batch: &[usize], contract: &[usize]| -> Vec<usize> {
            (0..rank)
                .filter(|dim| !batch.contains(dim) && !contract.contains(dim))
                .collect()
        };
        let left_free = free(left.rank(), &dot.lhs_batching, &dot.lhs_contracting);
        let right_free = free(right.rank(), &dot.rhs_batching, &dot.rhs_contracting);
        let batches = dot.lhs_batching.len();
        let of_g_batch: Vec<usize> = (0..batches).collect();
        let of_g_left: Vec<usize> = (batches..batches + left_free.len()).collect();
        let of_g_right: Vec<usize> = (batches + left_free.len()..g.rank()).collect();
        let to_left = || {
            let back = DotAttributes {
                lhs_batching: of_g_batch.clone(),
                rhs_batching: dot.rhs_batching.clone(),
                lhs_contracting: of_g_right.clone(),
                rhs_contracting: right_free.clone(),
                ..dot.clone()
            };
            let contracted = paired_in_order(&dot.rhs_contracting, &dot.lhs_contracting);
            let order = [&dot.lhs_batching[..], &left_free, &contracted].concat();
            g.dot_general(right, back, result)
                .convert(left.dtype())
                .transpose(inverse(&order))
        };
        let to_right = || {
            let back = DotAttributes {
                lhs_batching: dot.lhs_batching.clone(),
                rhs_batching: of_g_batch.clone(),
                lhs_contracting: left_free.clone(),
                rhs_contracting: of_g_left.clone(),
                ..dot.clone()
            };
            let contracted = paired_in_order(&dot.lhs_contracting, &dot.rhs_contracting);
            let order = [&dot.rhs_batching[..], &contracted, &right_free].concat();
            left.dot_general(g, back, result)
                .convert(right.dtype())
                .transpose(inverse(&order))
        };
        vec![self.if_wanted(0, to_left), self.if_wanted(1, to_right)]
    }

    /// The cotangent of the input is a convolution of the result's cotangent with the reversed
    /// kernel; that of the kernel is a convolution of the input with the result's cotangent.
    #[track_caller]
    pub(super) fn convolution(&self, conv: &ConvolutionAttributes) -> Back<'t> {
        let g = self.g().convert(self.ty(0).dtype());
        let or_empty = |operand: usize, rule: &dyn Fn() -> Tensor<'t>| {
            if g.dims().contains(&0) {
                self.x(operand).zeros_like()
            } else {
                rule()
            }
        };
        let sizes = SpatialSizes::new(conv, self.x(0), self.x(1), g);
        let to_input = || self.to_conv_input(conv, &sizes, g);
        let to_kernel = || self.to_conv_kernel(conv, &sizes, g);
        vec![
            self.if_wanted(0, || or_empty(0, &to_input)),
            self.if_wanted(1, || or_empty(1, &to_kernel)),
        ]
    }

    /// Convolves the result's cotangent with the kernel, reversed along its spatial dimensions.
    /// Strides and input dilation exchange roles, as do the kernel's input and output features.
    /// Batch groups become feature groups: the group index moves from the features of the result to
    /// the batch.
    #[track_caller]
    fn to_conv_input(
        &self,
        conv: &ConvolutionAttributes,
        sizes: &SpatialSizes,
        g: Tensor<'t>,
    ) -> Tensor<'t> {
        let (x, kernel) = (self.x(0), self.x(1));
        let padding = |dim: usize| {
            let low = sizes.kernel[dim] - 1 - conv.padding[dim].0;
            let total = sizes.input[dim] + sizes.kernel[dim] - 1 - sizes.output[dim];
            (low, total - low)
        };
        let groups = conv.feature_groups.max(conv.batch_groups);
        let back = ConvolutionAttributes {
            input: conv.output.clone(),
            kernel: exchanged(&conv.kernel),
            output: conv.input.clone(),
            strides: conv.input_dilation.clone(),
            padding: (0..conv.padding.len()).map(padding).collect(),
            input_dilation: conv.strides.clone(),
            kernel_dilation: conv.kernel_dilation.clone(),
            reversal: vec![false; conv.strides.len()],
            feature_groups: groups,
            batch_groups: 1,
            precision: conv.precision.clone(),
        };
        let kernel = regroup(kernel, conv.kernel.batch, conv.kernel.feature, groups)
            .reverse(kernel_dims(conv, false));
        let grouped = g
            .conv_general(kernel, back, self.g().dtype())
            .convert(x.dtype());
        let (features, batch) = (conv.input.feature, conv.input.batch);
        regroup(grouped, features, batch, conv.batch_groups)
    }

    /// Convolves the input with the result's cotangent as the kernel. The sum runs over the batch,
    /// so batch and features exchange roles in all three; strides and kernel dilation do as well,
    /// and so do feature and batch groups.
    #[track_caller]
    fn to_conv_kernel(
        &self,
        conv: &ConvolutionAttributes,
        sizes: &SpatialSizes,
        g: Tensor<'t>,
    ) -> Tensor<'t> {
        let (x, kernel) = (self.x(0), self.x(1));
        let padding = |dim: usize| {
            let low = conv.padding[dim].0;
            let total = sizes.output[dim] - sizes.input[dim] + sizes.kernel[dim] - 1;
            (low, total - low)
        };
        let back = ConvolutionAttributes {
            input: exchanged(&conv.input),
            kernel: exchanged(&conv.output),
            output: exchanged(&conv.kernel),
            strides: conv.kernel_dilation.clone(),
            padding: (0..conv.padding.len()).map(padding).collect(),
            input_dilation: conv.input_dilation.clone(),
            kernel_dilation: conv.strides.clone(),
            reversal: vec![false; conv.strides.len()],
            feature_groups: conv.batch_groups,
            batch_groups: conv.feature_groups,
            precision: conv.precision.clone(),
        };
        x.conv_general(g, back, self.g().dtype())
            .convert(kernel.dtype())
            .reverse(kernel_dims(conv, true))
    }
}

/// Sizes of the spatial dimensions of a convolution, with the gaps of dilations and strides.
struct SpatialSizes {
    /// Input, with gaps of the input dilation.
    input: Vec<i64>,
    /// Kernel, with gaps of the kernel dilation.
    kernel: Vec<i64>,
    /// Positions of the window, with gaps of the strides.
    output: Vec<i64>,
}

impl SpatialSizes {
    fn new(conv: &ConvolutionAttributes, x: Tensor<'_>, kernel: Tensor<'_>, g: Tensor<'_>) -> Self {
        let sizes = |tensor: Tensor<'_>, dims: &ConvolutionDims, dilation: &[usize]| {
            let all = tensor.dims();
            let spatial = dims.spatial.iter().zip(dilation);
            spatial.map(|(&dim, &by)| dilated(all[dim], by)).collect()
        };
        SpatialSizes {
            input: sizes(x, &conv.input, &conv.input_dilation),
            kernel: sizes(kernel, &conv.kernel, &conv.kernel_dilation),
            output: sizes(g, &conv.output, &conv.strides),
        }
    }
}

/// Spatial dimensions of the kernel that the convolution reverses, or those that it does not.
fn kernel_dims(conv: &ConvolutionAttributes, reversed: bool) -> Vec<usize> {
    let spatial = conv.kernel.spatial.iter().zip(&conv.reversal);
    spatial
        .filter(|&(_, &reversal)| reversal == reversed)
        .map(|(&dim, _)| dim)
        .collect()
}

/// `values` in the ascending order of the `keys` they are paired with.
fn paired_in_order(keys: &[usize], values: &[usize]) -> Vec<usize> {
    let mut pairs: Vec<(usize, usize)> = keys.iter().copied().zip(values.iter().copied()).collect();
    pairs.sort_unstable();
    pairs.into_iter().map(|(_, value)| value).collect()
}

/// Dimension numbers with batch and feature exchanged.
fn exchanged(dims: &ConvolutionDims) -> ConvolutionDims {
    ConvolutionDims {
        batch: dims.feature,
        feature: dims.batch,
        spatial: dims.spatial.clone(),
    }
}

/// A size with `dilation - 1` gaps between elements.
fn dilated(size: usize, dilation: usize) -> i64 {
    match size {
        0 => 0,
        size => (size as i64 - 1) * dilation as i64 + 1,
    }
}

/// Splits dimension `from` into `groups` and the rest, and merges the groups into dimension `into`
/// as its outer part.
#[track_caller]
fn regroup(x: Tensor<'_>, from: usize, into: usize, groups: usize) -> Tensor<'_> {
    if groups == 1 {
        return x;
    }
    let mut dims = x.dims();
    dims[from] /= groups;
    let mut split = dims.clone();
    split.insert(from, groups);
    dims[into] *= groups;
    x.reshape(split).move_dim(from, into).reshape(dims)
}
