//! Writing of safetensors files, one tensor after the other.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use halite_core::{Error, ErrorKind, HostArray, Result, files};
use serde_json::{Map, Value, json};

use super::{HEADER_LIMIT, name_of};
use crate::TensorInfo;

/// Writes a safetensors file whose tensors are known by type, and are given one by one. The file
/// takes the place of an older one when it is complete.
///
/// ```
/// use halite_core::HostArray;
/// use halite_weights::{SafetensorsWriter, TensorInfo, TensorSource, open};
///
/// # fn main() -> halite_core::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("model.safetensors");
/// let bias = HostArray::from_slice(&[1.0f32, 2.0], [2])?;
/// let info = TensorInfo { name: "fc.bias".into(), ty: bias.ty().clone() };
/// let mut writer = SafetensorsWriter::create(&path, &[info], &Default::default())?;
/// writer.write(&bias)?;
/// writer.finish()?;
/// assert_eq!(open(&path)?.read("fc.bias")?, bias);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SafetensorsWriter {
    file: Option<BufWriter<File>>,
    path: PathBuf,
    /// Types of the tensors that are not written yet, the next one last.
    left: Vec<TensorInfo>,
}

impl SafetensorsWriter {
    /// Writes the header, with `metadata` of the user's.
    ///
    /// # Errors
    /// If the format has no such element type, a name is there twice, or the file cannot be written.
    pub fn create(
        path: impl AsRef<Path>,
        tensors: &[TensorInfo],
        metadata: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let header = header(tensors, metadata)?;
        let temporary = files::temporary_of(&path);
        let file = File::create(&temporary).map_err(|error| unwritable(&path, error))?;
        let mut writer = SafetensorsWriter {
            file: Some(BufWriter::with_capacity(1 << 20, file)),
            path,
            left: tensors.iter().rev().cloned().collect(),
        };
        writer.put(&(header.len() as u64).to_le_bytes())?;
        writer.put(&header)?;
        Ok(writer)
    }

    /// Writes the next tensor.
    ///
    /// # Errors
    /// If it has another type than was declared, or the file cannot be written.
    pub fn write(&mut self, array: &HostArray) -> Result<()> {
        let next = self.left.pop();
        let expected = next.as_ref().map(|next| &next.ty);
        if expected != Some(array.ty()) {
            let next = next.map_or("none".into(), |next| {
                format!("`{}` of {}", next.name, next.ty)
            });
            let message = format!("the next tensor is {next}, given {}", array.ty());
            return Err(Error::invalid("save weights", message));
        }
        self.put(array.bytes())
    }

    /// Ends the file: it is on the disk, under its name.
    ///
    /// # Errors
    /// If tensors are missing, or the file cannot be written.
    pub fn finish(mut self) -> Result<()> {
        if let Some(next) = self.left.last() {
            let message = format!(
                "{} tensors are missing, `{}` first",
                self.left.len(),
                next.name
            );
            return Err(Error::invalid("save weights", message));
        }
        let file = self
            .file
            .take()
            .expect("the file is there until it is finished");
        let written = file.into_inner().map_err(io::IntoInnerError::into_error);
        let written = written.and_then(|file| file.sync_all());
        let placed = written.and_then(|()| fs::rename(files::temporary_of(&self.path), &self.path));
        let parent = self
            .path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let placed = placed.and_then(|()| files::sync_dir(parent.unwrap_or(Path::new("."))));
        placed.map_err(|error| {
            let _ = fs::remove_file(files::temporary_of(&self.path));
            unwritable(&self.path, error)
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let file = self
            .file
            .as_mut()
            .expect("the file is there until it is finished");
        file.write_all(bytes)
            .map_err(|error| unwritable(&self.path, error))
    }
}

impl Drop for SafetensorsWriter {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = fs::remove_file(files::temporary_of(&self.path));
        }
    }
}

fn unwritable(path: &Path, error: io::Error) -> Error {
    let message = format!("cannot write `{}`", path.display());
    Error::new(ErrorKind::Io, "save weights", message).caused_by(error)
}

fn header(tensors: &[TensorInfo], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), json!(metadata));
    }
    let mut offset = 0;
    for TensorInfo { name, ty } in tensors {
        let Some(dtype) = name_of(ty.dtype()) else {
            let message = format!("`{name}` is {ty}; safetensors files have no such elements");
            return Err(Error::new(ErrorKind::Unsupported, "save weights", message));
        };
        let end = offset + ty.bytes() as u64;
        let entry = json!({"dtype": dtype, "shape": ty.dims(), "data_offsets": [offset, end]});
        offset = end;
        if name == "__metadata__" || header.insert(name.clone(), entry).is_some() {
            let message = format!("`{name}` cannot be the name of two tensors or of metadata");
            return Err(Error::invalid("save weights", message));
        }
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    // The elements start at a multiple of 8.
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() as u64 > HEADER_LIMIT {
        let message = format!(
            "the names take {} bytes, the format allows {HEADER_LIMIT}",
            header.len()
        );
        return Err(Error::invalid("save weights", message));
    }
    Ok(header)
}
