//! The manifest of a checkpoint and the marker that commits it. Everything read is validated.

use std::{collections::HashSet, path::Path};

use halite_core::{DType, Error, ErrorKind, Result, TensorType, hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    RunPosition,
    digest::CHUNK,
    exact_f64,
    listing::{folder_of, step_of},
};
use crate::files;

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const COMMIT: &str = "COMMIT";
const FORMAT: &str = "halite checkpoint";
/// The format that is written. Version 1 had the SHA-256 of each file, and no writer; it is read
/// on, as every version from here on will be.
const VERSION: u32 = 2;
/// The oldest format that is read.
const OLDEST: u32 = 1;
/// Enough for a million arrays and several megabytes of metadata.
const MANIFEST_LIMIT: u64 = 256 << 20;
/// Longest chunk that is read: a thread has one in memory.
const MOST_CHUNK_BYTES: u64 = 64 << 20;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    format: String,
    version: u32,
    /// Version of halite that wrote it, for information.
    halite: String,
    /// Sequence number in the store: the highest is the newest, whatever its step.
    pub(super) sequence: u64,
    pub(super) position: RunPosition,
    pub(super) seed: u64,
    /// Also here, in addition to the pointer, because this is committed with the arrays.
    pub(super) best: Option<BestBy>,
    /// Since version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    writer: Option<Writer>,
    pub(super) arrays: Vec<ArrayEntry>,
    pub(super) files: Vec<FileEntry>,
    pub(super) metadata: serde_json::Value,
}

/// The process that wrote a manifest, of those that wrote the checkpoint. This version writes and
/// reads checkpoints of one; the arrays of another would be missing.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Writer {
    index: u32,
    count: u32,
}

/// The metric by which a checkpoint was the best when it was written.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BestBy {
    pub(super) metric: String,
    /// For readers of the file.
    value: String,
    #[serde(with = "exact_f64")]
    pub(super) bits: f64,
}

impl BestBy {
    pub(super) fn new(metric: &str, value: f64) -> Self {
        BestBy {
            metric: metric.to_string(),
            value: value.to_string(),
            bits: value,
        }
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArrayEntry {
    pub(super) name: String,
    dtype: String,
    dims: Vec<usize>,
    /// The name of the file that holds it.
    pub(super) file: String,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileEntry {
    pub(super) name: String,
    pub(super) bytes: u64,
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
pub(super) enum Digests<'a> {
    Sha256(&'a str),
    Chunks { bytes: u64, digests: &'a [String] },
}

/// Arguments of [`Manifest::new`].
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) sequence: u64,
    pub(super) position: RunPosition,
    pub(super) seed: u64,
    pub(super) best: Option<BestBy>,
    pub(super) arrays: Vec<ArrayEntry>,
    pub(super) files: Vec<FileEntry>,
    pub(super) metadata: serde_json::Value,
}

/// Format and version, which are read first: a later version must not be reported as an unknown
/// field.
#[derive(Deserialize)]
struct Heading {
    format: String,
    version: u32,
}

impl Heading {
    fn check(&self) -> Result<()> {
        if self.format != FORMAT {
            return Err(corrupt(format!(
                "{MANIFEST} has the format `{}`, expected `{FORMAT}`",
                self.format
            )));
        }
        if !(OLDEST..=VERSION).contains(&self.version) {
            let message = format!(
                "{MANIFEST} is of version {}, this halite reads versions {OLDEST} to {VERSION}: \
                 use the halite that wrote it, or a later one",
                self.version
            );
            return Err(Error::new(ErrorKind::Unsupported, "checkpoint", message));
        }
        Ok(())
    }
}

/// The version in the first line of a marker.
fn marked_version(marker: &[u8]) -> Option<u32> {
    let first = marker.split(|&byte| byte == b'\n').next()?;
    std::str::from_utf8(first)
        .ok()?
        .strip_prefix(FORMAT)?
        .trim()
        .parse()
        .ok()
}

impl Manifest {
    pub(super) fn new(contents: Contents) -> Self {
        let Contents {
            sequence,
            position,
            seed,
            best,
            arrays,
            files,
            metadata,
        } = contents;
        let (format, halite) = (FORMAT.to_string(), env!("CARGO_PKG_VERSION").to_string());
        Manifest {
            format,
            version: VERSION,
            halite,
            sequence,
            position,
            seed,
            best,
            writer: Some(Writer { index: 0, count: 1 }),
            arrays,
            files,
            metadata,
        }
    }

    /// The version of the format.
    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// The version of halite that wrote it.
    pub(super) fn halite(&self) -> &str {
        &self.halite
    }

    /// Its text.
    ///
    /// # Errors
    /// If [`parse`](Self::parse) would reject it: the metadata may be too large or too deeply
    /// nested.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .expect("a manifest has only string keys and plain values");
        bytes.push(b'\n');
        if bytes.len() as u64 > MANIFEST_LIMIT {
            let message = format!(
                "the metadata makes a manifest of {} bytes, at most {MANIFEST_LIMIT} are read",
                bytes.len()
            );
            return Err(Error::invalid("checkpoint", message));
        }
        match Self::parse(&bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => {
                let message = format!(
                    "the checkpoint could not be read again: {}",
                    error.message()
                );
                Err(Error::invalid("checkpoint", message))
            }
        }
    }

    /// Contents of the marker of a checkpoint whose manifest has this text.
    pub(super) fn marker(&self, text: &[u8]) -> Vec<u8> {
        commit_marker(self.version, text)
    }

    /// Reads the manifest of the checkpoint in `folder`, if its marker commits it.
    ///
    /// # Errors
    /// If the marker or the manifest is missing or invalid, or the folder has the name of another
    /// step.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let marker = read(&folder.join(COMMIT), 1024)?;
        let bytes = read(&folder.join(MANIFEST), MANIFEST_LIMIT)?;
        let version = marked_version(&marker);
        if version.is_none_or(|version| marker != commit_marker(version, &bytes)) {
            // A later format may have another marker. One damaged byte cannot change the version in
            // both files.
            if let (Some(version), Ok(heading)) =
                (version, serde_json::from_slice::<Heading>(&bytes))
                && heading.version == version
            {
                heading.check()?;
            }
            return Err(corrupt(format!(
                "{COMMIT} is not the marker of this {MANIFEST} (sha256 {}): one of them was \
                 changed after it was written",
                hex(&Sha256::digest(&bytes))
            )));
        }
        let manifest = Self::parse(&bytes)?;
        if version != Some(manifest.version) {
            return Err(corrupt(format!(
                "{COMMIT} is of another version than {MANIFEST}, which is of version {}",
                manifest.version
            )));
        }
        let step = manifest.position.step;
        if let Some(named) = step_of(folder).filter(|&named| named != step) {
            return Err(corrupt(format!(
                "its name is of step {named}, its {MANIFEST} of step {step}: the folder was \
                 renamed or replaced; if it is intact, rename it to {}",
                folder_of(step)
            )));
        }
        Ok(manifest)
    }

    /// Reads a manifest from its text.
    ///
    /// # Errors
    /// If it has another format or version, or an invalid name, type or range.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let not_json = |error: serde_json::Error| corrupt(format!("{MANIFEST}: {error}"));
        let heading: Heading = serde_json::from_slice(bytes).map_err(not_json)?;
        heading.check()?;
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(not_json)?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<()> {
        match self.writer {
            None if self.version == 1 => {}
            Some(Writer { index: 0, count: 1 }) if self.version > 1 => {}
            Some(Writer { index, count }) if self.version > 1 && index < count => {
                let message = format!(
                    "{MANIFEST} is part {index} of {count}: a checkpoint that {count} processes \
                     wrote, and this halite reads those of one process"
                );
                return Err(Error::new(ErrorKind::Unsupported, "checkpoint", message));
            }
            writer => {
                return Err(corrupt(format!(
                    "{MANIFEST} of version {} has the writer {writer:?}",
                    self.version
                )));
            }
        }
        let mut files = HashSet::new();
        for file in &self.files {
            file.check(self.version)?;
            if !is_plain_name(&file.name) {
                return Err(corrupt(format!(
                    "{MANIFEST} names the file `{}`, which is not a plain file name",
                    file.name
                )));
            }
            if !files.insert(&*file.name) {
                return Err(corrupt(format!(
                    "{MANIFEST} names the file `{}` twice",
                    file.name
                )));
            }
        }
        let mut names = HashSet::new();
        for array in &self.arrays {
            array.ty()?;
            if !names.insert(&*array.name) {
                return Err(corrupt(format!(
                    "{MANIFEST} names the array `{}` twice",
                    array.name
                )));
            }
            if !files.contains(&*array.file) {
                return Err(corrupt(format!(
                    "{MANIFEST} has the array `{}` in `{}`, which is not one of its files",
                    array.name, array.file
                )));
            }
        }
        Ok(())
    }
}

impl FileEntry {
    pub(super) fn new(name: &str, bytes: u64, digests: Vec<String>) -> Self {
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
    pub(super) fn digests(&self) -> Result<Digests<'_>> {
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

    fn check(&self, version: u32) -> Result<()> {
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
    pub(super) fn new(name: &str, ty: &TensorType, file: &str) -> Self {
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
    pub(super) fn ty(&self) -> Result<TensorType> {
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

/// Contents of the marker of a checkpoint with this manifest, of this version.
fn commit_marker(version: u32, manifest: &[u8]) -> Vec<u8> {
    format!(
        "{FORMAT} {version}\n{MANIFEST} sha256 {}\n",
        hex(&Sha256::digest(manifest))
    )
    .into_bytes()
}

pub(super) fn corrupt(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, "checkpoint", message)
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    files::read_plain(path, limit).map_err(|error| files::unreadable("checkpoint", path, &error))
}

fn is_plain_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
        let manifest = Manifest::new(Contents {
            sequence: 1,
            position: RunPosition {
                step: 3,
                epoch: 0,
                batch: 3,
            },
            seed: u64::MAX,
            best: None,
            arrays: vec![ArrayEntry::new(
                "w",
                &TensorType::new(DType::F32, [2, 3]),
                "arrays.safetensors",
            )],
            files: vec![FileEntry::new("arrays.safetensors", 32, vec!["00".into()])],
            metadata: serde_json::json!({ "any": ["thing"] }),
        });
        let mut value = serde_json::to_value(manifest).unwrap();
        change(&mut value);
        serde_json::to_vec(&value).unwrap()
    }

    #[test]
    fn manifest_round_trips() {
        let manifest = Manifest::parse(&text(|_| ())).unwrap();
        assert_eq!(
            (manifest.sequence, manifest.seed, manifest.position.batch),
            (1, u64::MAX, 3)
        );
        assert_eq!(manifest.arrays[0].ty().unwrap().to_string(), "f32[2, 3]");
        assert_eq!(manifest.metadata["any"][0], "thing");
    }

    #[test]
    fn floats_keep_their_last_bit() {
        // The default parser of serde_json reads another float here.
        let manifest =
            Manifest::parse(&text(|m| m["metadata"] = 4294967295.2147484.into())).unwrap();
        assert_eq!(manifest.metadata.as_f64(), Some(4294967295.2147484));
    }

    #[test]
    fn invalid_manifest_names_the_field() {
        #[expect(clippy::type_complexity, reason = "a table")]
        let table: [(&dyn Fn(&mut serde_json::Value), &str); 17] = [
            (
                &|m| m["format"] = "zip".into(),
                "has the format `zip`, expected `halite checkpoint`",
            ),
            (
                &|m| m["version"] = 3.into(),
                "is of version 3, this halite reads versions 1 to 2",
            ),
            (&|m| m["version"] = 1.into(), "of version 1 has the writer"),
            (
                &|m| m["writer"]["count"] = 4.into(),
                "part 0 of 4: a checkpoint that 4 processes wrote",
            ),
            (
                &|m| m["writer"]["index"] = 1.into(),
                "of version 2 has the writer",
            ),
            (
                &|m| m["files"][0]["chunk_bytes"] = 0.into(),
                "lacks the digest of a part of `arrays.safetensors`",
            ),
            (
                &|m| m["files"][0]["bytes"] = (1u64 << 40).into(),
                "lacks the digest of a part of `arrays.safetensors`",
            ),
            (
                &|m| {
                    m["files"][0]
                        .as_object_mut()
                        .unwrap()
                        .retain(|name, _| ["name", "bytes"].contains(&&**name));
                    m["files"][0]["sha256"] = "00".into();
                },
                "of version 2 has the digests of another version",
            ),
            (
                &|m| m["arrays"][0]["dtype"] = "f33".into(),
                "array `w` of unknown element type `f33`",
            ),
            (
                &|m| m["arrays"][0]["dims"] = vec![u64::MAX, 2].into(),
                "does not fit a signed 64-bit integer",
            ),
            (
                &|m| m["arrays"][0]["dims"] = vec![-1].into(),
                "invalid value: integer `-1`",
            ),
            (
                &|m| m["arrays"][0]["file"] = "other".into(),
                "`w` in `other`, which is not one of its files",
            ),
            (
                &|m| m["files"][0]["name"] = "../../etc/passwd".into(),
                "not a plain file name",
            ),
            (
                &|m| m["files"][0]["name"] = "..".into(),
                "not a plain file name",
            ),
            (
                &|m| m["position"]["step"] = 0.5.into(),
                "invalid type: floating point",
            ),
            (&|m| m["surprise"] = 1.into(), "unknown field `surprise`"),
            (
                &|m| {
                    let twice = m["arrays"][0].clone();
                    m["arrays"].as_array_mut().unwrap().push(twice);
                },
                "names the array `w` twice",
            ),
        ];
        for (change, want) in table {
            let error = Manifest::parse(&text(change)).unwrap_err().to_string();
            assert!(error.contains(want), "{error:?} does not say {want:?}");
        }
        assert!(
            Manifest::parse(&b"[".repeat(100_000)).is_err(),
            "deep nesting must not overflow the stack"
        );
    }
}
