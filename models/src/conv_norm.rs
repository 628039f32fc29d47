//! Convolution and batch norm, the part that convolutional classifiers are made of.

use halite_core::Tree;
use halite_nn::{BatchNorm, Conv2d, Init, Param, Tensor};

/// Convolution without bias, followed by batch norm.
#[derive(Tree, Clone, Debug)]
pub struct ConvNorm<L> {
    /// Convolution.
    pub conv: Conv2d<L>,
    /// Batch norm of its output.
    pub norm: BatchNorm<L>,
}

impl ConvNorm<Param> {
    /// Combines a convolution, whose bias is removed, with batch norm. The weight is initialized as
    /// in He et al. 2015: normal, variance `2 / fan_out`.
    pub fn new(conv: Conv2d<Param>) -> Self {
        let dims = conv.weight.ty.dims();
        let outputs = dims[dims.len() - 1];
        let window: usize = dims[..dims.len() - 2].iter().product();
        let fan_out = window * outputs / conv.options.groups.max(1);
        let std = (2.0 / fan_out.max(1) as f64).sqrt();
        ConvNorm {
            conv: conv
                .without_bias()
                .weight_init(Init::Normal { mean: 0.0, std }),
            norm: BatchNorm::new(outputs),
        }
    }

    /// Sets the constant that batch norm adds to the variance.
    pub fn eps(mut self, eps: f64) -> Self {
        self.norm = self.norm.eps(eps);
        self
    }

    /// Sets the weight of a new batch in the running averages of batch norm.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.norm = self.norm.momentum(momentum);
        self
    }
}

impl<'t> ConvNorm<Tensor<'t>> {
    /// Maps `x: [batch, height, width, in]` to `[batch, height, width, out]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        self.norm.forward(self.conv.forward(x))
    }
}
