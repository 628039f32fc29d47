//! GGUF files: metadata, then descriptions of tensors, then the tensors
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>). Dimensions are in the order of
//! PyTorch and halite, the reverse of that in the file.

use std::{collections::BTreeMap, io::Read};

use halite_core::{DType, Error, ErrorKind, Result, TensorType};

use crate::{
    Format, TensorInfo, WeightFile,
    input::{Input, Reader},
    metadata::MetadataValue,
    place::{Order, Place},
    problems::{Problems, corrupt, unsupported},
    quantized::Quantization,
};

pub(crate) const MAGIC: &[u8] = b"GGUF";

/// Bytes of the longest name of a tensor or a key; the format allows 64 and 65535.
const LONGEST_NAME: u64 = 1 << 16;
/// Depth of arrays of arrays.
const DEEPEST: usize = 4;
const MOST_DIMS: u32 = 4;
/// Bytes of memory for all that the header describes: a byte in the file may take a hundred.
const LARGEST_HEADER: u64 = 256 << 20;
/// Bytes of memory for a tensor's description, or for a pair of metadata, beside its texts.
const DESCRIBED: u64 = 256;

/// The header of a file, read from the start.
struct Header {
    reader: std::io::BufReader<Reader>,
    origin: String,
    len: u64,
    /// Bytes that were read.
    position: u64,
    /// Bytes of memory that it may still take.
    room: u64,
}

impl Header {
    fn bytes(&mut self, into: &mut [u8]) -> Result<()> {
        self.reader
            .read_exact(into)
            .map_err(|error| self.truncated(error))?;
        self.position += into.len() as u64;
        Ok(())
    }

    fn truncated(&self, error: std::io::Error) -> Error {
        let what = format!("the header is truncated at byte {}", self.position);
        corrupt(&self.origin, what).caused_by(error)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.bytes(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of things that take `size` bytes or more each, so that the file bounds it.
    fn count(&mut self, what: &str, size: u64) -> Result<u64> {
        let count = self.u64()?;
        let left = self.len.saturating_sub(self.position);
        if count.checked_mul(size).is_none_or(|bytes| bytes > left) {
            let what = format!("{count} {what} in {left} bytes");
            return Err(corrupt(&self.origin, what));
        }
        Ok(count)
    }

    /// Takes memory of what the header may have.
    fn spend(&mut self, bytes: u64) -> Result<()> {
        let left = self.room.checked_sub(bytes);
        self.room = left.ok_or_else(|| {
            let what = format!("its header needs more than {LARGEST_HEADER} bytes of memory");
            corrupt(&self.origin, what)
        })?;
        Ok(())
    }

    fn string(&mut self, what: &str, longest: u64) -> Result<String> {
        let len = self.count(what, 1)?;
        if len > longest {
            let what = format!("{what} of {len} bytes, more than {longest}");
            return Err(corrupt(&self.origin, what));
        }
        self.spend(len)?;
        let mut bytes = vec![0; len as usize];
        self.bytes(&mut bytes)?;
        String::from_utf8(bytes)
            .map_err(|error| corrupt(&self.origin, format!("{what} is not UTF-8")).caused_by(error))
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<MetadataValue> {
        use MetadataValue::{Array, Bool, Float, Signed, String, Unsigned};
        Ok(match kind {
            0 => Unsigned(u8::from_le_bytes(self.array()?).into()),
            1 => Signed(i8::from_le_bytes(self.array()?).into()),
            2 => Unsigned(u16::from_le_bytes(self.array()?).into()),
            3 => Signed(i16::from_le_bytes(self.array()?).into()),
            4 => Unsigned(self.u32()?.into()),
            5 => Signed(i32::from_le_bytes(self.array()?).into()),
            6 => Float(f32::from_le_bytes(self.array()?).into()),
            7 => match self.array()? {
                [0] => Bool(false),
                [1] => Bool(true),
                [other] => return Err(corrupt(&self.origin, format!("a boolean is {other}"))),
            },
            8 => String(self.string("bytes of text", u64::MAX)?),
            9 => {
                let kind = self.u32()?;
                let count = self.count("elements of a list", 1)?;
                if depth == DEEPEST {
                    return Err(corrupt(&self.origin, "lists are nested too deeply"));
                }
                self.spend(count.saturating_mul(size_of::<MetadataValue>() as u64))?;
                let elements = (0..count).map(|_| self.value(kind, depth + 1));
                Array(elements.collect::<Result<_>>()?)
            }
            10 => Unsigned(self.u64()?),
            11 => Signed(i64::from_le_bytes(self.array()?)),
            12 => Float(f64::from_le_bytes(self.array()?)),
            other => {
                return Err(corrupt(
                    &self.origin,
                    format!("metadata of the unknown type {other}"),
                ));
            }
        })
    }
}

/// A tensor as its file describes it.
struct Described {
    name: String,
    dims: Vec<u64>,
    kind: u32,
    offset: u64,
}

/// Reads the header of a file.
pub(crate) fn open(input: Input) -> Result<WeightFile> {
    let origin = input.origin().to_owned();
    let mut header = Header {
        reader: std::io::BufReader::with_capacity(1 << 16, input.reader()),
        origin: origin.clone(),
        len: input.len(),
        position: 0,
        room: LARGEST_HEADER,
    };
    let magic: [u8; 4] = header.array()?;
    let version = header.u32()?;
    if magic != MAGIC || !(2..=3).contains(&version) {
        let what = format!("version {version} of GGUF; expected 2 or 3, little-endian");
        return Err(unsupported(&origin, what));
    }
    // A description has a name's length, a number of dimensions, a type and an offset at least.
    let tensors = header.count("tensors", 8 + 4 + 4 + 8)?;
    let pairs = header.count("pairs of metadata", 8 + 4 + 1)?;
    let mut metadata = BTreeMap::new();
    for _ in 0..pairs {
        header.spend(DESCRIBED)?;
        let key = header.string("bytes of a key", LONGEST_NAME)?;
        let kind = header.u32()?;
        let value = header.value(kind, 0)?;
        if metadata.insert(key.clone(), value).is_some() {
            let what = format!("metadata `{}` is there twice", key.escape_debug());
            return Err(corrupt(&origin, what));
        }
    }
    let mut described = Vec::new();
    for _ in 0..tensors {
        header.spend(DESCRIBED)?;
        described.push(describe(&mut header)?);
    }
    let alignment = match metadata
        .get("general.alignment")
        .map(MetadataValue::as_usize)
    {
        None => 32,
        Some(Some(alignment)) if alignment.is_power_of_two() => alignment as u64,
        Some(_) => {
            return Err(corrupt(
                &origin,
                "`general.alignment` is not a power of two",
            ));
        }
    };
    let data = header
        .position
        .checked_next_multiple_of(alignment)
        .unwrap_or(u64::MAX);
    let located = locate(&described, &input, data)?;
    let mut file = WeightFile::new(Format::Gguf, &origin, located)?;
    file.metadata = metadata;
    Ok(file)
}

fn describe(header: &mut Header) -> Result<Described> {
    let name = header.string("bytes of a name", LONGEST_NAME)?;
    let rank = header.u32()?;
    if rank > MOST_DIMS {
        let what = format!("`{}` has {rank} dimensions", name.escape_debug());
        return Err(corrupt(&header.origin, what));
    }
    let dims = (0..rank)
        .map(|_| header.u64())
        .collect::<Result<Vec<_>>>()?;
    Ok(Described {
        name,
        dims: dims.into_iter().rev().collect(),
        kind: header.u32()?,
        offset: header.u64()?,
    })
}

/// The type of elements as they are read, and how they lie in the file.
fn kind_of(kind: u32) -> Result<(DType, Order), String> {
    use Quantization::{Q4_0, Q4_1, Q4K, Q6K, Q8_0};
    let plain = |dtype| Ok((dtype, Order::RowMajor));
    let quantized = |quantization| Ok((DType::F32, Order::Quantized(quantization)));
    match kind {
        0 => plain(DType::F32),
        1 => plain(DType::F16),
        2 => quantized(Q4_0),
        3 => quantized(Q4_1),
        8 => quantized(Q8_0),
        12 => quantized(Q4K),
        14 => quantized(Q6K),
        24 => plain(DType::S8),
        25 => plain(DType::S16),
        26 => plain(DType::S32),
        27 => plain(DType::S64),
        28 => plain(DType::F64),
        30 => plain(DType::Bf16),
        _ => {
            // Those that files have; ggml numbers them.
            let names = [
                "Q5_0", "Q5_1", "", "Q8_1", "Q2_K", "Q3_K", "", "Q5_K", "", "Q8_K",
            ];
            let index = kind.checked_sub(6).map(|index| index as usize);
            let name = index
                .and_then(|index| names.get(index))
                .filter(|name| !name.is_empty());
            Err(name.map_or(format!("type {kind}"), |name| (*name).to_owned()))
        }
    }
}

fn locate(described: &[Described], input: &Input, data: u64) -> Result<Vec<(TensorInfo, Place)>> {
    let room = input.len().saturating_sub(data);
    let (mut problems, mut unknown) = (Problems::default(), Problems::default());
    let (mut located, mut spans) = (Vec::new(), Vec::new());
    for tensor in described {
        let name = &tensor.name;
        let (dtype, order) = match kind_of(tensor.kind) {
            Ok(known) => known,
            Err(kind) => {
                unknown.push(format!(
                    "`{name}` is {kind}; supported are F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K \
                     and integers"
                ));
                continue;
            }
        };
        match extent(tensor, dtype, &order) {
            Ok((_, bytes))
                if tensor
                    .offset
                    .checked_add(bytes)
                    .is_none_or(|end| end > room) =>
            {
                problems.push(format!(
                    "`{name}` has {bytes} bytes at {}, the file has {room} for tensors: it is truncated",
                    tensor.offset
                ));
            }
            Ok((ty, bytes)) => {
                spans.push((tensor.offset, tensor.offset + bytes, name.as_str()));
                let info = TensorInfo {
                    name: name.clone(),
                    ty,
                };
                let offset = data + tensor.offset;
                let input = input.clone();
                located.push((
                    info,
                    Place {
                        input,
                        offset,
                        order,
                        deflated: None,
                    },
                ));
            }
            Err(problem) => problems.push(problem),
        }
    }
    problems.overlaps(spans);
    problems.into_result(ErrorKind::Corrupt, input.origin())?;
    unknown.into_result(ErrorKind::Unsupported, input.origin())?;
    Ok(located)
}

/// The type of a tensor, and its bytes in the file.
fn extent(tensor: &Described, dtype: DType, order: &Order) -> Result<(TensorType, u64), String> {
    let name = &tensor.name;
    let dims: Option<Vec<usize>> = tensor
        .dims
        .iter()
        .map(|&dim| usize::try_from(dim).ok())
        .collect();
    let dims = dims.ok_or_else(|| format!("`{name}` has dimensions {:?}", tensor.dims))?;
    let ty = TensorType::new(dtype, dims);
    let bytes = ty
        .checked_bytes()
        .map_err(|error| format!("`{name}`: {}", error.message()))?;
    let Order::Quantized(quantization) = order else {
        return Ok((ty, bytes as u64));
    };
    let (row, block) = (
        ty.dims().last().copied().unwrap_or(1),
        quantization.elements(),
    );
    if !row.is_multiple_of(block) {
        return Err(format!("`{name}` is {ty} in blocks of {block} elements"));
    }
    let packed = ty.elements() / block * quantization.bytes();
    Ok((ty, packed as u64))
}
