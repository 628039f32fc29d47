//! Files that are read at positions, from any thread.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use halite_core::{ErrorKind, files};

use crate::input;

/// A plain file that is read by position, and not mapped: a mapped file that is truncated ends the
/// process (decision 0067).
pub(crate) struct PositionedFile {
    path: PathBuf,
    file: File,
    /// What the file holds in compressed form.
    content: Option<Vec<u8>>,
    len: u64,
}

impl PositionedFile {
    /// Opens a plain file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = files::open_input(path)?;
        let len = file.metadata()?.len();
        let path = path.to_owned();
        Ok(PositionedFile {
            path,
            file,
            content: None,
            len,
        })
    }

    /// The file with its content in memory if it is compressed with gzip: positions are those of the
    /// content.
    ///
    /// # Errors
    /// If it is compressed otherwise, or too large for memory.
    pub(crate) fn decompressed(self) -> Result<Self, (ErrorKind, String)> {
        let mut start = [0; files::START];
        let size = self.len.min(start.len() as u64) as usize;
        let start = &mut start[..size];
        (self.read_at(start, 0)).map_err(|error| (ErrorKind::Io, error.to_string()))?;
        if !start.starts_with(&input::GZIP_MAGIC) {
            let checked = files::check_uncompressed(start);
            checked.map_err(|error| (ErrorKind::Corrupt, error.to_string()))?;
            return Ok(self);
        }
        let content = input::read(&self.path)?;
        Ok(PositionedFile {
            len: content.len() as u64,
            content: Some(content),
            ..self
        })
    }

    /// Path, as it was given.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of bytes when it was opened, decompressed.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The content, to read it in order before it is read by position.
    pub(crate) fn sequential(&self) -> Box<dyn Read + '_> {
        match &self.content {
            Some(content) => Box::new(&content[..]),
            None => Box::new(&self.file),
        }
    }

    /// Fills `into` from `offset` on. Threads that read at once do not disturb each other.
    pub(crate) fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let Some(content) = &self.content else {
            return self.read_file_at(into, offset);
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let part = content.get(start..start.saturating_add(into.len()));
        into.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    #[cfg(unix)]
    fn read_file_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, into, offset)
    }

    /// Through a handle of its own: the position of a shared one belongs to all threads.
    #[cfg(not(unix))]
    fn read_file_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        use std::io::{Seek, SeekFrom};
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(into)
    }

    /// Name of the file, without folders, for digests.
    pub(crate) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

impl fmt::Debug for PositionedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PositionedFile")
            .field("path", &self.path)
            .field("is_compressed", &self.content.is_some())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
