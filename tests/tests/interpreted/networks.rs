//! Networks of the benchmarks with other frameworks, in small sizes: a ConvNeXt (Liu et al. 2022),
//! and a variational autoencoder with transposed convolutions.

use halite::{
    Param, Tree,
    nn::{Conv2d, ConvOptions, Init, LayerNorm, Linear, Mean, Padding, Tensor, Trace, rng},
    train::{Task, Weighted},
};
use halite_benches::Forward;
use halite_core::DType;
use halite_data::Labeled;

/// A depthwise convolution of 7x7, and two dense layers, scaled and added to the input.
#[derive(Tree, Clone, Debug)]
struct Block<L> {
    depthwise: Conv2d<L>,
    norm: LayerNorm<L>,
    widen: Linear<L>,
    narrow: Linear<L>,
    scale: L,
}

impl Block<Param> {
    fn new(width: usize) -> Self {
        Block {
            depthwise: Conv2d::new(width, width, 7).same().groups(width),
            norm: LayerNorm::new(width),
            widen: Linear::new(width, 4 * width),
            narrow: Linear::new(4 * width, width),
            scale: Param::new([width], Init::Constant(1e-6)),
        }
    }
}

/// Two stages of one block each, for images of three channels in ten classes.
#[derive(Tree, Clone, Debug)]
pub(crate) struct ConvNext<L> {
    stem: Conv2d<L>,
    stem_norm: LayerNorm<L>,
    first: Block<L>,
    down_norm: LayerNorm<L>,
    down: Conv2d<L>,
    second: Block<L>,
    norm: LayerNorm<L>,
    out: Linear<L>,
}

impl ConvNext<Param> {
    pub(crate) fn new() -> Self {
        ConvNext {
            stem: Conv2d::new(3, 16, 4).stride(4),
            stem_norm: LayerNorm::new(16),
            first: Block::new(16),
            down_norm: LayerNorm::new(16),
            down: Conv2d::new(16, 32, 2).stride(2),
            second: Block::new(32),
            norm: LayerNorm::new(32),
            out: Linear::new(32, 10),
        }
    }
}

impl<'t> Block<Tensor<'t>> {
    fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let y = self.norm.forward(self.depthwise.forward(x));
        let y = self.narrow.forward(self.widen.forward(y).gelu_tanh());
        x + y * self.scale
    }
}

impl Forward for ConvNext<()> {
    fn logits<'t>(model: &ConvNext<Tensor<'t>>, x: Tensor<'t>) -> Tensor<'t> {
        let x = model.stem_norm.forward(model.stem.forward(x));
        let x = model.down_norm.forward(model.first.forward(x));
        let x = model.second.forward(model.down.forward(x));
        model.out.forward(model.norm.forward(x.global_avg_pool()))
    }
}

/// Two convolutions to a mean and a variance, and two transposed convolutions back.
#[derive(Tree, Clone, Debug)]
pub(crate) struct Autoencoder<L> {
    conv1: Conv2d<L>,
    conv2: Conv2d<L>,
    code: Linear<L>,
    expand: Linear<L>,
    /// Kernels of transposed convolutions: `[4, 4, in, out]`.
    back2: L,
    back1: L,
}

const CODE: usize = 8;

impl Autoencoder<Param> {
    pub(crate) fn new() -> Self {
        let kernel = |inputs, outputs| {
            let init = Init::Normal {
                mean: 0.0,
                std: 0.05,
            };
            Param::new([4, 4, inputs, outputs], init)
        };
        Autoencoder {
            conv1: Conv2d::new(1, 16, 4).stride(2).padding(1),
            conv2: Conv2d::new(16, 32, 4).stride(2).padding(1),
            code: Linear::new(7 * 7 * 32, 2 * CODE),
            expand: Linear::new(CODE, 7 * 7 * 32),
            back2: kernel(32, 16),
            back1: kernel(16, 1),
        }
    }
}

/// Reconstruction of images.
pub(crate) struct Autoencode;

impl Task for Autoencode {
    type Model = Autoencoder<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Autoencoder<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let x = batch.input;
        let samples = x.dims()[0];
        let hidden = model.conv2.forward(model.conv1.forward(x).relu()).relu();
        let parts = model.code.forward(hidden.flatten_from(1)).split(1, 2);
        let (mean, log_variance) = (parts[0], parts[1]);
        let noise = rng::normal(cx.next_key(), [samples, CODE], DType::F32);
        let code = mean + (log_variance * 0.5).exp() * noise;
        let back = ConvOptions {
            padding: Padding::Explicit(vec![(2, 2), (2, 2)]),
            input_dilation: vec![2, 2],
            ..ConvOptions::default()
        };
        let hidden = model.expand.forward(code).relu();
        let hidden = hidden.reshape([samples, 7, 7, 32]).conv(model.back2, &back);
        let logits = hidden.relu().conv(model.back1, &back);
        // Cross-entropy of the pixels, and the divergence from a normal distribution.
        let pixels = logits.relu() - logits * x + (-logits.abs()).exp().log_1p();
        let divergence = (mean.square() + log_variance.exp() - log_variance - 1.0) * 0.5;
        batch.mean(pixels.flatten_from(1).sum([1]) + divergence.sum([1]))
    }
}
