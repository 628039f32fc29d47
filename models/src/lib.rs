//! Models with their papers, published weights and tasks.
//!
//! | task | items |
//! |---|---|
//! | image classification | [`Mlp`], [`Cnn`]; task [`Classify`] |
//! | language modeling | [`Transformer`](halite_nn::Transformer); task [`LanguageModel`] |
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

mod classify;
mod cnn;
mod generate;
mod language;
mod mlp;
mod pretrained;
mod step;

pub use classify::{Classify, ImageModel, normalized};
pub use cnn::Cnn;
pub use generate::{Sampling, generate};
pub use language::{LanguageModel, TokenBatch};
pub use mlp::Mlp;
pub use pretrained::{Config, Pretrained, PretrainedModel};
pub use step::{TrainingOptions, TrainingStep};
