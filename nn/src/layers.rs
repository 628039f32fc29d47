//! Layers: structs of parameters with a forward pass.
//!
//! A layer is a struct generic over its leaf with `#[derive(Tree)]`. `X<Param>` describes it and
//! has the constructors, `X<Tensor>` has `forward`. A model is a struct of layers, so this folder
//! is also the example of how to write one.
//!
//! Features are the last dimension everywhere: `[batch, features]`,
//! `[batch, height, width, features]`.

mod activation;
mod attention;
mod conv;
mod dropout;
mod embedding;
mod linear;
mod norm;
mod rotary;
mod stack;

pub use self::{
    activation::Activation,
    attention::{Attention, FromHeads, Mask, ToHeads, attention, attention_in_blocks},
    conv::{Conv, Conv1d, Conv2d, Conv3d, Each},
    dropout::Dropout,
    embedding::Embedding,
    linear::Linear,
    norm::{BatchNorm, GroupNorm, LayerNorm, RmsNorm},
    rotary::{Rotary, RotaryScaling, Rotation},
    stack::Stack,
};
