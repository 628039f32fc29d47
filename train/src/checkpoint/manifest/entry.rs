//! Arrays and files of a checkpoint, as its manifest has them.

use std::{collections::HashSet, ops::Range};

use halite_core::{DType, Result, TensorType};
use serde::{Deserialize, Serialize};

use super::{DIVIDED, MANIFEST, corrupt};
use crate::checkpoint::digest::CHUNK;

/// Longest chunk that is read: a thread has one in memory.
const MOST_CHUNK_BYTES: u64 = 64 << 20;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::checkpoint) struct ArrayEntry {
    pub(in crate::checkpoint) name: String,
    dtype: String,
    dims: Vec<usize>,
    /// The name of the file that holds it; until version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// The files that hold its elements, in the order of the elements; since version 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parts: Option<Vec<PartEntry>>,
}

/// A range of the elements of an array, in row-major order.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::checkpoint) struct PartEntry {
    pub(in crate::checkpoint) file: String,
    pub(in crate::checkpoint) start: usize,
    pub(in crate::checkpoint) end: usize,
}

/// Where elements of an array are: in the array of the same name in a file.
pub(in crate::checkpoint) struct Place<'a> {
    pub(in crate::checkpoint) file: &'a str,
    pub(in crate::checkpoint) elements: Range<usize>,
    /// Type of the array in the file.
    pub(in crate::checkpoint) ty: TensorType,
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
    /// An array that is in one file.
    pub(in crate::checkpoint) fn new(name: &str, ty: &TensorType, file: &str) -> Self {
        ArrayEntry {
            name: name.to_string(),
            dtype: ty.dtype().name().to_string(),
            dims: ty.dims().to_vec(),
            file: Some(file.to_string()),
            parts: None,
        }
    }

    /// An array whose elements are in these files, in any order.
    pub(in crate::checkpoint) fn divided(
        name: &str,
        ty: &TensorType,
        mut parts: Vec<PartEntry>,
    ) -> Self {
        parts.sort_by_key(|part| part.start);
        ArrayEntry {
            file: None,
            parts: Some(parts),
            ..ArrayEntry::new(name, ty, "")
        }
    }

    pub(super) fn is_divided(&self) -> bool {
        self.parts.is_some()
    }

    /// # Errors
    /// If the element type is unknown or the size overflows; if it is not of the version; if its
    /// parts are not all of its elements.
    pub(super) fn check(&self, version: u32) -> Result<()> {
        let elements = self.ty()?.elements();
        let bad = |what: String| Err(corrupt(format!("{MANIFEST} has {what}")));
        let name = &self.name;
        let parts = match (&self.file, &self.parts) {
            (Some(_), None) if version < DIVIDED => return Ok(()),
            (None, Some(parts)) if version >= DIVIDED => parts,
            _ => {
                return bad(format!(
                    "the array `{name}` as another version than {version} has it"
                ));
            }
        };
        let (mut next, mut files) = (0, HashSet::new());
        for PartEntry { file, start, end } in parts {
            if *start != next || end <= start || *end > elements {
                return bad(format!(
                    "elements {start} to {end} of the array `{name}` of {elements} elements in \
                     `{file}`, after element {next}"
                ));
            }
            if !files.insert(file) {
                return bad(format!("two parts of the array `{name}` in `{file}`"));
            }
            next = *end;
        }
        if next == elements {
            Ok(())
        } else {
            bad(format!(
                "{next} of {elements} elements of the array `{name}`"
            ))
        }
    }

    /// Where its elements are, in their order.
    ///
    /// # Errors
    /// Those of [`ty`](Self::ty).
    pub(in crate::checkpoint) fn places(&self) -> Result<Vec<Place<'_>>> {
        let ty = self.ty()?;
        let whole = self.file.iter().map(|file| (file, 0..ty.elements()));
        let parts = (self.parts.iter().flatten()).map(|part| (&part.file, part.start..part.end));
        let places = whole.chain(parts).map(|(file, elements)| Place {
            file,
            ty: part_type(&ty, &elements),
            elements,
        });
        Ok(places.collect())
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

/// Type of these elements of an array in a file: that of the array, or flat.
pub(in crate::checkpoint) fn part_type(ty: &TensorType, elements: &Range<usize>) -> TensorType {
    if elements.len() == ty.elements() {
        ty.clone()
    } else {
        ty.with_dims([elements.len()])
    }
}
