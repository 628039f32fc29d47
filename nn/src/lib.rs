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
mod mean;
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
pub use mean::Mean;
pub use ops::Operand;
pub use optim::{Adam, AdamW, Decay, Optimizer, Sgd};
pub use param::{Param, summary};
pub use schedule::Schedule;
pub use tensor::Tensor;
pub use trace::{CallSite, Mistake, Trace};
