//! Datasets, samplers, loaders and prefetch.
//!
//! A [`Dataset`] reads samples by index into buffers of the caller. A [`Loader`] assembles batches
//! of a constant number of rows in worker threads; rows that pad the last batch have weight 0.
//! [`Prefetch`] uploads batches ahead of time. The order is a pure function of (seed, epoch,
//! position): see [`Permutation`]; so are random choices of a read: see [`Key`]. Nothing here knows
//! a model.
//!
//! ```
//! use halite_core::HostArray;
//! use halite_data::{Dataset, InMemory, Loader, LoaderOptions};
//!
//! let images = HostArray::from_slice(&[0u8; 10 * 4], [10, 2, 2])?;
//! let labels = HostArray::from_slice(&[0u8, 1, 2, 3, 4, 5, 6, 7, 8, 9], [10])?;
//! let dataset = InMemory::new([("image", images), ("label", labels)])?;
//! let loader = Loader::new(dataset, LoaderOptions::shuffled(4, 42))?;
//! for batch in loader.epoch(0) {
//!     let batch = batch?;
//!     assert_eq!(batch.arrays[0].ty().to_string(), "u8[4, 2, 2]");
//! }
//! # Ok::<(), halite_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod adapters;
mod batch;
mod dataset;
mod digest;
pub mod digits;
mod files;
mod folds;
#[doc(hidden)]
pub mod fuzz;
pub mod idx;
pub mod images;
mod input;
mod key;
mod loader;
mod memory;
mod mnist;
mod padded;
mod positioned;
mod prefetch;
pub mod records;
mod rows;
mod sampler;
mod table;

mod samplers;
mod stream;
pub mod text;
mod threads;

pub use adapters::{
    Cache, Concat, DatasetExt, Every, Map, MapRandom, Mix, Mixup, OneHot, Repeat, Sampled, Subset,
    Zip,
};
pub use batch::{DeviceBatch, HostBatch, Labeled, Position, batch_tree};
pub use dataset::{Dataset, ValidationSet};
pub use digest::digest_of_some;
pub use files::{ArrayFile, JsonLines, JsonLinesDataset};
pub use folds::{group_k_fold, stratified_k_fold};
pub use images::{ImageFolder, read_image};
pub use key::{Key, Random};
pub use loader::{
    BadSample, Batches, LastBatch, Loader, LoaderOptions, Order, Shard, SkippedSample,
};
pub use memory::InMemory;
pub use mnist::Mnist;
pub use padded::Padded;
pub use prefetch::Prefetch;
pub use rows::{Field, Rows, Sample, SampleMut};
pub use sampler::Permutation;
pub use table::Table;

pub use samplers::{BalancedSampler, Sampler, WeightedSampler};
pub use stream::StreamDataset;
