//! Reading checkpoints from a directory.

use std::path::{Path, PathBuf};

use halite_core::{Error, ErrorKind, Result};

use super::{CheckpointStore, OP};
use crate::checkpoint::{
    RunPosition, Saved,
    listing::{
        Best, Found, folder_name, is_same_dir, newest_first, read_best, scan, unreadable,
        weights_in,
    },
    manifest::corrupt,
    saved::unusable,
};

impl CheckpointStore {
    /// Reads the newest valid checkpoint. Damaged ones that are newer are skipped with a warning,
    /// see [`Saved::skipped`].
    ///
    /// # Errors
    /// If there are checkpoints and none is valid, or the directory cannot be read. If one cannot
    /// be read for a reason other than damage (a later format, permissions, a failing disk): it may
    /// be the newest, so nothing older is taken in its place unless [`load`](Self::load) names it.
    pub fn latest(&self) -> Result<Option<Saved>> {
        self.finish()?;
        let mut skipped = Vec::new();
        let mut found = newest_first(scan(&self.writer.dir)?).into_iter();
        while let Some(Found { path, manifest }) = found.next() {
            match manifest.and_then(|manifest| Saved::verified(&path, manifest)) {
                Ok(saved) => return Ok(Some(saved.with_skipped(skipped))),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    let why = unusable(&path, &error).message().to_string();
                    halite_core::warning!("{why}; the checkpoint before it is used");
                    skipped.push(why);
                    self.writer.state().known_bad.insert(path);
                }
                Err(error) => {
                    let readable = found.find(|other| other.manifest.is_ok());
                    return Err(unreadable(
                        &path,
                        &error,
                        readable.as_ref().map(|other| &*other.path),
                    ));
                }
            }
        }
        if skipped.is_empty() {
            return Ok(None);
        }
        Err(corrupt(format!(
            "no checkpoint in {} is valid:\n  {}\nMove them away to start again",
            self.writer.dir.display(),
            skipped.join("\n  ")
        )))
    }

    /// Reads the checkpoint of this folder name, path or step: `step-00000040`, `40`. Of several of
    /// one step it reads the newest. The next save is newer than every existing checkpoint.
    ///
    /// # Errors
    /// If the checkpoint does not exist, with the existing ones; if it cannot be read or is
    /// damaged.
    pub fn load(&self, name: &str) -> Result<Saved> {
        self.finish()?;
        let found = newest_first(scan(&self.writer.dir)?);
        let given = Path::new(name);
        let by_path = given
            .parent()
            .is_some_and(|parent| is_same_dir(parent, &self.writer.dir));
        let is_meant = |found: &Found| match name.parse::<u64>() {
            Ok(step) => found
                .manifest
                .as_ref()
                .is_ok_and(|manifest| manifest.position.step == step),
            Err(_) => {
                found.path.file_name()
                    == (if by_path {
                        given.file_name()
                    } else {
                        Some(given.as_os_str())
                    })
            }
        };
        match found.iter().find(|found| is_meant(found)) {
            Some(found) => Saved::read(&found.path),
            None => {
                let mut names: Vec<String> =
                    found.iter().map(|found| folder_name(&found.path)).collect();
                names.sort();
                let there = if names.is_empty() {
                    "it has none".to_string()
                } else {
                    format!("it has {}", names.join(", "))
                };
                let message = format!(
                    "{} has no checkpoint `{name}`; {there}",
                    self.writer.dir.display()
                );
                Err(Error::invalid(OP, message))
            }
        }
    }

    /// Every folder that has the name of a checkpoint, newest first, with the reason if it cannot
    /// be used. Arrays are not read.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn folders(&self) -> Result<Vec<(PathBuf, Result<RunPosition>)>> {
        let found = newest_first(scan(&self.writer.dir)?).into_iter();
        let position = |found: Found| match found.manifest {
            Ok(manifest) => (found.path, Ok(manifest.position)),
            Err(error) => {
                let error = unusable(&found.path, &error);
                (found.path, Err(error))
            }
        };
        Ok(found.map(position).collect())
    }

    /// Folders and positions of the checkpoints, newest first, without reading their arrays.
    /// Invalid ones are left out.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self) -> Result<Vec<(PathBuf, RunPosition)>> {
        let found = newest_first(scan(&self.writer.dir)?).into_iter();
        Ok(found
            .filter_map(|found| Some((found.path, found.manifest.ok()?.position)))
            .collect())
    }

    /// The files with the weights of checkpoints, where those alone are
    /// [kept](crate::checkpoint::Keep::weights_only), and their steps, newest first.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn weights(&self) -> Result<Vec<(PathBuf, u64)>> {
        weights_in(&self.writer.dir)
    }

    /// The best checkpoint so far, or the file with its weights, if those alone are
    /// [kept](crate::checkpoint::Keep::weights_only). If the pointer to it is damaged, the newest
    /// one whose manifest claims to be the best.
    ///
    /// # Errors
    /// If the pointer cannot be read, or is damaged and no manifest claims to be the best.
    pub fn best(&self) -> Result<Option<Best>> {
        self.finish()?;
        read_best(&self.writer.dir)
    }

    /// Reads the best checkpoint so far.
    ///
    /// # Errors
    /// If it, or the pointer to it, cannot be read or is not valid.
    pub fn load_best(&self) -> Result<Option<Saved>> {
        let read = |best: Best| {
            if best.path.is_file() {
                Saved::of_file(best.path)
            } else {
                Saved::read(best.path)
            }
        };
        self.best()?.map(read).transpose()
    }
}
