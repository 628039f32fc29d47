//! Descriptions of checkpoints, from their manifests: nothing here reads an array.

use std::path::{Path, PathBuf};

use halite_core::{Result, TensorType};

use super::{
    RunPosition,
    arrays::{self, ArrayFile},
    manifest::{BestBy, Manifest},
    saved::unusable,
};

/// What a checkpoint says of itself. Its marker and its manifest are valid;
/// [`verify`](Self::verify) verifies the files with the arrays.
#[derive(Debug)]
pub struct CheckpointInfo {
    path: PathBuf,
    manifest: Manifest,
    arrays: Vec<(String, TensorType)>,
}

impl CheckpointInfo {
    /// Reads the manifest of the checkpoint in `folder`.
    ///
    /// # Errors
    /// If the marker or the manifest is missing, damaged, or of a later format.
    pub fn read(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let manifest = Manifest::read(folder);
        let info = manifest.and_then(|manifest| Self::of(folder, manifest));
        info.map_err(|error| unusable(folder, &error))
    }

    pub(super) fn of(folder: &Path, manifest: Manifest) -> Result<Self> {
        let arrays = manifest.arrays.iter();
        let typed = arrays.map(|array| Ok((array.name.clone(), array.ty()?)));
        Ok(CheckpointInfo {
            path: folder.to_path_buf(),
            arrays: typed.collect::<Result<_>>()?,
            manifest,
        })
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its position in the run.
    pub fn position(&self) -> RunPosition {
        self.manifest.position
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.manifest.seed
    }

    /// The version of its format, and that of the halite that wrote it.
    pub fn versions(&self) -> (u32, &str) {
        (self.manifest.version(), self.manifest.halite())
    }

    /// If it was the best of its run when it was written: the name of the metric and its value.
    pub fn best_by(&self) -> Option<(&str, f64)> {
        let best: Option<&BestBy> = self.manifest.best.as_ref();
        best.map(|best| (&*best.metric, best.bits))
    }

    /// Names and types of the arrays, in their order in the state.
    pub fn arrays(&self) -> &[(String, TensorType)] {
        &self.arrays
    }

    /// Names and lengths of the files with the arrays.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        (self.manifest.files.iter()).map(|file| (&*file.name, file.bytes))
    }

    /// Metadata of the trainer.
    pub fn metadata(&self) -> &serde_json::Value {
        &self.manifest.metadata
    }

    /// Verifies the digests of the files with the arrays, and that they have the arrays of the
    /// manifest. Returns a description of each damage: none for a checkpoint that is whole.
    ///
    /// # Errors
    /// If a file cannot be read for another reason than damage.
    pub fn verify(&self) -> Result<Vec<String>> {
        let mut damages = Vec::new();
        for entry in &self.manifest.files {
            let checked = ArrayFile::open_verified(&self.path, entry).and_then(|file| {
                arrays::check_types(&entry.name, &file.arrays()?, self.manifest.arrays.iter())
                    .map(drop)
            });
            match checked {
                Ok(()) => {}
                Err(error) if error.kind() == halite_core::ErrorKind::Corrupt => {
                    damages.push(error.message().to_string());
                }
                Err(error) => return Err(unusable(&self.path, &error)),
            }
        }
        Ok(damages)
    }
}
