//! Keys of reads, adapters, samplers, folds, bad samples and streams.

mod folds;
mod keys;
