//! Programs from elsewhere, and for elsewhere.
//!
//! An [`Artifact`] is a StableHLO program from a file: text, portable bytecode, or what
//! `jax.export` wrote. [`Artifact::compile`] makes a function of arrays of it;
//! [`Artifact::function`] imports it into a trace, where it composes with other operations and is
//! differentiable. [`Exported`] is the artifact of `jax.export` itself; functions of halite are
//! written as one.
//!
//! ```
//! use halite_core::{Array, Client};
//! use halite_exchange::Artifact;
//! use halite_embedded::{Options, Embedded};
//!
//! # fn main() -> halite_core::Result<()> {
//! let client = Client::new(Embedded::new(&Options::default())?);
//! let text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
//!     %y = stablehlo.add %x, %x : tensor<2xf32>
//!     return %y : tensor<2xf32>
//! }";
//! let double = Artifact::read(text.as_bytes())?.compile(&client)?;
//! let x = Array::from_slice(&client, &[1.0f32, 2.0], [2])?;
//! assert_eq!(double.run(&[&x])?[0].to_vec::<f32>()?, [2.0, 4.0]);
//! # Ok(())
//! # }
//! ```
//!
//! Without the feature `trace`, which is on by default, there is what runs a program, and its
//! dependencies are `halite-core`, `halite-stablehlo` and what these need: no tracing, no trainer.
//! `examples/run_program.rs` is such a program.
//!
//! Files come from outside: no input makes a reader panic, recurse without bound, or use memory or
//! time out of proportion to its length.
#![forbid(unsafe_code)]

mod artifact;
mod compiled;
mod constant;
mod cpu_plugin;
#[cfg(feature = "trace")]
mod export;
mod exported;
mod faults;
mod flatbuffer;
#[cfg(feature = "trace")]
#[doc(hidden)]
pub mod fuzz;
#[cfg(feature = "trace")]
mod import;
mod jax;
#[cfg(feature = "trace")]
mod model;
mod portable;

pub use artifact::{Artifact, ArtifactInput, ArtifactOutput};
pub use compiled::CompiledArtifact;
#[cfg(feature = "trace")]
pub use export::{export, export_step};
pub use exported::HostValues;
/// Arrays in NumPy's file format, of [`halite_weights`].
#[cfg(feature = "trace")]
pub use halite_weights::npy;
#[cfg(feature = "trace")]
pub use import::ImportedFunction;
pub use jax::{Exported, PyTree};
#[cfg(feature = "trace")]
pub use model::{Parameters, export_model};
pub use portable::portable;
