//! Residual networks (He et al. 2015) in the form of torchvision: batch norm after each
//! convolution, and the stride of a bottleneck in its 3x3 convolution.

use halite::{
    Param, Tree,
    nn::{BatchNorm, Conv2d, Init, Linear, Padding, Tensor},
};

use crate::Forward;

/// A convolution without bias, and batch norm.
#[derive(Tree, Clone, Debug)]
struct ConvNorm<L> {
    conv: Conv2d<L>,
    norm: BatchNorm<L>,
}

impl ConvNorm<Param> {
    fn new(inputs: usize, outputs: usize, window: usize, stride: usize) -> Self {
        let fan_out = (outputs * window * window) as f64;
        ConvNorm {
            conv: Conv2d::new(inputs, outputs, window)
                .stride(stride)
                .padding(window / 2)
                .without_bias()
                .weight_init(Init::Normal {
                    mean: 0.0,
                    std: (2.0 / fan_out).sqrt(),
                }),
            norm: BatchNorm::new(outputs),
        }
    }
}

impl<'t> ConvNorm<Tensor<'t>> {
    fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        self.norm.forward(self.conv.forward(x))
    }
}

/// A residual block: convolutions with ReLU between, plus the input.
#[derive(Tree, Clone, Debug)]
struct Block<L> {
    convolutions: Vec<ConvNorm<L>>,
    /// 1x1 convolution of the input, where the block changes its shape.
    projection: Option<ConvNorm<L>>,
}

impl Block<Param> {
    /// Creates a basic block of two 3x3 convolutions, or a bottleneck of 1x1, 3x3 and 1x1.
    fn new(bottleneck: bool, inputs: usize, width: usize, stride: usize) -> Self {
        let (outputs, convolutions) = if bottleneck {
            let convolutions = vec![
                ConvNorm::new(inputs, width, 1, 1),
                ConvNorm::new(width, width, 3, stride),
                ConvNorm::new(width, 4 * width, 1, 1),
            ];
            (4 * width, convolutions)
        } else {
            let convolutions = vec![
                ConvNorm::new(inputs, width, 3, stride),
                ConvNorm::new(width, width, 3, 1),
            ];
            (width, convolutions)
        };
        let changes = stride != 1 || inputs != outputs;
        Block {
            convolutions,
            projection: changes.then(|| ConvNorm::new(inputs, outputs, 1, stride)),
        }
    }
}

impl<'t> Block<Tensor<'t>> {
    fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let shortcut = match &self.projection {
            Some(projection) => projection.forward(x),
            None => x,
        };
        let mut convolutions = self.convolutions.iter();
        let first = convolutions.next().expect("a block has convolutions");
        let y = convolutions.fold(first.forward(x), |y, next| next.forward(y.relu()));
        (y + shortcut).relu()
    }
}

/// A residual network.
#[derive(Tree, Clone, Debug)]
pub struct ResNet<L> {
    stem: ConvNorm<L>,
    blocks: Vec<Block<L>>,
    head: Linear<L>,
    /// True if the stem has a 3x3 max pooling of stride 2.
    #[tree(static)]
    stem_pool: bool,
}

impl ResNet<Param> {
    /// Creates a ResNet-18 for images of 32x32: a 3x3 stem of stride 1 without pooling.
    pub fn resnet18_small(classes: usize) -> Self {
        Self::new(
            ConvNorm::new(3, 64, 3, 1),
            false,
            [2, 2, 2, 2],
            false,
            classes,
        )
    }

    /// Creates a ResNet-50 for images of 224x224.
    pub fn resnet50(classes: usize) -> Self {
        Self::new(
            ConvNorm::new(3, 64, 7, 2),
            true,
            [3, 4, 6, 3],
            true,
            classes,
        )
    }

    fn new(
        stem: ConvNorm<Param>,
        stem_pool: bool,
        stages: [usize; 4],
        bottleneck: bool,
        classes: usize,
    ) -> Self {
        let mut inputs = 64;
        let mut blocks = Vec::new();
        for (stage, count) in stages.into_iter().enumerate() {
            let width = 64 << stage;
            for block in 0..count {
                let stride = if block == 0 && stage > 0 { 2 } else { 1 };
                blocks.push(Block::new(bottleneck, inputs, width, stride));
                inputs = if bottleneck { 4 * width } else { width };
            }
        }
        ResNet {
            stem,
            blocks,
            head: Linear::new(inputs, classes),
            stem_pool,
        }
    }
}

impl Forward for ResNet<()> {
    /// `x: [batch, height, width, 3]`; returns logits `[batch, classes]`.
    fn logits<'t>(model: &ResNet<Tensor<'t>>, x: Tensor<'t>) -> Tensor<'t> {
        let mut x = model.stem.forward(x).relu();
        if model.stem_pool {
            let padding = Padding::Explicit(vec![(1, 1); 2]);
            x = x.max_pool([3, 3], [2, 2], padding);
        }
        for block in &model.blocks {
            x = block.forward(x);
        }
        model.head.forward(x.global_avg_pool())
    }
}
