//! The directory of a run's checkpoints: writing, keeping and finding them.

use std::{
    collections::HashSet,
    fmt,
    fs::{self, File, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use halite_core::{
    Error, ErrorKind, HostArray, Pending, Result,
    wait::{default_limit, wait_until},
};
use serde::{Deserialize, Serialize};

use super::{
    RunPosition, Saved, Snapshot, arrays,
    manifest::{ArrayEntry, BestBy, COMMIT, Contents, MANIFEST, Manifest, commit_marker, corrupt},
    saved::unusable,
};
use crate::{files, loggers::format_seconds};

const OP: &str = "checkpoint";
const BEST: &str = "best.json";
pub(crate) const LOCK: &str = ".lock";
const TEMPORARY: &str = ".tmp-";
const TRASH: &str = ".trash-";
const FOLDER: &str = "step-";

/// How a [`CheckpointStore`] writes and what it keeps.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// How many of the newest checkpoints are kept, at least 1; the best one is kept besides.
    pub keep_last: usize,
    /// Arrays go into several files of at most this many bytes each. A larger array has a file of
    /// its own.
    pub file_bytes: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            keep_last: 2,
            file_bytes: 4 << 30,
        }
    }
}

/// Which checkpoint of a store is the best, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// Its folder.
    pub path: PathBuf,
    /// Its optimizer steps.
    pub step: u64,
    /// The name of the metric that decided.
    pub metric: String,
    /// The value of that metric.
    pub value: f64,
}

/// What `best.json` holds.
#[derive(Deserialize, Serialize)]
struct BestPointer {
    folder: String,
    step: u64,
    by: BestBy,
    /// The sequence number of the checkpoint that came next: one that says of itself that it is the
    /// best, and has this number or a higher one, was committed after this pointer.
    before: u64,
}

/// The directory of a run's checkpoints. See the [module](super) for what lies in it.
///
/// One process at a time may have it open for writing; anyone may read. Errors of a save in the
/// background come from the next call, or from [`finish`](Self::finish).
#[derive(Debug)]
pub struct CheckpointStore {
    writer: Arc<Writer>,
    in_flight: Mutex<Option<JoinHandle<Result<PathBuf>>>>,
    /// By when the arrays of a save must be there; `None` while nobody is in a hurry.
    arrays_by: Arc<Mutex<Option<Instant>>>,
}

impl CheckpointStore {
    /// Opens `dir` for writing, and creates it if need be. Removes what a killed run left half
    /// written, and computes `best.json` again from the manifests if it is damaged.
    ///
    /// `keep_last` is how many of the newest checkpoints are kept, at least 1; the best one is kept
    /// besides.
    ///
    /// # Errors
    /// If the directory cannot be written, or another run has it open.
    pub fn open(dir: impl AsRef<Path>, keep_last: usize) -> Result<Self> {
        Self::open_with(
            dir,
            StoreOptions {
                keep_last,
                ..StoreOptions::default()
            },
        )
    }

    /// As [`open`](Self::open), with every option.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(dir: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        if options.keep_last == 0 {
            return Err(Error::invalid(
                OP,
                "keep_last is 0: without the newest checkpoint a run cannot resume, give 1 or more",
            ));
        }
        let dir = dir.as_ref().to_path_buf();
        fs::create_dir_all(&dir)
            .map_err(|error| files::failed(OP, "create the directory", &dir, &error))?;
        let lock = lock(&dir)?;
        remove_leftovers(&dir)?;
        let next_sequence = next_sequence(&scan(&dir)?);
        let state = WriterState {
            next_sequence,
            known_bad: HashSet::new(),
        };
        let writer = Writer {
            dir,
            options,
            lock: Some(lock),
            state: Mutex::new(state),
        };
        writer.repair_best()?;
        Ok(Self::new(writer))
    }

    /// Opens `dir` for reading only: nothing in it is changed, and a run may be writing to it.
    ///
    /// # Errors
    /// If there is no such directory.
    pub fn open_read_only(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref().to_path_buf();
        fs::read_dir(&dir)
            .map_err(|error| files::failed(OP, "read the directory", &dir, &error))?;
        let state = WriterState {
            next_sequence: 0,
            known_bad: HashSet::new(),
        };
        Ok(Self::new(Writer {
            dir,
            options: StoreOptions::default(),
            lock: None,
            state: Mutex::new(state),
        }))
    }

    fn new(writer: Writer) -> Self {
        CheckpointStore {
            writer: Arc::new(writer),
            in_flight: Mutex::new(None),
            arrays_by: Arc::default(),
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.writer.dir
    }

    /// Writes a checkpoint, and removes those no longer kept. Returns its folder when it is on the
    /// disk.
    ///
    /// # Errors
    /// If it cannot be written, or the save before in the background failed. The checkpoints before
    /// it stay.
    pub fn save(&self, snapshot: Snapshot) -> Result<PathBuf> {
        self.finish()?;
        self.writer.write(snapshot)
    }

    /// Waits for the arrays and writes the checkpoint on another thread. If one is still being
    /// written, waits for it.
    ///
    /// # Errors
    /// If the save before failed; this one is then not started.
    pub fn save_in_background(&self, snapshot: Snapshot<Pending<HostArray>>) -> Result<()> {
        self.save_in_background_if(|_| Ok(()), snapshot)
    }

    /// As [`save_in_background`](Self::save_in_background), unless `check` refuses the arrays when
    /// they have arrived: nothing is written then, and its error is that of the save.
    ///
    /// # Errors
    /// As [`save_in_background`](Self::save_in_background).
    pub fn save_in_background_if(
        &self,
        check: impl FnOnce(&[(String, HostArray)]) -> Result<()> + Send + 'static,
        snapshot: Snapshot<Pending<HostArray>>,
    ) -> Result<()> {
        let mut in_flight = lock_mutex(&self.in_flight);
        join(in_flight.take())?;
        let (writer, arrays_by) = (self.writer.clone(), self.arrays_by.clone());
        let work = move || {
            let snapshot = arrived(snapshot, &arrays_by)?;
            check(&snapshot.arrays)?;
            writer.write(snapshot)
        };
        let thread = std::thread::Builder::new()
            .name("checkpoint writer".into())
            .spawn(work);
        *in_flight = Some(thread.map_err(|error| {
            Error::new(
                ErrorKind::Unavailable,
                OP,
                "the system gives no thread to write on",
            )
            .caused_by(error)
        })?);
        Ok(())
    }

    /// Whether a checkpoint is being written now, so that another would wait.
    pub fn is_busy(&self) -> bool {
        lock_mutex(&self.in_flight)
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Gives up, after `grace`, a save in the background whose arrays have not come: the device
    /// that has them may hang.
    pub(crate) fn give_up_waiting(&self, grace: Duration) {
        *lock_mutex(&self.arrays_by) = Some(Instant::now() + grace);
    }

    /// Waits until what was begun in the background is on the disk. Its folder, if there was
    /// anything.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn finish(&self) -> Result<Option<PathBuf>> {
        let thread = lock_mutex(&self.in_flight).take();
        join(thread)
    }

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
            match manifest.and_then(|manifest| Saved::read_arrays(&path, manifest)) {
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
            "no checkpoint in {} is valid:\n  {}\nMove them away to start anew",
            self.writer.dir.display(),
            skipped.join("\n  ")
        )))
    }

    /// Reads the checkpoint of this folder name, path or step: `step-00000040`, `40`. Of several of
    /// one step it is the newest. The next save is newer than every checkpoint that is there.
    ///
    /// # Errors
    /// If there is no such checkpoint, with those there are; if it cannot be read or is damaged.
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

    /// Removes the checkpoints that are neither among the newest nor the best, as each save does: a
    /// run that was killed between the two leaves more. Call it after [`latest`](Self::latest),
    /// which finds out what is damaged.
    ///
    /// # Errors
    /// If the store was opened for reading only, or one cannot be removed.
    pub fn prune(&self) -> Result<()> {
        self.finish()?;
        self.writer.check_writable()?;
        self.writer.remove_old(&self.writer.state())
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

    /// Says that the newest checkpoint of `step` is the best so far: it is kept until another is.
    ///
    /// # Errors
    /// If there is no valid checkpoint of `step`, or the pointer cannot be written; the old one
    /// then stays.
    pub fn mark_best(&self, step: u64, metric: &str, value: f64) -> Result<()> {
        self.finish()?;
        let found = newest_first(scan(&self.writer.dir)?)
            .into_iter()
            .find(|found| {
                found
                    .manifest
                    .as_ref()
                    .is_ok_and(|manifest| manifest.position.step == step)
            });
        let Some(found) = found else {
            let message = format!(
                "no valid checkpoint of step {step} in {} to mark as the best",
                self.writer.dir.display()
            );
            return Err(Error::invalid(OP, message));
        };
        self.writer.check_writable()?;
        let state = self.writer.state();
        self.writer
            .write_best(&state, &found.path, step, BestBy::new(metric, value))
    }

    /// Which checkpoint is the best so far. If the pointer to it is damaged, the newest that says
    /// of itself that it is.
    ///
    /// # Errors
    /// If the pointer cannot be read, or is damaged and no checkpoint says of itself that it is the
    /// best.
    pub fn best(&self) -> Result<Option<Best>> {
        self.finish()?;
        read_best(&self.writer.dir)
    }

    /// Reads the best checkpoint so far.
    ///
    /// # Errors
    /// If it, or the pointer to it, cannot be read or is not valid.
    pub fn load_best(&self) -> Result<Option<Saved>> {
        self.best()?.map(|best| Saved::read(best.path)).transpose()
    }
}

impl Drop for CheckpointStore {
    /// Waits for what is being written; an error that nobody asked for goes to the log.
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::error!("{error}");
        }
    }
}

#[derive(Debug)]
struct Writer {
    dir: PathBuf,
    options: StoreOptions,
    /// Held as long as the store lives; `None` if it only reads.
    lock: Option<Lock>,
    state: Mutex<WriterState>,
}

/// Also what makes saves of one store wait for each other.
#[derive(Debug)]
struct WriterState {
    next_sequence: u64,
    /// Checkpoints whose arrays were found damaged: they do not count as kept.
    known_bad: HashSet<PathBuf>,
}

impl Writer {
    fn state(&self) -> MutexGuard<'_, WriterState> {
        lock_mutex(&self.state)
    }

    fn check_writable(&self) -> Result<()> {
        match self.lock {
            Some(_) => Ok(()),
            None => Err(Error::invalid(
                OP,
                format!("{} was opened for reading only", self.dir.display()),
            )),
        }
    }

    fn write(&self, snapshot: Snapshot) -> Result<PathBuf> {
        let _span = tracing::trace_span!("checkpoint", step = snapshot.position.step).entered();
        self.check_writable()?;
        check_names(&snapshot.arrays)?;
        let mut state = self.state();
        let step = snapshot.position.step;
        let best = snapshot
            .best
            .as_ref()
            .map(|(metric, value)| BestBy::new(metric, *value));

        // Taken also if it fails: two checkpoints never have the same.
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        let temporary = self.dir.join(format!("{TEMPORARY}{FOLDER}{step:08}"));
        let written = self
            .write_folder(&temporary, snapshot, sequence)
            .and_then(|()| self.commit(&temporary, step));
        let path = match written {
            Ok(path) => path,
            Err(error) => {
                // What is left after this would be removed by the next `open`.
                let _ = fs::remove_dir_all(&temporary);
                return Err(self.with_what_stays(error));
            }
        };
        // The checkpoint is whole without it, and says itself that it is the best.
        if let Some(best) = best
            && let Err(error) = self.write_best(&state, &path, step, best)
        {
            halite_core::warning!("{error}; it is written again when the run resumes");
        }
        // More kept than asked for does no harm to the run.
        if let Err(error) = self.remove_old(&state) {
            halite_core::warning!("{error}");
        }
        Ok(path)
    }

    fn write_folder(&self, temporary: &Path, snapshot: Snapshot, sequence: u64) -> Result<()> {
        let failed =
            |doing: &str, path: &Path, error: io::Error| files::failed(OP, doing, path, &error);
        if temporary.exists() {
            fs::remove_dir_all(temporary)
                .map_err(|error| failed("remove what is left of", temporary, error))?;
        }
        fs::create_dir(temporary)
            .map_err(|error| failed("create the directory", temporary, error))?;

        let Snapshot {
            position,
            seed,
            arrays,
            metadata,
            best,
        } = snapshot;
        let best = best.map(|(metric, value)| BestBy::new(&metric, value));
        let (mut files, mut entries) = (Vec::new(), Vec::new());
        for (name, range) in arrays::split(&arrays, self.options.file_bytes) {
            let arrays = &arrays[range];
            files.push(arrays::write(temporary, &name, arrays)?);
            entries.extend(
                arrays
                    .iter()
                    .map(|(array, value)| ArrayEntry::new(array, value.ty(), &name)),
            );
        }
        let manifest = Manifest::new(Contents {
            sequence,
            position,
            seed,
            best,
            arrays: entries,
            files,
            metadata,
        })
        .to_bytes()?;
        for (name, bytes) in [(MANIFEST, &manifest), (COMMIT, &commit_marker(&manifest))] {
            let path = temporary.join(name);
            files::write_synced(&path, bytes).map_err(|error| failed("write", &path, error))?;
        }
        files::sync_dir(temporary).map_err(|error| failed("bring to the disk", temporary, error))
    }

    /// Gives the folder its name. From here on it exists.
    fn commit(&self, temporary: &Path, step: u64) -> Result<PathBuf> {
        let plain = self.dir.join(format!("{FOLDER}{step:08}"));
        // A step can come again, after resuming from an older checkpoint: what has its name is not
        // touched.
        let again = (2u64..).map(|n| self.dir.join(format!("{FOLDER}{step:08}.{n}")));
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

    fn write_best(&self, state: &WriterState, path: &Path, step: u64, by: BestBy) -> Result<()> {
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

    /// Writes `best.json` again if it is damaged, from what the manifests say; sets it aside if
    /// they say nothing.
    fn repair_best(&self) -> Result<()> {
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

    /// Removes the checkpoints that are neither among the newest nor the best. Damaged ones are
    /// left for people to see.
    fn remove_old(&self, state: &WriterState) -> Result<()> {
        let best = read_best(&self.dir)?.map(|best| best.path);
        let sound = newest_first(scan(&self.dir)?)
            .into_iter()
            .filter(|found| found.manifest.is_ok() && !state.known_bad.contains(&found.path));
        for old in sound
            .skip(self.options.keep_last)
            .filter(|found| Some(&found.path) != best.as_ref())
        {
            let name = old
                .path
                .file_name()
                .expect("a checkpoint is in a folder")
                .to_string_lossy();
            // Renamed first: a kill while its files go must not leave a checkpoint that looks
            // damaged.
            let trash = self.dir.join(format!("{TRASH}{name}"));
            let removed = fs::rename(&old.path, &trash).and_then(|()| fs::remove_dir_all(&trash));
            removed.map_err(|error| {
                files::failed(OP, "remove the old checkpoint", &old.path, &error)
            })?;
        }
        Ok(())
    }

    /// Adds to a failed save what the run can go back to.
    fn with_what_stays(&self, error: Error) -> Error {
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

#[derive(Debug)]
struct Found {
    path: PathBuf,
    manifest: Result<Manifest>,
}

/// Every checkpoint folder of `dir`, with its manifest if that is valid.
fn scan(dir: &Path) -> Result<Vec<Found>> {
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

/// Newest first. Where in time a damaged one stood is not known; it comes first, so that it is
/// reported.
fn newest_first(mut found: Vec<Found>) -> Vec<Found> {
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

/// `step-00000938`, and `step-00000938.2` for the second of that step.
fn is_folder_name(name: &str) -> bool {
    let all_digits =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(rest) = name.strip_prefix(FOLDER) else {
        return false;
    };
    match rest.split_once('.') {
        None => all_digits(rest),
        Some((step, again)) => all_digits(step) && all_digits(again),
    }
}

/// The checkpoint that was marked last, or one committed after that which says of itself that it is
/// the best: a kill may come between the two writes. With a damaged pointer, the newest that says
/// so.
fn read_best(dir: &Path) -> Result<Option<Best>> {
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
    let marked = |pointer: BestPointer| Best {
        path: dir.join(pointer.folder),
        step: pointer.step,
        metric: pointer.by.metric,
        value: pointer.by.bits,
    };
    Ok(claim.or(pointer.map(marked)))
}

/// The newest checkpoint that says of itself that it is the best, of those with the sequence number
/// `from` or a higher one.
fn claimed_best(dir: &Path, from: u64) -> Result<Option<Best>> {
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

fn read_pointer(dir: &Path) -> Result<Option<BestPointer>> {
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
    // Someone may have removed the checkpoint itself.
    Ok(dir
        .join(&pointer.folder)
        .try_exists()
        .unwrap_or(true)
        .then_some(pointer))
}

/// The error of a resume that meets a checkpoint which may be whole and cannot be read; `other` is
/// one that can.
fn unreadable(path: &Path, error: &Error, other: Option<&Path>) -> Error {
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

fn folder_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn is_same_dir(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// Returns a sequence number higher than that of every existing checkpoint. Those of manifests that
/// cannot be read are not known: far more than a run ever saves is left for each.
fn next_sequence(found: &[Found]) -> u64 {
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

fn check_names(arrays: &[(String, HostArray)]) -> Result<()> {
    let mut names = HashSet::new();
    for (name, _) in arrays {
        if name.is_empty() || name == "__metadata__" {
            return Err(Error::invalid(
                OP,
                format!("an array cannot have the name `{name}` in a safetensors file"),
            ));
        }
        if !names.insert(&**name) {
            return Err(Error::invalid(
                OP,
                format!("two arrays have the name `{name}`: names are unique"),
            ));
        }
    }
    Ok(())
}

fn arrived(
    snapshot: Snapshot<Pending<HostArray>>,
    by: &Mutex<Option<Instant>>,
) -> Result<Snapshot> {
    let Snapshot {
        position,
        seed,
        arrays,
        metadata,
        best,
    } = snapshot;
    let is_late = || lock_mutex(by).is_some_and(|by| by <= Instant::now());
    let wait = |(name, array): (String, Pending<HostArray>)| {
        let what = || format!("`{name}`, for the checkpoint of step {}", position.step);
        let ready = wait_until(what, default_limit(), is_late, |slice| {
            array.wait_ready(slice).then_some(())
        });
        let given_up = || {
            Error::new(
                ErrorKind::Cancelled,
                "fetch",
                "nobody waits for it any more",
            )
        };
        let arrived = ready
            .and_then(|ready| ready.ok_or_else(given_up))
            .and_then(|()| array.wait())
            .map_err(|error| {
                Error::new(
                    error.kind(),
                    OP,
                    format!(
                        "step {}: `{name}` did not come from the device: {error}",
                        position.step
                    ),
                )
            });
        Ok((name, arrived?))
    };
    Ok(Snapshot {
        position,
        seed,
        arrays: arrays.into_iter().map(wait).collect::<Result<_>>()?,
        metadata,
        best,
    })
}

fn join(thread: Option<JoinHandle<Result<PathBuf>>>) -> Result<Option<PathBuf>> {
    let Some(thread) = thread else {
        return Ok(None);
    };
    match thread.join() {
        Ok(result) => result.map(Some),
        Err(_) => Err(Error::new(
            ErrorKind::Internal,
            OP,
            "the thread that wrote the checkpoint panicked",
        )),
    }
}

/// An advisory lock on the directory. The system lets go of it when the process ends, however it
/// ends.
#[derive(Debug)]
struct Lock(#[expect(dead_code, reason = "the lock lives as long as the file is open")] File);

/// Who holds a lock, as the lock file says.
#[derive(Deserialize, Serialize)]
struct Holder {
    process: u32,
    host: String,
    /// Seconds since 1970.
    since: u64,
}

fn lock(dir: &Path) -> Result<Lock> {
    let path = dir.join(LOCK);
    let failed = |doing: &str, error: io::Error| files::failed(OP, doing, &path, &error);
    // Opening a pipe would wait for its other end.
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(failed(
            "lock",
            io::Error::new(io::ErrorKind::InvalidData, "it is not a plain file"),
        ));
    }
    let open = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path);
    let mut file = open.map_err(|error| failed("write", error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let by =
                Holder::read(&mut file).map_or_else(String::new, |holder| format!(" ({holder})"));
            let message = format!(
                "{} is in use by another run{by}: wait until it ends, or give another output directory (`out`, --out)",
                dir.display()
            );
            return Err(Error::new(ErrorKind::Unavailable, OP, message));
        }
        // Some network file systems have no locks; one run at a time is then the user's care.
        Err(TryLockError::Error(error)) => {
            halite_core::warning!("cannot lock {}: {error}", path.display())
        }
    }
    // What it says is for people: a disk that is full does not keep a run from resuming.
    if let Err(error) = Holder::this_process().write(&mut file) {
        tracing::debug!("cannot write {}: {error}", path.display());
    }
    Ok(Lock(file))
}

impl Holder {
    fn this_process() -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .or_else(|| std::env::var("HOSTNAME").ok());
        let host = host
            .map(|name| name.trim().to_string())
            .filter(|name| !name.is_empty());
        Holder {
            process: std::process::id(),
            host: host.unwrap_or_else(|| "an unknown host".to_string()),
            since: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        }
    }

    fn write(&self, file: &mut File) -> io::Result<()> {
        let text = serde_json::to_vec(self).expect("it has only string keys and plain values");
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&text)
    }

    fn read(file: &mut File) -> Option<Self> {
        let mut bytes = Vec::new();
        file.take(4096).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        let age = format_seconds(now.saturating_sub(self.since) as f64);
        let host: String = self
            .host
            .chars()
            .filter(|character| !character.is_control())
            .take(100)
            .collect();
        write!(f, "process {} on {host}, since {age} ago", self.process)
    }
}

/// Removes what a killed run was writing or removing. Only called under the lock, so it belongs to
/// nobody.
fn remove_leftovers(dir: &Path) -> Result<()> {
    let failed =
        |doing: &str, path: &Path, error: io::Error| files::failed(OP, doing, path, &error);
    let pointer = files::temporary_of(&dir.join(BEST));
    if pointer
        .symlink_metadata()
        .is_ok_and(|found| !found.is_dir())
    {
        fs::remove_file(&pointer)
            .map_err(|error| failed("remove what a killed run left:", &pointer, error))?;
    }
    for entry in fs::read_dir(dir).map_err(|error| failed("read the directory", dir, error))? {
        let path = entry
            .map_err(|error| failed("read the directory", dir, error))?
            .path();
        let is_ours = |name: &str| {
            [TEMPORARY, TRASH]
                .iter()
                .any(|ours| name.strip_prefix(ours).is_some_and(is_folder_name))
        };
        if path.is_dir()
            && path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(is_ours)
        {
            tracing::debug!(
                "removing {}, which a run that was killed left",
                path.display()
            );
            fs::remove_dir_all(&path)
                .map_err(|error| failed("remove what a killed run left:", &path, error))?;
        }
    }
    Ok(())
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
