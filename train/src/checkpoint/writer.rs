//! Writing into a directory of checkpoints.

use std::{
    borrow::Borrow,
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use halite_core::{Error, ErrorKind, HostArray, Result, TensorType};

use super::{
    Keep, Saved, Snapshot, arrays,
    leftovers::{TEMPORARY, remove},
    listing::{
        BEST, BestPointer, Found, claimed_best, folder_of, is_folder_name, newest_first, read_best,
        read_pointer, scan, weights_in, weights_of,
    },
    lock::Lock,
    manifest::{ArrayEntry, BestBy, COMMIT, Contents, FileEntry, MANIFEST, Manifest},
    store::{OP, StoreOptions, lock_mutex},
};
use crate::files;

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) dir: PathBuf,
    pub(super) options: StoreOptions,
    /// The lock of the directory; `None` if the store is read-only.
    pub(super) lock: Option<Lock>,
    pub(super) state: Mutex<WriterState>,
}

/// State of a writer. Its mutex serializes the saves of a store.
#[derive(Debug)]
pub(super) struct WriterState {
    pub(super) next_sequence: u64,
    /// Checkpoints with damaged arrays: they do not count towards those to keep.
    pub(super) known_bad: HashSet<PathBuf>,
}

impl Writer {
    pub(super) fn state(&self) -> MutexGuard<'_, WriterState> {
        lock_mutex(&self.state)
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        match self.lock {
            Some(_) => Ok(()),
            None => Err(Error::invalid(
                OP,
                format!("{} was opened for reading only", self.dir.display()),
            )),
        }
    }

    /// Writes a checkpoint with arrays of these types; `array` gives the one of an index.
    pub(super) fn write<A: Borrow<HostArray>>(
        &self,
        snapshot: Snapshot<TensorType>,
        array: impl FnMut(usize) -> Result<A>,
    ) -> Result<PathBuf> {
        let _span = tracing::trace_span!("checkpoint", step = snapshot.position.step).entered();
        let mut state = self.state();
        let begun = self.begin(&mut state, &snapshot, None)?;
        let path = begun
            .create()
            .and_then(|()| self.write_arrays(&begun.temporary, &snapshot.arrays, array))
            .and_then(|(entries, files)| self.complete(&begun, snapshot, entries, files));
        self.end(&state, &begun, path)
    }

    /// Begins a checkpoint. Writers of different numbers `of` write to different folders.
    pub(super) fn begin(
        &self,
        state: &mut WriterState,
        snapshot: &Snapshot<TensorType>,
        of: Option<u64>,
    ) -> Result<Begun> {
        self.check_writable()?;
        check_names(&snapshot.arrays)?;
        let step = snapshot.position.step;
        let name = folder_name_of(step, snapshot.name.as_deref())?;
        // Incremented even if the save fails: a sequence number is never used twice.
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        let of = of.map_or_else(String::new, |of| format!(".{of}"));
        Ok(Begun {
            temporary: self.dir.join(format!("{TEMPORARY}{}{of}", folder_of(step))),
            step,
            name,
            sequence,
            best: (snapshot.best.as_ref()).map(|(metric, value)| BestBy::new(metric, *value)),
            keep: snapshot.keep.clone(),
        })
    }

    fn write_arrays<A: Borrow<HostArray>>(
        &self,
        folder: &Path,
        arrays: &[(String, TensorType)],
        mut array: impl FnMut(usize) -> Result<A>,
    ) -> Result<(Vec<ArrayEntry>, Vec<FileEntry>)> {
        let types: Vec<(&str, &TensorType)> =
            arrays.iter().map(|(name, ty)| (&**name, ty)).collect();
        let (mut files, mut entries) = (Vec::new(), Vec::new());
        for (name, range) in arrays::split(&types, self.options.file_bytes) {
            let (first, types) = (range.start, &types[range]);
            let next = |index| array(first + index);
            files.push(arrays::write(folder, &name, types, next)?);
            let entry = |(array, ty): &(&str, &TensorType)| ArrayEntry::new(array, ty, &name);
            entries.extend(types.iter().map(entry));
        }
        Ok((entries, files))
    }

    /// Writes the manifest and its marker beside the arrays, and gives the folder its final name.
    pub(super) fn complete(
        &self,
        begun: &Begun,
        snapshot: Snapshot<TensorType>,
        arrays: Vec<ArrayEntry>,
        files: Vec<FileEntry>,
    ) -> Result<PathBuf> {
        let folder = &begun.temporary;
        let failed =
            |doing: &str, path: &Path, error: io::Error| files::failed(OP, doing, path, &error);
        let manifest = Manifest::new(Contents {
            sequence: begun.sequence,
            position: snapshot.position,
            seed: snapshot.seed,
            best: begun.best.clone(),
            arrays,
            files,
            metadata: snapshot.metadata,
        });
        let text = manifest.to_bytes()?;
        for (name, bytes) in [(MANIFEST, &text), (COMMIT, &manifest.marker(&text))] {
            let path = folder.join(name);
            files::write_synced(&path, bytes).map_err(|error| failed("write", &path, error))?;
        }
        files::sync_dir(folder).map_err(|error| failed("flush to the disk", folder, error))?;
        self.commit(folder, begun.step, &begun.name)
    }

    /// Ends a checkpoint that is in its folder `path`, or failed.
    pub(super) fn end(
        &self,
        state: &WriterState,
        begun: &Begun,
        path: Result<PathBuf>,
    ) -> Result<PathBuf> {
        let path = path.map_err(|error| {
            // The next `open` removes anything that remains.
            let _ = fs::remove_dir_all(&begun.temporary);
            self.with_what_stays(&error)
        })?;
        // The checkpoint is complete without it, and its manifest has the same claim.
        if let Some(best) = &begun.best
            && let Err(error) = self.write_best(state, &path, begun.step, best.clone())
        {
            halite_core::warning!("{error}; it is written again when the run resumes");
        }
        // Additional checkpoints do no harm to the run.
        if let Err(error) = self.remove_old(state, &begun.keep) {
            halite_core::warning!("{error}");
        }
        Ok(path)
    }

    /// Gives the folder its final name, which makes it a checkpoint.
    fn commit(&self, temporary: &Path, step: u64, name: &str) -> Result<PathBuf> {
        let (plain, folder) = (self.dir.join(name), folder_of(step));
        let added = name.strip_prefix(&*folder).unwrap_or_default();
        // A step can be repeated after a resume from an older checkpoint: the existing folder is
        // not touched.
        let again = (2u64..).map(|n| self.dir.join(format!("{folder}.{n}{added}")));
        let path = std::iter::once(plain)
            .chain(again)
            .find(|path| !path.exists())
            .expect("names do not run out");
        let renamed = fs::rename(temporary, &path).and_then(|()| files::sync_dir(&self.dir));
        renamed.map_err(|error| {
            files::failed(OP, "rename the finished checkpoint to", &path, &error)
        })?;
        Ok(path)
    }

    pub(super) fn write_best(
        &self,
        state: &WriterState,
        path: &Path,
        step: u64,
        by: BestBy,
    ) -> Result<()> {
        let folder = path
            .file_name()
            .expect("a checkpoint is in a folder")
            .to_string_lossy()
            .into_owned();
        let pointer = BestPointer {
            folder,
            step,
            by,
            before: state.next_sequence,
        };
        let mut text =
            serde_json::to_vec_pretty(&pointer).expect("it has only string keys and plain values");
        text.push(b'\n');
        let path = self.dir.join(BEST);
        files::replace(&path, &text).map_err(|error| files::failed(OP, "write", &path, &error))
    }

    /// Restores a damaged `best.json` from the manifests, or moves it aside if no manifest claims
    /// to be the best.
    pub(super) fn repair_best(&self) -> Result<()> {
        let path = self.dir.join(BEST);
        let Err(error) = read_pointer(&self.dir) else {
            return Ok(());
        };
        if error.kind() != ErrorKind::Corrupt {
            return Err(error);
        }
        match claimed_best(&self.dir, 0)? {
            Some(best) => {
                halite_core::warning!(
                    "{}; by the manifests the best checkpoint is {}, and the file is written again",
                    error.message(),
                    best.path.display()
                );
                let state = self.state();
                self.write_best(
                    &state,
                    &best.path,
                    best.step,
                    BestBy::new(&best.metric, best.value),
                )
            }
            None => {
                let aside = files::move_aside(&path)
                    .map_err(|error| files::failed(OP, "move aside", &path, &error))?;
                let aside = aside.unwrap_or(path);
                halite_core::warning!(
                    "{}; no manifest names a best checkpoint, so the file is moved to {}",
                    error.message(),
                    aside.display()
                );
                Ok(())
            }
        }
    }

    /// Removes the checkpoints that are neither among the newest nor the best nor those to keep.
    /// Damaged ones are kept for inspection.
    pub(super) fn remove_old(&self, state: &WriterState, keep: &Keep) -> Result<()> {
        let best = read_best(&self.dir)?;
        let sound = newest_first(scan(&self.dir)?)
            .into_iter()
            .filter(|found| found.manifest.is_ok() && !state.known_bad.contains(&found.path));
        let mut ranked = HashSet::new();
        for (age, Found { path, manifest }) in sound.enumerate() {
            let step = manifest?.position.step;
            // The newest of several checkpoints of a step.
            let is_ranked = keep.steps.contains(&step) && ranked.insert(step);
            let is_best = best.as_ref().is_some_and(|best| best.path == path);
            if age < self.options.keep_last || (is_ranked || is_best) && !keep.weights_only {
                continue;
            }
            if is_ranked || is_best {
                let weights = weights_of(&path);
                match Saved::read(&path).and_then(|saved| saved.export_weights(&weights)) {
                    // It stays for inspection, as other damaged ones.
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        halite_core::warning!("{error}");
                        continue;
                    }
                    exported => exported?,
                }
            }
            remove(&self.dir, &path)?;
        }
        // A run that keeps no files of weights leaves those of others.
        if !keep.weights_only {
            return Ok(());
        }
        let best = best.map(|best| best.step);
        self.remove_weights(|step| keep.steps.contains(&step) || best == Some(step))
    }

    /// Removes the files of weights of the steps that are not kept.
    fn remove_weights(&self, is_kept: impl Fn(u64) -> bool) -> Result<()> {
        for (path, step) in weights_in(&self.dir)? {
            if !is_kept(step) {
                fs::remove_file(&path)
                    .map_err(|error| files::failed(OP, "remove the old weights", &path, &error))?;
            }
        }
        Ok(())
    }

    /// Adds the newest valid checkpoint to the error of a failed save.
    pub(super) fn with_what_stays(&self, error: &Error) -> Error {
        let newest = scan(&self.dir)
            .ok()
            .map(newest_first)
            .and_then(|found| found.into_iter().find(|f| f.manifest.is_ok()));
        let stays = match newest {
            Some(found) => format!(
                "the last good checkpoint, {}, is untouched",
                found.path.display()
            ),
            None => "there is no checkpoint before it".to_string(),
        };
        Error::new(
            error.kind(),
            OP,
            format!("{}. Nothing half written is left; {stays}", error.message()),
        )
    }
}

/// A checkpoint that is being written.
pub(super) struct Begun {
    /// The folder until it is complete.
    pub(super) temporary: PathBuf,
    step: u64,
    /// The name that the folder gets, if none has it.
    name: String,
    sequence: u64,
    best: Option<BestBy>,
    keep: Keep,
}

impl Begun {
    /// Creates the folder. A leftover of its name is removed.
    pub(super) fn create(&self) -> Result<()> {
        let path = &self.temporary;
        let failed = |doing: &str, error: io::Error| files::failed(OP, doing, path, &error);
        if path.exists() {
            fs::remove_dir_all(path).map_err(|error| failed("remove the leftover", error))?;
        }
        fs::create_dir(path).map_err(|error| failed("create the directory", error))
    }
}

/// The name of the folder of a checkpoint with this text in it.
fn folder_name_of(step: u64, added: Option<&str>) -> Result<String> {
    let folder = folder_of(step);
    let Some(added) = added else {
        return Ok(folder);
    };
    let name = format!("{folder}-{added}");
    let is_plain = |c: char| c.is_ascii_graphic() && !['/', '\\'].contains(&c);
    if is_folder_name(&name) && added.chars().all(is_plain) {
        return Ok(name);
    }
    let message = format!(
        "`{added}` cannot be added to the name of a checkpoint; give ASCII characters with a `=`, \
         and without spaces and slashes"
    );
    Err(Error::invalid(OP, message))
}

pub(super) fn check_names<N: AsRef<str>, A>(arrays: &[(N, A)]) -> Result<()> {
    let mut names = HashSet::new();
    for name in arrays.iter().map(|(name, _)| name.as_ref()) {
        if name.is_empty() || name == "__metadata__" {
            return Err(Error::invalid(
                OP,
                format!("an array cannot have the name `{name}` in a safetensors file"),
            ));
        }
        if !names.insert(name) {
            return Err(Error::invalid(
                OP,
                format!("two arrays have the name `{name}`: names are unique"),
            ));
        }
    }
    Ok(())
}
