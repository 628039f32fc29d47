//! Transposed convolutions: the gradient of a convolution by its input, as an operation.

use std::panic::Location;

use halite_core::TensorType;

use super::{ConvOptions, Padding, spread};
use crate::{
    Tensor,
    check::{Checked, check},
    trace,
};

/// Options of a transposed convolution, as in `torch.nn.ConvTranspose2d`. An empty list means the
/// default for every spatial dimension.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ConvTransposeOptions {
    /// Distance in the output between the windows of neighbours in the input: 1.
    pub strides: Vec<usize>,
    /// Number of elements that are cut off at both ends of the output: 0.
    pub padding: Vec<usize>,
    /// Number of elements that are added at the end of the output: 0. Smaller than the stride or
    /// the dilation.
    pub output_padding: Vec<usize>,
    /// Dilation of the kernel: 1.
    pub dilation: Vec<usize>,
    /// Number of separate groups of features; 0 counts as 1.
    pub groups: usize,
}

/// Numbers of one spatial dimension.
struct Spatial {
    stride: usize,
    padding: usize,
    output_padding: usize,
    dilation: usize,
    window: usize,
}

const OP: &str = "transposed convolution";

impl<'t> Tensor<'t> {
    /// Transposed convolution of `[batch, spatial.., in]` with a kernel `[window.., in, out /
    /// groups]` to `[batch, spatial.., out]`: each input element adds the kernel, times its value,
    /// to a window of the output (`torch.nn.functional.conv_transpose2d`). A size `n` becomes
    /// `(n - 1) * stride + dilation * (window - 1) + 1 + output_padding - 2 * padding`.
    #[track_caller]
    pub fn conv_transpose(self, kernel: Tensor<'t>, options: &ConvTransposeOptions) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        if self.is_error() || kernel.is_error() {
            return self.trace.error_like(Some(self.ty()));
        }
        let spatial = check!(self.transposed_windows(kernel, options));
        let groups = options.groups.max(1);
        if groups == 1 && spatial.iter().all(Spatial::is_tiled) {
            return self.tiled_conv_transpose(kernel);
        }
        let padding = spatial.iter().map(|dim| {
            let low = spread(dim.window, dim.dilation) as i64 - 1 - dim.padding as i64;
            (low, low + dim.output_padding as i64)
        });
        let forward = ConvOptions {
            strides: vec![],
            padding: Padding::Explicit(padding.collect()),
            input_dilation: spatial.iter().map(|dim| dim.stride).collect(),
            kernel_dilation: spatial.iter().map(|dim| dim.dilation).collect(),
            groups,
        };
        let count = spatial.len();
        let reversed = kernel.reverse((0..count).collect::<Vec<_>>());
        self.conv(with_groups_of_outputs(reversed, groups), &forward)
    }

    /// The windows, if the kernel and the options fit.
    #[track_caller]
    fn transposed_windows(
        self,
        kernel: Tensor<'t>,
        options: &ConvTransposeOptions,
    ) -> Checked<'t, Vec<Spatial>> {
        let (x, k) = (self.ty(), kernel.ty());
        let fail = |message: String| {
            let names = trace::names(&[self, kernel]);
            Err((self.trace).fail(OP, message + &names, Some(x.clone())))
        };
        let groups = options.groups.max(1);
        let rank = x.rank();
        if rank < 2 || rank != k.rank() || x.dims()[rank - 1] != k.dims()[rank - 2] {
            return fail(format!(
                "{x} with kernel {k}; expected [batch, spatial.., in] and [window.., in, out / groups]"
            ));
        }
        if !k.dims()[rank - 2].is_multiple_of(groups) {
            return fail(format!(
                "{groups} groups of {} input features; expected a divisor",
                k.dims()[rank - 2]
            ));
        }
        let count = rank - 2;
        let strides = self.per_dimension("strides", &options.strides, count)?;
        let dilations = self.per_dimension("dilations", &options.dilation, count)?;
        let or_zeros = |what, values: &[usize]| -> Checked<'t, Vec<usize>> {
            if values.is_empty() {
                return Ok(vec![0; count]);
            }
            self.check_count(OP, what, values.len(), count)?;
            Ok(values.to_vec())
        };
        let paddings = or_zeros("paddings", &options.padding)?;
        let output_paddings = or_zeros("output paddings", &options.output_padding)?;
        let mut spatial = Vec::with_capacity(count);
        for at in 0..count {
            let dim = Spatial {
                stride: strides[at],
                padding: paddings[at],
                output_padding: output_paddings[at],
                dilation: dilations[at],
                window: k.dims()[at],
            };
            if let Some(problem) = dim.problem(&x, at + 1) {
                return fail(problem);
            }
            spatial.push(dim);
        }
        Ok(spatial)
    }

    /// Transposed convolution whose windows touch and do not overlap: a product of matrices.
    #[track_caller]
    fn tiled_conv_transpose(self, kernel: Tensor<'t>) -> Tensor<'t> {
        let (x, k) = (self.dims(), kernel.dims());
        let count = k.len() - 2;
        // [batch, spatial.., window.., out]
        let product = self.tensordot(kernel, &[(count + 1, count)]);
        let pairs = (0..count).flat_map(|at| [1 + at, 1 + count + at]);
        let order: Vec<usize> = [0]
            .into_iter()
            .chain(pairs)
            .chain([2 * count + 1])
            .collect();
        let mut dims = vec![x[0]];
        dims.extend((0..count).map(|at| x[at + 1] * k[at]));
        dims.push(k[count + 1]);
        product.transpose(order).reshape(dims)
    }
}

impl Spatial {
    /// What is wrong with the windows along `dim` of `x`, if something is.
    fn problem(&self, x: &TensorType, dim: usize) -> Option<String> {
        if self.output_padding >= self.stride.max(self.dilation) {
            return Some(format!(
                "an output padding of {} in dimension {}; it must be smaller than the stride {} \
                     or the dilation {}",
                self.output_padding, dim, self.stride, self.dilation
            ));
        }
        if self.output_size(x.dims()[dim]).is_none() {
            return Some(format!(
                "dimension {} of {x} with a window of {}, stride {}, dilation {}, padding {} and \
                     output padding {} has an output of no elements, or of more than s32 counts",
                dim, self.window, self.stride, self.dilation, self.padding, self.output_padding
            ));
        }
        None
    }

    /// Whether windows touch and do not overlap, and all of the output is kept.
    fn is_tiled(&self) -> bool {
        self.stride == self.window
            && self.dilation == 1
            && self.padding == 0
            && self.output_padding == 0
    }

    /// Size of the output for an input of `size`; `None` if it is 0 or beyond `i32`.
    fn output_size(&self, size: usize) -> Option<usize> {
        if size == 0 || self.window == 0 {
            return None;
        }
        let whole = spread(size, self.stride)
            .saturating_add(spread(self.window, self.dilation) - 1)
            .saturating_add(self.output_padding);
        let left = whole.checked_sub(self.padding.checked_mul(2)?)?;
        (left > 0 && i32::try_from(whole).is_ok()).then_some(left)
    }
}

/// A kernel `[window.., in, out / groups]` as one of a convolution, `[window.., in / groups, out]`.
#[track_caller]
fn with_groups_of_outputs(kernel: Tensor<'_>, groups: usize) -> Tensor<'_> {
    if groups == 1 {
        return kernel;
    }
    let mut dims = kernel.dims();
    let count = dims.len() - 2;
    let (inputs, outputs) = (dims[count], dims[count + 1]);
    dims.splice(count.., [groups, inputs / groups, outputs]);
    let split = kernel.reshape(&dims).swap_dims(count, count + 1);
    dims.splice(count.., [inputs / groups, groups * outputs]);
    split.reshape(dims)
}
