//! Networks of the benchmarks, and their losses.

use halite::{
    Param, Tree,
    models::{Cnn, Mlp, ResNet},
    nn::{Conv2d, LayerNorm, Linear, Padding, Tensor, Transformer, cross_entropy},
    tree::Family,
};

/// A family of models that return logits.
pub trait Forward: Family<Of<Param>: Send + Sync + Clone> {
    /// Returns logits `[.., classes]`.
    fn logits<'t>(model: &Self::Of<Tensor<'t>>, x: Tensor<'t>) -> Tensor<'t>;

    /// The loss of a training step: by default, the mean cross entropy of the logits with the
    /// labels `y`.
    fn loss<'t>(model: &Self::Of<Tensor<'t>>, x: Tensor<'t>, y: Tensor<'t>) -> Tensor<'t> {
        cross_entropy(Self::logits(model, x), y).mean_all()
    }
}

impl Forward for Mlp<()> {
    fn logits<'t>(model: &Mlp<Tensor<'t>>, x: Tensor<'t>) -> Tensor<'t> {
        model.forward(x)
    }
}

impl Forward for Transformer<()> {
    /// `x`: token ids `[batch, time]`; returns logits `[batch, time, vocabulary]`.
    fn logits<'t>(model: &Transformer<Tensor<'t>>, x: Tensor<'t>) -> Tensor<'t> {
        model.forward(x)
    }
}

/// The convolutional network of the comparison with other frameworks: two 3x3 convolutions on the
/// whole 28x28 image, one 2x2 max pooling, two dense layers.
#[derive(Tree, Clone, Debug)]
pub struct WideCnn<L> {
    conv1: Conv2d<L>,
    conv2: Conv2d<L>,
    hidden: Linear<L>,
    out: Linear<L>,
}

impl WideCnn<Param> {
    /// Creates a model of ten classes.
    #[allow(
        clippy::new_without_default,
        reason = "a model has no default but the one architecture"
    )]
    pub fn new() -> Self {
        WideCnn {
            conv1: Conv2d::new(1, 32, 3).same(),
            conv2: Conv2d::new(32, 64, 3).same(),
            hidden: Linear::new(64 * 14 * 14, 128),
            out: Linear::new(128, 10),
        }
    }
}

impl Forward for Cnn<()> {
    fn logits<'t>(model: &Cnn<Tensor<'t>>, x: Tensor<'t>) -> Tensor<'t> {
        model.forward(x)
    }
}

impl Forward for ResNet<()> {
    /// `x: [batch, height, width, 3]`; returns logits `[batch, classes]`.
    fn logits<'t>(model: &ResNet<Tensor<'t>>, x: Tensor<'t>) -> Tensor<'t> {
        model.forward(x)
    }
}

impl Forward for WideCnn<()> {
    fn logits<'t>(model: &WideCnn<Tensor<'t>>, x: Tensor<'t>) -> Tensor<'t> {
        let x = model.conv1.forward(x).relu();
        let x = model
            .conv2
            .forward(x)
            .relu()
            .max_pool([2, 2], [2, 2], Padding::Valid);
        model
            .out
            .forward(model.hidden.forward(x.flatten_from(1)).relu())
    }
}

/// A GPT-2 block and a head: layer norm, causal attention, layer norm, two dense layers with GELU
/// between.
#[derive(Tree, Clone, Debug)]
pub struct GptBlock<L> {
    attention_norm: LayerNorm<L>,
    query_key_value: Linear<L>,
    attention_out: Linear<L>,
    norm: LayerNorm<L>,
    hidden: Linear<L>,
    out: Linear<L>,
    head: Linear<L>,
    #[tree(static)]
    heads: usize,
}

impl GptBlock<Param> {
    /// Creates a block of this width, number of heads and number of classes.
    pub fn new(width: usize, heads: usize, classes: usize) -> Self {
        GptBlock {
            attention_norm: LayerNorm::new(width),
            query_key_value: Linear::new(width, 3 * width),
            attention_out: Linear::new(width, width),
            norm: LayerNorm::new(width),
            hidden: Linear::new(width, 4 * width),
            out: Linear::new(4 * width, width),
            head: Linear::new(width, classes),
            heads,
        }
    }
}

impl Forward for GptBlock<()> {
    /// `x: [batch, time, width]`; returns logits `[batch * time, classes]`.
    fn logits<'t>(model: &GptBlock<Tensor<'t>>, x: Tensor<'t>) -> Tensor<'t> {
        let [batch, time, width] = x.dims()[..] else {
            panic!("x is [batch, time, width]")
        };
        let by_head = |y: Tensor<'t>| {
            y.reshape([batch, time, model.heads, width / model.heads])
                .transpose([0, 2, 1, 3])
        };
        let parts = model
            .query_key_value
            .forward(model.attention_norm.forward(x))
            .split(2, 3);
        let [query, key, value] = [0, 1, 2].map(|part| by_head(parts[part]));
        let scores = query.matmul(key.swap_dims(2, 3)) / ((width / model.heads) as f64).sqrt();
        let past = x
            .trace()
            .lower_triangle(time, time, 0)
            .broadcast_to(scores.dims());
        let mixed = past.select(scores, -1e9).softmax(3).matmul(value);
        let x = x + model
            .attention_out
            .forward(mixed.transpose([0, 2, 1, 3]).reshape([batch, time, width]));
        let x = x + model
            .out
            .forward(model.hidden.forward(model.norm.forward(x)).gelu_tanh());
        model
            .head
            .forward(x)
            .reshape([batch * time, model.head.weight.dims()[1]])
    }
}
