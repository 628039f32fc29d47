//! Models with their papers, published weights and tasks.
//!
//! | task | items |
//! |---|---|
//! | image classification | [`Mlp`], [`Cnn`]; task [`Classify`] |
//! | color images | [`ResNet`], [`EfficientNet`], [`Vit`]; tasks [`ClassifyColor`], [`MultiLabel`] |
//! | embeddings of texts | [`Bert`] (MiniLM); [`SentenceEncoder`] |
//! | language modeling | [`Transformer`](halite_nn::Transformer), published as [`Llama`] and [`Gpt2`]; task [`LanguageModel`]; [`Generator`] |
//!
//! ```
//! use halite_core::{DType, TensorType, Tree};
//! use halite_models::Mlp;
//! use halite_nn::Trace;
//!
//! let cx = Trace::new();
//! let model = Mlp::new(&[784, 128, 10]).map_leaves(|path, param| cx.input(param.ty, path.to_string()));
//! let images = cx.input(TensorType::new(DType::F32, [32, 784]), "images");
//! assert_eq!(model.forward(images).dims(), [32, 10]);
//! ```
#![forbid(unsafe_code)]

mod bert;
mod classifiers;
mod classify;
mod cnn;
mod color;
mod conv_norm;
mod decoder;
mod efficientnet;
mod embed;
mod generate;
mod gpt2;
mod language;
mod llama;
mod mlp;
mod multi_label;
mod open_decoder;
mod pretrained;
mod resnet;
mod save;
mod step;
mod tokenizer;
mod vit;

pub use bert::{Bert, BertBlock, BertConfig, Pooling};
pub use classifiers::{Classifier, ClassifierVisitor, DescribedClassifier, Preparation};
pub use classify::{Classify, ImageModel, normalized};
pub use cnn::Cnn;
pub use color::{ClassifyColor, ColorImageModel, Normalization};
pub use conv_norm::ConvNorm;
pub use efficientnet::{
    EfficientNet, EfficientNetConfig, InvertedResidual, LITE0_FILE, LITE0_WEIGHTS,
};
pub use embed::{EmbedOptions, SentenceEncoder};
pub use generate::{
    FinishReason, GeneratedSequence, GeneratedToken, Generation, GenerationOptions,
    GenerationReport, Generator, Sampling, TokenRate, most_likely,
};
pub use gpt2::Gpt2;
pub use halite_weights::Config;
pub use language::{LanguageModel, TokenBatch};
pub use llama::Llama;
pub use mlp::Mlp;
pub use multi_label::MultiLabel;
pub use open_decoder::open_decoder;
pub use pretrained::{Pretrained, PretrainedModel};
pub use resnet::{ResNet, ResNetConfig, ResidualBlock};
pub use step::{TrainingOptions, TrainingStep};
pub use vit::{Vit, VitConfig};
