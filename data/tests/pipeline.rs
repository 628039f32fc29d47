//! Keys of reads, adapters, samplers, folds, bad samples, streams, records and files.

mod adapters;
mod bad;
mod files;
mod folds;
mod keys;
mod mixup;
mod padded;
mod records;
mod streams;
