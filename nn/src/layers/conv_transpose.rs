use std::panic::Location;

use halite_core::Tree;

use super::Each;
use crate::{ConvTransposeOptions, Init, Param, ParamKind, Tensor};

/// Transposed convolution over `N` spatial dimensions, features last
/// (`torch.nn.ConvTranspose2d`): a learned upsampling.
///
/// ```
/// use halite_core::{DType, TensorType, Tree};
/// use halite_nn::{ConvTranspose2d, Trace};
///
/// let up = ConvTranspose2d::new(8, 4, 3).stride(2).padding(1).output_padding(1);
/// let cx = Trace::new();
/// let up = up.map_leaves(|path, param| cx.input(param.ty, path.to_string()));
/// let x = cx.input(TensorType::new(DType::F32, [1, 5, 7, 8]), "x");
/// assert_eq!(up.forward(x).dims(), [1, 10, 14, 4]);
/// ```
#[derive(Clone, Debug, Tree)]
pub struct ConvTranspose<L, const N: usize> {
    /// `[window.., in, out / groups]`
    pub kernel: L,
    /// `[out]`
    pub bias: Option<L>,
    /// Stride, padding, output padding, dilation and groups.
    pub options: ConvTransposeOptions,
}

/// Transposed convolution of sequences: `[batch, time, features]`.
pub type ConvTranspose1d<L> = ConvTranspose<L, 1>;

/// Transposed convolution of images: `[batch, height, width, features]`.
pub type ConvTranspose2d<L> = ConvTranspose<L, 2>;

/// Transposed convolution of volumes: `[batch, depth, height, width, features]`.
pub type ConvTranspose3d<L> = ConvTranspose<L, 3>;

impl<const N: usize> ConvTranspose<Param, N> {
    /// Maps `inputs` to `outputs` features with this window, stride 1, no padding, and a bias.
    /// Initialized uniformly within `1 / sqrt(outputs * window)`, as in PyTorch.
    pub fn new(inputs: usize, outputs: usize, window: impl Into<Each<N>>) -> Self {
        let Each(window) = window.into();
        let mut dims = window.to_vec();
        dims.extend([inputs, outputs]);
        let init = Init::torch_default(outputs * window.iter().product::<usize>());
        ConvTranspose {
            kernel: Param::new(dims, init).of_kind(ParamKind::ConvTranspose),
            bias: Some(Param::new([outputs], init)),
            options: ConvTransposeOptions::default(),
        }
    }

    /// Sets the stride: the factor by which sizes grow.
    pub fn stride(mut self, stride: impl Into<Each<N>>) -> Self {
        self.options.strides = stride.into().0.to_vec();
        self
    }

    /// Cuts off this number of elements at both ends of each dimension of the output.
    pub fn padding(mut self, padding: impl Into<Each<N>>) -> Self {
        self.options.padding = padding.into().0.to_vec();
        self
    }

    /// Adds this number of elements at the end of each dimension of the output; smaller than the
    /// stride or the dilation.
    pub fn output_padding(mut self, padding: impl Into<Each<N>>) -> Self {
        self.options.output_padding = padding.into().0.to_vec();
        self
    }

    /// Sets the distance between elements of the window; 1 is dense.
    pub fn dilation(mut self, dilation: impl Into<Each<N>>) -> Self {
        self.options.dilation = dilation.into().0.to_vec();
        self
    }

    /// Convolves the features in separate groups. Both numbers of features must be divisible by
    /// it. The initialization is that of [`new`](Self::new) for the smaller number of outputs.
    pub fn groups(mut self, groups: usize) -> Self {
        let (before, groups) = (self.options.groups.max(1), groups.max(1));
        let mut dims = self.kernel.ty.dims().to_vec();
        dims[N + 1] = dims[N + 1] * before / groups;
        let window: usize = dims[..N].iter().product();
        let init = Init::torch_default(window * dims[N + 1]);
        self.kernel.ty = self.kernel.ty.with_dims(dims);
        self.options.groups = groups;
        self.kernel_init(init).bias_init(init)
    }

    /// Removes the bias.
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// Sets the initialization of the kernel.
    pub fn kernel_init(mut self, init: Init) -> Self {
        self.kernel.init = init;
        self
    }

    /// Sets the initialization of the bias, if there is one.
    pub fn bias_init(mut self, init: Init) -> Self {
        self.bias.iter_mut().for_each(|bias| bias.init = init);
        self
    }
}

impl<'t, const N: usize> ConvTranspose<Tensor<'t>, N> {
    /// Maps `x: [batch, spatial.., in]` to `[batch, spatial.., out]`; the sizes are those of
    /// [`Tensor::conv_transpose`].
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let y = x.conv_transpose(self.kernel, &self.options);
        match self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}
