//! A file of arrays that is written by rows.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    path::Path,
};

use halite_core::{Error, HostArray, Result, TensorType};

use super::{header_of, little_endian, order_of};
use crate::files::{self, Replacement};

const OP: &str = "predict";

/// A safetensors file of arrays whose first dimension counts rows, which come in order. It has its
/// name when all of them are written; until then, and if writing fails, that name is untouched.
pub(crate) struct RowsFile {
    new: Replacement,
    file: File,
    /// Where the next rows of each array are written.
    next: Vec<u64>,
}

impl RowsFile {
    /// Creates the file that replaces the one at `path`.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        little_endian()?;
        let new = Replacement::of(OP, path)?;
        let file = File::create_new(new.folder().join(new.name()));
        Ok(RowsFile {
            file: file.map_err(|error| failed(path, &error))?,
            next: Vec::new(),
            new,
        })
    }

    /// Writes the header, once, for arrays of these names and types.
    pub(crate) fn begin(&mut self, types: &[(String, TensorType)]) -> Result<()> {
        let types: Vec<(&str, &TensorType)> =
            types.iter().map(|(name, ty)| (&**name, ty)).collect();
        let order = order_of(&types);
        let header = header_of(&types, &order)?;
        let mut offset = 8 + header.len() as u64;
        self.next = vec![0; types.len()];
        for index in order {
            self.next[index] = offset;
            offset += types[index].1.bytes() as u64;
        }
        let length = (header.len() as u64).to_le_bytes();
        let written = (self.file.write_all(&length))
            .and_then(|()| self.file.write_all(&header))
            // A disk without space for it says so now, where the system can.
            .and_then(|()| self.file.set_len(offset));
        written.map_err(|error| failed(self.new.path(), &error))
    }

    /// Writes the next rows of each array.
    pub(crate) fn write(&mut self, rows: &[&HostArray]) -> Result<()> {
        for (rows, next) in rows.iter().zip(&mut self.next) {
            let bytes = rows.bytes();
            let written = self
                .file
                .seek(SeekFrom::Start(*next))
                .and_then(|_| self.file.write_all(bytes));
            written.map_err(|error| failed(self.new.path(), &error))?;
            *next += bytes.len() as u64;
        }
        Ok(())
    }

    /// Gives the file its name, once it is on the disk.
    pub(crate) fn finish(self) -> Result<()> {
        let synced = self.file.sync_all();
        let named = synced.and_then(|()| self.new.complete());
        named.map_err(|error| failed(self.new.path(), &error))
    }
}

impl Drop for RowsFile {
    fn drop(&mut self) {
        // It has another name if it is complete.
        self.new.remove();
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    files::failed(OP, "write", path, error)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use halite_core::DType;
    use safetensors::SafeTensors;

    use super::*;

    /// A file of two rows, of which one is written.
    fn begun(path: &Path, row: f32) -> RowsFile {
        let mut file = RowsFile::create(path).unwrap();
        let types = [("output".into(), TensorType::new(DType::F32, [2]))];
        file.begin(&types).unwrap();
        file.write(&[&HostArray::from_slice(&[row], [1]).unwrap()])
            .unwrap();
        file
    }

    #[test]
    fn writers_of_one_path_do_not_mix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("outputs.safetensors");
        let mut first = begun(&path, 1.0);
        let second = begun(&path, 3.0);
        let row = HostArray::from_slice(&[2f32], [1]).unwrap();
        first.write(&[&row]).unwrap();
        first.finish().unwrap();
        // It is given up.
        drop(second);
        let bytes = fs::read(&path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let output = file.tensor("output").unwrap().data().to_vec();
        assert_eq!(output, [1f32, 2.0].map(f32::to_le_bytes).concat());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
