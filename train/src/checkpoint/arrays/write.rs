//! Writing a file of arrays: each byte is digested and written once, and the disk works meanwhile.

use std::{
    borrow::Borrow,
    fs::{self, File},
    io::{self, Write},
    path::Path,
    sync::mpsc::{SyncSender, sync_channel},
    thread::JoinHandle,
};

use halite_core::{Error, HostArray, Result, TensorType};

use super::{
    super::{digest::Chunks, manifest::FileEntry},
    header_of, little_endian, order_of,
};
use crate::files;

/// Bytes after which the disk is asked to write: it works while the next ones are digested and
/// copied, not at the end alone.
const FLUSH: u64 = 32 << 20;

/// Writes arrays of these names and types to a new file `name` in `folder`, and flushes it to the
/// disk. `next` gives the array of an index, in the order of the file, so that all need not be in
/// memory together. The file of a failed call is removed.
pub(in super::super) fn write<A: Borrow<HostArray>>(
    folder: &Path,
    name: &str,
    types: &[(&str, &TensorType)],
    next: impl FnMut(usize) -> Result<A>,
) -> Result<FileEntry> {
    little_endian()?;
    let order = order_of(types);
    let header = header_of(types, &order)?;
    let path = folder.join(name);
    let data: usize = types.iter().map(|(_, ty)| ty.bytes()).sum();
    let bytes = (8 + header.len() + data) as u64;
    let failed = |error: io::Error| {
        files::failed(
            "checkpoint",
            format_args!("write the {bytes} bytes of"),
            &path,
            &error,
        )
    };
    let file = NewFile::create(&path, bytes).map_err(failed)?;
    let digests = filled(file, &header, order.into_iter().map(next), failed)
        .inspect_err(|_| drop(fs::remove_file(&path)))?;
    Ok(FileEntry::new(name, bytes, digests))
}

/// Writes the header and the arrays, and returns the digests of the file.
fn filled<A: Borrow<HostArray>>(
    mut file: NewFile,
    header: &[u8],
    arrays: impl Iterator<Item = Result<A>>,
    failed: impl Fn(io::Error) -> Error,
) -> Result<Vec<String>> {
    file.write(&(header.len() as u64).to_le_bytes())
        .and_then(|()| file.write(header))
        .map_err(&failed)?;
    for array in arrays {
        file.write(array?.borrow().bytes()).map_err(&failed)?;
    }
    file.finish().map_err(failed)
}

/// A file that is digested while it is written.
struct NewFile {
    file: File,
    chunks: Chunks,
    flusher: Option<Flusher>,
}

impl NewFile {
    fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = File::create_new(path)?;
        let flusher = if bytes > FLUSH {
            Some(Flusher::start(file.try_clone()?)?)
        } else {
            None
        };
        Ok(NewFile {
            file,
            chunks: Chunks::default(),
            flusher,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.chunks.push(bytes, |chunk| {
            self.file.write_all(chunk)?;
            if let Some(flusher) = &mut self.flusher {
                flusher.passed(chunk.len() as u64);
            }
            Ok(())
        })
    }

    /// Flushes the file to the disk, and returns the digests of its chunks.
    fn finish(mut self) -> io::Result<Vec<String>> {
        let digests = self.chunks.finish(|chunk| self.file.write_all(chunk))?;
        self.flusher.map_or(Ok(()), Flusher::finish)?;
        self.file.sync_all()?;
        Ok(digests)
    }
}

/// A thread that flushes the file so far, again and again.
struct Flusher {
    requests: SyncSender<()>,
    thread: JoinHandle<io::Result<()>>,
    /// Bytes since the last request.
    waiting: u64,
}

impl Flusher {
    fn start(file: File) -> io::Result<Self> {
        let (requests, received) = sync_channel::<()>(1);
        let thread = std::thread::Builder::new()
            .name("checkpoint flusher".into())
            .spawn(move || received.into_iter().try_for_each(|()| file.sync_data()))?;
        Ok(Flusher {
            requests,
            thread,
            waiting: 0,
        })
    }

    fn passed(&mut self, bytes: u64) {
        self.waiting += bytes;
        if self.waiting >= FLUSH {
            self.waiting = 0;
            // A full channel has a request that covers these bytes; a thread that failed has an
            // error, which `finish` returns.
            let _ = self.requests.try_send(());
        }
    }

    /// An error of a flush: the system reports it once, so that the last flush alone would not see
    /// it.
    fn finish(self) -> io::Result<()> {
        drop(self.requests);
        let panicked = |_| io::Error::other("the thread that flushes the file panicked");
        self.thread.join().map_err(panicked)?
    }
}
