//! Datasets, samplers, loaders and prefetch.
//!
//! A [`Dataset`] reads samples by index into buffers it is given. Nothing here knows a model.
#![forbid(unsafe_code)]

mod dataset;
pub mod idx;
mod memory;
mod mnist;
mod sampler;

pub use dataset::{Dataset, DatasetExt, Field, Map, Rows, Sample, SampleMut, Subset};
pub use memory::InMemory;
pub use mnist::Digits;
pub use sampler::Permutation;
