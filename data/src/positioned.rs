//! Files that are read at positions, from any thread.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use halite_core::files;

/// A plain file that is read by position, and not mapped: a mapped file that is truncated ends the
/// process (decision 0067).
#[derive(Debug)]
pub(crate) struct PositionedFile {
    path: PathBuf,
    file: File,
    len: u64,
}

impl PositionedFile {
    /// Opens a plain file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = files::open_input(path)?;
        let len = file.metadata()?.len();
        let path = path.to_owned();
        Ok(PositionedFile { path, file, len })
    }

    /// Checks that the file is not compressed: a compressed one has no positions.
    pub(crate) fn check_uncompressed(&self) -> io::Result<()> {
        let mut start = [0; files::START];
        let size = self.len.min(start.len() as u64) as usize;
        self.read_at(&mut start[..size], 0)?;
        files::check_uncompressed(&start[..size])
    }

    /// Path, as it was given.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of bytes when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The file, to read it in order before it is read by position.
    pub(crate) fn sequential(&self) -> &File {
        &self.file
    }

    /// Fills `into` from `offset` on. Threads that read at once do not disturb each other.
    #[cfg(unix)]
    pub(crate) fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, into, offset)
    }

    /// Fills `into` from `offset` on, through a handle of its own: the position of a shared one
    /// belongs to all threads.
    #[cfg(not(unix))]
    pub(crate) fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        use std::io::{Read, Seek, SeekFrom};
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
