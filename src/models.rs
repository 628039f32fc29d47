//! Models and their tasks: gray images in ten classes, and telling the classes apart
//! (`halite train mnist`); text, and telling the next token (`halite train text`).

mod text;

use std::{fmt, marker::PhantomData};

pub use self::text::{LanguageModel, Sampling, TokenBatch, generate};
use crate::{
    DType,
    data::Labeled,
    nn::{Conv2d, CrossEntropy, Linear, Mean, Padding, Param, Tensor, Trace, correct},
    train::{Predict, Task},
    tree::{Family, Leaf, Tree},
};

/// A multi-layer perceptron: dense layers with ReLU between them.
#[derive(Tree, Clone, Debug)]
pub struct Mlp<L> {
    /// The hidden layers.
    pub hidden: Vec<Linear<L>>,
    /// To one number for each class.
    pub out: Linear<L>,
}

impl Mlp<Param> {
    /// `sizes`: inputs, the hidden layers, classes.
    ///
    /// # Panics
    /// If there are fewer than two sizes.
    pub fn new(sizes: &[usize]) -> Self {
        let [.., last, classes] = sizes else {
            panic!("an Mlp needs at least inputs and classes, got {sizes:?}")
        };
        let hidden = sizes[..sizes.len() - 1]
            .windows(2)
            .map(|pair| Linear::new(pair[0], pair[1]))
            .collect();
        Mlp {
            hidden,
            out: Linear::new(*last, *classes),
        }
    }
}

impl<'t> Mlp<Tensor<'t>> {
    /// `x: [batch, inputs]` to logits `[batch, classes]`.
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let x = self
            .hidden
            .iter()
            .fold(x, |x, layer| layer.forward(x).relu());
        self.out.forward(x)
    }
}

/// A small convolutional network for 28x28 images: two 3x3 convolutions, each with ReLU and 2x2 max
/// pooling, then two dense layers.
#[derive(Tree, Clone, Debug)]
pub struct Cnn<L> {
    /// One channel to 32.
    pub conv1: Conv2d<L>,
    /// 32 channels to 64.
    pub conv2: Conv2d<L>,
    /// `7 * 7 * 64` to 128.
    pub hidden: Linear<L>,
    /// To one number for each class.
    pub out: Linear<L>,
}

impl Cnn<Param> {
    /// For so many classes.
    pub fn new(classes: usize) -> Self {
        Cnn {
            conv1: Conv2d::new(1, 32, 3).same(),
            conv2: Conv2d::new(32, 64, 3).same(),
            hidden: Linear::new(7 * 7 * 64, 128),
            out: Linear::new(128, classes),
        }
    }
}

impl<'t> Cnn<Tensor<'t>> {
    /// `x: [batch, 28, 28, 1]` to logits `[batch, classes]`.
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

/// A family of models that tell classes of images apart.
pub trait ImageModel: Family {
    /// `images: [batch, 28, 28]`, 0 to 1, to logits `[batch, 10]`.
    fn logits<'t>(model: &Self::Of<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t>;
}

impl ImageModel for Mlp<()> {
    fn logits<'t>(model: &Mlp<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t> {
        model.forward(images.flatten_from(1))
    }
}

impl ImageModel for Cnn<()> {
    fn logits<'t>(model: &Cnn<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t> {
        model.forward(images.unsqueeze(3))
    }
}

/// Telling the classes of gray images apart: cross entropy, and accuracy as a metric.
///
/// A batch has images `u8[batch, 28, 28]` and labels `u8[batch]`. They become floats on the device,
/// from 0 to 1.
pub struct Classify<M>(PhantomData<fn() -> M>);

impl<M> Classify<M> {
    /// The task for models of family `M`.
    pub fn new() -> Self {
        Classify(PhantomData)
    }
}

impl<M> Default for Classify<M> {
    fn default() -> Self {
        Classify::new()
    }
}

impl<M> fmt::Debug for Classify<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Classify")
    }
}

impl<M: ImageModel> Task for Classify<M> {
    type Model = M;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &M::Of<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let logits = M::logits(model, scaled(batch.input));
        cx.metric(
            "accuracy",
            Mean::weighted(correct(logits, batch.target, 1), batch.weight),
        );
        CrossEntropy::new()
            .weights(batch.weight)
            .loss(logits, batch.target)
    }
}

impl<M: ImageModel> Predict for Classify<M> {
    type Output = Leaf<()>;

    /// The most likely class of each image, `s32[batch]`.
    fn predict<'t>(
        &self,
        _cx: &'t Trace,
        model: &M::Of<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Leaf<Tensor<'t>> {
        Leaf(M::logits(model, scaled(batch.input)).argmax(1))
    }
}

fn scaled(images: Tensor<'_>) -> Tensor<'_> {
    images.convert(DType::F32) / 255.0
}
