//! Keys of reads, adapters, samplers, folds, bad samples and streams.

mod adapters;
mod bad;
mod folds;
mod keys;
mod records;
mod streams;
