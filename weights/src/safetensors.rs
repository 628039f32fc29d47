//! safetensors files: a header in JSON, and the elements of all tensors behind it
//! (<https://huggingface.co/docs/safetensors>).

mod write;

use std::{collections::BTreeMap, fmt};

use halite_core::{DType, ErrorKind, Result, TensorType, format_count};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

pub use self::write::SafetensorsWriter;
use crate::{
    Format, TensorInfo, WeightFile,
    input::Input,
    metadata::MetadataValue,
    place::{Order, Place},
    problems::{Problems, corrupt},
};

/// Largest header that the format allows, in bytes.
const HEADER_LIMIT: u64 = 100_000_000;

/// Most dimensions of a tensor, as in NumPy.
const MOST_DIMS: usize = 64;

/// The start of such a file: a length that the file has room for, and a brace.
pub(crate) fn recognizes(start: &[u8], len: u64) -> bool {
    let header = start.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    header.is_some_and(|header| header <= len && start.get(8) == Some(&b'{'))
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// The header, in the order of the file. A name may be there twice.
#[derive(Default)]
struct Header {
    metadata: BTreeMap<String, String>,
    entries: Vec<(String, Entry)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        // Some writers have `null` for none.
                        let metadata: Option<BTreeMap<String, String>> = map.next_value()?;
                        header.metadata.extend(metadata.unwrap_or_default());
                    } else {
                        header.entries.push((name, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(HeaderVisitor)
    }
}

/// Reads the header of a file.
pub(crate) fn open(input: Input) -> Result<WeightFile> {
    let origin = input.origin().to_owned();
    let bad = |what: String| Err(corrupt(&origin, what));
    if input.len() < 8 {
        return bad(format!("{} bytes are too few for a header", input.len()));
    }
    let mut length = [0; 8];
    input.read_at(0, &mut length)?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_LIMIT || length > input.len() - 8 {
        return bad(format!(
            "its header has {} bytes, more than the file has or the format allows",
            format_count(length)
        ));
    }
    let header: Header = match serde_json::from_slice(&input.bytes(8, length as usize)?) {
        Ok(header) => header,
        Err(error) => return bad(format!("its header cannot be read: {error}")),
    };
    let room = input.len() - 8 - length;
    let mut problems = Problems::default();
    let mut tensors = Vec::with_capacity(header.entries.len());
    let mut spans = Vec::with_capacity(header.entries.len());
    for (name, entry) in &header.entries {
        match located(name, entry, room) {
            Ok(ty) => {
                let [start, end] = entry.data_offsets;
                spans.push((start, end, &**name));
                let info = TensorInfo {
                    name: name.clone(),
                    ty,
                };
                let place = Place {
                    input: input.clone(),
                    offset: 8 + length + start,
                    order: Order::RowMajor,
                    deflated: None,
                };
                tensors.push((info, place));
            }
            Err(problem) => problems.push(problem),
        }
    }
    check_spans(spans, room, &mut problems);
    problems.into_result(ErrorKind::Corrupt, &origin)?;
    let mut file = WeightFile::new(Format::Safetensors, &origin, tensors)?;
    let texts = header.metadata.into_iter();
    file.metadata = texts
        .map(|(key, text)| (key, MetadataValue::String(text)))
        .collect();
    Ok(file)
}

/// The type of an entry, if it agrees with its bytes.
fn located(name: &str, entry: &Entry, room: u64) -> Result<TensorType, String> {
    let Some(dtype) = DType::from_safetensors_name(&entry.dtype) else {
        return Err(format!(
            "`{name}` has elements of type {}, which halite does not have",
            entry.dtype
        ));
    };
    if entry.shape.len() > MOST_DIMS {
        return Err(format!(
            "`{name}` has {} dimensions, more than {MOST_DIMS}",
            entry.shape.len()
        ));
    }
    let dims: Option<Vec<usize>> = entry
        .shape
        .iter()
        .map(|&dim| usize::try_from(dim).ok())
        .collect();
    let ty = TensorType::new(
        dtype,
        dims.ok_or_else(|| format!("`{name}` has dimensions {:?}", entry.shape))?,
    );
    let bytes = ty
        .checked_bytes()
        .map_err(|error| format!("`{name}`: {}", error.message()))?;
    let [start, end] = entry.data_offsets;
    if end.checked_sub(start) != Some(bytes as u64) {
        return Err(format!(
            "`{name}` is {ty} and has bytes {start} to {end}, it needs {bytes}"
        ));
    }
    if end > room {
        return Err(format!(
            "`{name}` ends at byte {end}, the file has {room} for tensors: it is truncated"
        ));
    }
    Ok(ty)
}

/// The tensors must follow each other without holes, as the format says.
fn check_spans(mut spans: Vec<(u64, u64, &str)>, room: u64, problems: &mut Problems) {
    spans.sort_unstable();
    let mut covered = 0;
    let mut before = "";
    for (start, end, name) in spans {
        if start < covered {
            problems.push(format!("`{name}` overlaps `{before}`"));
        } else if start > covered {
            problems.push(format!(
                "bytes {covered} to {start} before `{name}` belong to no tensor"
            ));
        }
        if end > covered {
            (covered, before) = (end, name);
        }
    }
    if covered < room {
        problems.push(format!(
            "bytes {covered} to {room} behind the tensors belong to no tensor"
        ));
    }
}
