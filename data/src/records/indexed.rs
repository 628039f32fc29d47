//! Records by number: files larger than memory, in any order.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use halite_core::{Error, ErrorKind, Result, files};

use super::{HEADER, crc32c};
use crate::{Dataset, Field, SampleMut, digest::digest_of, positioned::PositionedFile};

/// The records of TFRecord files by number, read where they are: nothing but their places is in
/// memory. The content of a file that is compressed with gzip is in memory, at most 1 GiB; a larger
/// one can be read in order, by [`Records`](super::Records) and a decoder.
///
/// The places come from `FILE.idx` beside a file, if there is one: a line `OFFSET SIZE` for each
/// record, in bytes, as the script `tfrecord2idx` of NVIDIA DALI writes. Otherwise the lengths of
/// the records are read once; [`write_index`](Self::write_index) writes them for the next time.
///
/// ```
/// use halite_data::records::{IndexedRecords, write_record};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("words.tfrecord");
/// let mut file = std::fs::File::create(&path)?;
/// for payload in ["one", "two", "three"] {
///     write_record(&mut file, payload.as_bytes())?;
/// }
/// let records = IndexedRecords::open([&path])?;
/// assert_eq!(records.len(), 3);
/// assert_eq!(records.read(2)?, b"three");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct IndexedRecords {
    files: Vec<IndexedFile>,
    /// Number of the first record of each file, and last the number of all.
    starts: Vec<usize>,
}

#[derive(Debug)]
struct IndexedFile {
    file: PositionedFile,
    /// Where each record begins, and last where the file ends, in bytes.
    offsets: Vec<u64>,
}

/// Bytes of a record besides its payload.
const FRAME: u64 = HEADER as u64 + 4;

impl IndexedRecords {
    /// Opens files, whose records follow each other in this order.
    ///
    /// # Errors
    /// If there is no file, one cannot be read, or is cut off or damaged where its lengths are; if
    /// an index is not that of its file.
    pub fn open(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Self> {
        let files: Vec<_> = (paths.into_iter())
            .map(|path| IndexedFile::open(path.as_ref()))
            .collect::<Result<_>>()?;
        if files.is_empty() {
            return Err(Error::invalid("records", "no files of records given"));
        }
        let mut starts = vec![0];
        for file in &files {
            starts.push(starts.last().copied().unwrap_or_default() + file.count());
        }
        Ok(IndexedRecords { files, starts })
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or_default()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the payload of a record, and checks its checksums.
    ///
    /// # Errors
    /// If the record is damaged, or the file has changed since it was opened; the message names the
    /// file, the record in it, and its first byte.
    ///
    /// # Panics
    /// If `number` is not below [`len`](Self::len).
    pub fn read(&self, number: usize) -> Result<Vec<u8>> {
        let (file, record) = self.place(number);
        file.read(record)
    }

    /// Writes the places of the records of each file to `FILE.idx`.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_index(&self) -> Result<()> {
        for file in &self.files {
            let mut text = String::new();
            for place in file.offsets.windows(2) {
                let line = writeln!(text, "{} {}", place[0], place[1] - place[0]);
                line.expect("a string takes any text");
            }
            let path = index_of(file.file.path());
            let written = fs::write(&path, text);
            written.map_err(|error| failed(&path, ErrorKind::Io, &error.to_string()))?;
        }
        Ok(())
    }

    /// A dataset of the records: `decode` writes a payload as a sample of these fields.
    ///
    /// Its [digest](Dataset::digest) has the names and lengths of the files and the places of the
    /// records, not their content, which would have to be read.
    pub fn dataset<F>(self, fields: impl Into<Vec<Field>>, decode: F) -> RecordDataset<F>
    where
        F: Fn(&[u8], &mut SampleMut<'_>) -> Result<()> + Send + Sync,
    {
        RecordDataset {
            records: self,
            fields: fields.into(),
            decode,
        }
    }

    /// The file of a record, and its number there.
    fn place(&self, number: usize) -> (&IndexedFile, usize) {
        let len = self.len();
        assert!(number < len, "record {number} of {len}");
        let file = self.starts.partition_point(|&start| start <= number) - 1;
        (&self.files[file], number - self.starts[file])
    }
}

impl IndexedFile {
    fn open(path: &Path) -> Result<Self> {
        let unread = |error: io::Error| failed(path, ErrorKind::Io, &error.to_string());
        let mut file = PositionedFile::open(path).map_err(unread)?;
        let mut header = [0; HEADER];
        if file.len() >= FRAME {
            file.read_at(&mut header, 0).map_err(unread)?;
        }
        // A length may look like the start of a compressed file; its checksum does not.
        if length_of(&header).is_none() {
            file = (file.decompressed()).map_err(|(kind, reason)| failed(path, kind, &reason))?;
        }
        let index = index_of(path);
        let offsets = match files::read_input_text(&index) {
            Ok(text) => of_index(&text, file.len())
                .map_err(|reason| failed(&index, ErrorKind::Corrupt, &reason))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => of_lengths(&file)?,
            Err(error) => return Err(failed(&index, ErrorKind::Io, &error.to_string())),
        };
        Ok(IndexedFile { file, offsets })
    }

    fn count(&self) -> usize {
        self.offsets.len() - 1
    }

    fn read(&self, record: usize) -> Result<Vec<u8>> {
        let (start, end) = (self.offsets[record], self.offsets[record + 1]);
        let at = |kind, reason: &str| {
            let reason = format!("record {record}, at byte {start}, {reason}");
            failed(self.file.path(), kind, &reason)
        };
        let size = usize::try_from(end - start)
            .map_err(|_| at(ErrorKind::Corrupt, "is larger than the address space"))?;
        // Apart, so that the payload is where the result begins.
        let (mut header, mut bytes) = ([0; HEADER], vec![0; size - HEADER]);
        for (into, offset) in [
            (&mut header[..], start),
            (&mut bytes, start + HEADER as u64),
        ] {
            (self.file.read_at(into, offset))
                .map_err(|error| at(ErrorKind::Io, &format!("cannot be read: {error}")))?;
        }
        let payload = size - FRAME as usize;
        if length_of(&header) != Some(payload as u64) {
            let reason = "has another length than the index says: the index is of another file, or \
                          the record is damaged";
            return Err(at(ErrorKind::Corrupt, reason));
        }
        if crc32c::masked(&bytes[..payload]).to_le_bytes() != bytes[payload..] {
            let reason = "has another checksum than its payload: it is damaged";
            return Err(at(ErrorKind::Corrupt, reason));
        }
        bytes.truncate(payload);
        Ok(bytes)
    }
}

/// The length of a record's payload, if its checksum is right.
fn length_of(header: &[u8]) -> Option<u64> {
    let (length, checksum) = header.split_at(8);
    let is_right = crc32c::masked(length).to_le_bytes() == checksum;
    let length = length.try_into().ok().map(u64::from_le_bytes);
    length.filter(|_| is_right)
}

/// Where the records of a file begin, from their lengths.
fn of_lengths(file: &PositionedFile) -> Result<Vec<u64>> {
    let (mut offsets, mut offset, length) = (vec![0], 0, file.len());
    while offset < length {
        let at = |kind, reason: &str| {
            let number = offsets.len() - 1;
            let reason = format!("record {number}, at byte {offset}, {reason}");
            failed(file.path(), kind, &reason)
        };
        let cut = "is cut off";
        let mut header = [0; HEADER];
        if length - offset < FRAME {
            return Err(at(ErrorKind::Corrupt, cut));
        }
        (file.read_at(&mut header, offset))
            .map_err(|error| at(ErrorKind::Io, &format!("cannot be read: {error}")))?;
        let Some(payload) = length_of(&header) else {
            let reason = "has another checksum than its length: no records, or damaged";
            return Err(at(ErrorKind::Corrupt, reason));
        };
        match payload.checked_add(FRAME) {
            Some(size) if size <= length - offset => offset += size,
            _ => return Err(at(ErrorKind::Corrupt, cut)),
        }
        offsets.push(offset);
    }
    Ok(offsets)
}

/// Where the records of a file of this length begin, from the text of an index.
fn of_index(text: &str, length: u64) -> Result<Vec<u64>, String> {
    let mut offsets = vec![0];
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(offset)), Some(Ok(size)), None) = (words.next(), words.next(), words.next())
        else {
            return Err(format!(
                "line {}: `{line}`; expected `OFFSET SIZE`",
                number + 1
            ));
        };
        let expected = offsets.last().copied().unwrap_or_default();
        let end = offset.checked_add(size).filter(|&end| end <= length);
        let Some(end) = end.filter(|_| offset == expected && size >= FRAME) else {
            return Err(format!(
                "line {}: a record of {size} bytes at byte {offset}; expected one of at least \
                 {FRAME} at byte {expected}, in a file of {length} bytes; the index may be of \
                 another file: delete it",
                number + 1
            ));
        };
        offsets.push(end);
    }
    match offsets.last() {
        Some(&end) if end == length => Ok(offsets),
        end => Err(format!(
            "its records end at byte {}, and the file has {length} bytes: the index is of another \
             file; delete it",
            end.copied().unwrap_or_default()
        )),
    }
}

/// `train.tfrecord` to `train.tfrecord.idx`.
fn index_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".idx");
    name.into()
}

fn failed(path: &Path, kind: ErrorKind, reason: &str) -> Error {
    Error::new(kind, "records", format!("{}: {reason}", path.display()))
}

/// See [`IndexedRecords::dataset`].
#[derive(Debug)]
pub struct RecordDataset<F> {
    records: IndexedRecords,
    fields: Vec<Field>,
    decode: F,
}

impl<F> Dataset for RecordDataset<F>
where
    F: Fn(&[u8], &mut SampleMut<'_>) -> Result<()> + Send + Sync,
{
    fn len(&self) -> usize {
        self.records.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let payload = self.records.read(index)?;
        (self.decode)(&payload, into).map_err(|error| {
            let (file, record) = self.records.place(index);
            let message = format!("{}: record {record}", file.file.path().display());
            Error::new(error.kind(), "records", message).caused_by(error)
        })
    }

    fn digest(&self) -> Option<String> {
        let files = self.records.files.iter().flat_map(|file| {
            let places = file.offsets.iter().flat_map(|offset| offset.to_le_bytes());
            [file.file.name().into_bytes(), places.collect()]
        });
        Some(digest_of(files))
    }

    fn name(&self) -> String {
        "records".to_owned()
    }
}
