//! Keys of reads, adapters, samplers, folds, bad samples and streams.

mod adapters;
mod folds;
mod keys;
