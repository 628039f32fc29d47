//! ResNet (K. He, X. Zhang, S. Ren, J. Sun, [Deep Residual Learning for Image
//! Recognition](https://arxiv.org/abs/1512.03385), 2015), in torchvision's form: batch norm after
//! each convolution, and the stride of a bottleneck in its 3x3 convolution.
//!
//! | constructor | blocks | parameters (1,000 classes) | torchvision |
//! |---|---|---|---|
//! | [`ResNet::resnet18`] | 2, 2, 2, 2 basic | 11,689,512 | `resnet18` |
//! | [`ResNet::resnet34`] | 3, 4, 6, 3 basic | 21,797,672 | `resnet34` |
//! | [`ResNet::resnet50`] | 3, 4, 6, 3 bottleneck | 25,557,032 | `resnet50` |
//!
//! The input is `[batch, height, width, 3]`; torchvision's weights expect
//! [`Normalization::IMAGENET`](crate::Normalization::IMAGENET) and 224x224. With
//! [`cifar_stem`](ResNet::cifar_stem) it is a network for images of about 32x32.
//!
//! ```no_run
//! // Needs weights, as `torch.save(torchvision.models.resnet34(weights="DEFAULT").state_dict(), "resnet34.pth")`
//! // writes them.
//! use halite_core::Client;
//! use halite_models::ResNet;
//! use halite_embedded::{Options, Embedded};
//! use halite_weights::{WeightLoader, WeightSaver, open};
//!
//! # fn main() -> halite_core::Result<()> {
//! let client = Client::new(Embedded::new(&Options::default())?);
//! let (net, file) = (ResNet::resnet34(10), open("resnet34.pth")?);
//! let names = net.names();
//! // Ten classes in place of a thousand: the head is new.
//! let loaded = WeightLoader::new(&file, &names).replace("head").load(&client, &net)?;
//! WeightSaver::new(&names).save(&net, &loaded.model, "tuned.safetensors")?;
//! # Ok(())
//! # }
//! ```

use std::panic::Location;

use halite_core::Tree;
use halite_nn::{Conv2d, Linear, Padding, Param, Tensor};
use halite_weights::NameMap;

use crate::{ColorImageModel, ConvNorm};

/// Shape of a [`ResNet`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ResNetConfig {
    /// Number of blocks in each of the four stages.
    pub blocks: [usize; 4],
    /// True for bottlenecks of 1x1, 3x3 and 1x1 convolutions, whose output has four times the
    /// features; false for basic blocks of two 3x3 convolutions.
    pub bottleneck: bool,
    /// Features of the stem and of the first stage's 3x3 convolutions; each later stage has twice
    /// those of the one before.
    pub width: usize,
    /// Number of classes.
    pub classes: usize,
}

/// Residual network for color images.
#[derive(Tree, Clone, Debug)]
pub struct ResNet<L> {
    /// First convolution: 7x7 with stride 2, or 3x3 for small images.
    pub stem: ConvNorm<L>,
    /// Residual blocks, by stage.
    pub stages: Vec<Vec<ResidualBlock<L>>>,
    /// Dense layer from the mean over all positions to logits.
    pub head: Linear<L>,
    /// Whether the stem ends with a 3x3 max pooling of stride 2.
    pub stem_pool: bool,
}

/// Residual block: convolutions with ReLU between, plus the input.
#[derive(Tree, Clone, Debug)]
pub struct ResidualBlock<L> {
    /// Two convolutions, or three of a bottleneck.
    pub convolutions: Vec<ConvNorm<L>>,
    /// 1x1 convolution of the input, where the block changes its shape.
    pub projection: Option<ConvNorm<L>>,
}

impl ResNet<Param> {
    /// Describes a ResNet-18 for images of 224x224.
    pub fn resnet18(classes: usize) -> Self {
        Self::new(&ResNetConfig {
            blocks: [2, 2, 2, 2],
            bottleneck: false,
            width: 64,
            classes,
        })
    }

    /// Describes a ResNet-34 for images of 224x224.
    pub fn resnet34(classes: usize) -> Self {
        Self::new(&ResNetConfig {
            blocks: [3, 4, 6, 3],
            bottleneck: false,
            width: 64,
            classes,
        })
    }

    /// Describes a ResNet-50 for images of 224x224.
    pub fn resnet50(classes: usize) -> Self {
        Self::new(&ResNetConfig {
            blocks: [3, 4, 6, 3],
            bottleneck: true,
            width: 64,
            classes,
        })
    }

    /// Describes a network of this shape.
    pub fn new(config: &ResNetConfig) -> Self {
        let mut inputs = config.width;
        let stage = |(number, count): (usize, usize)| {
            let width = config.width << number;
            let block = |place: usize| {
                let stride = if place == 0 && number > 0 { 2 } else { 1 };
                let block = ResidualBlock::new(config.bottleneck, inputs, width, stride);
                inputs = if config.bottleneck { 4 * width } else { width };
                block
            };
            (0..count).map(block).collect()
        };
        ResNet {
            stem: ConvNorm::new(Conv2d::new(3, config.width, 7).stride(2).padding(3)),
            stages: config.blocks.into_iter().enumerate().map(stage).collect(),
            head: Linear::new(inputs, config.classes),
            stem_pool: true,
        }
    }

    /// Replaces the stem by a 3x3 convolution of stride 1 without pooling, for images of about
    /// 32x32 such as those of CIFAR-10.
    pub fn cifar_stem(mut self) -> Self {
        let width = self.stem.norm.scale.ty.elements();
        self.stem = ConvNorm::new(Conv2d::new(3, width, 3).padding(1));
        self.stem_pool = false;
        self
    }

    /// Names of torchvision's `ResNet`: `conv1`, `bn1`, `layer1.0.conv1`, `layer2.0.downsample.0`,
    /// `fc`.
    pub fn names(&self) -> NameMap {
        NameMap::torch()
            .rename("stem.conv", "conv1")
            .rename("stem.norm", "bn1")
            .rename(
                "stages.{s}.{b}.convolutions.{i}.conv",
                "layer{s+1}.{b}.conv{i+1}",
            )
            .rename(
                "stages.{s}.{b}.convolutions.{i}.norm",
                "layer{s+1}.{b}.bn{i+1}",
            )
            .rename(
                "stages.{s}.{b}.projection.conv",
                "layer{s+1}.{b}.downsample.0",
            )
            .rename(
                "stages.{s}.{b}.projection.norm",
                "layer{s+1}.{b}.downsample.1",
            )
            .rename("head", "fc")
    }
}

impl<'t> ResNet<Tensor<'t>> {
    /// Maps `x: [batch, height, width, 3]` to logits `[batch, classes]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        self.head.forward(self.features(x).global_avg_pool())
    }

    /// Maps `x: [batch, height, width, 3]` to the features of the last stage,
    /// `[batch, height / 32, width / 32, features]`, rounded up.
    #[track_caller]
    pub fn features(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let mut x = self.stem.forward(x).relu();
        if self.stem_pool {
            x = x.max_pool([3, 3], [2, 2], Padding::Explicit(vec![(1, 1); 2]));
        }
        let blocks = self.stages.iter().flatten();
        blocks.fold(x, |x, block| block.forward(x))
    }
}

impl ResidualBlock<Param> {
    /// Describes a block of two 3x3 convolutions of `width` features, or a bottleneck of 1x1, 3x3
    /// and 1x1 with `4 * width` features at its end.
    pub fn new(bottleneck: bool, inputs: usize, width: usize, stride: usize) -> Self {
        let conv3 =
            |inputs, stride| ConvNorm::new(Conv2d::new(inputs, width, 3).stride(stride).padding(1));
        let (outputs, convolutions) = if bottleneck {
            let narrow = ConvNorm::new(Conv2d::new(inputs, width, 1));
            let wide = ConvNorm::new(Conv2d::new(width, 4 * width, 1));
            (4 * width, vec![narrow, conv3(width, stride), wide])
        } else {
            (width, vec![conv3(inputs, stride), conv3(width, 1)])
        };
        let changes = stride != 1 || inputs != outputs;
        let projection = || ConvNorm::new(Conv2d::new(inputs, outputs, 1).stride(stride));
        ResidualBlock {
            convolutions,
            projection: changes.then(projection),
        }
    }
}

impl<'t> ResidualBlock<Tensor<'t>> {
    /// Maps `x: [batch, height, width, in]` to `[batch, height / stride, width / stride, out]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let shortcut = match &self.projection {
            Some(projection) => projection.forward(x),
            None => x,
        };
        let mut y = x;
        for (place, layer) in self.convolutions.iter().enumerate() {
            y = layer.forward(if place == 0 { y } else { y.relu() });
        }
        (y + shortcut).relu()
    }
}

impl ColorImageModel for ResNet<()> {
    fn logits<'t>(model: &ResNet<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t> {
        model.forward(images)
    }
}
