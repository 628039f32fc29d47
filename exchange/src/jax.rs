//! Artifacts of `jax.export` (<https://docs.jax.dev/en/latest/export/export.html>): a portable
//! StableHLO program with the tree of its arguments and results.
//!
//! An artifact is a FlatBuffer. Its schema is `jax/_src/export/serialization.fbs` in JAX's
//! repository; slots and codes here are those of serialization version 11.

#[cfg(feature = "trace")]
mod of_paths;
mod pytree;
mod read;
mod write;

use std::sync::Arc;

use halite_core::TensorType;

pub use pytree::PyTree;

/// A function as `jax.export` serializes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exported {
    /// Name of the function, for messages.
    pub name: String,
    /// Tree of the arguments: a pair of positional ones (a tuple) and named ones (a dict).
    pub inputs: PyTree,
    /// Types of the leaves of [`inputs`](Self::inputs), in order. `None` for types that halite has
    /// no arrays of, such as complex numbers.
    pub input_types: Vec<Option<TensorType>>,
    /// Tree of the results.
    pub outputs: PyTree,
    /// Types of the leaves of [`outputs`](Self::outputs), in order.
    pub output_types: Vec<Option<TensorType>>,
    /// Platforms that it was lowered for: `cpu`, `cuda`, `rocm`, `tpu`. If there are several, the
    /// program has a first argument, the index of the platform in this list.
    pub platforms: Vec<String>,
    /// Indices of the leaves of [`inputs`](Self::inputs) that are arguments of the program,
    /// ascending. It does not use the others.
    pub used_inputs: Vec<usize>,
    /// Number of devices of one run.
    pub devices: usize,
    /// The program, a portable artifact of StableHLO.
    pub program: Arc<[u8]>,
}

/// Slots of the table `Exported`.
mod slot {
    pub(super) const SERIALIZATION_VERSION: usize = 0;
    pub(super) const NAME: usize = 1;
    pub(super) const INPUT_TREE: usize = 2;
    pub(super) const INPUT_TYPES: usize = 3;
    pub(super) const OUTPUT_TREE: usize = 4;
    pub(super) const OUTPUT_TYPES: usize = 5;
    pub(super) const DEVICES_SHORT: usize = 6;
    pub(super) const INPUT_SHARDINGS: usize = 7;
    pub(super) const OUTPUT_SHARDINGS: usize = 8;
    pub(super) const PLATFORMS: usize = 9;
    pub(super) const ORDERED_EFFECTS: usize = 10;
    pub(super) const PROGRAM: usize = 13;
    pub(super) const CALLING_CONVENTION: usize = 14;
    pub(super) const USED_INPUTS: usize = 15;
    pub(super) const DEVICES: usize = 18;
    pub(super) const UNIQUE_TYPES: usize = 19;
    pub(super) const INPUT_TYPE_INDICES: usize = 22;
    pub(super) const OUTPUT_TYPE_INDICES: usize = 23;
}
