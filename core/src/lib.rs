//! The contract between accelerators and programs.
//!
//! A driver implements [`Backend`] with [`Device`], [`Buffer`], [`Executable`] and [`Event`].
//! Programs hold a [`Client`], which erases the backend's type, and [`Array`]s: global tensors that
//! a [`Sharding`] distributes over a [`Mesh`] of devices. [`tree`] names, visits and rebuilds
//! structs of tensors. An [`Observer`] sees what a client does.
//!
//! Nothing here knows a model, or more of a file format than its names of element types, runs an
//! operation, counts anything, reads an environment variable, or prints anything but warnings of a
//! program without a `tracing` subscriber.
//!
//! ```
//! use halite_core::{Array, Client, HostArray, Mesh, Null, PartitionSpec, Sharding};
//! use std::sync::Arc;
//!
//! # fn main() -> halite_core::Result<()> {
//! let client = Client::new(Null::new(4)); // any backend; nothing below depends on which
//! let mesh = Arc::new(Mesh::new([("data", 4)], client.local_devices())?);
//! let by_rows = Sharding::new(&mesh, PartitionSpec::first("data"))?;
//! let batch = HostArray::from_slice(&[0.0f32; 8 * 3], [8, 3])?;
//! let array = Array::upload(&client, &batch, &by_rows)?; // two rows go to each device
//! assert_eq!(array.shards().first().tensor_type().dims(), [2, 3]);
//! assert_eq!(array.read()?, batch); // blocks
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

// `#[derive(Tree)]` writes `::halite_core`, in this crate too.
extern crate self as halite_core;

mod array;
mod backend;
mod capabilities;
mod client;
mod collective;
mod compile_cause;
pub mod custom_call;
mod device_spec;
mod display;
mod dtype;
mod error;
pub mod files;
mod format;
pub mod guard;
mod host;
mod key_value;
mod launches;
mod loader_advice;
mod log;
mod null;
mod pending;
mod pinned;
mod place;
mod policy;
mod program_cache;
mod program_facts;
pub mod program_text;
mod sharding;
pub mod signals;
mod tensor_type;
pub mod tree;
pub mod wait;

pub use array::Array;
pub use backend::{
    Arg, Backend, Buffer, CompileOptions, Device, Event, Executable, FlagValue, Interpreted,
    Launch, Launched, OnFetched, OnFilled, OnReady, Program, ProgramMemory, Signature,
};
pub use capabilities::{Capabilities, Faults, Kernels, Processor};
pub use client::{
    Client, ClientId, Compilation, DeviceBuffer, DeviceBuffers, DeviceEvent, ExecutableSource,
    LaunchObserver, Loaded, Observer, QueuedLaunch, Transfer,
};
pub use collective::{
    Collective, CollectiveExt, Exchange, ProcessGroup, ReduceOp, SingleProcess, ThreadMember,
    ThreadProcess, check_ranks,
};
#[doc(hidden)]
pub use compile_cause::format_bytes;
pub use compile_cause::{CompileCause, InputChange, LargeBuffer, Reason, Stages};
pub use device_spec::DeviceSpec;
#[doc(hidden)]
pub use device_spec::format_flops;
pub use dtype::{DType, Element, ElementClass, ElementType, FloatFormat, SpecialValues, float8};
pub use error::{Error, ErrorKind, Result, Shortage};
pub use format::{edit_distance, format_count, hex};
pub use host::{AlignedBytes, HostArray, HostBytes, PinnedMemory};
pub use key_value::{KeyValueStore, LocalStore};
pub use launches::Launches;
#[doc(hidden)]
pub use loader_advice::loader_advice;
#[doc(hidden)]
pub use log::warn_without_subscriber;
pub use log::{WarningFilter, set_warning_filter};
pub use null::{Null, NullBuffer, NullDevice, NullEvent, NullExecutable};
pub use pending::Pending;
pub use pinned::PinnedPool;
pub use place::{DeviceId, MemoryKind, MemoryStats, Placement, Platform};
pub use policy::{DTypePolicy, LossScale, Narrowing};
pub use program_cache::{CachedProgram, Compiled, ProgramCache, ProgramKey};
pub use program_facts::ProgramFacts;
pub use sharding::{HloSharding, Mesh, MeshShape, PartitionSpec, Sharding, list_axes};
pub use tensor_type::TensorType;
pub use tree::{Family, Tree};
