//! Digests of samples.

use halite_core::hex;
use sha2::{Digest, Sha256};

use crate::{Dataset, Key, Rows};

/// Number of samples of [`digest_of_some`].
const SAMPLES: usize = 8;

/// SHA-256 of `parts`, each preceded by its length.
pub(crate) fn digest_of(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        let part = part.as_ref();
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    format!("sha256 {}", hex(&hasher.finalize()))
}

/// Short digest of the fields of `dataset` and of a few samples from the first to the last, which
/// is cheap for any dataset, unlike [`Dataset::digest`]; `None` if one cannot be read.
pub fn digest_of_some(dataset: &dyn Dataset) -> Option<String> {
    let (fields, len) = (dataset.fields(), dataset.len());
    let mut hasher = Sha256::new();
    for field in fields {
        hasher.update(format!("{} {}\n", field.name, field.ty));
    }
    let count = len.min(SAMPLES);
    for place in 0..count {
        let mut rows = Rows::zeros(fields, 1).ok()?;
        // A stream would open once for each of distant samples.
        let index = if dataset.is_sequential() {
            place
        } else {
            (place as u128 * (len - 1) as u128 / (count - 1).max(1) as u128) as usize
        };
        let key = Key {
            index,
            ..Key::default()
        };
        dataset
            .read(index, &mut rows.sample_mut(0).with_key(key))
            .ok()?;
        for array in rows.arrays() {
            hasher.update(array.bytes());
        }
    }
    Some(hex(&hasher.finalize()[..8]))
}
