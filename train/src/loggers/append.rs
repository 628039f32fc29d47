//! A file that only grows. Records that cannot be written are kept and written later.

use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use halite_core::Result;

use crate::files;

/// Most bytes that wait in memory while they cannot be written.
const UNWRITTEN_LIMIT: usize = 16 << 20;

/// A file to which whole records are appended, in one call of the system each.
#[derive(Debug)]
pub(super) struct AppendFile {
    /// The operation in errors.
    op: &'static str,
    path: PathBuf,
    file: File,
    /// Bytes that could not be written, oldest first.
    unwritten: Vec<u8>,
    /// Number of records that were dropped because too many could not be written.
    lost: u64,
}

impl AppendFile {
    /// Opens a file for appending, and creates it and its directory if they do not exist.
    pub(super) fn open(op: &'static str, path: PathBuf) -> Result<Self> {
        let dir = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let file = dir.and_then(|()| File::options().append(true).create(true).open(&path));
        let file = file.map_err(|error| files::failed(op, "write", &path, &error))?;
        Ok(AppendFile {
            op,
            path,
            file,
            unwritten: Vec::new(),
            lost: 0,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a record.
    ///
    /// # Errors
    /// If it cannot be written; [`catch_up`](Self::catch_up) tries again.
    pub(super) fn push(&mut self, record: &[u8]) -> Result<()> {
        let (done, written) = match self.catch_up() {
            Ok(()) => self.append(record),
            Err(error) => (0, Err(error)),
        };
        let rest = &record[done..];
        // The rest of a record that was written in part is kept at any length.
        if done == 0 && self.unwritten.len().saturating_add(rest.len()) > UNWRITTEN_LIMIT {
            self.lost += 1;
        } else {
            self.unwritten.extend_from_slice(rest);
        }
        written
    }

    /// Writes what could not be written before. A record that was written in part continues where
    /// it ended.
    ///
    /// # Errors
    /// If it still cannot be written.
    pub(super) fn catch_up(&mut self) -> Result<()> {
        let mut unwritten = std::mem::take(&mut self.unwritten);
        let (done, written) = self.append(&unwritten);
        unwritten.drain(..done);
        self.unwritten = unwritten;
        written?;
        if self.lost > 0 {
            halite_core::warning!(
                "{}: {} records could not be kept in memory and are missing",
                self.path.display(),
                self.lost
            );
            self.lost = 0;
        }
        Ok(())
    }

    /// Writes bytes, and returns how many were written.
    fn append(&mut self, bytes: &[u8]) -> (usize, Result<()>) {
        let mut done = 0;
        let mut written = Ok(());
        while done < bytes.len() && written.is_ok() {
            match self.file.write(&bytes[done..]) {
                Ok(0) => written = Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => written = Err(error),
            }
        }
        let written = written.map_err(|error| files::failed(self.op, "write", &self.path, &error));
        (done, written)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_full_disk_are_kept_up_to_a_limit() {
        // Every write fails, as on a disk without space.
        let mut file = AppendFile::open("test", "/dev/full".into()).unwrap();
        let error = file.push(b"one\n").unwrap_err().to_string();
        assert!(error.contains("cannot write /dev/full"), "{error}");
        assert!(file.push(&vec![b'x'; UNWRITTEN_LIMIT]).is_err());
        assert!(file.push(b"two\n").is_err());
        assert_eq!(file.lost, 1);

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records");
        let space = AppendFile::open("test", path.clone()).unwrap();
        file.file = space.file;
        file.push(b"three\n").unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"one\ntwo\nthree\n");
        assert_eq!(file.lost, 0);
    }

    #[test]
    fn record_of_any_length_is_written_where_there_is_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records");
        let mut file = AppendFile::open("test", path.clone()).unwrap();
        file.push(&vec![b'x'; UNWRITTEN_LIMIT + 1]).unwrap();
        file.push(b"\n").unwrap();
        let written = std::fs::metadata(path).unwrap().len();
        assert_eq!((written, file.lost), (UNWRITTEN_LIMIT as u64 + 2, 0));
    }
}
