//! A validated checkpoint.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    path::{Path, PathBuf},
};

use halite_core::{Error, ErrorKind, HostArray, Result, TensorType};

use super::{
    RunPosition,
    arrays::{self, ArrayFile, Located, Piece},
    manifest::Manifest,
};

/// Number of differences that an error lists.
const SHOWN: usize = 12;

/// A checkpoint that was validated: marker, manifest and every file match. Its arrays are read from
/// the disk when they are taken.
pub struct Saved {
    path: PathBuf,
    position: RunPosition,
    seed: u64,
    metadata: serde_json::Value,
    files: Vec<ArrayFile>,
    /// The arrays that are not taken, by name.
    arrays: BTreeMap<String, Stored>,
    skipped: Vec<String>,
}

/// An array on the disk.
#[derive(Clone)]
struct Stored {
    ty: TensorType,
    /// Where its elements are, in their order.
    pieces: Vec<StoredPiece>,
}

/// Elements of an array in a file.
#[derive(Clone)]
struct StoredPiece {
    /// The first of the elements.
    start: usize,
    /// Index of the file.
    file: usize,
    /// Position of the first byte in the file.
    offset: u64,
    bytes: usize,
}

impl StoredPiece {
    /// What an array in the file of this index is of another one, from element `start` on.
    fn of(array: &Located, file: usize, start: usize) -> Self {
        StoredPiece {
            start,
            file,
            offset: array.offset,
            bytes: array.ty.bytes(),
        }
    }
}

impl Saved {
    /// Reads the checkpoint in `folder`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] or [`ErrorKind::Io`] if any part of it is missing or was
    /// changed.
    pub fn read(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let saved = Manifest::read(folder).and_then(|manifest| Self::verified(folder, manifest));
        saved.map_err(|error| unusable(folder, &error))
    }

    /// Verifies the files that `manifest` lists.
    pub(super) fn verified(folder: &Path, manifest: Manifest) -> Result<Self> {
        let (mut files, mut arrays) = (Vec::new(), BTreeMap::new());
        for entry in &manifest.arrays {
            let (ty, pieces) = (entry.ty()?, Vec::new());
            arrays.insert(entry.name.clone(), Stored { ty, pieces });
        }
        for entry in &manifest.files {
            let file = ArrayFile::open_verified(folder, entry)?;
            let located = file.arrays()?;
            let starts = arrays::check_types(&entry.name, &located, manifest.arrays.iter())?;
            for array in located {
                let of = arrays.get_mut(&array.name).zip(starts.get(&*array.name));
                let (stored, start) = of.expect("the types were checked");
                let piece = StoredPiece::of(&array, files.len(), *start);
                stored.pieces.push(piece);
            }
            files.push(file);
        }
        for array in arrays.values_mut() {
            array.pieces.sort_by_key(|piece| piece.start);
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
            files,
            arrays,
            skipped: Vec::new(),
        })
    }

    /// Opens a safetensors file, which has arrays alone.
    ///
    /// # Errors
    /// If it cannot be read, or is not such a file.
    pub fn of_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = ArrayFile::open(path.to_path_buf())?;
        let arrays = file.arrays()?.into_iter().map(|array| {
            let pieces = vec![StoredPiece::of(&array, 0, 0)];
            (
                array.name,
                Stored {
                    ty: array.ty,
                    pieces,
                },
            )
        });
        let arrays = arrays.collect();
        Ok(Saved {
            path: path.to_path_buf(),
            position: RunPosition::default(),
            seed: 0,
            metadata: serde_json::Value::Null,
            arrays,
            files: vec![file],
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

    /// Names and types of the arrays not yet taken, by name.
    pub fn arrays(&self) -> impl ExactSizeIterator<Item = (&str, &TensorType)> {
        self.arrays.iter().map(|(name, array)| (&**name, &array.ty))
    }

    /// Reads an array, and leaves it.
    pub(super) fn array(&self, name: &str) -> Result<HostArray> {
        let stored = self
            .arrays
            .get(name)
            .expect("the caller has its name from here");
        Ok(arrays::read(&[(&stored.ty, self.pieces(stored))])?.remove(0))
    }

    /// Lets a run with these `wanted` arrays continue one that has fewer or more: averages that are
    /// missing beside others begin with the model's values, and a `count` of steps that is missing
    /// with 0; one that is not wanted is left out.
    pub(crate) fn continue_with(&mut self, wanted: &[(String, TensorType)], count: &str) {
        match wanted.iter().find(|(name, _)| name == count) {
            None => _ = self.arrays.remove(count),
            Some((name, ty)) if !self.arrays.contains_key(name) => {
                // Without pieces it is zeros.
                let (ty, pieces) = (ty.clone(), Vec::new());
                self.arrays.insert(name.clone(), Stored { ty, pieces });
            }
            Some(_) => {}
        }
        if !self.arrays.keys().any(|name| name.starts_with("average.")) {
            return;
        }
        for (name, ty) in wanted {
            let value = (name.strip_prefix("average.")).map(|path| format!("model.{path}"));
            let value = value.and_then(|value| self.arrays.get(&value)).cloned();
            if let Some(value) = value.filter(|value| value.ty == *ty) {
                self.arrays.entry(name.clone()).or_insert(value);
            }
        }
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
                "`{name}` is {} in the {}, the model has no such array",
                array.ty,
                self.kind()
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
                "`{name}` is not in the {}, the model has {want}",
                self.kind()
            )),
            Some(array) if array.ty != *want => Some(format!(
                "`{name}` is {} in the {}, the model has {want}",
                array.ty,
                self.kind()
            )),
            Some(_) => None,
        };
        wanted.iter().filter_map(difference).collect()
    }

    /// Takes the `wanted` arrays out one by one, in their order, and passes each to `then` before
    /// the next is read, so that the host has memory for one. Others are left.
    ///
    /// # Errors
    /// Those of [`take_some`](Self::take_some), before anything is read; the first of `then`.
    pub fn take_each(
        &mut self,
        wanted: &[(String, TensorType)],
        mut then: impl FnMut(usize, HostArray) -> Result<()>,
    ) -> Result<()> {
        self.check(wanted, self.missing(wanted))?;
        for (index, wanted) in wanted.iter().enumerate() {
            let array = self.read_arrays(std::slice::from_ref(wanted))?.remove(0);
            then(index, array)?;
            self.arrays.remove(&wanted.0);
        }
        Ok(())
    }

    fn take_checked(
        &mut self,
        wanted: &[(String, TensorType)],
        differences: Vec<String>,
    ) -> Result<Vec<HostArray>> {
        self.check(wanted, differences)?;
        let arrays = self.read_arrays(wanted)?;
        for (name, _) in wanted {
            self.arrays.remove(name);
        }
        Ok(arrays)
    }

    /// Reads arrays that are there.
    fn read_arrays(&self, wanted: &[(String, TensorType)]) -> Result<Vec<HostArray>> {
        let stored = |(name, _): &(String, TensorType)| {
            let array = self.arrays.get(name).expect("the caller has checked it");
            (&array.ty, self.pieces(array))
        };
        arrays::read(&wanted.iter().map(stored).collect::<Vec<_>>())
    }

    fn pieces(&self, array: &Stored) -> Vec<Piece<'_>> {
        let piece = |piece: &StoredPiece| Piece {
            file: &self.files[piece.file],
            offset: piece.offset,
            bytes: piece.bytes,
        };
        array.pieces.iter().map(piece).collect()
    }

    /// An error of these `differences`, and of names that are wanted twice.
    pub(super) fn check(
        &self,
        wanted: &[(String, TensorType)],
        mut differences: Vec<String>,
    ) -> Result<()> {
        let mut names = HashSet::new();
        let twice = wanted.iter().filter(|(name, _)| !names.insert(&**name));
        differences.extend(twice.map(|(name, _)| format!("`{name}` is wanted twice")));
        if differences.is_empty() {
            Ok(())
        } else {
            Err(self.mismatch(&differences))
        }
    }

    /// A file has arrays alone.
    fn kind(&self) -> &'static str {
        if self.path.is_file() {
            "file"
        } else {
            "checkpoint"
        }
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
        let kind = match self.kind() {
            "checkpoint" => "the checkpoint ",
            _ => "",
        };
        let message = format!(
            "{kind}{} is of another model, {count}:{lines}",
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
