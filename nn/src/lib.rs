//! Tracing, gradients, layers, losses and optimizers.
#![forbid(unsafe_code)]

mod check;
mod collectives;
mod context;
mod conv;
mod index;
mod mean;
mod ops;
mod product;
mod reduce;
pub mod rng;
mod shape;
mod special;
mod tensor;
mod trace;

pub use conv::{ConvOptions, Padding};
pub use mean::Mean;
pub use ops::Operand;
pub use tensor::Tensor;
pub use trace::{CallSite, Mistake, Trace};
