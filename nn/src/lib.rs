//! Tracing, gradients, layers, losses and optimizers.
#![forbid(unsafe_code)]

mod context;
mod mean;
mod ops;
pub mod rng;
mod shape;
mod tensor;
mod trace;

pub use mean::Mean;
pub use ops::Operand;
pub use tensor::Tensor;
pub use trace::{CallSite, Mistake, Trace};
