//! Rules of dot products and convolutions.

use halite_ir::{ConvDims, Convolution, Dot};

use super::{Back, Step, shape::inverse};
use crate::Tensor;

impl<'t> Step<'_, 't> {
    /// A dot product of the cotangent with the other operand, contracted over its free dimensions.
    #[track_caller]
    pub(super) fn dot(&self, dot: &Dot) -> Back<'t> {
        let (left, right) = (self.x(0), self.x(1));
        // Products keep their operand type, in the backward pass as in the forward pass.
        let g = self.g().convert(left.dtype());
        let free = |rank: usize, batch: &[usize], contract: &[usize]| -> Vec<usize> {
            (0..rank)
                .filter(|dim| !batch.contains(dim) && !contract.contains(dim))
                .collect()
        };
        let left_free = free(left.rank(), &dot.left_batch, &dot.left_contract);
        let right_free = free(right.rank(), &dot.right_batch, &dot.right_contract);
        let batches = dot.left_batch.len();
        let of_g_batch: Vec<usize> = (0..batches).collect();
        let of_g_left: Vec<usize> = (batches..batches + left_free.len()).collect();
        let of_g_right: Vec<usize> = (batches + left_free.len()..g.rank()).collect();
        let to_left = || {
            let back = Dot {
                left_batch: of_g_batch.clone(),
                right_batch: dot.right_batch.clone(),
                left_contract: of_g_right.clone(),
                right_contract: right_free.clone(),
                result: dot.result,
            };
            let contracted = paired_in_order(&dot.right_contract, &dot.left_contract);
            let order = [&dot.left_batch[..], &left_free, &contracted].concat();
            g.dot_general(right, back)
                .convert(left.dtype())
                .transpose(inverse(&order))
        };
        let to_right = || {
            let back = Dot {
                left_batch: dot.left_batch.clone(),
                right_batch: of_g_batch.clone(),
                left_contract: left_free.clone(),
                right_contract: of_g_left.clone(),
                result: dot.result,
            };
            let contracted = paired_in_order(&dot.left_contract, &dot.right_contract);
            let order = [&dot.right_batch[..], &contracted, &right_free].concat();
            left.dot_general(g, back)
                .convert(right.dtype())
                .transpose(inverse(&order))
        };
        vec![self.if_wanted(0, to_left), self.if_wanted(1, to_right)]
    }

    /// For `x`: the cotangent, dilated by the strides, convolved with the reversed kernel. For
    /// the kernel: `x` convolved with the spread cotangent, batches and features exchanged.
    #[track_caller]
    pub(super) fn convolution(&self, conv: &Convolution) -> Back<'t> {
        let (x, kernel, g) = (self.x(0), self.x(1), self.g().convert(self.ty(0).dtype()));
        let sizes = |dims: &[usize], spatial: &[usize]| -> Vec<i64> {
            spatial.iter().map(|&dim| dims[dim] as i64).collect()
        };
        let x_sizes = dilated(&sizes(&x.dims(), &conv.input.spatial), &conv.input_dilation);
        let kernel_sizes = dilated(
            &sizes(&kernel.dims(), &conv.kernel.spatial),
            &conv.kernel_dilation,
        );
        let g_sizes = dilated(&sizes(&g.dims(), &conv.output.spatial), &conv.strides);
        let spatial = 0..conv.strides.len();
        let turned: Vec<usize> = spatial
            .clone()
            .filter(|&dim| conv.reversal[dim])
            .map(|dim| conv.kernel.spatial[dim])
            .collect();
        let to_x = || {
            let unturned: Vec<usize> = spatial
                .clone()
                .filter(|&dim| !conv.reversal[dim])
                .map(|dim| conv.kernel.spatial[dim])
                .collect();
            let groups = conv.feature_groups.max(conv.batch_groups);
            let back = Convolution {
                input: conv.output.clone(),
                kernel: exchanged(&conv.kernel),
                output: conv.input.clone(),
                strides: conv.input_dilation.clone(),
                padding: spatial
                    .clone()
                    .map(|dim| {
                        let before = kernel_sizes[dim] - 1 - conv.padding[dim].0;
                        (
                            before,
                            x_sizes[dim] + kernel_sizes[dim] - 1 - g_sizes[dim] - before,
                        )
                    })
                    .collect(),
                input_dilation: conv.strides.clone(),
                kernel_dilation: conv.kernel_dilation.clone(),
                reversal: vec![false; conv.strides.len()],
                feature_groups: groups,
                batch_groups: 1,
                result: conv.result,
            };
            let kernel =
                regroup(kernel, conv.kernel.batch, conv.kernel.feature, groups).reverse(unturned);
            let through = g.conv_general(kernel, back).convert(x.dtype());
            regroup(
                through,
                conv.input.feature,
                conv.input.batch,
                conv.batch_groups,
            )
        };
        let to_kernel = || {
            let back = Convolution {
                input: exchanged(&conv.input),
                kernel: exchanged(&conv.output),
                output: exchanged(&conv.kernel),
                strides: conv.kernel_dilation.clone(),
                padding: spatial
                    .clone()
                    .map(|dim| {
                        let before = conv.padding[dim].0;
                        (
                            before,
                            g_sizes[dim] - x_sizes[dim] + kernel_sizes[dim] - 1 - before,
                        )
                    })
                    .collect(),
                input_dilation: conv.input_dilation.clone(),
                kernel_dilation: conv.strides.clone(),
                reversal: vec![false; conv.strides.len()],
                feature_groups: conv.batch_groups,
                batch_groups: conv.feature_groups,
                result: conv.result,
            };
            x.conv_general(g, back)
                .convert(kernel.dtype())
                .reverse(turned)
        };
        let empty = |tensor: Tensor<'t>| g.dims().contains(&0).then(|| tensor.zeros_like());
        vec![
            self.if_wanted(0, || empty(x).unwrap_or_else(to_x)),
            self.if_wanted(1, || empty(kernel).unwrap_or_else(to_kernel)),
        ]
    }
}

/// `values` in the ascending order of the `keys` they are paired with.
fn paired_in_order(keys: &[usize], values: &[usize]) -> Vec<usize> {
    let mut pairs: Vec<(usize, usize)> = keys.iter().copied().zip(values.iter().copied()).collect();
    pairs.sort_unstable();
    pairs.into_iter().map(|(_, value)| value).collect()
}

/// Batches and features in each other's place.
fn exchanged(dims: &ConvDims) -> ConvDims {
    ConvDims {
        batch: dims.feature,
        feature: dims.batch,
        spatial: dims.spatial.clone(),
    }
}

/// Sizes with `dilation - 1` gaps between elements.
fn dilated(sizes: &[i64], dilation: &[usize]) -> Vec<i64> {
    sizes
        .iter()
        .zip(dilation)
        .map(|(&size, &by)| {
            if size == 0 {
                0
            } else {
                (size - 1) * by as i64 + 1
            }
        })
        .collect()
}

/// Takes `groups` out of dimension `from`, outermost, and puts them into dimension `into`,
/// outermost.
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
