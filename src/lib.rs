//! Hardware abstraction for machine learning, with a training stack on top of it.
//!
//! A model is written once, for every accelerator that has a PJRT plugin. halite has trained on CPUs
//! and on one NVIDIA GPU (an H100, an H200), and not yet on TPUs; programs for all of them are compiled
//! ahead of time, too. [`Accelerator`] opens an accelerator as a [`Client`]; no other code depends on it.
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
//! /// Points of `y = 3 x - 1`.
//! fn points(count: usize) -> Result<InMemory> {
//!     let x: Vec<f32> = (0..count).map(|i| i as f32 / count as f32).collect();
//!     let y: Vec<f32> = x.iter().map(|x| 3.0 * x - 1.0).collect();
//!     InMemory::new([("x", HostArray::from_slice(&x, [count])?), ("y", HostArray::from_slice(&y, [count])?)])
//! }
//!
//! # fn main() -> Result<()> {
//! let client = Accelerator::cpu().open()?; // installs the plugin if it is missing
//! let scalar = || Param::new([], Init::Zeros);
//! let line = Line { slope: scalar(), offset: scalar() };
//! // The loss to minimize: the mean squared error.
//! let task = task(&line, |_cx, line, batch| {
//!     batch.mean(mse(batch.input * line.slope + line.offset, batch.target))
//! });
//! let trainer = Trainer::builder(&client).epochs(40).batch_size(32).quiet(true).build()?;
//! let sgd = Sgd::new(0.2).momentum(0.9);
//! let fitted = trainer.fit(task, line, sgd, points(256)?, points(100)?)?;
//! let slope: f32 = fitted.model.slope.item()?;
//! assert!((slope - 3.0).abs() < 0.01, "{slope}");
//! assert_eq!(fitted.report.blocking_reads, 0); // training never waited for the device
//! # Ok(())
//! # }
//! ```
//!
//! | task | module |
//! |---|---|
//! | open an accelerator | [`backends`] |
//! | write a model, a loss, an optimizer; compile functions | [`nn`] |
//! | load your own data | [`data`] |
//! | train, save and resume | [`train`] |
//! | download packages with known digests | [`fetch`] |
//! | take a published model: classify, embed, generate, fine-tune | [`models`] |
//! | load and save published weights | [`weights`] |
//! | inspect programs | [`ir`] |
//! | read, write and exchange programs | [`stablehlo`], [`exchange`] |
//! | plan a step without devices; find the fastest mesh | [`plan`] |
//! | trace the devices in some steps | [`profile`] |
//! | train with many processes | [`cluster`] |
//! | count and time what a client does; find what makes a program slow | [`telemetry`] |
//! | work with devices and their data | [`HostArray`], [`Array`], [`Client`], [`Mesh`] |
//! | name, visit and rebuild structs of tensors | [`tree`] |
//! | write a backend without PJRT, or name any other type of the contract; test it | [`mod@core`], [`conformance`] |
//!
//! The folder `examples/` has complete programs. The command `halite` is a thin layer over this
//! library.
//!
//! [`Accelerator`]: backends::Accelerator
#![forbid(unsafe_code)]

mod export;
mod job;
pub mod plan;
pub mod profile;

pub use export::{ExportOptions, export_pretrained, export_run};
pub use job::OpenDevices;

pub use halite_backends as backends;
pub use halite_cluster as cluster;
pub use halite_conformance as conformance;
pub use halite_core as core;
pub use halite_core::{
    Array, Client, Collective, CollectiveExt, Compilation, CompileOptions, DType, DTypePolicy,
    DeviceId, Error, ErrorKind, FlagValue, HostArray, LaunchObserver, LossScale, Mesh, MeshShape,
    Observer, PartitionSpec, Pending, Placement, QueuedLaunch, ReduceOp, Result, Sharding,
    TensorType,
    tree::{self, Tree},
};
pub use halite_data as data;
pub use halite_exchange as exchange;
pub use halite_fetch as fetch;
pub use halite_ir as ir;
pub use halite_models as models;
pub use halite_nn::{self as nn, Param};
pub use halite_stablehlo as stablehlo;
pub use halite_telemetry as telemetry;
pub use halite_telemetry::{CounterSnapshot, Counters, Finding, FindingKind, Metric};
pub use halite_train as train;
pub use halite_weights as weights;

/// Items that most programs need: `use halite::prelude::*`.
pub mod prelude {
    pub use crate::OpenDevices;
    pub use halite_backends::Accelerator;
    pub use halite_core::{
        Array, Client, DType, DTypePolicy, Error, HostArray, Result, TensorType,
        tree::{Empty, Leaf, Tree},
    };
    pub use halite_data::{Dataset, DatasetExt, InMemory, Labeled, Mnist};
    pub use halite_nn::*;
    pub use halite_telemetry::ClientMetrics;
    pub use halite_train::{
        Alternating, Checkpoint, Collect, Predict, State, Task, Trainer, Weighted, task, task_on,
    };
}

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The program on the page compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/coming-from-lightning.md")]
struct ComingFromLightning;

/// The program on the page compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/seeing-a-run.md")]
struct SeeingARun;

/// The programs of the page run.
#[cfg(doctest)]
#[doc = include_str!("../docs/converting.md")]
struct Converting;

/// The programs on the page run.
#[cfg(doctest)]
#[doc = include_str!("../docs/data.md")]
struct Data;

/// The program on the page compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/images.md")]
struct Images;

/// The program on the page compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/models.md")]
struct Models;

/// The program on the page runs.
#[cfg(doctest)]
#[doc = include_str!("../docs/weights.md")]
struct Weights;

/// The program on the page runs.
#[cfg(doctest)]
#[doc = include_str!("../docs/layouts.md")]
struct Layouts;
