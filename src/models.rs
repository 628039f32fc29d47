//! Built-in models and their tasks: image classification (`halite train mnist`) and language
//! modeling (`halite train text`).

mod export;
mod step;
mod text;

use std::{fmt, marker::PhantomData};

pub use self::{
    export::export_run,
    step::{TrainingOptions, TrainingStep},
    text::{LanguageModel, Sampling, TokenBatch, generate},
};
use crate::{
    DType,
    data::Labeled,
    nn::{Conv2d, CrossEntropy, Linear, Mean, Padding, Param, Tensor, Trace, correct},
    train::{Predict, Task, Weighted},
    tree::{Family, Leaf, Tree},
};

/// A multi-layer perceptron: dense layers with ReLU between them.
#[derive(Tree, Clone, Debug)]
pub struct Mlp<L> {
    /// Hidden layers, each followed by ReLU.
    pub hidden: Vec<Linear<L>>,
    /// Output layer, which returns the logits.
    pub out: Linear<L>,
}

impl Mlp<Param> {
    /// Creates a perceptron of these layer sizes: input features, hidden features, classes.
    ///
    /// # Panics
    /// If there are fewer than two sizes.
    pub fn new(sizes: &[usize]) -> Self {
        let [.., last, classes] = sizes else {
            panic!("an Mlp needs at least an input size and a number of classes, got {sizes:?}")
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
    /// Maps `x: [batch, inputs]` to logits `[batch, classes]`.
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let x = self
            .hidden
            .iter()
            .fold(x, |x, layer| layer.forward(x).relu());
        self.out.forward(x)
    }
}

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

/// A family of image classifiers.
pub trait ImageModel: Family {
    /// Maps `images: [batch, side, side]`, with values from 0 to 1, to logits `[batch, 10]`.
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

/// Classification of grayscale images: cross-entropy loss, with accuracy as a metric.
///
/// A batch has images `u8[batch, side, side]` and labels `u8[batch]`. The images are converted to
/// floats from 0 to 1 on the device.
pub struct Classify<M>(PhantomData<fn() -> M>);

impl<M> Classify<M> {
    /// Creates the task for models of family `M`.
    pub fn new() -> Self {
        Classify(PhantomData)
    }
}

// A derive would require the same of `M`.
impl<M> Clone for Classify<M> {
    fn clone(&self) -> Self {
        Classify::new()
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
        let logits = M::logits(model, normalized(batch.input));
        cx.metric("accuracy", batch.mean(correct(logits, batch.target)));
        CrossEntropy::new()
            .weights(batch.weight)
            .loss(logits, batch.target)
    }
}

impl<M: ImageModel> Predict for Classify<M> {
    type Output = Leaf<()>;

    /// Returns the most likely class of each image, `s32[batch]`.
    fn predict<'t>(
        &self,
        _cx: &'t Trace,
        model: &M::Of<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Tensor<'t> {
        M::logits(model, normalized(batch.input)).argmax(1)
    }
}

/// Converts pixels from 0 to 255 to floats from 0 to 1.
fn normalized(images: Tensor<'_>) -> Tensor<'_> {
    images.convert(DType::F32) / 255.0
}
