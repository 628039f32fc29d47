//! A ConvNeXt (Liu et al. 2022) of three stages, in the form of torchvision.

use halite::{
    Param, Tree,
    nn::{Conv2d, Init, LayerNorm, Linear, Tensor},
};

use crate::Forward;

/// Standard deviation of first weights.
const WEIGHTS: Init = Init::TruncatedNormal {
    mean: 0.0,
    std: 0.02,
};

fn conv(inputs: usize, outputs: usize, window: usize) -> Conv2d<Param> {
    Conv2d::new(inputs, outputs, window)
        .weight_init(WEIGHTS)
        .bias_init(Init::Zeros)
}

fn linear(inputs: usize, outputs: usize) -> Linear<Param> {
    Linear::new(inputs, outputs)
        .weight_init(WEIGHTS)
        .bias_init(Init::Zeros)
}

/// A depthwise 7x7 convolution, layer norm, and two dense layers, scaled and added to the input.
#[derive(Tree, Clone, Debug)]
struct Block<L> {
    depthwise: Conv2d<L>,
    norm: LayerNorm<L>,
    hidden: Linear<L>,
    out: Linear<L>,
    /// `[width]`
    scale: L,
}

impl Block<Param> {
    fn new(width: usize) -> Self {
        Block {
            depthwise: conv(width, width, 7)
                .padding(3)
                .groups(width)
                .bias_init(Init::Zeros),
            norm: LayerNorm::new(width).eps(1e-6),
            hidden: linear(width, 4 * width),
            out: linear(4 * width, width),
            scale: Param::new([width], Init::Constant(1e-6)),
        }
    }
}

impl<'t> Block<Tensor<'t>> {
    fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let y = self.norm.forward(self.depthwise.forward(x));
        let y = self.out.forward(self.hidden.forward(y).gelu());
        x + y * self.scale
    }
}

/// A convolution of patches that do not overlap, and blocks of its width.
#[derive(Tree, Clone, Debug)]
struct Stage<L> {
    /// Before the patches, in all stages but the first.
    norm: Option<LayerNorm<L>>,
    patches: Conv2d<L>,
    /// After the patches, in the first stage.
    stem_norm: Option<LayerNorm<L>>,
    blocks: Vec<Block<L>>,
}

/// Stages, and a dense layer over the mean of all positions.
#[derive(Tree, Clone, Debug)]
pub struct ConvNext<L> {
    stages: Vec<Stage<L>>,
    norm: LayerNorm<L>,
    head: Linear<L>,
}

impl ConvNext<Param> {
    /// Creates a model of images with three features: patches of 4x4, then of 2x2, and two blocks
    /// of each of these widths.
    pub fn new(widths: &[usize], classes: usize) -> Self {
        let norm = |width: usize| LayerNorm::new(width).eps(1e-6);
        let mut stages = Vec::new();
        let mut inputs = 3;
        for &width in widths {
            let is_first = stages.is_empty();
            let patch = if is_first { 4 } else { 2 };
            stages.push(Stage {
                norm: (!is_first).then(|| norm(inputs)),
                patches: conv(inputs, width, patch).stride(patch),
                stem_norm: is_first.then(|| norm(width)),
                blocks: (0..2).map(|_| Block::new(width)).collect(),
            });
            inputs = width;
        }
        ConvNext {
            stages,
            norm: norm(inputs),
            head: linear(inputs, classes),
        }
    }
}

impl Forward for ConvNext<()> {
    /// `x: [batch, height, width, 3]`; returns logits `[batch, classes]`.
    fn logits<'t>(model: &ConvNext<Tensor<'t>>, mut x: Tensor<'t>) -> Tensor<'t> {
        for stage in &model.stages {
            x = stage.norm.as_ref().map_or(x, |norm| norm.forward(x));
            x = stage.patches.forward(x);
            x = stage.stem_norm.as_ref().map_or(x, |norm| norm.forward(x));
            x = stage.blocks.iter().fold(x, |x, block| block.forward(x));
        }
        model.head.forward(model.norm.forward(x.global_avg_pool()))
    }
}
