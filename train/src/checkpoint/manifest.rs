//! The manifest of a checkpoint and the marker that commits it. Everything read is validated.

mod entry;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, path::Path};

use halite_core::{Error, ErrorKind, Result, hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub(super) use self::entry::{ArrayEntry, Digests, FileEntry, PartEntry, part_type};
use super::{
    RunPosition, exact_f64,
    listing::{folder_of, step_of},
};
use crate::files;

pub(super) const MANIFEST: &str = "manifest.json";
pub(super) const COMMIT: &str = "COMMIT";
const FORMAT: &str = "halite checkpoint";
/// The format of a checkpoint that one process writes. Version 1 had the SHA-256 of each file, and
/// no writer; it is read on, as every version from here on will be.
const WHOLE: u32 = 2;
/// The format of a checkpoint of a job, whose arrays are divided among the files of its processes.
const DIVIDED: u32 = 3;
/// The newest format that is read.
const NEWEST: u32 = DIVIDED;
/// The oldest format that is read.
const OLDEST: u32 = 1;
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
    /// Since version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    writer: Option<Writer>,
    pub(super) arrays: Vec<ArrayEntry>,
    pub(super) files: Vec<FileEntry>,
    pub(super) metadata: serde_json::Value,
}

/// The process that wrote a manifest of version 2, of those that wrote the checkpoint: one.
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
        if !(OLDEST..=NEWEST).contains(&self.version) {
            let message = format!(
                "{MANIFEST} is of version {}, this halite reads versions {OLDEST} to {NEWEST}: \
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
        let is_divided = arrays.iter().any(ArrayEntry::is_divided);
        Manifest {
            format,
            version: if is_divided { DIVIDED } else { WHOLE },
            halite,
            sequence,
            position,
            seed,
            best,
            writer: (!is_divided).then_some(Writer { index: 0, count: 1 }),
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
            None if self.version != WHOLE => {}
            Some(Writer { index: 0, count: 1 }) if self.version == WHOLE => {}
            Some(Writer { index, count }) if self.version == WHOLE && index < count => {
                let message = format!(
                    "{MANIFEST} is part {index} of {count}: a checkpoint of several processes, of \
                     a format that no halite writes"
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
            array.check(self.version)?;
            if !names.insert(&*array.name) {
                return Err(corrupt(format!(
                    "{MANIFEST} names the array `{}` twice",
                    array.name
                )));
            }
            for place in array.places()? {
                if !files.contains(place.file) {
                    return Err(corrupt(format!(
                        "{MANIFEST} has the array `{}` in `{}`, which is not one of its files",
                        array.name, place.file
                    )));
                }
            }
        }
        Ok(())
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
