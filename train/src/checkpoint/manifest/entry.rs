//! Arrays and files of a checkpoint, as its manifest has them.

use halite_core::{DType, Result, TensorType};
use serde::{Deserialize, Serialize};

use super::{MANIFEST, corrupt};
use crate::checkpoint::digest::CHUNK;

/// Longest chunk that is read: a thread has one in memory.
const MOST_CHUNK_BYTES: u64 = 64 << 20;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::checkpoint) struct ArrayEntry {
    pub(in crate::checkpoint) name: String,
    dtype: String,
    dims: Vec<usize>,
    /// The name of the file that holds it.
    pub(in crate::checkpoint) file: String,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::checkpoint) struct FileEntry {
    pub(in crate::checkpoint) name: String,
    pub(in crate::checkpoint) bytes: u64,
    /// In hexadecimal; in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    /// Length of the chunks, the last of which may be shorter; since version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chunk_bytes: Option<u64>,
    /// The digest of each chunk, in hexadecimal; since version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    xxh3_128: Option<Vec<String>>,
}

/// The digests of a file.
pub(in crate::checkpoint) enum Digests<'a> {
    Sha256(&'a str),
    Chunks { bytes: u64, digests: &'a [String] },
}

impl FileEntry {
    pub(in crate::checkpoint) fn new(name: &str, bytes: u64, digests: Vec<String>) -> Self {
        FileEntry {
            name: name.to_string(),
            bytes,
            sha256: None,
            chunk_bytes: Some(CHUNK),
            xxh3_128: Some(digests),
        }
    }

    /// # Errors
    /// If they are not those of a version, or too few or too many for the file.
    pub(in crate::checkpoint) fn digests(&self) -> Result<Digests<'_>> {
        match (&self.sha256, self.chunk_bytes, &self.xxh3_128) {
            (Some(sha256), None, None) => Ok(Digests::Sha256(sha256)),
            (None, Some(bytes @ 1..=MOST_CHUNK_BYTES), Some(digests))
                if digests.len() as u64 == self.bytes.div_ceil(bytes) =>
            {
                Ok(Digests::Chunks { bytes, digests })
            }
            _ => Err(corrupt(format!(
                "{MANIFEST} lacks the digest of a part of `{}`, of {} bytes",
                self.name, self.bytes
            ))),
        }
    }

    pub(in crate::checkpoint) fn check(&self, version: u32) -> Result<()> {
        match (version, self.digests()?) {
            (1, Digests::Sha256(_)) | (2.., Digests::Chunks { .. }) => Ok(()),
            _ => Err(corrupt(format!(
                "{MANIFEST} of version {version} has the digests of another version for `{}`",
                self.name
            ))),
        }
    }
}

impl ArrayEntry {
    pub(in crate::checkpoint) fn new(name: &str, ty: &TensorType, file: &str) -> Self {
        let (name, dtype, file) = (
            name.to_string(),
            ty.dtype().name().to_string(),
            file.to_string(),
        );
        ArrayEntry {
            name,
            dtype,
            dims: ty.dims().to_vec(),
            file,
        }
    }

    /// # Errors
    /// If the element type is unknown or the size overflows.
    pub(in crate::checkpoint) fn ty(&self) -> Result<TensorType> {
        let unknown = || {
            corrupt(format!(
                "{MANIFEST} has the array `{}` of unknown element type `{}`",
                self.name, self.dtype
            ))
        };
        let ty = TensorType::new(
            DType::from_name(&self.dtype).ok_or_else(unknown)?,
            &self.dims,
        );
        ty.checked_bytes().map_err(|error| {
            corrupt(format!(
                "{MANIFEST} has the array `{}`: {}",
                self.name,
                error.message()
            ))
        })?;
        Ok(ty)
    }
}
