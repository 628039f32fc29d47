//! Arrays in safetensors files: their order, header and element types.

mod read;
mod rows;
mod write;

use halite_core::{DType, Error, ErrorKind, Result, TensorType};
use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo},
};

pub(crate) use self::rows::RowsFile;
pub(super) use self::{
    read::{ArrayFile, Located, Piece, check_types, read},
    write::write,
};

/// Largest header that the format allows, in bytes.
const HEADER_LIMIT: u64 = 100_000_000;

/// Splits arrays of these types so that files stay below `file_bytes` where arrays allow: ranges of
/// `types` with the files' names.
pub(super) fn split(
    types: &[(&str, &TensorType)],
    file_bytes: u64,
) -> Vec<(String, std::ops::Range<usize>)> {
    let mut ranges = Vec::new();
    let (mut start, mut size) = (0, 0u64);
    for (index, (_, ty)) in types.iter().enumerate() {
        let bytes = ty.bytes() as u64;
        if index > start && size.saturating_add(bytes) > file_bytes {
            ranges.push(start..index);
            (start, size) = (index, 0);
        }
        size += bytes;
    }
    ranges.push(start..types.len());
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

/// The order of arrays in a file. Widest elements first, as the format asks: then each array's
/// offset is a multiple of its element's size.
fn order_of(types: &[(&str, &TensorType)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..types.len()).collect();
    order.sort_by_key(|&index| place(types[index].0, types[index].1));
    order
}

/// What arrays in a file are ordered by.
pub(super) fn place<'a>(name: &'a str, ty: &TensorType) -> (std::cmp::Reverse<usize>, &'a str) {
    (std::cmp::Reverse(ty.dtype().size()), name)
}

/// Returns the header of a file with these arrays, in this order.
fn header_of(types: &[(&str, &TensorType)], order: &[usize]) -> Result<Vec<u8>> {
    let mut offset = 0;
    let infos = order.iter().map(|&index| {
        let (name, ty) = types[index];
        let data_offsets = (offset, offset + ty.bytes());
        offset = data_offsets.1;
        let dtype = ty.dtype();
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
            shape: ty.dims().to_vec(),
            data_offsets,
        };
        Ok((name.to_string(), info))
    });
    let metadata = Metadata::new(None, infos.collect::<Result<_>>()?)
        .map_err(|error| Error::new(ErrorKind::Internal, "checkpoint", error.to_string()))?;
    let mut header =
        serde_json::to_vec(&metadata).expect("a header has only string keys and plain values");
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() as u64 > HEADER_LIMIT {
        let message = format!(
            "the names of {} arrays take {} bytes, the format allows {HEADER_LIMIT}",
            order.len(),
            header.len()
        );
        return Err(Error::invalid("checkpoint", message));
    }
    Ok(header)
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
    let name = dtype.safetensors_name()?;
    serde_json::from_value(name.into()).ok()
}

fn from_safetensors(dtype: Dtype) -> Option<DType> {
    DType::from_safetensors_name(&dtype.to_string())
}
