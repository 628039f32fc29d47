//! Checkpoints of a job: each process writes its part of the arrays to a file of its own, and process
//! 0 completes the checkpoint when all have. No process leaves a save before all have, so that an
//! error of one is the error of all.

#[cfg(test)]
mod tests;

use std::{
    borrow::Borrow,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use halite_core::{Collective, Error, ErrorKind, HostArray, Pending, Result, TensorType};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    Snapshot, arrays,
    lock::this_host,
    manifest::{ArrayEntry, FileEntry, PartEntry},
    parts::Part,
    store::{CheckpointStore, OP, arrived},
    writer::Writer,
};

/// The processes of a job that save together.
#[derive(Clone, Debug)]
pub(crate) struct Savers {
    lane: Arc<dyn Collective>,
    /// Longest wait for a process that does not come to a save.
    to_come: Duration,
    /// Longest wait for a process that writes.
    to_write: Duration,
}

/// The state of a job in a checkpoint: all of it, and what this process writes.
#[derive(Debug, Default)]
pub(crate) struct Share {
    pub(crate) arrays: Vec<(String, TensorType)>,
    pub(crate) parts: Vec<Part>,
}

impl Share {
    /// Those of these, one for each array, of which this process writes a part.
    pub(crate) fn of<T: Clone>(&self, arrays: &[T]) -> Vec<T> {
        let parts = self.parts.iter();
        parts.map(|part| arrays[part.array].clone()).collect()
    }

    /// The order in which all processes write the arrays.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.arrays.len()).collect();
        order.sort_by_key(|&index| arrays::place(&self.arrays[index].0, &self.arrays[index].1));
        order
    }
}

/// What a process tells the others.
#[derive(Deserialize, Serialize)]
enum Told<T> {
    Done(T),
    Failed {
        message: String,
        host: String,
        is_out_of_memory: bool,
    },
}

/// Files that a process has written.
#[derive(Default, Deserialize, Serialize)]
struct Written {
    files: Vec<FileEntry>,
    /// Indices of arrays in the state, and what of them is where.
    parts: Vec<(usize, PartEntry)>,
}

impl Savers {
    /// Processes that agree on a lane that nothing else uses.
    pub(crate) fn new(lane: Arc<dyn Collective>, to_come: Duration, to_write: Duration) -> Self {
        Savers {
            lane,
            to_come,
            to_write,
        }
    }

    /// Tells the others what this process has done, and returns what each has.
    ///
    /// # Errors
    /// If this process or another one has failed, or does not come: in all of them.
    fn tell<T: DeserializeOwned + Serialize>(
        &self,
        name: &str,
        mine: Result<T>,
        patience: Duration,
    ) -> Result<Vec<T>> {
        let told = match &mine {
            Ok(done) => Told::Done(done),
            Err(error) => Told::Failed {
                message: error.message().to_string(),
                host: this_host(),
                is_out_of_memory: error.kind() == ErrorKind::OutOfMemory,
            },
        };
        let bytes = serde_json::to_vec(&told).map_err(|error| unreadable(name, &error))?;
        let all = self.lane.all_gather(name, &bytes, patience);
        // The first of two errors explains more.
        mine?;
        let read = |(rank, bytes): (usize, &Vec<u8>)| match serde_json::from_slice(bytes) {
            Ok(Told::Done(done)) => Ok(done),
            Ok(Told::Failed {
                message,
                host,
                is_out_of_memory,
            }) => {
                let kind = if is_out_of_memory {
                    ErrorKind::OutOfMemory
                } else {
                    ErrorKind::Io
                };
                let message = format!("process {rank} on {host}: {message}");
                Err(Error::new(kind, OP, message))
            }
            Err(error) => Err(unreadable(name, &error)),
        };
        all?.iter().enumerate().map(read).collect()
    }
}

fn unreadable(name: &str, error: &serde_json::Error) -> Error {
    let message = format!("the processes do not understand each other at `{name}`: {error}");
    Error::invalid(OP, message)
}

impl Writer {
    /// Writes the parts of this process, as all other processes do at the same time, if `ready` is
    /// not an error. `array` gives the array with the part of an index. The store of process 0 is open
    /// for writing, the others for reading.
    fn write_together<A: Borrow<HostArray>>(
        &self,
        savers: &Savers,
        snapshot: Snapshot<TensorType>,
        parts: &[Part],
        ready: Result<()>,
        array: impl FnMut(usize) -> Result<A>,
    ) -> Result<PathBuf> {
        let step = snapshot.position.step;
        let _span = tracing::trace_span!("checkpoint", step).entered();
        let mut state = self.state();
        let mut begun = None;
        let folder = ready.and_then(|()| {
            if savers.lane.rank() > 0 {
                return Ok(None);
            }
            let begun = begun.insert(self.begin(&mut state, &snapshot, Some(unique()))?);
            begun.create()?;
            Ok(Some(name_of(&begun.temporary)))
        });
        let written = savers
            .tell(
                &format!("checkpoint of step {step}"),
                folder,
                savers.to_come,
            )
            .and_then(|folders| {
                let folder = folders.into_iter().flatten().next();
                let folder = folder.expect("process 0 tells its folder, or an error");
                // The directory may have another path here.
                let folder = self.dir.join(folder);
                let rank = savers.lane.rank();
                let mine = self.write_parts(&folder, rank, &snapshot.arrays, parts, array);
                let name = format!("parts of the checkpoint of step {step}");
                savers.tell(&name, mine, savers.to_write)
            });
        let path = match &begun {
            Some(begun) => {
                let path = written.and_then(|all| {
                    let (entries, files) = joined(&snapshot.arrays, all)?;
                    self.complete(begun, snapshot, entries, files)
                });
                self.end(&state, begun, path).map(Some)
            }
            None => match written {
                Ok(_) => Ok(None),
                Err(error) => Err(self.with_what_stays(&error)),
            },
        };
        let name = format!("end of the checkpoint of step {step}");
        let path = path.map(|path| path.as_deref().map(name_of));
        let folders = savers.tell(&name, path, savers.to_write)?;
        let folder = folders.into_iter().flatten().next();
        Ok(self
            .dir
            .join(folder.expect("process 0 tells its folder, or an error")))
    }

    fn write_parts<A: Borrow<HostArray>>(
        &self,
        folder: &Path,
        rank: usize,
        state: &[(String, TensorType)],
        parts: &[Part],
        mut array: impl FnMut(usize) -> Result<A>,
    ) -> Result<Written> {
        let mut written = Written::default();
        if parts.is_empty() {
            return Ok(written);
        }
        let typed = parts.iter().map(|part| {
            let (name, ty) = &state[part.array];
            (&**name, part.ty(ty))
        });
        let typed: Vec<(&str, TensorType)> = typed.collect();
        let types: Vec<(&str, &TensorType)> = typed.iter().map(|(name, ty)| (*name, ty)).collect();
        for (name, range) in arrays::split(&types, self.options.file_bytes) {
            let (file, first) = (format!("process-{rank:05}-{name}"), range.start);
            let next = |index: usize| parts[first + index].of(array(first + index)?);
            let entry = arrays::write(folder, &file, &types[range.clone()], next)?;
            written.files.push(entry);
            written.parts.extend(parts[range].iter().map(|part| {
                let entry = PartEntry {
                    file: file.clone(),
                    start: part.elements.start,
                    end: part.elements.end,
                };
                (part.array, entry)
            }));
        }
        Ok(written)
    }
}

/// The arrays and files of a checkpoint that all processes have written.
fn joined(
    state: &[(String, TensorType)],
    all: Vec<Written>,
) -> Result<(Vec<ArrayEntry>, Vec<FileEntry>)> {
    let (mut parts, mut files) = (vec![Vec::new(); state.len()], Vec::new());
    for written in all {
        files.extend(written.files);
        for (array, part) in written.parts {
            let of = parts.get_mut(array).ok_or_else(|| {
                let message = format!(
                    "the processes save different states: of {} arrays and of {} at least",
                    state.len(),
                    array + 1
                );
                Error::invalid(OP, message)
            })?;
            of.push(part);
        }
    }
    let arrays = state.iter().zip(parts);
    let entry =
        |((name, ty), parts): (&(String, TensorType), _)| ArrayEntry::divided(name, ty, parts);
    Ok((arrays.map(entry).collect(), files))
}

/// The name of a folder.
fn name_of(folder: &Path) -> PathBuf {
    folder.file_name().map(PathBuf::from).unwrap_or_default()
}

/// A number for the name of a folder: a process of an earlier run that still writes must not find a
/// folder of its own.
fn unique() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

impl CheckpointStore {
    /// [`save_in_background_if`](Self::save_in_background_if) of all processes together: `arrays` are
    /// those of the parts, in their order.
    pub(crate) fn save_together_if(
        &self,
        check: impl FnOnce(&[(String, HostArray)]) -> Result<()> + Send + 'static,
        snapshot: Snapshot<()>,
        share: Share,
        arrays: Vec<(String, Pending<HostArray>)>,
    ) -> Result<()> {
        let Share {
            arrays: types,
            parts,
        } = share;
        let (writer, savers) = (self.writer.clone(), self.all_savers());
        let (arrays_by, spare) = (self.arrays_by.clone(), self.spare.clone());
        self.in_background(move || {
            let arrived = arrived(snapshot.clone().with(arrays), &arrays_by);
            let arrays = arrived.and_then(|arrived| {
                check(&arrived.arrays)?;
                Ok(arrived.arrays)
            });
            let (ready, arrays) = match arrays {
                Ok(arrays) => (Ok(()), arrays),
                Err(error) => (Err(error), Vec::new()),
            };
            let array = |index: usize| Ok(&arrays[index].1);
            let written =
                writer.write_together(&savers, snapshot.with(types), &parts, ready, array);
            spare.give(arrays);
            written
        })
    }

    /// [`stream_in_background`](Self::stream_in_background) of all processes together: `array` gives
    /// the one with the part of an index.
    pub(crate) fn stream_together(
        &self,
        snapshot: Snapshot<()>,
        share: Share,
        array: impl FnMut(usize) -> Result<HostArray> + Send + 'static,
    ) -> Result<()> {
        let Share { arrays, parts } = share;
        let (writer, savers) = (self.writer.clone(), self.all_savers());
        self.in_background(move || {
            writer.write_together(&savers, snapshot.with(arrays), &parts, Ok(()), array)
        })
    }

    fn all_savers(&self) -> Savers {
        let savers = self.savers.as_ref();
        savers.expect("a share is of several processes").clone()
    }
}
