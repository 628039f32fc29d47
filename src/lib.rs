//! halite: hardware abstraction for machine learning, and the training stack on top of it.
//!
//! A model is written once. The same code trains on every accelerator that has a PJRT plugin:
//! [`Accelerator`] opens one as a [`Client`], and nothing after that depends on which it is.
//!
//! ```
//! use halite::prelude::*;
//!
//! /// The model: a struct generic over its leaf.
//! #[derive(Tree)]
//! struct Line<L> {
//!     slope: L,
//!     offset: L,
//! }
//!
//! /// What is to become small: the distance from the points.
//! struct Fit;
//!
//! impl Task for Fit {
//!     type Model = Line<()>;
//!     type Batch = Labeled<()>;
//!
//!     fn loss<'t>(&self, _cx: &'t Trace, model: &Line<Tensor<'t>>, batch: &Labeled<Tensor<'t>>) -> Mean<'t> {
//!         let error = batch.input * model.slope + model.offset - batch.target;
//!         Mean::weighted(error.square(), batch.weight)
//!     }
//! }
//!
//! /// Points of `y = 3 x - 1`.
//! fn points(count: usize) -> Result<InMemory> {
//!     let x: Vec<f32> = (0..count).map(|i| i as f32 / count as f32).collect();
//!     let y: Vec<f32> = x.iter().map(|x| 3.0 * x - 1.0).collect();
//!     InMemory::new([("x", HostArray::from_slice(&x, [count])?), ("y", HostArray::from_slice(&y, [count])?)])
//! }
//!
//! # fn main() -> Result<()> {
//! let client = Accelerator::cpu().open()?; // installs the plugin where it is missing
//! let scalar = || Param::new([], Init::Zeros);
//! let trainer = Trainer::builder(&client).epochs(40).batch_size(32).quiet(true).build()?;
//! let fitted = trainer.fit(
//!     Fit,
//!     Line { slope: scalar(), offset: scalar() },
//!     Sgd::new(0.2).momentum(0.9),
//!     points(256)?,
//!     points(100)?,
//! )?;
//! let slope: f32 = fitted.model.slope.read()?.item()?;
//! assert!((slope - 3.0).abs() < 0.01, "{slope}");
//! assert_eq!(fitted.report.blocking_reads, 0); // nothing waited for the device while it trained
//! # Ok(())
//! # }
//! ```
//!
//! | to | see |
//! |---|---|
//! | open an accelerator | [`backends`] |
//! | write a model, a loss, an optimizer; compile functions | [`nn`] |
//! | bring your own data | [`data`] |
//! | train, save and resume | [`train`] |
//! | fetch packages with known digests | [`fetch`] |
//! | look at programs | [`ir`] |
//! | count and time what a client does; find what makes a program slow | [`telemetry`] |
//! | hold data and devices | [`HostArray`], [`Array`], [`Client`], [`Mesh`] |
//! | name, visit and rebuild structs of tensors | [`tree`] |
//! | write a driver that is no PJRT plugin, or name any other type of the contract | [`mod@core`] |
//!
//! The folder `examples/` has programs to begin with. The command `halite` is a thin layer over
//! this library.
//!
//! [`Accelerator`]: backends::Accelerator
#![forbid(unsafe_code)]

pub mod models;
pub mod plan;

pub use halite_backends as backends;
pub use halite_core as core;
pub use halite_core::{
    Array, Client, Collective, CollectiveExt, Compilation, CompileOptions, DType, DTypePolicy,
    DeviceId, Error, ErrorKind, FlagValue, HostArray, LaunchObserver, LossScale, Mesh, MeshAxes,
    Observer, PartitionSpec, Pending, Placement, QueuedLaunch, ReduceOp, Result, Sharding,
    TensorType,
    tree::{self, Tree},
};
pub use halite_data as data;
pub use halite_fetch as fetch;
pub use halite_ir as ir;
pub use halite_nn::{self as nn, Param};
pub use halite_telemetry as telemetry;
pub use halite_telemetry::{CounterSnapshot, Counters, Finding, FindingKind, Metric};
pub use halite_train as train;

/// What most programs need: `use halite::prelude::*`.
pub mod prelude {
    pub use halite_backends::Accelerator;
    pub use halite_core::{
        Array, Client, DType, DTypePolicy, Error, HostArray, Result, TensorType,
        tree::{Empty, Leaf, Tree},
    };
    pub use halite_data::{Dataset, Digits, InMemory, Labeled};
    pub use halite_nn::*;
    pub use halite_telemetry::ClientMetrics;
    pub use halite_train::{Predict, Task, Trainer};
}

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
