//! Lines of JSON.

use std::{
    io::{self, BufRead, BufReader},
    marker::PhantomData,
    path::Path,
};

use halite_core::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;

use crate::{Dataset, Field, SampleMut, digest::digest_of, positioned::PositionedFile};

/// Files of one JSON value a line (JSON lines, `.jsonl`), read by number where they are: nothing
/// but the places of the lines is in memory, 16 bytes each. Empty lines do not count, and a
/// byte-order mark of UTF-8 is skipped. The content of a file that is compressed with gzip is in
/// memory, at most 1 GiB.
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_data::{Dataset, Field, JsonLines};
///
/// #[derive(serde::Deserialize)]
/// struct Flower {
///     size: [f32; 2],
///     species: u32,
/// }
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("flowers.jsonl");
/// std::fs::write(&path, r#"{"size": [5.1, 3.5], "species": 0}
/// {"size": [7.0, 3.2], "species": 1}
/// "#)?;
/// let size = Field::new("size", TensorType::new(DType::F32, [2]));
/// let species = Field::new("species", TensorType::scalar(DType::U32));
/// let data = JsonLines::open([&path])?.dataset([size, species], |flower: Flower, into| {
///     into.write(0, &flower.size)?;
///     into.write(1, &[flower.species])
/// });
/// assert_eq!(data.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct JsonLines {
    files: Vec<Lines>,
    /// Number of the first value of each file, and last the number of all.
    starts: Vec<usize>,
}

#[derive(Debug)]
struct Lines {
    file: PositionedFile,
    lines: Vec<Line>,
}

/// Place of a line that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// First byte that is not white space.
    start: u64,
    /// Bytes up to the last one that is not white space.
    length: u32,
    /// Number in the file, from 1.
    number: u32,
}

impl Line {
    /// Place in a file in memory.
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + self.length as usize
    }
}

const CONTEXT: &str = "JSON lines";

impl JsonLines {
    /// Opens files, whose values follow each other in this order, and reads them once for the
    /// places of their lines. Values are parsed when they are read.
    ///
    /// # Errors
    /// If there is no file, one cannot be read or is empty, or has a line of 4 GiB or 2^32 lines.
    pub fn open(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Self> {
        let files: Vec<_> = (paths.into_iter())
            .map(|path| Lines::open(path.as_ref()))
            .collect::<Result<_>>()?;
        if files.is_empty() {
            return Err(Error::invalid(CONTEXT, "no files given"));
        }
        let mut starts = vec![0];
        for file in &files {
            starts.push(starts.last().copied().unwrap_or_default() + file.lines.len());
        }
        Ok(JsonLines { files, starts })
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or_default()
    }

    /// Returns whether there are no values, which an opened file rules out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads a value: a type of your own that implements `Deserialize`, or `serde_json::Value`.
    ///
    /// # Errors
    /// If the line is not JSON, or not a `T`, or cannot be read; the message names file and line.
    ///
    /// # Panics
    /// If `number` is not below [`len`](Self::len).
    pub fn read<T: DeserializeOwned>(&self, number: usize) -> Result<T> {
        let (file, line) = self.place(number);
        let mut bytes = vec![0; line.length as usize];
        (file.file.read_at(&mut bytes, line.start))
            .map_err(|error| file.failed(line, ErrorKind::Io, error))?;
        let text = match line.start {
            0 => bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes),
            _ => &bytes,
        };
        parse(text).map_err(|reason| file.failed(line, ErrorKind::Corrupt, reason))
    }

    /// A dataset of the values: `write` writes a value as a sample of these fields.
    ///
    /// Its [digest](Dataset::digest) has the names of the files and the places of the lines, not
    /// their content.
    pub fn dataset<T, F>(self, fields: impl Into<Vec<Field>>, write: F) -> JsonLinesDataset<T, F>
    where
        T: DeserializeOwned,
        F: Fn(T, &mut SampleMut<'_>) -> Result<()> + Send + Sync,
    {
        JsonLinesDataset {
            lines: self,
            fields: fields.into(),
            write,
            value: PhantomData,
        }
    }

    fn place(&self, number: usize) -> (&Lines, Line) {
        let len = self.len();
        assert!(number < len, "line {number} of {len}");
        let file = self.starts.partition_point(|&start| start <= number) - 1;
        let lines = &self.files[file];
        (lines, lines.lines[number - self.starts[file]])
    }
}

impl Lines {
    fn open(path: &Path) -> Result<Self> {
        let failed = |kind, reason: String| {
            Error::new(kind, CONTEXT, format!("{}: {reason}", path.display()))
        };
        let io = |error: io::Error| failed(ErrorKind::Io, error.to_string());
        let file = PositionedFile::open(path).map_err(io)?.decompressed();
        let file = file.map_err(|(kind, reason)| failed(kind, reason))?;
        let lines = match places(BufReader::with_capacity(1 << 18, file.sequential())) {
            Ok(Ok(lines)) => lines,
            Ok(Err(reason)) => return Err(failed(ErrorKind::Corrupt, reason)),
            Err(error) => return Err(io(error)),
        };
        if lines.is_empty() {
            let reason = "it is empty; expected one JSON value a line";
            return Err(failed(ErrorKind::Corrupt, reason.to_owned()));
        }
        Ok(Lines { file, lines })
    }

    fn failed(&self, line: Line, kind: ErrorKind, reason: impl std::fmt::Display) -> Error {
        let path = self.file.path().display();
        let message = format!("{path}: line {}: {reason}", line.number);
        Error::new(kind, CONTEXT, message)
    }
}

/// Places of the lines of a file that are not empty.
pub(crate) fn places(mut reader: impl BufRead) -> io::Result<Result<Vec<Line>, String>> {
    let (mut lines, mut offset, mut number) = (Vec::new(), 0_u64, 0_u64);
    // The line without white space around it: its first byte, and the byte after its last one.
    let mut text: Option<(u64, u64)> = None;
    let mut is_ended = true;
    loop {
        let bytes = reader.fill_buf()?;
        let count = bytes.len();
        let mut at = 0;
        while at < count {
            let end = bytes[at..].iter().position(|&byte| byte == b'\n');
            let part = &bytes[at..end.map_or(count, |end| at + end)];
            let is_text = |byte: &u8| !byte.is_ascii_whitespace();
            if let Some(first) = part.iter().position(is_text) {
                let last = part.iter().rposition(is_text).unwrap_or(first);
                let start = offset + (at + first) as u64;
                let stop = offset + (at + last + 1) as u64;
                text = Some((text.map_or(start, |(start, _)| start), stop));
            }
            at += part.len() + usize::from(end.is_some());
            is_ended = end.is_some();
            if is_ended {
                number += 1;
                if let Err(reason) = push(&mut lines, text.take(), number) {
                    return Ok(Err(reason));
                }
            }
        }
        reader.consume(count);
        offset += count as u64;
        if count == 0 {
            break;
        }
    }
    if !is_ended && let Err(reason) = push(&mut lines, text, number + 1) {
        return Ok(Err(reason));
    }
    Ok(Ok(lines))
}

fn push(lines: &mut Vec<Line>, text: Option<(u64, u64)>, number: u64) -> Result<(), String> {
    let Some((start, end)) = text else {
        return Ok(());
    };
    let long = |_| {
        format!(
            "line {number} has {} bytes; expected fewer than 2^32",
            end - start
        )
    };
    let length = u32::try_from(end - start).map_err(long)?;
    let number = u32::try_from(number).map_err(|_| "it has more than 2^32 lines".to_owned())?;
    lines.push(Line {
        start,
        length,
        number,
    });
    Ok(())
}

/// Parses a line; messages have the column, in bytes from 1.
pub(crate) fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|error| {
        let text = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        match text.strip_suffix(&place) {
            Some(reason) => format!("column {}: {reason}", error.column()),
            None => text,
        }
    })
}

/// See [`JsonLines::dataset`].
pub struct JsonLinesDataset<T, F> {
    lines: JsonLines,
    fields: Vec<Field>,
    write: F,
    value: PhantomData<fn() -> T>,
}

impl<T, F> Dataset for JsonLinesDataset<T, F>
where
    T: DeserializeOwned,
    F: Fn(T, &mut SampleMut<'_>) -> Result<()> + Send + Sync,
{
    fn len(&self) -> usize {
        self.lines.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let value = self.lines.read(index)?;
        (self.write)(value, into).map_err(|error| {
            let (file, line) = self.lines.place(index);
            let message = format!("{}: line {}", file.file.path().display(), line.number);
            Error::new(error.kind(), CONTEXT, message).caused_by(error)
        })
    }

    fn digest(&self) -> Option<String> {
        let files = self.lines.files.iter().flat_map(|file| {
            let places = file.lines.iter().flat_map(|line| line.start.to_le_bytes());
            let mut places: Vec<u8> = places.collect();
            places.extend(file.file.len().to_le_bytes());
            [file.file.name().into_bytes(), places]
        });
        Some(digest_of(files))
    }

    fn name(&self) -> String {
        "JSON lines".to_owned()
    }
}

impl<T, F> std::fmt::Debug for JsonLinesDataset<T, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonLinesDataset")
            .field("lines", &self.lines)
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}
