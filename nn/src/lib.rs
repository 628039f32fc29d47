//! Tracing, gradients, layers, losses and optimizers.
#![forbid(unsafe_code)]

mod check;
mod collectives;
mod context;
mod control;
mod conv;
mod grad;
mod index;
mod init;
mod jit;
mod layers;
mod losses;
mod mean;
mod metrics;
mod ops;
pub mod optim;
mod param;
mod product;
mod reduce;
pub mod rng;
mod schedule;
mod shape;
mod special;
mod tensor;
mod trace;

pub use conv::{ConvOptions, Padding};
pub use grad::{grad, vjp};
pub use init::{Distribution, Fan, Init, init};
pub use jit::{ArraySpec, Jit, Lowered, Stages, Traced};
pub use layers::{
    Activation, BatchNorm, Conv, Conv1d, Conv2d, Conv3d, Dropout, Each, Embedding, GroupNorm, LayerNorm, Linear, RmsNorm,
};
pub use losses::{
    CrossEntropy, bce_with_logits, bce_with_logits_each, cross_entropy, huber, huber_each, kl_divergence, mae, mae_each, mse,
    mse_each, soft_cross_entropy,
};
pub use mean::Mean;
pub use metrics::{accuracy, correct, top_k_accuracy};
pub use ops::Operand;
pub use optim::{Adam, AdamW, Decay, Optimizer, Sgd};
pub use param::{Param, summary};
pub use schedule::Schedule;
pub use tensor::Tensor;
pub use trace::{CallSite, Mistake, Trace};
