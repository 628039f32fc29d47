//! Random numbers by counter: a key and a shape give the same bits on every backend.

use crate::Tensor;

/// A new key from `key` (`u32[2]`) and a number.
#[track_caller]
pub fn fold_in(key: Tensor<'_>, data: u32) -> Tensor<'_> {
    key + data
}
