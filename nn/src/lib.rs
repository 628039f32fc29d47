//! Tracing, gradients, layers, losses and optimizers.
//!
//! A [`Trace`] records what is done to [`Tensor`]s; [`grad()`] appends the gradient to it; [`Jit`]
//! makes a program of it, compiles it once per combination of input types, and runs it on arrays. A
//! model is a struct generic over its leaf: `Mlp<Param>` describes it, `Mlp<Tensor>` computes,
//! `Mlp<Array>` is on devices.
//!
//! ```
//! use halite_core::{Array, Client, Null, Tree, tree};
//! use halite_nn::{Linear, Model, Tensor, grad, jit_step, mse, summary};
//!
//! #[derive(Tree, Clone)]
//! struct Mlp<L> {
//!     hidden: Linear<L>,
//!     out: Linear<L>,
//! }
//!
//! impl<'t> Mlp<Tensor<'t>> {
//!     /// `x: f32[batch, 4]` to `f32[batch, 1]`.
//!     fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
//!         self.out.forward(self.hidden.forward(x).relu())
//!     }
//! }
//!
//! # fn main() -> halite_core::Result<()> {
//! let model = Mlp { hidden: Linear::new(4, 8), out: Linear::new(8, 1) };
//! assert!(summary(&model).contains("hidden.weight  f32[4, 8]"));
//!
//! let client = Client::new(Null::new(1)); // computes nothing; a real one comes from `halite_backends::Accelerator`
//! let parameters: Mlp<Array> = model.initialize(&client, 42)?;
//!
//! // A step of gradient descent: the parameters are moved in and updated in place.
//! let step = jit_step(&client, &parameters, |_cx, model, [x, y]| {
//!     let loss = mse(model.forward(x), y).mean_all();
//!     let gradients = grad(loss, &model);
//!     let next = tree::zip(model, gradients).map_leaves(|_path, (value, slope)| value - 0.1 * slope);
//!     (next, [loss])
//! });
//! let x = Array::from_slice(&client, &[0.0f32; 16 * 4], [16, 4])?;
//! let y = Array::from_slice(&client, &[0.0f32; 16], [16, 1])?;
//! let (parameters, [_loss]) = step.call(parameters, [&x, &y])?;
//! let (_parameters, [loss]) = step.call(parameters, [&x, &y])?;
//! assert_eq!(loss.ty().to_string(), "f32[]");
//! assert_eq!(step.compiles(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Shape and type errors are reported when the function is traced, all at once, each with the user's
//! line:
//!
//! ```
//! use halite_core::{DType, TensorType};
//! use halite_nn::Trace;
//!
//! let cx = Trace::new();
//! let a = cx.input(TensorType::new(DType::F32, [2, 3]), "a");
//! let b = cx.input(TensorType::new(DType::F32, [4, 5]), "b");
//! let _ = a.matmul(b) + (a + b); // two mistakes; the sum of both is not a third
//! assert_eq!(cx.mistakes().len(), 2);
//! assert_eq!(cx.mistakes()[0].op, "dot");
//! assert!(cx.check().unwrap_err().to_string().contains("f32[2, 3]"));
//! ```
//!
//! # Guarantees
//!
//! * Tracing runs nothing and hides no graph: a tensor belongs to its trace and cannot outlive it.
//! * A [`Jit`] traces and compiles a function once per combination of input types; compiling it
//!   again is logged with the input that changed, and at most [`Jit::max_programs`] programs are
//!   kept.
//! * Likely errors in traced code are mistakes (a loss that depends on no parameter, dropout without
//!   a mode) or [warnings](Trace::warnings) (a parameter without a gradient, an unused metric).
//! * Hyperparameters, such as a learning rate, are arguments of the program, which is not compiled
//!   again for other values: see [`Trace::hyperparameter`].
//! * Every [`Op`](halite_ir::Op) has a gradient or an error that explains why not; none is silently
//!   zero.
//! * Random numbers are a function of their key ([`rng`]), the same bits on every backend.
//! * Nothing here knows PJRT, a dataset or a file.
#![forbid(unsafe_code)]

mod array_collectives;
mod axis_roles;
mod check;
mod collectives;
mod context;
mod control;
mod conv;
mod custom_op;
mod dim;
mod function;
mod grad;
mod hyperparameter;
mod index;
mod init;
mod interpolate;
mod jit;
mod layers;
mod linalg;
mod lora;
mod losses;
mod low_rank;
mod lower;
mod mean;
mod metrics;
mod model;
mod ops;
pub mod optim;
mod param;
mod pattern;
mod process_group;
mod processes;
mod product;
mod reduce;
pub mod rng;
pub mod schedule;
mod shape;
mod shard_map;
mod special;
mod specs;
mod tensor;
mod trace;
mod transformer;

pub use array_collectives::ArrayCollectives;
pub use axis_roles::{AxisRole, AxisRoles};
pub use collectives::Over;
pub use context::{ClassTarget, CollectedRows, Padded};
pub use control::ScanOptions;
pub use conv::{ConvOptions, ConvTransposeOptions, Padding};
pub use custom_op::CustomOp;
pub use dim::{Dim, Dims};
pub use function::{ArrayFunction, Inputs, jit, jit_like, jit_step, jit_tree, jit_vec};
pub use grad::{CustomVjp, grad, vjp};
pub use halite_ir::Triangular;
pub use init::{Distribution, Fan, Init};
pub use interpolate::Interpolation;
pub use jit::{Jit, Stages};
pub use layers::{
    Activation, Attention, BatchNorm, Conv, Conv1d, Conv2d, Conv3d, ConvTranspose, ConvTranspose1d,
    ConvTranspose2d, ConvTranspose3d, Dropout, Each, Embedding, FromHeads, Gates, GroupNorm, Gru,
    InstanceNorm, LayerNorm, Linear, Lstm, LstmState, Mask, Recurrent, RecurrentLayer, RmsNorm,
    Rotary, RotaryScaling, Rotation, Stack, StochasticDepth, ToHeads, attention,
    attention_in_blocks,
};
pub use lora::{Adapted, Adapter, Adapters, Lora};
pub use losses::{
    CrossEntropy, NllLoss, bce_with_logits, cross_entropy, huber, kl_divergence, mae, mse,
    nll_loss, soft_cross_entropy,
};
pub use lower::{Function, Lowered, Traced, lower};
pub use mean::{IntoMean, Mean};
pub use metrics::{accuracy, correct, correct_top_k, top_k_accuracy};
pub use model::Model;
pub use ops::Operand;
pub use optim::{
    Adafactor, Adagrad, Adam, AdamW, Decay, Lamb, Lars, Lion, Muon, Optimizer, RmsProp, Sgd,
};
pub use param::{Param, ParamKind, freeze, freeze_except, init, summary};
pub use pattern::Pattern;
pub use process_group::{Exchanged, PROCESS_AXIS, Processes};
pub use processes::ProcessShards;
pub use schedule::{Schedule, ScheduleSpec};
pub use shape::{IntoSlice, Slice};
pub use shard_map::Manual;
pub use specs::{ArraySpec, ShardedType};
pub use tensor::Tensor;
pub use trace::{CallSite, Mistake, Trace};
pub use transformer::{
    Block, FeedForward, KeyValueCache, MlpKind, Norm, NormKind, Positions, Transformer,
    TransformerConfig,
};
