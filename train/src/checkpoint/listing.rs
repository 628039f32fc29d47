//! Listing of a directory of checkpoints, and the pointer to the best one.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use halite_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::{
    manifest::{BestBy, Manifest, corrupt},
    saved::unusable,
    store::OP,
};
use crate::files;

/// Name of the pointer to the best checkpoint.
pub(super) const BEST: &str = "best.json";
/// End of the name of a file of weights.
const WEIGHTS: &str = ".safetensors";
/// Start of the name of a checkpoint's folder.
pub(super) const FOLDER: &str = "step-";

/// The best checkpoint of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// Its folder, or the file with its weights.
    pub path: PathBuf,
    /// Its optimizer steps.
    pub step: u64,
    /// The metric by which it is the best.
    pub metric: String,
    /// The value of that metric.
    pub value: f64,
}

/// Contents of `best.json`.
#[derive(Deserialize, Serialize)]
pub(super) struct BestPointer {
    pub(super) folder: String,
    pub(super) step: u64,
    pub(super) by: BestBy,
    /// Sequence number of the next checkpoint: one that claims to be the best, and has this number
    /// or a higher one, was committed after this pointer.
    pub(super) before: u64,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) manifest: Result<Manifest>,
}

/// Every checkpoint folder of `dir`, with its manifest if that is valid.
pub(super) fn scan(dir: &Path) -> Result<Vec<Found>> {
    let failed = |error: io::Error| files::failed(OP, "read the directory", dir, &error);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(is_folder_name)
        {
            found.push(Found {
                manifest: Manifest::read(&path),
                path,
            });
        }
    }
    Ok(found)
}

/// Sorts the newest first. The age of damaged ones is unknown; they come first, so that they are
/// reported.
pub(super) fn newest_first(mut found: Vec<Found>) -> Vec<Found> {
    found.sort_by_key(|found| {
        let sequence = found
            .manifest
            .as_ref()
            .map_or(u64::MAX, |manifest| manifest.sequence);
        (
            std::cmp::Reverse(sequence),
            std::cmp::Reverse(found.path.clone()),
        )
    });
    found
}

/// Name of the folder of a step.
pub(super) fn folder_of(step: u64) -> String {
    format!("{FOLDER}{step:08}")
}

/// The step that the name of a folder states; `None` if it is not the name of a checkpoint.
pub(super) fn step_of(folder: &Path) -> Option<u64> {
    step_in(folder.file_name()?.to_str()?)?.parse().ok()
}

/// `step-00000938`, and `step-00000938.2` for the second of that step; with metrics,
/// `step-00000938-val_loss=0.081`.
pub(super) fn is_folder_name(name: &str) -> bool {
    step_in(name).is_some()
}

/// The digits of the step in the name of a checkpoint.
fn step_in(name: &str) -> Option<&str> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = name.strip_prefix(FOLDER)?;
    let (step, mut rest) = rest.split_at(digits(rest));
    if let Some(again) = rest.strip_prefix('.') {
        let end = digits(again);
        rest = &again[end..];
        if end == 0 {
            return None;
        }
    }
    let is_metrics = rest.starts_with('-') && rest.contains('=') && !rest.ends_with(WEIGHTS);
    (!step.is_empty() && (rest.is_empty() || is_metrics)).then_some(step)
}

/// The file with the weights of the checkpoint in `folder`, where those alone are kept.
pub(super) fn weights_of(folder: &Path) -> PathBuf {
    let mut path = folder.as_os_str().to_os_string();
    path.push(WEIGHTS);
    path.into()
}

/// The step of the file of weights with this name; `None` if it is not one.
fn step_of_weights(name: &str) -> Option<u64> {
    step_in(name.strip_suffix(WEIGHTS)?)?.parse().ok()
}

/// The files of weights in `dir`, and their steps, newest first.
pub(super) fn weights_in(dir: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let failed = |error: io::Error| files::failed(OP, "read the directory", dir, &error);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let step = entry.file_name().to_str().and_then(step_of_weights);
        found.extend(step.map(|step| (entry.path(), step)));
    }
    found.sort_by(|a, b| (b.1, &b.0).cmp(&(a.1, &a.0)));
    Ok(found)
}

/// The checkpoint that was marked last, or one committed later that claims to be the best: a run
/// may be killed between the two writes. With a damaged pointer, the newest one with the claim.
pub(super) fn read_best(dir: &Path) -> Result<Option<Best>> {
    let pointer = match read_pointer(dir) {
        Ok(pointer) => pointer,
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            return match claimed_best(dir, 0)? {
                Some(best) => Ok(Some(best)),
                None => Err(error),
            };
        }
        Err(error) => return Err(error),
    };
    let claim = claimed_best(dir, pointer.as_ref().map_or(0, |pointer| pointer.before))?;
    let marked = |pointer: BestPointer| {
        let folder = dir.join(pointer.folder);
        Best {
            path: if folder.is_dir() {
                folder
            } else {
                Some(weights_of(&folder))
                    .filter(|file| file.is_file())
                    .unwrap_or(folder)
            },
            step: pointer.step,
            metric: pointer.by.metric,
            value: pointer.by.bits,
        }
    };
    Ok(claim.or(pointer.map(marked)))
}

/// The newest checkpoint that claims to be the best, of those with a sequence number of at least
/// `from`.
pub(super) fn claimed_best(dir: &Path, from: u64) -> Result<Option<Best>> {
    Ok(newest_first(scan(dir)?).into_iter().find_map(|found| {
        let manifest = found
            .manifest
            .ok()
            .filter(|manifest| manifest.sequence >= from)?;
        let BestBy {
            metric,
            bits: value,
            ..
        } = manifest.best?;
        Some(Best {
            path: found.path,
            step: manifest.position.step,
            metric,
            value,
        })
    }))
}

pub(super) fn read_pointer(dir: &Path) -> Result<Option<BestPointer>> {
    let path = dir.join(BEST);
    let damaged = |what: String| corrupt(format!("{} is damaged: {what}", path.display()));
    let bytes = match files::read_plain(&path, 1 << 20) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if files::is_damage(&error) => return Err(damaged(error.to_string())),
        Err(error) => return Err(files::failed(OP, "read", &path, &error)),
    };
    let pointer: BestPointer =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if !is_folder_name(&pointer.folder) {
        return Err(damaged(format!(
            "`{}` is not the name of a checkpoint",
            pointer.folder
        )));
    }
    // The checkpoint itself may have been removed.
    let folder = dir.join(&pointer.folder);
    let exists = |path: &Path| path.try_exists().unwrap_or(true);
    Ok((exists(&folder) || exists(&weights_of(&folder))).then_some(pointer))
}

/// The error of a resume from a checkpoint that cannot be read but may be intact; `other` is one
/// that can be read.
pub(super) fn unreadable(path: &Path, error: &Error, other: Option<&Path>) -> Error {
    let choice = match other {
        Some(other) => {
            format!(
                "remove the cause, or resume from another checkpoint (`resume_from`, --from {})",
                folder_name(other)
            )
        }
        None => "remove the cause; there is no other checkpoint to resume from".to_string(),
    };
    Error::new(
        error.kind(),
        OP,
        format!("{}; {choice}", unusable(path, error).message()),
    )
}

pub(super) fn folder_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

pub(super) fn is_same_dir(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// Returns a sequence number higher than that of every existing checkpoint. The numbers of
/// manifests that cannot be read are unknown: a gap is left for each, larger than a run ever uses.
pub(super) fn next_sequence(found: &[Found]) -> u64 {
    let newest = found
        .iter()
        .filter_map(|found| found.manifest.as_ref().ok())
        .map(|manifest| manifest.sequence)
        .max();
    let unknown = found.iter().filter(
        |found| matches!(&found.manifest, Err(error) if error.kind() != ErrorKind::Corrupt),
    );
    let unknown = (unknown.count() as u64).saturating_mul(1 << 32);
    newest.map_or(unknown, |newest| {
        newest.saturating_add(1).saturating_add(unknown)
    })
}
