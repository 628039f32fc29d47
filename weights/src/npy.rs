//! Arrays in NumPy's file format
//! (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).

use std::io::Read;

use halite_core::{DType, Error, ErrorKind, HostArray, Result, TensorType, format_count};

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// Bytes of the longest header.
const LONGEST_HEADER: u64 = 64 << 10;
/// Most dimensions, as in NumPy.
const MOST_DIMS: usize = 64;

/// The name of the format of an element type, without the byte order. NumPy has neither bf16 nor
/// 8-bit floats; the package `ml_dtypes`, which JAX uses, saves them as bytes without a type.
fn format_of(dtype: DType) -> &'static str {
    match (dtype.numpy_name(), dtype.size()) {
        (Some(name), _) => name,
        (None, 1) => FLOAT8,
        (None, _) => BF16,
    }
}

/// Bytes without a type, as 8-bit floats are saved.
const FLOAT8: &str = "V1";
/// Bytes without a type, as bf16 is saved.
const BF16: &str = "V2";

/// Reads a `.npy` file. Arrays in column-major (Fortran) order are transposed.
///
/// ```
/// use halite_core::HostArray;
/// use halite_weights::npy;
///
/// # fn main() -> halite_core::Result<()> {
/// let x = HostArray::from_slice(&[1.0f32, 2.0], [2])?;
/// assert_eq!(npy::read(&npy::write(&x))?, x);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the bytes are not such a file; [`ErrorKind::Unsupported`] for element
/// types that halite has no arrays of, for 8-bit floats, of which the file does not name the type,
/// and for big-endian numbers.
pub fn read(bytes: &[u8]) -> Result<HostArray> {
    read_with(bytes, None)
}

/// Reads a `.npy` file as [`read`] does; 8-bit floats, which `ml_dtypes` saves as bytes without a
/// type, are of type `float8`.
///
/// # Errors
/// As [`read`].
pub fn read_as(bytes: &[u8], float8: DType) -> Result<HostArray> {
    read_with(
        bytes,
        Some(float8).filter(|&dtype| format_of(dtype) == FLOAT8),
    )
}

fn read_with(bytes: &[u8], float8: Option<DType>) -> Result<HostArray> {
    let Described {
        ty,
        column_major,
        data,
    } = describe(bytes, float8)?;
    let (data, dtype) = (&bytes[data..], ty.dtype());
    let size = ty.checked_bytes()?;
    if data.len() != size {
        let given = format_count(data.len() as u64);
        return Err(corrupt(format!("{given} bytes of data, {ty} needs {size}")));
    }
    if dtype == DType::Bool
        && let Some(byte) = data.iter().find(|&&byte| byte > 1)
    {
        return Err(corrupt(format!("a boolean is {byte}; it must be 0 or 1")));
    }
    let mut array = HostArray::try_zeros(ty)?;
    if column_major {
        let dims = array.ty().dims().to_vec();
        transpose(data, &dims, dtype.size(), array.bytes_mut());
    } else {
        array.bytes_mut().copy_from_slice(data);
    }
    Ok(array)
}

/// Writes a `.npy` file, which `numpy.load` reads. bf16 and 8-bit floats are written as `ml_dtypes`
/// does: load them with `numpy.load(path).view(ml_dtypes.bfloat16)`.
pub fn write(array: &HostArray) -> Vec<u8> {
    let dtype = array.ty().dtype();
    let format = format_of(dtype);
    let order = if dtype.size() == 1 { '|' } else { '<' };
    let dims: String = (array.ty().dims().iter())
        .map(|dim| format!("{dim}, "))
        .collect();
    let header =
        format!("{{'descr': '{order}{format}', 'fortran_order': False, 'shape': ({dims}), }}");
    // Magic, version and length have 10 bytes; data starts at a multiple of 64.
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    // Version 2 has a length of 32 bits, for arrays of thousands of dimensions.
    let mut out = MAGIC.to_vec();
    match u16::try_from(length) {
        Ok(short) => {
            out.extend([1, 0]);
            out.extend(short.to_le_bytes());
        }
        Err(_) => {
            out.extend([2, 0]);
            out.extend((length as u32).to_le_bytes());
        }
    }
    out.extend(format!("{header:<width$}\n", width = length - 1).bytes());
    out.extend(array.bytes());
    out
}

/// An array as the header of its file describes it.
pub(crate) struct Described {
    pub(crate) ty: TensorType,
    pub(crate) column_major: bool,
    /// Position of the first byte of data.
    pub(crate) data: usize,
}

/// Reads the header of a file, and nothing behind it; 8-bit floats are of type `float8`.
pub(crate) fn describe(mut file: impl Read, float8: Option<DType>) -> Result<Described> {
    let missing =
        |_| corrupt("the bytes are not a `.npy` file: its header is missing or truncated".into());
    let mut start = [0; 8];
    file.read_exact(&mut start).map_err(missing)?;
    let mut length = [0; 4];
    let width = match &start {
        [magic @ .., 1, _] if magic == MAGIC => 2,
        [magic @ .., 2 | 3, _] if magic == MAGIC => 4,
        _ => return Err(missing(std::io::ErrorKind::InvalidData.into())),
    };
    file.read_exact(&mut length[..width]).map_err(missing)?;
    let length = u64::from(u32::from_le_bytes(length));
    let mut header = Vec::new();
    let read = file
        .take(length.min(LONGEST_HEADER))
        .read_to_end(&mut header);
    read.map_err(missing)?;
    if header.len() as u64 != length {
        return Err(missing(std::io::ErrorKind::UnexpectedEof.into()));
    }
    let parsed = Header::parse(&header)?;
    let dtype = dtype(&parsed.format, float8)?;
    Ok(Described {
        ty: TensorType::new(dtype, parsed.dims),
        column_major: parsed.column_major,
        data: start.len() + width + header.len(),
    })
}

fn dtype(format: &str, float8: Option<DType>) -> Result<DType> {
    let refuse = |why: &str| {
        Err(Error::new(
            ErrorKind::Unsupported,
            "npy",
            format!("arrays of `{}`{why}", format.escape_debug()),
        ))
    };
    let (order, name) = match format.char_indices().nth(1) {
        Some((at, _)) => format.split_at(at),
        None => return refuse(""),
    };
    let known = match name {
        // The only 8-bit float that `ml_dtypes` gives a name.
        "f1" => Some(DType::F8E5M2),
        FLOAT8 if float8.is_none() => {
            return refuse(": 8-bit values without a type; save them in a .safetensors file");
        }
        FLOAT8 => float8,
        _ => DType::ALL
            .into_iter()
            .find(|&dtype| format_of(dtype) == name),
    };
    match (order, known) {
        ("<" | "|" | "=", Some(dtype)) => Ok(dtype),
        (">", Some(dtype)) if dtype.size() == 1 => Ok(dtype),
        (">", Some(_)) => refuse(": big-endian; save `x.astype(x.dtype.newbyteorder('<'))`"),
        _ => refuse("; expected booleans, integers, floats of 8 to 64 bits, or complex numbers"),
    }
}

/// Copies elements of `size` bytes from column-major to row-major order.
fn transpose(data: &[u8], dims: &[usize], size: usize, into: &mut [u8]) {
    let mut index = vec![0; dims.len()];
    for target in into.chunks_exact_mut(size) {
        let at = (index.iter().zip(dims).rev()).fold(0, |at, (&i, &dim)| at * dim + i);
        target.copy_from_slice(&data[at * size..][..size]);
        for (i, &dim) in index.iter_mut().zip(dims).rev() {
            *i += 1;
            if *i < dim {
                break;
            }
            *i = 0;
        }
    }
}

/// The fields of the header, a Python dict.
#[derive(Debug, Default)]
struct Header {
    format: String,
    column_major: bool,
    dims: Vec<usize>,
}

impl Header {
    fn parse(header: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(header)
            .map_err(|_| corrupt("the header is not text".to_owned()))?;
        Header::of_dict(text.trim()).ok_or_else(|| {
            let shown: String = text.trim().chars().take(200).collect();
            corrupt(format!(
                "the header is `{}`; expected {{'descr': '<f4', 'fortran_order': False, 'shape': \
                 (2, 3), }}",
                shown.escape_debug()
            ))
        })
    }

    fn of_dict(text: &str) -> Option<Self> {
        let mut rest = text.strip_prefix('{')?.trim_start();
        let (mut format, mut column_major, mut dims) = (None, None, None);
        while !rest.starts_with('}') {
            let (key, value) = rest.strip_prefix('\'')?.split_once('\'')?;
            let value = value.trim_start().strip_prefix(':')?.trim_start();
            rest = match key {
                "descr" => {
                    let (text, rest) = value.strip_prefix('\'')?.split_once('\'')?;
                    format = Some(text.to_owned());
                    rest
                }
                "fortran_order" => {
                    let order = value.strip_prefix("True").map(|rest| (true, rest));
                    let order = order.or(value.strip_prefix("False").map(|rest| (false, rest)));
                    let (order, rest) = order?;
                    column_major = Some(order);
                    rest
                }
                "shape" => {
                    let (list, rest) = value.strip_prefix('(')?.split_once(')')?;
                    let list = list.trim();
                    let list = list.strip_suffix(',').unwrap_or(list);
                    let all = list.split(',').filter(|_| !list.is_empty());
                    if all.clone().count() > MOST_DIMS {
                        return None;
                    }
                    dims = Some(
                        all.map(|dim| dim.trim().parse().ok())
                            .collect::<Option<_>>()?,
                    );
                    rest
                }
                _ => return None,
            };
            let after = rest.trim_start();
            rest = match after.strip_prefix(',') {
                Some(more) => more.trim_start(),
                None if after.starts_with('}') => after,
                None => return None,
            };
        }
        (rest == "}").then_some(Header {
            format: format?,
            column_major: column_major?,
            dims: dims?,
        })
    }
}

fn corrupt(message: String) -> Error {
    Error::new(ErrorKind::Corrupt, "npy", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = (header.len() as u16).to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat()
    }

    #[test]
    fn arrays_of_all_types_round_trip() {
        for dtype in DType::ALL {
            for dims in [vec![], vec![3], vec![2, 0], vec![2, 3, 1]] {
                let mut array = HostArray::zeros(TensorType::new(dtype, dims));
                array
                    .bytes_mut()
                    .iter_mut()
                    .step_by(3)
                    .for_each(|byte| *byte = 1);
                let bytes = write(&array);
                assert_eq!(read_as(&bytes, dtype).unwrap(), array);
                assert_eq!(read(&bytes).is_ok(), format_of(dtype) != FLOAT8);
                assert_eq!((bytes.len() - array.bytes().len()) % 64, 0);
            }
        }
    }

    #[test]
    fn column_major_arrays_are_transposed() {
        let header = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }";
        let array = read(&file(header, &[1, 4, 2, 5, 3, 6])).unwrap();
        assert_eq!(array.as_slice::<u8>().unwrap(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn hostile_headers_are_errors() {
        let descr = "'descr': '<f4', 'fortran_order': False";
        for header in [
            "",
            "{",
            "{}",
            "{'descr': '<f4'}",
            &format!("{{{descr}, 'shape': (2,"),
            &format!("{{{descr}, 'shape': (-2,)}}"),
            &format!("{{{descr}, 'shape': (18446744073709551615, 2)}}"),
            &format!("{{{descr}, 'shape': (99999999999999999999,)}}"),
            &format!("{{{descr}, 'shape': (1000000000,)}}"),
            &format!("{{{descr}, 'shape': (2,)}} x"),
            "{'descr': '>f4', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<c8', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<c32', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<V1', 'fortran_order': False, 'shape': (4,)}",
            "{'descr': '', 'fortran_order': False, 'shape': ()}",
            "{'descr': '\u{e9}\u{e9}', 'fortran_order': False, 'shape': ()}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}",
            "{'descr': '|b1', 'fortran_order': False, 'shape': (4,)}",
            &format!("{{{descr}, 'shape': ({})}}", "1,".repeat(65)),
        ] {
            assert!(read(&file(header, &[0, 0, 7, 0])).is_err(), "{header}");
        }
    }

    #[test]
    fn error_names_type_with_its_size() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let error = read(&file(header, &[0; 12])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "npy: 12 bytes of data, f32[2, 3] needs 24"
        );
    }
}
