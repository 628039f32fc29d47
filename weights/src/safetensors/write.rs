//! Writing of safetensors files, one tensor after the other.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use halite_core::{Error, ErrorKind, HostArray, Result, files};
use serde_json::{Map, Value, json};

use super::HEADER_LIMIT;
use crate::TensorInfo;

/// Writes a safetensors file tensor by tensor; their types are declared first. The finished file
/// atomically replaces an older one.
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
    /// `None` when it is complete, or after an error.
    file: Option<BufWriter<File>>,
    path: PathBuf,
    /// Path of the file until it is complete, of this process alone.
    temporary: PathBuf,
    is_complete: bool,
    /// Types of the tensors that are not written yet, the next one last.
    left: Vec<TensorInfo>,
}

impl SafetensorsWriter {
    /// Writes the header, with `metadata` of the user's.
    ///
    /// # Errors
    /// If the format has no such element type, a name is there twice, a tensor is too large, or the
    /// file cannot be written.
    pub fn create(
        path: impl AsRef<Path>,
        tensors: &[TensorInfo],
        metadata: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let header = header(tensors, metadata)?;
        let ending = format!("{}.tmp", std::process::id());
        let temporary = files::temporary_of(&path).with_extension(ending);
        // A link there is replaced, not written to.
        let file = match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => File::create_new(&temporary),
        };
        let file = file.map_err(|error| unwritable(&path, error))?;
        let mut writer = SafetensorsWriter {
            file: Some(BufWriter::with_capacity(1 << 20, file)),
            path,
            temporary,
            is_complete: false,
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
        let next = self.left.last();
        if next.map(|next| &next.ty) != Some(array.ty()) {
            let next = next.map_or("none".into(), |next| {
                format!("`{}` of {}", next.name, next.ty)
            });
            let message = format!("the next tensor is {next}, given {}", array.ty());
            return Err(Error::invalid("save weights", message));
        }
        self.put(array.bytes())?;
        self.left.pop();
        Ok(())
    }

    /// Flushes the file to disk and renames it to its path.
    ///
    /// # Errors
    /// If tensors are missing, or the file cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.rename()
    }

    /// Flushes the complete file to disk, under its temporary name.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if let Some(next) = self.left.last() {
            let message = format!(
                "{} tensors are missing, `{}` first",
                self.left.len(),
                next.name
            );
            return Err(Error::invalid("save weights", message));
        }
        let file = self.file.take().ok_or_else(|| gave_up(&self.path))?;
        let written = file.into_inner().map_err(io::IntoInnerError::into_error);
        let written = written.and_then(|file| file.sync_all());
        written.map_err(|error| unwritable(&self.path, error))
    }

    /// Renames the file that was flushed to its path.
    pub(crate) fn rename(mut self) -> Result<()> {
        let renamed = fs::rename(&self.temporary, &self.path);
        self.is_complete = renamed.is_ok();
        let parent = self
            .path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let synced = renamed.and_then(|()| files::sync_dir(parent.unwrap_or(Path::new("."))));
        synced.map_err(|error| unwritable(&self.path, error))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let file = self.file.as_mut().ok_or_else(|| gave_up(&self.path))?;
        file.write_all(bytes).map_err(|error| {
            // What is written now would be at the wrong place.
            self.file = None;
            unwritable(&self.path, error)
        })
    }
}

impl Drop for SafetensorsWriter {
    fn drop(&mut self) {
        self.file = None;
        if !self.is_complete {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// The error of a writer that had one before.
fn gave_up(path: &Path) -> Error {
    let message = format!("`{}` was given up after an error", path.display());
    Error::new(ErrorKind::Io, "save weights", message)
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
    let mut offset = 0u64;
    for TensorInfo { name, ty } in tensors {
        let Some(dtype) = ty.dtype().safetensors_name() else {
            let message = format!("`{name}` is {ty}; safetensors files have no such elements");
            return Err(Error::new(ErrorKind::Unsupported, "save weights", message));
        };
        let end = offset.checked_add(ty.checked_bytes()? as u64);
        let end = end.ok_or_else(|| Error::invalid("save weights", "the file is too large"))?;
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
