//! Entry points into this crate's private parsers for fuzzing. Not part of the public API, and
//! without stability.
//!
//! Each function takes any bytes, returns whether they were accepted, and panics where a property
//! does not hold.

use std::path::Path;

use crate::{checkpoint, loggers};

/// The manifest of a checkpoint.
pub fn manifest(data: &[u8]) -> bool {
    checkpoint::fuzz::manifest(data)
}

/// Valid inputs of [`manifest`].
pub fn manifest_seeds() -> Vec<Vec<u8>> {
    checkpoint::fuzz::manifest_seeds()
}

/// The arrays of a checkpoint. Writes into `scratch`, a directory that no other thread uses.
pub fn safetensors(data: &[u8], scratch: &Path) -> bool {
    checkpoint::fuzz::safetensors(data, scratch)
}

/// Valid inputs of [`safetensors`].
pub fn safetensors_seeds(scratch: &Path) -> Vec<Vec<u8>> {
    checkpoint::fuzz::safetensors_seeds(scratch)
}

/// The table `metrics.csv`.
pub fn metrics_table(data: &[u8]) -> bool {
    loggers::csv::fuzz::table(data)
}

/// Valid inputs of [`metrics_table`].
pub fn metrics_table_seeds() -> Vec<Vec<u8>> {
    loggers::csv::fuzz::table_seeds()
}
