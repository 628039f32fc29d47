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
mod conv_transpose;
mod dropout;
mod embedding;
mod linear;
mod norm;
mod recurrent;
mod rotary;
mod stack;
mod stochastic_depth;

pub use self::{
    activation::Activation,
    attention::{Attention, FromHeads, Mask, ToHeads, attention, attention_in_blocks},
    conv::{Conv, Conv1d, Conv2d, Conv3d, Each},
    conv_transpose::{ConvTranspose, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d},
    dropout::Dropout,
    embedding::Embedding,
    linear::Linear,
    norm::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm},
    recurrent::{Gates, Gru, Lstm, LstmState, Recurrent, RecurrentLayer},
    rotary::{Rotary, RotaryScaling, Rotation},
    stack::Stack,
    stochastic_depth::StochasticDepth,
};
