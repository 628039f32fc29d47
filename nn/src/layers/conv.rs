use std::panic::Location;

use halite_core::Tree;

use crate::{ConvOptions, Init, Padding, Param, ParamKind, Tensor};

/// Convolution over `N` spatial dimensions, features last.
#[derive(Clone, Debug, Tree)]
pub struct Conv<L, const N: usize> {
    /// `[window.., in / groups, out]`
    pub weight: L,
    /// `[out]`
    pub bias: Option<L>,
    /// Stride, padding, dilation and groups.
    pub options: ConvOptions,
}

/// Convolution of sequences: `[batch, time, features]`.
pub type Conv1d<L> = Conv<L, 1>;

/// Convolution of images: `[batch, height, width, features]`.
pub type Conv2d<L> = Conv<L, 2>;

/// Convolution of volumes or videos: `[batch, depth, height, width, features]`.
pub type Conv3d<L> = Conv<L, 3>;

/// One number for each of `N` spatial dimensions: `3` for all, or `[3, 5]`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Each<const N: usize>(pub [usize; N]);

impl<const N: usize> From<usize> for Each<N> {
    fn from(all: usize) -> Self {
        Each([all; N])
    }
}

impl<const N: usize> From<[usize; N]> for Each<N> {
    fn from(each: [usize; N]) -> Self {
        Each(each)
    }
}

impl<const N: usize> Conv<Param, N> {
    /// Maps `inputs` to `outputs` features with this window, stride 1, no padding, and a bias.
    /// Initialized uniformly within `1 / sqrt(inputs * window)`, as in PyTorch (Kaiming uniform).
    pub fn new(inputs: usize, outputs: usize, window: impl Into<Each<N>>) -> Self {
        let Each(window) = window.into();
        let mut dims = window.to_vec();
        dims.extend([inputs, outputs]);
        let init = Init::torch_default(inputs * window.iter().product::<usize>());
        let bias = Param::new([outputs], init);
        Conv {
            weight: Param::new(dims, init).of_kind(ParamKind::Conv),
            bias: Some(bias),
            options: ConvOptions::default(),
        }
    }

    /// Depthwise convolution: each feature is convolved by a window of its own, with a bias.
    /// PyTorch's `Conv2d(features, features, window, groups=features)`.
    ///
    /// ```
    /// use halite_nn::{Conv2d, summary};
    ///
    /// let layer = Conv2d::depthwise(32, 3).padding(1).without_bias();
    /// assert!(summary(&layer).contains("f32[3, 3, 1, 32]"));
    /// ```
    pub fn depthwise(features: usize, window: impl Into<Each<N>>) -> Self {
        Conv::new(features, features, window).groups(features)
    }

    /// Sets the stride of the window.
    pub fn stride(mut self, stride: impl Into<Each<N>>) -> Self {
        self.options.strides = stride.into().0.to_vec();
        self
    }

    /// Pads each dimension with this number of zeros at both ends.
    pub fn padding(mut self, padding: impl Into<Each<N>>) -> Self {
        let edges = padding.into().0.map(|size| (size as i64, size as i64));
        self.options.padding = Padding::Explicit(edges.to_vec());
        self
    }

    /// Pads with zeros so that with stride 1 the output has the size of the input:
    /// [`Padding::Same`].
    pub fn same(mut self) -> Self {
        self.options.padding = Padding::Same;
        self
    }

    /// Sets the distance between elements of the window; 1 is dense.
    pub fn dilation(mut self, dilation: impl Into<Each<N>>) -> Self {
        self.options.kernel_dilation = dilation.into().0.to_vec();
        self
    }

    /// Convolves the features in separate groups; as many groups as inputs is a depthwise
    /// convolution. Both numbers of features must be divisible by it. The initialization is that of
    /// [`new`](Self::new) for the smaller fan-in.
    pub fn groups(mut self, groups: usize) -> Self {
        let (before, groups) = (self.options.groups.max(1), groups.max(1));
        let mut dims = self.weight.ty.dims().to_vec();
        dims[N] = dims[N] * before / groups;
        let init = Init::torch_default(dims[..=N].iter().product());
        self.weight = Param {
            ty: self.weight.ty.with_dims(dims),
            init,
            ..self.weight
        };
        self.options.groups = groups;
        self.bias_init(init)
    }

    /// Removes the bias.
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// Sets the initialization of the weight.
    pub fn weight_init(mut self, init: Init) -> Self {
        self.weight.init = init;
        self
    }

    /// Sets the initialization of the bias, if there is one.
    pub fn bias_init(mut self, init: Init) -> Self {
        self.bias.iter_mut().for_each(|bias| bias.init = init);
        self
    }
}

impl<'t, const N: usize> Conv<Tensor<'t>, N> {
    /// Maps `x: [batch, spatial.., in]` to `[batch, spatial.., out]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let y = x.conv(self.weight, &self.options);
        match self.bias {
            Some(bias) => y + bias,
            None => y,
        }
    }
}

impl<'t> Tensor<'t> {
    /// Mean over all spatial dimensions: `[batch, spatial.., features]` to `[batch, features]`.
    #[track_caller]
    pub fn global_avg_pool(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        self.mean((1..self.rank().saturating_sub(1)).collect::<Vec<_>>())
    }

    /// Maximum over all spatial dimensions: `[batch, spatial.., features]` to
    /// `[batch, features]`.
    #[track_caller]
    pub fn global_max_pool(self) -> Tensor<'t> {
        let _site = self.trace().called_from(Location::caller());
        self.max((1..self.rank().saturating_sub(1)).collect::<Vec<_>>())
    }
}
