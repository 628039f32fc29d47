//! Bytes at positions of a file or of memory.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    sync::Arc,
};

use halite_core::{Error, ErrorKind, Result, files};

/// A file or memory that is read by position, from any thread. Files are not mapped: a mapped file
/// that another process truncates ends this one, where a read is an error (decision 0067).
#[derive(Clone, Debug)]
pub(crate) struct Input(Arc<Source>);

#[derive(Debug)]
struct Source {
    bytes: Bytes,
    len: u64,
    /// File name, for messages.
    origin: String,
}

#[derive(Debug)]
enum Bytes {
    File(File),
    Memory(Vec<u8>),
}

impl Input {
    /// Opens a plain file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let unreadable = |error: io::Error| {
            let message = format!("cannot read `{}`", path.display());
            Error::new(ErrorKind::Io, "weights", message).caused_by(error)
        };
        let file = files::open_input(path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => {
                Error::invalid("weights", format!("`{}`: {error}", path.display()))
            }
            _ => unreadable(error),
        })?;
        let len = file.metadata().map_err(unreadable)?.len();
        let origin = path.display().to_string();
        Ok(Input(Arc::new(Source {
            bytes: Bytes::File(file),
            len,
            origin,
        })))
    }

    pub(crate) fn memory(bytes: Vec<u8>, origin: &str) -> Self {
        Input(Arc::new(Source {
            len: bytes.len() as u64,
            bytes: Bytes::Memory(bytes),
            origin: origin.to_owned(),
        }))
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len
    }

    pub(crate) fn origin(&self) -> &str {
        &self.0.origin
    }

    /// Fills `into` with the bytes from `offset` on.
    pub(crate) fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.try_read_at(offset, into).map_err(|error| {
            let message = format!(
                "{}: cannot read {} bytes at {offset}",
                self.origin(),
                into.len()
            );
            Error::new(ErrorKind::Io, "weights", message).caused_by(error)
        })
    }

    fn try_read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match &self.0.bytes {
            Bytes::Memory(bytes) => {
                let part = usize::try_from(offset).ok().and_then(|start| {
                    let end = start.checked_add(into.len())?;
                    bytes.get(start..end)
                });
                into.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            #[cfg(unix)]
            Bytes::File(file) => std::os::unix::fs::FileExt::read_exact_at(file, into, offset),
            #[cfg(not(unix))]
            Bytes::File(_) => {
                // A handle of its own: the position of a shared one belongs to all threads.
                let mut file = File::open(&self.0.origin)?;
                file.seek(SeekFrom::Start(offset))?;
                file.read_exact(into)
            }
        }
    }

    /// The bytes from `offset` on. The caller has compared the length with that of the file.
    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// A reader from the start on.
    pub(crate) fn reader(&self) -> Reader {
        Reader {
            input: self.clone(),
            position: 0,
        }
    }
}

/// A reader with a position of its own.
#[derive(Debug)]
pub(crate) struct Reader {
    input: Input,
    position: u64,
}

impl Reader {
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn at(mut self, position: u64) -> Self {
        self.position = position;
        self
    }
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.input.len().saturating_sub(self.position);
        let count = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.input.try_read_at(self.position, &mut into[..count])?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.input.len().checked_add_signed(by),
        };
        self.position = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
