//! Tracing, gradients, layers, losses and optimizers.
//!
//! Code that computes with [`Tensor`]s is run once, in a [`Trace`], and leaves a program; [`Jit`] compiles it and runs it
//! on arrays. [`grad()`] appends the gradient to the trace. Nothing here knows a backend.
//!
//! A model is a struct generic over its leaf. `Mlp<Param>` describes it, `Mlp<Tensor>` is being traced, and its gradients
//! are another `Mlp<Tensor>`:
//!
//! ```
//! use halite_core::{DType, TensorType, Tree};
//! use halite_nn::{Adam, Dropout, Linear, Param, Tensor, Trace, cross_entropy, grad, init, optim, rng, summary};
//!
//! #[derive(Tree)]
//! struct Mlp<L> {
//!     hidden: Linear<L>,
//!     dropout: Dropout, // no parameters: a static field
//!     out: Linear<L>,
//! }
//!
//! impl Mlp<Param> {
//!     fn new() -> Self {
//!         Mlp { hidden: Linear::new(784, 512), dropout: Dropout::new(0.1), out: Linear::new(512, 10) }
//!     }
//! }
//!
//! impl<'t> Mlp<Tensor<'t>> {
//!     /// `x: [batch, 784]` to logits `[batch, 10]`.
//!     fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
//!         let x = self.hidden.forward(x).relu();
//!         self.out.forward(self.dropout.forward(x))
//!     }
//! }
//!
//! let description = Mlp::new();
//! assert!(summary(&description).contains("407,050 parameters"));
//!
//! // One training step, as `Jit` would trace it.
//! let cx = &Trace::new();
//! let key = cx.input(TensorType::new(DType::U32, [2]), "key");
//! let images = cx.input(TensorType::new(DType::F32, [32, 784]), "images");
//! let labels = cx.input(TensorType::new(DType::U8, [32]), "labels");
//! cx.set_mode(true, Some(rng::fold_in(key, 1)));
//!
//! let model = init(cx, &description, rng::fold_in(key, 0));
//! let loss = cross_entropy(model.forward(images), labels).value();
//! let gradients = grad(loss, &model);
//!
//! let adam = Adam::new(1e-3);
//! let slots = init(cx, &optim::slots(&adam, &description), key);
//! let step = cx.scalar(0.0, DType::U32);
//! let (model, _slots) = optim::update(&adam, cx, step, &description, model, gradients, slots);
//! assert_eq!(model.hidden.weight.ty().to_string(), "f32[784, 512]");
//!
//! // A mistake does not stop the trace: it is kept, with the line of the code above that made it.
//! model.out.forward(images);
//! let mistakes = cx.mistakes();
//! assert_eq!(mistakes.len(), 1);
//! println!("{}", mistakes[0]); // src/main.rs:47:11: dot: f32[32, 784] and f32[512, 10] ..
//! ```
//!
//! | for | see |
//! |---|---|
//! | values and operations | [`Tensor`], [`Trace`] |
//! | gradients | [`grad()`], [`vjp`] |
//! | programs | [`Jit`] |
//! | parameters and their first values | [`Param`], [`Init`], [`init()`], [`summary`] |
//! | layers | [`Linear`], [`Conv2d`], [`BatchNorm`], [`LayerNorm`], [`GroupNorm`], [`RmsNorm`], [`Embedding`], [`Dropout`], [`Activation`] |
//! | losses and metrics | [`CrossEntropy`], [`mse`], [`huber`], [`bce_with_logits`], [`accuracy`], [`Mean`] |
//! | optimizers | [`Sgd`], [`Adam`], [`AdamW`], [`Schedule`], [`optim::clip_global_norm`] |
//! | random numbers | [`rng`] |
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
