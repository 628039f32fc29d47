//! Vision Transformer (A. Dosovitskiy et al., [An Image is Worth 16x16
//! Words](https://arxiv.org/abs/2010.11929), 2020): patches of an image as tokens of a transformer
//! encoder, and a class token whose features are classified.
//!
//! | configuration | parameters (1,000 classes) | torchvision | timm |
//! |---|---|---|---|
//! | [`VitConfig::s16`] | 22,050,664 | | `vit_small_patch16_224` |
//! | [`VitConfig::b16`] | 86,567,656 | `vit_b_16` | `vit_base_patch16_224` |
//! | [`VitConfig::l16`] | 304,326,632 | `vit_l_16` | `vit_large_patch16_224` |
//! | [`VitConfig::ten_billion`] | 10,077,927,400 | | |
//!
//! The input is `[batch, 224, 224, 3]`. Weights of torchvision expect
//! [`Normalization::IMAGENET`](crate::Normalization::IMAGENET), those of timm
//! [`Normalization::HALF`](crate::Normalization::HALF).
//!
//! # Parameters
//!
//! | path | dimensions |
//! |---|---|
//! | `patches.weight`, `.bias` | `[patch, patch, 3, hidden size]`, `[hidden size]` |
//! | `class_token` | `[1, 1, hidden size]` |
//! | `positions` | `[1, 1 + patches, hidden size]`, the class token's first |
//! | `blocks.attention_norm`, `attention`, `mlp_norm`, `mlp` | as in [`Transformer`](halite_nn::Transformer) |
//! | `norm.scale`, `.bias` | `[hidden size]` |
//! | `head.weight`, `.bias` | `[hidden size, classes]`, `[classes]` |
//!
//! ```no_run
//! // Needs weights, as `torch.save(torchvision.models.vit_b_16(weights="DEFAULT").state_dict(), "vit.pth")`
//! // writes them.
//! use halite_core::Client;
//! use halite_models::{Vit, VitConfig};
//! use halite_embedded::{Options, Embedded};
//! use halite_weights::{WeightLoader, open};
//!
//! # fn main() -> halite_core::Result<()> {
//! let client = Client::new(Embedded::new(&Options::default())?);
//! let (net, file) = (Vit::new(&VitConfig::b16(10))?, open("vit.pth")?);
//! let loaded = WeightLoader::new(&file, &net.names()).replace("head").load(&client, &net)?;
//! # let _ = loaded;
//! # Ok(())
//! # }
//! ```

use std::panic::Location;

use halite_core::{Error, Result, Tree};
use halite_ir::Remat;
use halite_nn::{
    Activation, Attention, AxisRole, Block, Conv2d, Dropout, FeedForward, Init, LayerNorm, Linear,
    Mask, Norm, NormKind, Param, Stack, Tensor,
};
use halite_weights::NameMap;

use crate::ColorImageModel;

/// Shape and options of a [`Vit`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VitConfig {
    /// Height and width of the images, in pixels; a multiple of `patch`.
    pub image: usize,
    /// Height and width of a patch, in pixels.
    pub patch: usize,
    /// Number of layers (blocks).
    pub layers: usize,
    /// Hidden size: features of each position.
    pub hidden_size: usize,
    /// Number of attention heads, each of `hidden_size / heads` features.
    pub heads: usize,
    /// Size of the hidden layer of the MLP.
    pub mlp_size: usize,
    /// Number of classes.
    pub classes: usize,
    /// Dropout rate of the input, of attention weights, and of the output of each half of a block.
    pub dropout: f64,
    /// Rematerialization of each block in the backward pass; `None` saves all residuals.
    pub remat: Option<Remat>,
}

impl VitConfig {
    /// ViT-S/16 for images of 224x224.
    pub const fn s16(classes: usize) -> Self {
        Self::of(12, 384, 6, classes)
    }

    /// ViT-B/16 for images of 224x224.
    pub const fn b16(classes: usize) -> Self {
        Self::of(12, 768, 12, classes)
    }

    /// ViT-L/16 for images of 224x224.
    pub const fn l16(classes: usize) -> Self {
        Self::of(24, 1024, 16, classes)
    }

    /// ViT of 10.08 billion parameters for images of 224x224 in patches of 14x14: the size of
    /// PyTorch/XLA's example of fully sharded training, with a class token.
    pub const fn ten_billion(classes: usize) -> Self {
        VitConfig {
            patch: 14,
            ..Self::of(32, 5120, 32, classes)
        }
    }

    const fn of(layers: usize, hidden_size: usize, heads: usize, classes: usize) -> Self {
        VitConfig {
            image: 224,
            patch: 16,
            layers,
            hidden_size,
            heads,
            mlp_size: 4 * hidden_size,
            classes,
            dropout: 0.0,
            remat: None,
        }
    }

    /// Number of patches of an image.
    pub const fn patches(&self) -> usize {
        let side = self.image / self.patch;
        side * side
    }

    /// Checks the sizes.
    ///
    /// # Errors
    /// All sizes that fit no model.
    pub fn check(&self) -> Result<()> {
        let mut wrong = Vec::new();
        let sizes = [
            ("image", self.image),
            ("patch", self.patch),
            ("layers", self.layers),
            ("hidden_size", self.hidden_size),
            ("heads", self.heads),
            ("mlp_size", self.mlp_size),
            ("classes", self.classes),
        ];
        for (name, size) in sizes {
            if size == 0 {
                wrong.push(format!("{name} is 0"));
            }
        }
        if self.patch > 0 && !self.image.is_multiple_of(self.patch) {
            wrong.push(format!(
                "image {} is not a multiple of patch {}",
                self.image, self.patch
            ));
        }
        if self.heads > 0 && !self.hidden_size.is_multiple_of(self.heads) {
            wrong.push(format!(
                "hidden_size {} is not a multiple of heads {}",
                self.hidden_size, self.heads
            ));
        }
        if !(0.0..=1.0).contains(&self.dropout) {
            wrong.push(format!("dropout {}; expected 0 to 1", self.dropout));
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(Error::invalid("vision transformer", wrong.join("; ")))
        }
    }
}

/// Vision transformer: classifier of color images of one size.
#[derive(Tree, Clone, Debug)]
pub struct Vit<L> {
    /// Embedding of patches: a convolution whose stride is its window.
    pub patches: Conv2d<L>,
    /// Input of the class token, `[1, 1, hidden size]`.
    pub class_token: L,
    /// Position embeddings, the class token's first: `[1, 1 + patches, hidden size]`.
    pub positions: L,
    /// The blocks, in order.
    pub blocks: Stack<Block<L>>,
    /// Norm before the head.
    pub norm: LayerNorm<L>,
    /// Dense layer from the class token to logits.
    pub head: Linear<L>,
    /// Shape and options.
    pub config: VitConfig,
}

/// Epsilon of layer norm.
const EPS: f64 = 1e-6;

impl Vit<Param> {
    /// Describes a model of this shape, initialized as torchvision does: the head and the class
    /// token with zeros.
    ///
    /// # Errors
    /// If the configuration is invalid: see [`VitConfig::check`].
    pub fn new(config: &VitConfig) -> Result<Self> {
        config.check()?;
        let hidden = config.hidden_size;
        let inputs = 3 * config.patch * config.patch;
        let patches = Conv2d::new(3, hidden, config.patch)
            .stride(config.patch)
            .weight_init(Init::TruncatedNormal {
                mean: 0.0,
                std: 1.0 / (inputs as f64).sqrt(),
            })
            .bias_init(Init::Zeros);
        let positions = Init::Normal {
            mean: 0.0,
            std: 0.02,
        };
        Ok(Vit {
            patches,
            class_token: Param::new([1, 1, hidden], Init::Zeros),
            positions: Param::new([1, 1 + config.patches(), hidden], positions),
            blocks: Stack::new(config.layers, block(config)),
            norm: LayerNorm::new(hidden).eps(EPS),
            head: Linear::new(hidden, config.classes)
                .weight_init(Init::Zeros)
                .bias_init(Init::Zeros),
            config: *config,
        })
    }

    /// Names of torchvision's `VisionTransformer`, whose queries, keys and values are one tensor:
    /// `conv_proj`, `encoder.layers.encoder_layer_0.self_attention.in_proj_weight`, `heads.head`.
    pub fn names(&self) -> NameMap {
        let layer = "encoder.layers.encoder_layer_{layer}";
        NameMap::torch()
            .rename("patches", "conv_proj")
            .rename("positions", "encoder.pos_embedding")
            .rename("blocks.attention_norm", &format!("{layer}.ln_1"))
            .fuse(
                QKV_WEIGHTS,
                &format!("{layer}.self_attention.in_proj_weight"),
                0,
            )
            .fuse(
                QKV_BIASES,
                &format!("{layer}.self_attention.in_proj_bias"),
                0,
            )
            .rename(
                "blocks.attention.o",
                &format!("{layer}.self_attention.out_proj"),
            )
            .rename("blocks.mlp_norm", &format!("{layer}.ln_2"))
            .rename("blocks.mlp.up", &format!("{layer}.mlp.0"))
            .rename("blocks.mlp.down", &format!("{layer}.mlp.3"))
            .rename("norm", "encoder.ln")
            .rename("head", "heads.head")
    }

    /// Names of timm's `VisionTransformer`: `patch_embed.proj`, `cls_token`, `pos_embed`,
    /// `blocks.0.attn.qkv`, `head`.
    pub fn timm_names(&self) -> NameMap {
        let layer = "blocks.{layer}";
        NameMap::torch()
            .rename("patches", "patch_embed.proj")
            .rename("class_token", "cls_token")
            .rename("positions", "pos_embed")
            .rename("blocks.attention_norm", &format!("{layer}.norm1"))
            .fuse(QKV_WEIGHTS, &format!("{layer}.attn.qkv.weight"), 0)
            .fuse(QKV_BIASES, &format!("{layer}.attn.qkv.bias"), 0)
            .rename("blocks.attention.o", &format!("{layer}.attn.proj"))
            .rename("blocks.mlp_norm", &format!("{layer}.norm2"))
            .rename("blocks.mlp.up", &format!("{layer}.mlp.fc1"))
            .rename("blocks.mlp.down", &format!("{layer}.mlp.fc2"))
    }
}

const QKV_WEIGHTS: [&str; 3] = [
    "blocks.attention.q.weight",
    "blocks.attention.k.weight",
    "blocks.attention.v.weight",
];
const QKV_BIASES: [&str; 3] = [
    "blocks.attention.q.bias",
    "blocks.attention.k.bias",
    "blocks.attention.v.bias",
];

/// A block, initialized as in torchvision.
fn block(config: &VitConfig) -> Block<Param> {
    let (hidden, mlp) = (config.hidden_size, config.mlp_size);
    let glorot = |inputs: usize, outputs: usize| {
        let bound = (6.0 / (inputs + outputs) as f64).sqrt();
        Init::Uniform {
            low: -bound,
            high: bound,
        }
    };
    let mut attention = Attention::new(hidden, config.heads, hidden / config.heads);
    for projection in [&mut attention.q, &mut attention.k, &mut attention.v] {
        // The three are one matrix there.
        projection.weight.init = glorot(hidden, 3 * hidden);
        (projection.bias.iter_mut()).for_each(|bias| bias.init = Init::Zeros);
    }
    (attention.o.bias.iter_mut()).for_each(|bias| bias.init = Init::Zeros);
    let dense = |inputs, outputs| {
        let small = Init::Normal {
            mean: 0.0,
            std: 1e-6,
        };
        Linear::new(inputs, outputs)
            .weight_init(glorot(inputs, outputs))
            .bias_init(small)
    };
    let norm = || Norm {
        scale: Param::new([hidden], Init::Ones),
        bias: Some(Param::new([hidden], Init::Zeros)),
        kind: NormKind::Layer,
        eps: EPS,
    };
    Block {
        attention_norm: norm(),
        attention: attention.dropout(config.dropout),
        mlp_norm: norm(),
        mlp: FeedForward {
            up: dense(hidden, mlp),
            gate: None,
            down: dense(mlp, hidden),
            activation: Activation::Gelu,
        },
        dropout: Dropout::new(config.dropout),
    }
}

impl<'t> Vit<Tensor<'t>> {
    /// Maps `x: [batch, image, image, 3]` to logits `[batch, classes]`.
    #[track_caller]
    pub fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        let _site = x.trace().called_from(Location::caller());
        self.head.forward(self.features(x).index(1, 0))
    }

    /// Maps `x: [batch, image, image, 3]` to the features of all positions, the class token's
    /// first: `[batch, 1 + patches, hidden size]`.
    #[track_caller]
    pub fn features(&self, x: Tensor<'t>) -> Tensor<'t> {
        let cx = x.trace();
        let _site = cx.called_from(Location::caller());
        let VitConfig {
            image,
            hidden_size,
            dropout,
            remat,
            ..
        } = self.config;
        let dims = x.dims();
        let batch = dims.first().copied().unwrap_or(1);
        let like = x
            .ty()
            .with_dims([batch, 1 + self.config.patches(), hidden_size]);
        if !x.is_error() && (dims.len() != 4 || dims[1..] != [image, image, 3]) {
            let message = format!("images {}; expected [batch, {image}, {image}, 3]", x.ty());
            return cx.fail("vision transformer", message, Some(like));
        }
        let patches = self.patches.forward(x);
        let patches = patches.reshape([batch, self.config.patches(), hidden_size]);
        let class = self.class_token.broadcast_to([batch, 1, hidden_size]);
        let x = cx.concat(&[class, patches], 1) + self.positions;
        let x = shard_by_samples(Dropout::new(dropout).forward(x));
        let block = |block: &Block<Tensor<'t>>, x| {
            shard_by_samples(block.forward(shard_by_samples(x), Mask::None, None))
        };
        let x = self.blocks.scan_with(cx, remat, x, block);
        shard_by_samples(self.norm.forward(x))
    }
}

/// Shards `x: [batch, ..]` by samples, as [`Transformer`](halite_nn::Transformer) does between its
/// blocks: weights that are fully sharded are gathered, not activations.
fn shard_by_samples(x: Tensor<'_>) -> Tensor<'_> {
    x.role_constraint([Some(AxisRole::Batch)])
}

impl ColorImageModel for Vit<()> {
    fn logits<'t>(model: &Vit<Tensor<'t>>, images: Tensor<'t>) -> Tensor<'t> {
        model.forward(images)
    }
}
