//! Arrays in safetensors files, digested while they are written and read: each byte passes once.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    path::Path,
};

use halite_core::{AlignedBytes, DType, Error, ErrorKind, HostArray, Result, TensorType, hex};
use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo},
};
use sha2::{Digest, Sha256};

use super::manifest::{ArrayEntry, FileEntry, corrupt};
use crate::files;

/// Largest header that the format allows, in bytes.
const HEADER_LIMIT: u64 = 100_000_000;
const BUFFER: usize = 1 << 20;

/// Splits `arrays` so that files stay below `file_bytes` where arrays allow: ranges of `arrays`
/// with the files' names.
pub(super) fn split(
    arrays: &[(String, HostArray)],
    file_bytes: u64,
) -> Vec<(String, std::ops::Range<usize>)> {
    let mut ranges = Vec::new();
    let (mut start, mut size) = (0, 0u64);
    for (index, (_, array)) in arrays.iter().enumerate() {
        let bytes = array.bytes().len() as u64;
        if index > start && size.saturating_add(bytes) > file_bytes {
            ranges.push(start..index);
            (start, size) = (index, 0);
        }
        size += bytes;
    }
    ranges.push(start..arrays.len());
    let count = ranges.len();
    let name = |index: usize| match count {
        1 => "arrays.safetensors".to_string(),
        _ => format!("arrays-{:05}-of-{count:05}.safetensors", index + 1),
    };
    ranges
        .into_iter()
        .enumerate()
        .map(|(index, range)| (name(index), range))
        .collect()
}

/// Writes `arrays` to a new file `name` in `folder`, and flushes it to the disk.
pub(super) fn write(
    folder: &Path,
    name: &str,
    arrays: &[(String, HostArray)],
) -> Result<FileEntry> {
    little_endian()?;
    // Widest elements first, as the format asks: then each array's offset is a multiple of its
    // element's size.
    let mut order: Vec<&(String, HostArray)> = arrays.iter().collect();
    order.sort_by(|(a_name, a), (b_name, b)| {
        b.ty()
            .dtype()
            .size()
            .cmp(&a.ty().dtype().size())
            .then(a_name.cmp(b_name))
    });
    let header = header_of(&order)?;
    let path = folder.join(name);
    let data: usize = arrays.iter().map(|(_, array)| array.bytes().len()).sum();
    let doing = format!("write the {} bytes of", 8 + header.len() + data);
    let (bytes, sha256) = write_file(&path, &header, &order)
        .map_err(|error| files::failed("checkpoint", doing, &path, &error))?;
    Ok(FileEntry {
        name: name.to_string(),
        bytes,
        sha256,
    })
}

/// Returns the header of a file with these arrays, in their order.
fn header_of(arrays: &[&(String, HostArray)]) -> Result<Vec<u8>> {
    let mut offset = 0;
    let infos = arrays.iter().map(|(name, array)| {
        let data_offsets = (offset, offset + array.bytes().len());
        offset = data_offsets.1;
        let dtype = array.ty().dtype();
        let info = TensorInfo {
            dtype: to_safetensors(dtype).ok_or_else(|| {
                Error::new(
                    ErrorKind::Unsupported,
                    "checkpoint",
                    format!(
                        "`{name}` has elements of type {dtype}, which safetensors files cannot hold"
                    ),
                )
            })?,
            shape: array.ty().dims().to_vec(),
            data_offsets,
        };
        Ok((name.clone(), info))
    });
    let metadata = Metadata::new(None, infos.collect::<Result<_>>()?)
        .map_err(|error| Error::new(ErrorKind::Internal, "checkpoint", error.to_string()))?;
    let mut header =
        serde_json::to_vec(&metadata).expect("a header has only string keys and plain values");
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() as u64 > HEADER_LIMIT {
        let message = format!(
            "the names of {} arrays take {} bytes, the format allows {HEADER_LIMIT}",
            arrays.len(),
            header.len()
        );
        return Err(Error::invalid("checkpoint", message));
    }
    Ok(header)
}

/// Writes a new file and flushes it to the disk. Returns its size in bytes and its SHA-256.
fn write_file(
    path: &Path,
    header: &[u8],
    arrays: &[&(String, HostArray)],
) -> io::Result<(u64, String)> {
    let mut file = Digesting::new(BufWriter::with_capacity(BUFFER, File::create_new(path)?));
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header)?;
    for (_, array) in arrays {
        file.write_all(array.bytes())?;
    }
    let (inner, bytes, sha256) = file.finish();
    inner
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()?;
    Ok((bytes, sha256))
}

/// Reads the arrays of a file, which must be the `wanted` ones, and the file byte for byte what
/// `entry` says.
pub(super) fn read<'a>(
    folder: &Path,
    entry: &FileEntry,
    wanted: impl Iterator<Item = &'a ArrayEntry>,
) -> Result<Vec<(String, HostArray)>> {
    little_endian()?;
    let path = folder.join(&entry.name);
    let unreadable = |error: io::Error| files::unreadable("checkpoint", &path, &error);
    let file = files::open_plain(&path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    if length != entry.bytes {
        return Err(corrupt(format!(
            "{} has {length} bytes, the manifest says {}",
            entry.name, entry.bytes
        )));
    }

    // Lengths below are checked against the length of the file before anything of that length is
    // allocated.
    let mut file = Digesting::new(BufReader::with_capacity(BUFFER, file));
    let header = read_header(&mut file, entry).map_err(|problem| match problem {
        HeaderProblem::Io(error) => unreadable(error),
        HeaderProblem::Bad(what) => {
            corrupt(format!("{} is not what was written: {what}", entry.name))
        }
    })?;
    let mut arrays = Vec::new();
    for name in header.offset_keys() {
        let info = header.info(&name).expect("a header knows its own names");
        let dtype = from_safetensors(info.dtype).ok_or_else(|| {
            corrupt(format!(
                "`{name}` in {} has elements of type {:?}, which halite has not",
                entry.name, info.dtype
            ))
        })?;
        let ty = TensorType::new(dtype, &info.shape);
        let bad =
            |error: Error| corrupt(format!("`{name}` in {}: {}", entry.name, error.message()));
        let mut bytes = AlignedBytes::try_zeroed(ty.checked_bytes().map_err(bad)?)?;
        file.read_exact(bytes.as_mut()).map_err(unreadable)?;
        let array = HostArray::from_aligned(bytes, ty).map_err(bad)?;
        arrays.push((name, array));
    }
    let (_, _, sha256) = file.finish();
    if sha256 != entry.sha256 {
        return Err(corrupt(format!(
            "{} has the sha256 {sha256}, the manifest says {}",
            entry.name, entry.sha256
        )));
    }
    check_types(entry, &arrays, wanted)?;
    Ok(arrays)
}

enum HeaderProblem {
    Io(io::Error),
    Bad(String),
}

fn read_header(file: &mut impl Read, entry: &FileEntry) -> Result<Metadata, HeaderProblem> {
    let bad = |what: String| Err(HeaderProblem::Bad(what));
    if entry.bytes < 8 {
        return bad(format!("{} bytes are too few for a header", entry.bytes));
    }
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(HeaderProblem::Io)?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_LIMIT || length > entry.bytes - 8 {
        return bad(format!(
            "its header has {length} bytes, more than the file or than the format allows"
        ));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(HeaderProblem::Io)?;
    let header: Metadata = match serde_json::from_slice(&header) {
        Ok(header) => header,
        Err(error) => return bad(format!("its header cannot be read: {error}")),
    };
    let data = entry.bytes - 8 - length;
    if header.data_len() as u64 != data {
        return bad(format!(
            "its arrays have {} bytes, the file has {data} for them",
            header.data_len()
        ));
    }
    Ok(header)
}

/// The manifest and the files must tell the same of every array.
fn check_types<'a>(
    entry: &FileEntry,
    arrays: &[(String, HostArray)],
    wanted: impl Iterator<Item = &'a ArrayEntry>,
) -> Result<()> {
    let mut count = 0;
    for array in wanted.filter(|array| array.file == entry.name) {
        count += 1;
        let want = array.ty()?;
        match arrays.iter().find(|(name, _)| *name == array.name) {
            Some((_, found)) if *found.ty() == want => {}
            Some((name, found)) => {
                return Err(corrupt(format!(
                    "`{name}` is {} in {}, {want} in the manifest",
                    found.ty(),
                    entry.name
                )));
            }
            None => {
                return Err(corrupt(format!(
                    "`{}` is not in {}, where the manifest has it",
                    array.name, entry.name
                )));
            }
        }
    }
    if count != arrays.len() {
        return Err(corrupt(format!(
            "{} holds {} arrays, {count} in the manifest",
            entry.name,
            arrays.len()
        )));
    }
    Ok(())
}

/// The format is little-endian, and so is memory on every machine that halite's backends run on.
fn little_endian() -> Result<()> {
    if cfg!(target_endian = "little") {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        "checkpoint",
        "checkpoints are little-endian, this machine is not",
    ))
}

/// The format's name of an element type; `None` if it has none.
pub(super) fn to_safetensors(dtype: DType) -> Option<Dtype> {
    Some(match dtype {
        DType::Bool => Dtype::BOOL,
        DType::S8 => Dtype::I8,
        DType::S16 => Dtype::I16,
        DType::S32 => Dtype::I32,
        DType::S64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::F8E4M3Fn => Dtype::F8_E4M3,
        DType::F8E4M3Fnuz => Dtype::F8_E4M3FNUZ,
        DType::F8E5M2 => Dtype::F8_E5M2,
        DType::F8E5M2Fnuz => Dtype::F8_E5M2FNUZ,
        DType::F8E8M0Fnu => Dtype::F8_E8M0,
        DType::C64 => Dtype::C64,
        DType::F8E3M4 | DType::F8E4M3 | DType::F8E4M3B11Fnuz | DType::C128 => return None,
    })
}

fn from_safetensors(dtype: Dtype) -> Option<DType> {
    DType::ALL
        .into_iter()
        .find(|&known| to_safetensors(known) == Some(dtype))
}

/// Passes bytes on, and takes their digest.
struct Digesting<T> {
    inner: T,
    bytes: u64,
    sha256: Sha256,
}

impl<T> Digesting<T> {
    fn new(inner: T) -> Self {
        Digesting {
            inner,
            bytes: 0,
            sha256: Sha256::new(),
        }
    }

    /// Returns the inner value, the number of bytes that passed, and their digest.
    fn finish(self) -> (T, u64, String) {
        (self.inner, self.bytes, hex(&self.sha256.finalize()))
    }

    fn passed(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.sha256.update(bytes);
    }
}

impl<T: Write> Write for Digesting<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.passed(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Digesting<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.passed(&into[..read]);
        Ok(read)
    }
}
