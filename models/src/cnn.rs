//! Small convolutional network for MNIST and data sets like it.

use halite_core::Tree;
use halite_nn::{Conv2d, Linear, Padding, Param, Tensor};

use crate::ImageModel;

/// A small convolutional network for square grayscale images: two 3x3 convolutions, each with 2x2
/// max pooling and ReLU, then two dense layers.
#[derive(Tree, Clone, Debug)]
pub struct Cnn<L> {
    /// Convolution from 1 channel to 32.
    pub conv1: Conv2d<L>,
    /// Convolution from 32 channels to 64.
    pub conv2: Conv2d<L>,
    /// Dense layer to 128 features.
    pub hidden: Linear<L>,
    /// Output layer, which returns the logits.
    pub out: Linear<L>,
}

impl Cnn<Param> {
    /// Creates a network for images of `side` by `side` pixels, with `classes` outputs.
    pub fn new(side: usize, classes: usize) -> Self {
        let pooled = side / 2 / 2;
        Cnn {
            conv1: Conv2d::new(1, 32, 3).same(),
            conv2: Conv2d::new(32, 64, 3).same(),
            hidden: Linear::new(pooled * pooled * 64, 128),
            out: Linear::new(128, classes),
        }
    }
}

impl<'t> Cnn<Tensor<'t>> {
    /// Maps `x: [batch, side, side, 1]` to logits `[batch, classes]`.
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let x = self
            .conv1
            .forward(x)
            .max_pool([2, 2], [2, 2], Padding::Valid)
            .relu();
        let x = self
            .conv2
            .forward(x)
            .max_pool([2, 2], [2, 2], Padding::Valid)
            .relu();
        let x = self.hidden.forward(x.flatten_from(1)).relu();
        self.out.forward(x)
    }
}

impl ImageModel for Cnn<()> {
    fn logits<'t>(model: &Cnn<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t> {
        model.forward(images.unsqueeze(3))
    }
}
