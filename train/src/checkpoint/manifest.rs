//! The manifest of a checkpoint and the marker that commits it. Everything read is validated.

use std::{collections::HashSet, path::Path};

use halite_core::{DType, Error, ErrorKind, Result, TensorType, hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    RunPosition, exact_f64,
    listing::{folder_of, step_of},
};
use crate::files;

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const COMMIT: &str = "COMMIT";
const FORMAT: &str = "halite checkpoint";
const VERSION: u32 = 1;
/// Enough for a million arrays and several megabytes of metadata.
const MANIFEST_LIMIT: u64 = 256 << 20;

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
    pub(super) arrays: Vec<ArrayEntry>,
    pub(super) files: Vec<FileEntry>,
    pub(super) metadata: serde_json::Value,
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
    /// In hexadecimal.
    pub(super) sha256: String,
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
        if self.version != VERSION {
            let message = format!(
                "{MANIFEST} is of version {}, this halite reads version {VERSION}: use the halite \
                 that wrote it",
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
            arrays,
            files,
            metadata,
        }
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

    /// Reads the manifest of the checkpoint in `folder`, if its marker commits it.
    ///
    /// # Errors
    /// If the marker or the manifest is missing or invalid, or the folder has the name of another
    /// step.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let marker = read(&folder.join(COMMIT), 1024)?;
        let bytes = read(&folder.join(MANIFEST), MANIFEST_LIMIT)?;
        if marker != commit_marker(&bytes) {
            // A later format may have another marker. One damaged byte cannot change the version in
            // both files.
            if let (Some(version), Ok(heading)) = (
                marked_version(&marker),
                serde_json::from_slice::<Heading>(&bytes),
            ) && heading.version == version
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
        let mut files = HashSet::new();
        for file in &self.files {
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

/// Contents of the marker of a checkpoint with this manifest.
pub(super) fn commit_marker(manifest: &[u8]) -> Vec<u8> {
    format!(
        "{FORMAT} {VERSION}\n{MANIFEST} sha256 {}\n",
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
            files: vec![FileEntry {
                name: "arrays.safetensors".into(),
                bytes: 32,
                sha256: "00".into(),
            }],
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
        let table: [(&dyn Fn(&mut serde_json::Value), &str); 11] = [
            (
                &|m| m["format"] = "zip".into(),
                "has the format `zip`, expected `halite checkpoint`",
            ),
            (
                &|m| m["version"] = 2.into(),
                "is of version 2, this halite reads version 1",
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
