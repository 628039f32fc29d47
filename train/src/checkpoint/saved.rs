//! A validated checkpoint.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    path::{Path, PathBuf},
};

use halite_core::{Error, ErrorKind, HostArray, Result, TensorType};

use super::{RunPosition, arrays, manifest::Manifest};

/// Number of differences that an error lists.
const SHOWN: usize = 12;

/// A checkpoint that was read and validated: marker, manifest and every file match.
pub struct Saved {
    path: PathBuf,
    position: RunPosition,
    seed: u64,
    metadata: serde_json::Value,
    arrays: BTreeMap<String, HostArray>,
    skipped: Vec<String>,
}

impl Saved {
    /// Reads the checkpoint in `folder`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] or [`ErrorKind::Io`] if any part of it is missing or was
    /// changed.
    pub fn read(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let saved = Manifest::read(folder).and_then(|manifest| Self::read_arrays(folder, manifest));
        saved.map_err(|error| unusable(folder, &error))
    }

    /// Reads the arrays that `manifest` lists.
    pub(super) fn read_arrays(folder: &Path, manifest: Manifest) -> Result<Self> {
        let mut arrays = BTreeMap::new();
        for file in &manifest.files {
            arrays.extend(arrays::read(folder, file, manifest.arrays.iter())?);
        }
        let Manifest {
            position,
            seed,
            metadata,
            ..
        } = manifest;
        Ok(Saved {
            path: folder.to_path_buf(),
            position,
            seed,
            metadata,
            arrays,
            skipped: Vec::new(),
        })
    }

    pub(super) fn with_skipped(mut self, skipped: Vec<String>) -> Self {
        self.skipped = skipped;
        self
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its position in the run.
    pub fn position(&self) -> RunPosition {
        self.position
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Metadata of the trainer.
    pub fn metadata(&self) -> &serde_json::Value {
        &self.metadata
    }

    /// Newer checkpoints that are invalid, each with the reason.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Names and arrays not yet taken, by name.
    pub fn arrays(&self) -> impl ExactSizeIterator<Item = (&str, &HostArray)> {
        self.arrays.iter().map(|(name, array)| (&**name, array))
    }

    /// Takes one array out.
    ///
    /// # Errors
    /// If no array has this name, or it has another type.
    pub fn take(&mut self, name: &str, ty: &TensorType) -> Result<HostArray> {
        let wanted = [(name.to_string(), ty.clone())];
        Ok(self.take_some(&wanted)?.remove(0))
    }

    /// Takes every array out, in the order of `wanted`.
    ///
    /// # Errors
    /// If an array is missing, is of another type, or is not wanted: one error that lists the
    /// differences. Nothing is taken then.
    pub fn take_all(&mut self, wanted: &[(String, TensorType)]) -> Result<Vec<HostArray>> {
        let differences = self.differences(wanted);
        self.take_checked(wanted, differences)
    }

    /// Describes the differences from the `wanted` arrays: a line for each one that is missing, has
    /// another type, or is not wanted.
    pub fn differences(&self, wanted: &[(String, TensorType)]) -> Vec<String> {
        let names: HashSet<&str> = wanted.iter().map(|(name, _)| &**name).collect();
        let unwanted = self
            .arrays
            .iter()
            .filter(|(name, _)| !names.contains(&***name));
        let unwanted = unwanted.map(|(name, array)| {
            format!(
                "`{name}` is {} in the checkpoint, the model has no such array",
                array.ty()
            )
        });
        self.missing(wanted).into_iter().chain(unwanted).collect()
    }

    /// Takes the `wanted` arrays out, in their order, and leaves the others.
    ///
    /// # Errors
    /// If an array is missing or is of another type: one error that lists the differences. Nothing
    /// is taken then.
    pub fn take_some(&mut self, wanted: &[(String, TensorType)]) -> Result<Vec<HostArray>> {
        let missing = self.missing(wanted);
        self.take_checked(wanted, missing)
    }

    /// The `wanted` arrays that are missing or of another type.
    fn missing(&self, wanted: &[(String, TensorType)]) -> Vec<String> {
        let difference = |(name, want): &(String, TensorType)| match self.arrays.get(name) {
            None => Some(format!(
                "`{name}` is not in the checkpoint, the model has {want}"
            )),
            Some(array) if array.ty() != want => Some(format!(
                "`{name}` is {} in the checkpoint, the model has {want}",
                array.ty()
            )),
            Some(_) => None,
        };
        wanted.iter().filter_map(difference).collect()
    }

    fn take_checked(
        &mut self,
        wanted: &[(String, TensorType)],
        mut differences: Vec<String>,
    ) -> Result<Vec<HostArray>> {
        let mut names = HashSet::new();
        let twice = wanted.iter().filter(|(name, _)| !names.insert(&**name));
        differences.extend(twice.map(|(name, _)| format!("`{name}` is wanted twice")));
        if !differences.is_empty() {
            return Err(self.mismatch(&differences));
        }
        let take = |(name, _): &(String, TensorType)| {
            self.arrays
                .remove(name)
                .expect("it was found above, and is wanted once")
        };
        Ok(wanted.iter().map(take).collect())
    }

    fn mismatch(&self, differences: &[String]) -> Error {
        let count = match differences.len() {
            1 => "1 difference".to_string(),
            count => format!("{count} differences"),
        };
        let mut lines: String = differences
            .iter()
            .take(SHOWN)
            .map(|line| format!("\n  {line}"))
            .collect();
        if differences.len() > SHOWN {
            lines += &format!("\n  and {} more", differences.len() - SHOWN);
        }
        let message = format!(
            "the checkpoint {} is of another model, {count}:{lines}",
            self.path.display()
        );
        Error::new(ErrorKind::InvalidArgument, "restore", message)
    }
}

impl fmt::Debug for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Saved({}, {} arrays)",
            self.path.display(),
            self.arrays.len()
        )
    }
}

/// Says which checkpoint an error is about.
pub(super) fn unusable(folder: &Path, error: &Error) -> Error {
    Error::new(
        error.kind(),
        "checkpoint",
        format!("{} cannot be used: {}", folder.display(), error.message()),
    )
}
