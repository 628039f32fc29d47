//! The directory of a run's checkpoints.

mod reading;

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use halite_core::{
    Error, ErrorKind, HostArray, Pending, Result, TensorType,
    wait::{default_limit, wait_until},
};

use super::{
    Keep, Snapshot,
    job::Savers,
    leftovers::remove_leftovers,
    listing::{newest_first, next_sequence, scan},
    lock::lock,
    manifest::BestBy,
    spare::SpareMemory,
    writer::{Writer, WriterState},
};
use crate::files;

pub(super) const OP: &str = "checkpoint";

/// Options of a [`CheckpointStore`].
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Number of newest checkpoints to keep, at least 1, in addition to the best one.
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

/// Directory of a run's checkpoints. The [module](super) describes its files.
///
/// One process at a time may have it open for writing; anyone may read. Errors of a save in the
/// background are returned by the next call, or from [`finish`](Self::finish).
#[derive(Debug)]
pub struct CheckpointStore {
    pub(super) writer: Arc<Writer>,
    in_flight: Mutex<Option<JoinHandle<Result<PathBuf>>>>,
    /// Deadline for the arrays of a save; `None` if there is none.
    pub(super) arrays_by: Arc<Mutex<Option<Instant>>>,
    pub(super) spare: SpareMemory,
    /// The processes that write its checkpoints together, if there are several.
    pub(super) savers: Option<Savers>,
}

impl CheckpointStore {
    /// Opens `dir` for writing, and creates it if necessary. Removes incomplete leftovers of a
    /// killed run, and computes `best.json` again from the manifests if it is damaged.
    ///
    /// `keep_last` is the number of newest checkpoints to keep, at least 1, in addition to the best
    /// one.
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

    /// [`open`](Self::open) with all options.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
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
    /// If the directory does not exist.
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
            spare: SpareMemory::default(),
            savers: None,
        }
    }

    /// Lets these processes, of which each has a store of this directory, write checkpoints together.
    pub(crate) fn together(mut self, savers: Savers) -> Self {
        self.savers = Some(savers);
        self
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
        let (types, arrays) = snapshot.split();
        self.writer.write(types, |index| Ok(&arrays[index]))
    }

    /// Writes a checkpoint like [`save`](Self::save) without having all of its arrays in memory:
    /// `array` gives the one of an index, once each, in the order in which they are written.
    ///
    /// # Errors
    /// Those of [`save`](Self::save) and of `array`; if an array has another type than the snapshot
    /// says.
    pub fn save_one_by_one(
        &self,
        snapshot: Snapshot<TensorType>,
        mut array: impl FnMut(usize) -> Result<HostArray>,
    ) -> Result<PathBuf> {
        self.finish()?;
        let types: Vec<TensorType> = snapshot.arrays.iter().map(|(_, ty)| ty.clone()).collect();
        self.writer.write(snapshot, |index| {
            let (array, expected) = (array(index)?, &types[index]);
            if array.ty() == expected {
                Ok(array)
            } else {
                Err(Error::invalid(
                    OP,
                    format!(
                        "array {index} is {}, the snapshot says {expected}",
                        array.ty()
                    ),
                ))
            }
        })
    }

    /// Waits for the arrays and writes the checkpoint on another thread. If one is still being
    /// written, waits for it.
    ///
    /// # Errors
    /// If the save before failed; this one is then not started.
    pub fn save_in_background(&self, snapshot: Snapshot<Pending<HostArray>>) -> Result<()> {
        self.save_in_background_if(|_| Ok(()), snapshot)
    }

    /// [`save_in_background`](Self::save_in_background) with a check of the arrays when they have
    /// arrived. If it fails, nothing is written, and its error is that of the save.
    ///
    /// # Errors
    /// Those of [`save_in_background`](Self::save_in_background).
    pub fn save_in_background_if(
        &self,
        check: impl FnOnce(&[(String, HostArray)]) -> Result<()> + Send + 'static,
        snapshot: Snapshot<Pending<HostArray>>,
    ) -> Result<()> {
        let (writer, arrays_by) = (self.writer.clone(), self.arrays_by.clone());
        let spare = self.spare.clone();
        self.in_background(move || {
            let snapshot = arrived(snapshot, &arrays_by)?;
            check(&snapshot.arrays)?;
            let (types, arrays) = snapshot.split();
            let names: Vec<String> = types.arrays.iter().map(|(name, _)| name.clone()).collect();
            let written = writer.write(types, |index| Ok(&arrays[index]));
            spare.give(names.into_iter().zip(arrays));
            written
        })
    }

    /// [`save_one_by_one`](Self::save_one_by_one) on another thread.
    pub(crate) fn stream_in_background(
        &self,
        snapshot: Snapshot<TensorType>,
        array: impl FnMut(usize) -> Result<HostArray> + Send + 'static,
    ) -> Result<()> {
        let writer = self.writer.clone();
        self.in_background(move || writer.write(snapshot, array))
    }

    pub(super) fn in_background(
        &self,
        work: impl FnOnce() -> Result<PathBuf> + Send + 'static,
    ) -> Result<()> {
        let mut in_flight = lock_mutex(&self.in_flight);
        join(in_flight.take())?;
        let thread = std::thread::Builder::new()
            .name("checkpoint writer".into())
            .spawn(work);
        *in_flight = Some(thread.map_err(|error| {
            Error::new(
                ErrorKind::Unavailable,
                OP,
                "cannot start a thread to write the checkpoint",
            )
            .caused_by(error)
        })?);
        Ok(())
    }

    /// Returns true while a checkpoint is being written, so that another would wait.
    pub fn is_busy(&self) -> bool {
        lock_mutex(&self.in_flight)
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Memory for the arrays of the next save in the background.
    pub(crate) fn spare(&self) -> &SpareMemory {
        &self.spare
    }

    /// Gives up, after `grace`, a save in the background whose arrays have not arrived: their
    /// device may hang.
    pub(crate) fn give_up_waiting(&self, grace: Duration) {
        *lock_mutex(&self.arrays_by) = Some(Instant::now() + grace);
    }

    /// Waits until the save in the background is on the disk, and returns its folder, if there was
    /// one.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn finish(&self) -> Result<Option<PathBuf>> {
        let thread = lock_mutex(&self.in_flight).take();
        join(thread)
    }

    /// Removes the checkpoints that are neither among the newest nor the best nor those to `keep`, as
    /// each save does: a run that was killed between the two leaves more. Call it after
    /// [`latest`](Self::latest), which detects damaged ones.
    ///
    /// # Errors
    /// If the store was opened for reading only, or one cannot be removed.
    pub fn prune(&self, keep: &Keep) -> Result<()> {
        self.finish()?;
        self.writer.check_writable()?;
        self.writer.remove_old(&self.writer.state(), keep)
    }

    /// Marks the newest checkpoint of `step` as the best so far: it is kept until another is
    /// marked.
    ///
    /// # Errors
    /// If `step` has no valid checkpoint, or the pointer cannot be written; the old one is kept
    /// then.
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
}

impl Drop for CheckpointStore {
    /// Waits for the save in the background, and logs its error.
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::error!("{error}");
        }
    }
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

pub(super) fn arrived(
    snapshot: Snapshot<Pending<HostArray>>,
    by: &Mutex<Option<Instant>>,
) -> Result<Snapshot> {
    let mut snapshot = snapshot;
    let (position, arrays) = (snapshot.position, std::mem::take(&mut snapshot.arrays));
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
                "the run no longer waits for it",
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
                        "step {}: cannot copy `{name}` from the device: {error}",
                        position.step
                    ),
                )
            });
        Ok((name, arrived?))
    };
    let arrays = arrays.into_iter().map(wait).collect::<Result<_>>()?;
    Ok(snapshot.with(arrays))
}

pub(super) fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
