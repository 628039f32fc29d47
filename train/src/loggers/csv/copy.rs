//! A second file with the rows of a table, from which a resume restores a table that was lost.

use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::SIZE_LIMIT;
use crate::files;

/// Rows are added to it before each checkpoint, so that a checkpoint of the ten-thousandth epoch
/// costs no more than that of the first.
#[derive(Debug)]
pub(super) struct TableCopy {
    pub(super) path: PathBuf,
    /// `None` until the copy was begun.
    file: Option<File>,
    /// Lines that the copy lacks.
    lines: String,
}

impl TableCopy {
    /// A copy of a table that was just written as a whole. The file there stays until the first
    /// [`write`](Self::write): a checkpoint may need it.
    pub(super) fn of(path: PathBuf) -> Self {
        TableCopy {
            path,
            file: None,
            lines: String::new(),
        }
    }

    /// Adds a line that was added to the table.
    pub(super) fn push(&mut self, line: &str) {
        // Until it is begun, the table is its source.
        if self.file.is_some() {
            self.lines.push_str(line);
        }
    }

    /// Writes what it lacks of the table at `table`, and returns a handle of the file.
    pub(super) fn write(&mut self, table: &Path) -> io::Result<File> {
        let written = match &mut self.file {
            Some(file) => file.write_all(self.lines.as_bytes()),
            None => self.begin(table),
        };
        if let Err(error) = written {
            // A part of it may be written.
            self.file = None;
            return Err(error);
        }
        self.lines.clear();
        let file = self.file.as_ref();
        file.expect("it was begun").try_clone()
    }

    fn begin(&mut self, table: &Path) -> io::Result<()> {
        files::replace(&self.path, &files::read_plain(table, SIZE_LIMIT)?)?;
        self.file = Some(File::options().append(true).open(&self.path)?);
        Ok(())
    }
}
