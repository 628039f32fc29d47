//! A file of arrays that is written by rows.

use std::{
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use halite_core::{Error, HostArray, Result, TensorType};

use super::{header_of, little_endian, order_of};
use crate::files::{self, sync_dir, temporary_of};

/// A safetensors file of arrays whose first dimension counts rows, which come in order. It has its
/// name when all of them are written; until then, and if writing fails, that name is untouched.
pub(crate) struct RowsFile {
    file: File,
    path: PathBuf,
    /// Where the next rows of each array are written.
    next: Vec<u64>,
    is_complete: bool,
}

impl RowsFile {
    /// Creates the file at `path`, for arrays of these names and types.
    pub(crate) fn create(path: &Path, types: &[(String, TensorType)]) -> Result<Self> {
        little_endian()?;
        let types: Vec<(&str, &TensorType)> =
            types.iter().map(|(name, ty)| (&**name, ty)).collect();
        let types = &types[..];
        let order = order_of(types);
        let header = header_of(types, &order)?;
        let mut next = vec![0; types.len()];
        let mut offset = 8 + header.len() as u64;
        for index in order {
            next[index] = offset;
            offset += types[index].1.bytes() as u64;
        }
        let create = || -> io::Result<File> {
            let mut file = File::create(temporary_of(path))?;
            file.write_all(&(header.len() as u64).to_le_bytes())?;
            file.write_all(&header)?;
            // A disk without space for it says so now, where the system can.
            file.set_len(offset)?;
            Ok(file)
        };
        Ok(RowsFile {
            file: create().map_err(|error| failed(path, &error))?,
            path: path.to_owned(),
            next,
            is_complete: false,
        })
    }

    /// Writes the next rows of each array.
    pub(crate) fn write(&mut self, rows: &[&HostArray]) -> Result<()> {
        for (rows, next) in rows.iter().zip(&mut self.next) {
            let bytes = rows.bytes();
            let written = self
                .file
                .seek(SeekFrom::Start(*next))
                .and_then(|_| self.file.write_all(bytes));
            written.map_err(|error| failed(&self.path, &error))?;
            *next += bytes.len() as u64;
        }
        Ok(())
    }

    /// Gives the file its name, once it is on the disk.
    pub(crate) fn finish(mut self) -> Result<()> {
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let named = self
            .file
            .sync_all()
            .and_then(|()| fs::rename(temporary_of(&self.path), &self.path))
            .and_then(|()| sync_dir(folder));
        named.map_err(|error| failed(&self.path, &error))?;
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for RowsFile {
    fn drop(&mut self) {
        if !self.is_complete {
            // It may be gone already.
            let _ = fs::remove_file(temporary_of(&self.path));
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    files::failed("predict", "write", path, error)
}
