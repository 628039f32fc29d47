//! Reading files of arrays: a file is verified as a whole before an array of it is used, and arrays
//! are read from it one by one.

use std::{
    collections::HashMap,
    fs::File,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use halite_core::{AlignedBytes, HostArray, Result, TensorType, hex};
use safetensors::tensor::Metadata;
use sha2::{Digest, Sha256};

use super::{
    super::{
        digest,
        manifest::{ArrayEntry, Digests, FileEntry, corrupt},
    },
    HEADER_LIMIT, from_safetensors, little_endian,
};
use crate::files;

/// Bytes that a thread reads at once.
const PIECE: usize = 4 << 20;
/// More threads than these do not read faster from one disk.
const THREADS: usize = 8;

/// A file of arrays, open.
#[derive(Debug)]
pub(in super::super) struct ArrayFile {
    file: File,
    path: PathBuf,
    length: u64,
}

/// An array in a file.
#[derive(Clone, Debug)]
pub(in super::super) struct Located {
    pub(in super::super) name: String,
    pub(in super::super) ty: TensorType,
    /// Position of its first byte in the file.
    pub(in super::super) offset: u64,
}

impl ArrayFile {
    /// Opens a plain file.
    pub(in super::super) fn open(path: PathBuf) -> Result<Self> {
        little_endian()?;
        let unreadable = |error: io::Error| files::unreadable("checkpoint", &path, &error);
        let file = files::open_plain(&path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        Ok(ArrayFile { file, path, length })
    }

    /// Opens the file of `entry`, and verifies that it is the file that was written.
    pub(in super::super) fn open_verified(folder: &Path, entry: &FileEntry) -> Result<Self> {
        let file = Self::open(folder.join(&entry.name))?;
        if file.length != entry.bytes {
            return Err(corrupt(format!(
                "{} has {} bytes, the manifest says {}",
                entry.name, file.length, entry.bytes
            )));
        }
        let damaged = file.damaged(entry)?;
        let Some(first) = damaged.first() else {
            return Ok(file);
        };
        let (digest, more) = match &entry.digests()? {
            Digests::Sha256(_) => ("sha256", String::new()),
            Digests::Chunks { .. } if damaged.len() == 1 => ("xxh3_128", String::new()),
            Digests::Chunks { .. } => (
                "xxh3_128",
                format!(", and {} more ranges", damaged.len() - 1),
            ),
        };
        Err(corrupt(format!(
            "{} does not have the {digest} of the manifest: bytes {} to {} were changed{}{more}",
            entry.name,
            first.start,
            first.end,
            file.held_by(first)
        )))
    }

    /// The arrays with bytes in this range, as far as the header can be read.
    fn held_by(&self, range: &Range<u64>) -> String {
        let Ok(arrays) = self.arrays() else {
            return String::new();
        };
        let overlaps = |array: &&Located| {
            let end = array.offset + array.ty.bytes() as u64;
            array.offset < range.end && range.start < end
        };
        let names: Vec<&str> = (arrays.iter().filter(overlaps))
            .map(|array| &*array.name)
            .collect();
        match &names[..] {
            [] => String::new(),
            [name] => format!(" (`{name}`)"),
            [first, .., last] => {
                format!(" (`{first}` to `{last}`, {} arrays)", names.len())
            }
        }
    }

    /// Ranges of the file whose bytes have another digest than `entry` says.
    pub(in super::super) fn damaged(&self, entry: &FileEntry) -> Result<Vec<Range<u64>>> {
        let unreadable = |error: io::Error| files::unreadable("checkpoint", &self.path, &error);
        match entry.digests()? {
            Digests::Sha256(expected) => {
                let found = self.sha256().map_err(unreadable)?;
                Ok(if found == expected {
                    Vec::new()
                } else {
                    std::iter::once(0..self.length).collect()
                })
            }
            Digests::Chunks { bytes, digests } => {
                let chunks = digests.iter().zip((0..self.length).step_by(bytes as usize));
                let damaged = Mutex::new(Vec::new());
                let verify = |buffer: &mut Vec<u8>,
                              (expected, start): (&String, u64)|
                 -> io::Result<()> {
                    let end = (start + bytes).min(self.length);
                    buffer.resize((end - start) as usize, 0);
                    self.read_at(start, buffer)?;
                    if digest::of_chunk(buffer) != *expected {
                        let mut damaged = damaged.lock().unwrap_or_else(PoisonError::into_inner);
                        damaged.push(start..end);
                    }
                    Ok(())
                };
                in_parallel(chunks.collect(), self.length, verify).map_err(unreadable)?;
                let mut damaged = damaged.into_inner().unwrap_or_else(PoisonError::into_inner);
                damaged.sort_by_key(|range| range.start);
                Ok(damaged)
            }
        }
    }

    fn sha256(&self) -> io::Result<String> {
        let mut sha256 = Sha256::new();
        let mut buffer = vec![0; PIECE];
        for start in (0..self.length).step_by(PIECE) {
            let piece = &mut buffer[..(self.length - start).min(PIECE as u64) as usize];
            self.read_at(start, piece)?;
            sha256.update(piece);
        }
        Ok(hex(&sha256.finalize()))
    }

    /// The arrays that the header lists, in the order of the file.
    pub(in super::super) fn arrays(&self) -> Result<Vec<Located>> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let (header, data) = self.header(&name)?;
        let located = |array: String| {
            let info = header.info(&array).expect("a header knows its own names");
            let dtype = from_safetensors(info.dtype).ok_or_else(|| {
                corrupt(format!(
                    "`{array}` in {name} has elements of type {:?}, which halite does not support",
                    info.dtype
                ))
            })?;
            let ty = TensorType::new(dtype, &info.shape);
            let held = (info.data_offsets.1 - info.data_offsets.0) as u64;
            match ty.checked_bytes() {
                Ok(bytes) if bytes as u64 == held => Ok(Located {
                    offset: data + info.data_offsets.0 as u64,
                    name: array,
                    ty,
                }),
                Ok(_) => Err(corrupt(format!(
                    "`{array}` in {name} is {ty} and has {held} bytes"
                ))),
                Err(error) => Err(corrupt(format!("`{array}` in {name}: {}", error.message()))),
            }
        };
        header.offset_keys().into_iter().map(located).collect()
    }

    /// The header, and the position of the first byte of the data. Lengths are checked against the
    /// length of the file before anything of that length is allocated.
    fn header(&self, name: &str) -> Result<(Metadata, u64)> {
        let unreadable = |error: io::Error| files::unreadable("checkpoint", &self.path, &error);
        let bad = |what: String| Err(corrupt(format!("{name} is not a file of arrays: {what}")));
        if self.length < 8 {
            return bad(format!("{} bytes are too few for a header", self.length));
        }
        let mut length = [0; 8];
        self.read_at(0, &mut length).map_err(unreadable)?;
        let length = u64::from_le_bytes(length);
        if length > HEADER_LIMIT || length > self.length - 8 {
            return bad(format!(
                "its header has {length} bytes, more than the file or than the format allows"
            ));
        }
        let mut header = vec![0; length as usize];
        self.read_at(8, &mut header).map_err(unreadable)?;
        let header: Metadata = match serde_json::from_slice(&header) {
            Ok(header) => header,
            Err(error) => return bad(format!("its header cannot be read: {error}")),
        };
        let data = self.length - 8 - length;
        if header.data_len() as u64 != data {
            return bad(format!(
                "its arrays have {} bytes, the file has {data} for them",
                header.data_len()
            ));
        }
        Ok((header, 8 + length))
    }

    /// Reads bytes at a position, from any thread.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        #[cfg(unix)]
        {
            std::os::unix::fs::FileExt::read_exact_at(&self.file, into, offset)
        }
        #[cfg(not(unix))]
        {
            use std::io::{Read, Seek, SeekFrom};
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(offset))?;
            file.read_exact(into)
        }
    }
}

/// Bytes of a file that are elements of an array.
#[derive(Clone, Copy)]
pub(in super::super) struct Piece<'a> {
    pub(in super::super) file: &'a ArrayFile,
    /// Position of the first byte in the file.
    pub(in super::super) offset: u64,
    pub(in super::super) bytes: usize,
}

/// Reads arrays of these types, each from the pieces that it is made of, in their order.
pub(in super::super) fn read(arrays: &[(&TensorType, Vec<Piece<'_>>)]) -> Result<Vec<HostArray>> {
    let zeroed = |(ty, _): &(&TensorType, Vec<_>)| AlignedBytes::try_zeroed(ty.checked_bytes()?);
    let mut memory = arrays.iter().map(zeroed).collect::<Result<Vec<_>>>()?;
    let mut pieces = Vec::new();
    let mut total = 0;
    for ((_, places), bytes) in arrays.iter().zip(&mut memory) {
        let mut rest = bytes.as_mut();
        for place in places {
            let (into, after) = rest.split_at_mut(place.bytes);
            rest = after;
            let mut offset = place.offset;
            for piece in into.chunks_mut(PIECE) {
                let length = piece.len() as u64;
                pieces.push((place.file, offset, piece));
                offset += length;
                total += length;
            }
        }
    }
    in_parallel(pieces, total, |_: &mut (), (file, offset, piece)| {
        file.read_at(offset, piece)
            .map_err(|error| files::unreadable("checkpoint", &file.path, &error))
    })?;
    let array = |(bytes, (ty, _)): (AlignedBytes, &(&TensorType, Vec<_>))| {
        HostArray::from_aligned(bytes, (*ty).clone())
    };
    memory.into_iter().zip(arrays).map(array).collect()
}

/// Does jobs of `bytes` bytes together on several threads, up to the first error. Each thread has
/// a state of its own.
fn in_parallel<J: Send, S: Default, E: Send>(
    jobs: Vec<J>,
    bytes: u64,
    work: impl Fn(&mut S, J) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let useful = usize::try_from(bytes / PIECE as u64).unwrap_or(THREADS);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = useful.min(cores).min(THREADS);
    let jobs = Mutex::new(jobs.into_iter());
    let failed = AtomicBool::new(false);
    let run = || {
        let mut state = S::default();
        while !failed.load(Ordering::Relaxed) {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(job) = job else { break };
            work(&mut state, job).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        // Without the threads, this one does all of it.
        let others: Vec<_> = (1..threads)
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, run).ok())
            .collect();
        let mut result = run();
        for other in others {
            let ended = other.join();
            result = result.and(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        result
    })
}

/// Checks that the manifest and a file tell the same of every array, and returns the first of its
/// elements that the file has, by its name.
pub(in super::super) fn check_types<'a>(
    file: &str,
    arrays: &[Located],
    wanted: impl Iterator<Item = &'a ArrayEntry>,
) -> Result<HashMap<&'a str, usize>> {
    let types: HashMap<&str, &TensorType> = (arrays.iter())
        .map(|array| (&*array.name, &array.ty))
        .collect();
    let mut first = HashMap::new();
    for array in wanted {
        let name = &*array.name;
        for place in (array.places()?.into_iter()).filter(|place| place.file == file) {
            first.insert(name, place.elements.start);
            let want = place.ty;
            match types.get(name) {
                Some(found) if **found == want => {}
                Some(found) => {
                    return Err(corrupt(format!(
                        "`{name}` is {found} in {file}, {want} in the manifest"
                    )));
                }
                None => {
                    return Err(corrupt(format!(
                        "`{name}` is not in {file}, where the manifest has it"
                    )));
                }
            }
        }
    }
    if first.len() != arrays.len() {
        return Err(corrupt(format!(
            "{file} holds {} arrays, {} in the manifest",
            arrays.len(),
            first.len()
        )));
    }
    Ok(first)
}
