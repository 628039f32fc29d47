//! Checkpoints: the complete state of a run on disk, as data only.
//!
//! A store is a directory with one folder per checkpoint:
//!
//! ```text
//! checkpoints/
//!   step-00000469/
//!     arrays.safetensors     the arrays, by name (several files when they are large)
//!     manifest.json          position, types of the arrays, digests of the files, the trainer's metadata
//!     COMMIT                 digest of the manifest; written last
//!   step-00000938/
//!   step-00000313.safetensors   weights of a checkpoint, where those alone are kept
//!   best.json                which of them is the best so far, and by which metric
//! ```
//!
//! A folder is written under a temporary name, flushed to the disk, and renamed: a run killed at
//! any moment keeps its earlier checkpoints. A folder is valid only if its marker, its manifest and
//! every file match; an invalid one is skipped, with the reason, and the one before it is used.
//!
//! In a checkpoint of a job of several processes each has written its part of the arrays to a file of
//! its own, `process-00001-arrays.safetensors`: the manifest says which elements are where. It is
//! read as any other, by any number of processes.
//!
//! ```
//! use halite_core::HostArray;
//! use halite_train::checkpoint::{CheckpointStore, RunPosition, Snapshot};
//!
//! # fn main() -> halite_core::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! let store = CheckpointStore::open(dir.path().join("checkpoints"), 2)?;
//! let bias = HostArray::from_slice(&[1.0f32, 2.0], [2])?;
//! let wanted = [("out.bias".to_string(), bias.ty().clone())];
//! store.save(Snapshot {
//!     position: RunPosition { step: 938, epoch: 2, batch: 0 },
//!     seed: 7,
//!     arrays: vec![("out.bias".into(), bias)],
//!     metadata: serde_json::json!({ "model": "linear" }),
//!     ..Snapshot::default()
//! })?;
//!
//! let mut saved = store.latest()?.expect("one was just saved");
//! assert_eq!(saved.position().step, 938);
//! let arrays = saved.take_all(&wanted)?;      // or one error with every difference
//! assert_eq!(arrays[0].as_slice::<f32>()?, [1.0, 2.0]);
//! # Ok(())
//! # }
//! ```

mod arrays;
mod digest;
pub mod exact_f64;
pub(crate) mod fuzz;
mod info;
mod job;
mod leftovers;
mod listing;
mod lock;
mod manifest;
mod parts;
mod ranking;
mod saved;
mod spare;
mod store;
mod stream;
mod tree;
mod writer;

use halite_core::{HostArray, TensorType};
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    arrays::RowsFile,
    exact_f64::Exact,
    job::{Savers, Share},
    leftovers::TOKEN,
    lock::{LOCK, this_host},
    parts::{Held, parts_of},
    ranking::{RANKING, Ranking},
    spare::SpareMemory,
    stream::{StateServer, StateStream},
};
pub use self::{
    info::CheckpointInfo,
    listing::Best,
    saved::Saved,
    store::{CheckpointStore, StoreOptions},
    tree::{Checkpoint, SavedLeaf, TypedLeaf},
};

/// Position of a checkpoint in its run: what a resume continues with.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunPosition {
    /// Completed optimizer steps.
    pub step: u64,
    /// Epoch to continue in, from 0.
    pub epoch: u64,
    /// Next batch of that epoch, from 0.
    pub batch: u64,
}

/// Contents of a checkpoint. `A` is a [`HostArray`], or one that is
/// [`Pending`](halite_core::Pending).
#[derive(Clone, Debug)]
pub struct Snapshot<A = HostArray> {
    /// Its position in the run.
    pub position: RunPosition,
    /// The seed of the run: with it and the position, the order of the data is known.
    pub seed: u64,
    /// The arrays by unique names: `model.hidden.weight`.
    pub arrays: Vec<(String, A)>,
    /// Metadata of the trainer. Floats that must round-trip exactly use [`exact_f64`].
    pub metadata: serde_json::Value,
    /// If this is the best checkpoint so far: the name of the metric and its value.
    pub best: Option<(String, f64)>,
    /// Text that is added to the name of its folder, such as `val_loss=0.081`; it has a `=`.
    pub name: Option<String>,
    /// Which checkpoints to keep besides the newest and the best.
    pub keep: Keep,
}

/// Checkpoints to keep besides the newest and the best.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Keep {
    /// The steps of the checkpoints; of several of one step, the newest is kept.
    pub steps: Vec<u64>,
    /// Keeps the weights alone, of the best one too: when a checkpoint is no longer one of the
    /// newest, a file with the name of its folder and `.safetensors` takes its place, with the
    /// arrays `model.*` and `average.*`.
    pub weights_only: bool,
}

impl<A> Default for Snapshot<A> {
    /// A checkpoint of nothing, before the first step.
    fn default() -> Self {
        Snapshot {
            position: RunPosition::default(),
            seed: 0,
            arrays: Vec::new(),
            metadata: serde_json::Value::Null,
            best: None,
            name: None,
            keep: Keep::default(),
        }
    }
}

impl Snapshot {
    /// The types of the arrays in place of the arrays, and the arrays.
    fn split(self) -> (Snapshot<TensorType>, Vec<HostArray>) {
        let typed = |(name, array): (String, HostArray)| ((name, array.ty().clone()), array);
        let mut snapshot = self;
        let arrays = std::mem::take(&mut snapshot.arrays).into_iter();
        let (types, arrays) = arrays.map(typed).unzip();
        (snapshot.with(types), arrays)
    }
}

impl<A> Snapshot<A> {
    /// The same with other arrays.
    pub(crate) fn with<B>(self, arrays: Vec<(String, B)>) -> Snapshot<B> {
        Snapshot {
            position: self.position,
            seed: self.seed,
            arrays,
            metadata: self.metadata,
            best: self.best,
            name: self.name,
            keep: self.keep,
        }
    }
}
