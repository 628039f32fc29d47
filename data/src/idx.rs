//! The idx format of MNIST: two zero bytes, element type, rank, big-endian dimensions, big-endian
//! elements.
//!
//! A file may be compressed with gzip. The header is checked before memory is allocated for it.

use std::{
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use flate2::bufread::MultiGzDecoder;
use halite_core::{
    AlignedBytes, DType, Error, ErrorKind, HostArray, Result, TensorType, files, guard,
};
use halite_fetch::{DigestReader, open_regular};

use crate::input::GZIP_MAGIC;

/// Reads an idx file, compressed or not.
///
/// # Errors
/// [`ErrorKind::Io`] if it cannot be read; [`ErrorKind::Corrupt`] if it is not an idx file, or its
/// length differs from that in its header.
pub fn read(path: impl AsRef<Path>) -> Result<HostArray> {
    read_path(path.as_ref())
}

fn read_path(path: &Path) -> Result<HostArray> {
    let refused = |error| Refused::Io(error).of(path);
    let file = files::open_input(path).map_err(refused)?;
    let size = file.metadata().map_err(refused)?.len();
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let start = reader.fill_buf().map_err(refused)?;
    if start.starts_with(&GZIP_MAGIC) {
        parse_gzip(reader)
    } else {
        files::check_uncompressed(start)
            .map_err(|error| Refused::Corrupt(error.to_string()))
            .and_then(|()| parse_from(reader, Some(size)))
    }
    .map_err(|error| error.of(path))
}

/// Reads an uncompressed idx file, and returns the SHA-256 of the file with it.
///
/// # Errors
/// As [`read`]. A compressed file is refused.
pub(crate) fn read_digested(path: &Path) -> Result<(HostArray, String)> {
    let parsed = open_regular(path).and_then(|file| {
        let size = file.metadata()?.len();
        let mut reader = DigestReader::new(file);
        Ok((parse_from(&mut reader, Some(size)), reader.sha256()))
    });
    match parsed {
        Ok((Ok(array), digest)) => Ok((array, digest)),
        Ok((Err(error), _)) => Err(error.of(path)),
        Err(error) => Err(Refused::Io(error).of(path)),
    }
}

/// Reads an idx file from memory, compressed or not.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it is not an idx file, or its length differs from that in its header.
pub fn parse(bytes: &[u8]) -> Result<HostArray> {
    let parsed = if bytes.starts_with(&GZIP_MAGIC) {
        parse_gzip(bytes)
    } else {
        parse_from(bytes, Some(bytes.len() as u64))
    };
    parsed.map_err(|error| match error {
        Refused::Corrupt(reason) => Error::new(ErrorKind::Corrupt, "read idx", reason),
        Refused::Io(error) => Error::new(ErrorKind::Io, "read idx", error.to_string()),
    })
}

enum Refused {
    Corrupt(String),
    Io(io::Error),
}

impl Refused {
    /// The error of a file.
    fn of(self, path: &Path) -> Error {
        let path = path.display();
        let (kind, message) = match self {
            Refused::Corrupt(reason) => (ErrorKind::Corrupt, format!("{path}: {reason}")),
            Refused::Io(error) => (ErrorKind::Io, format!("{path}: {error}")),
        };
        Error::new(kind, "read idx", message)
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The error of the decompressor for invalid input.
            io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData
            | io::ErrorKind::UnexpectedEof => {
                Self::Corrupt(format!("the file is damaged or truncated: {error}"))
            }
            _ => Self::Io(error),
        }
    }
}

/// Reads a compressed array.
fn parse_gzip(reader: impl BufRead) -> Result<HostArray, Refused> {
    let decoded = guard::call(|| parse_from(MultiGzDecoder::new(reader), None));
    decoded.unwrap_or_else(|panic| Err(Refused::Corrupt(panic)))
}

/// Reads an array. `size` is that of the whole input in bytes, if it is known.
fn parse_from(mut reader: impl Read, size: Option<u64>) -> Result<HostArray, Refused> {
    let ty = header(&mut reader)?;
    let header_size = 4 + 4 * ty.rank();
    let needed = ty.checked_bytes().map_err(|error| {
        Refused::Corrupt(format!("its header declares {ty}: {}", error.message()))
    })?;
    let wrong_size = |found: &str| {
        Refused::Corrupt(format!(
            "its header declares {ty}, which needs {} bytes; it has {found}",
            needed as u128 + header_size as u128
        ))
    };
    let mut bytes = match size {
        Some(size) if u128::from(size) != needed as u128 + header_size as u128 => {
            return Err(wrong_size(&size.to_string()));
        }
        Some(_) => {
            let mut bytes = AlignedBytes::zeroed(needed);
            reader.read_exact(bytes.as_mut())?;
            bytes
        }
        None => {
            // A few compressed bytes can claim any size, so memory grows with the actual content.
            let mut bytes = Vec::new();
            reader.take(needed as u64 + 1).read_to_end(&mut bytes)?;
            if bytes.len() != needed {
                let relation = if bytes.len() > needed {
                    "more".into()
                } else {
                    (bytes.len() + header_size).to_string()
                };
                return Err(wrong_size(&relation));
            }
            AlignedBytes::copy_of(&bytes)
        }
    };
    to_native(bytes.as_mut(), ty.dtype().size());
    Ok(HostArray::from_aligned(bytes, ty).expect("exactly the bytes of its type were read"))
}

fn header(reader: &mut impl Read) -> Result<TensorType, Refused> {
    let mut magic = [0; 4];
    read_header(reader, &mut magic)?;
    let dtype = match magic[2] {
        0x08 => DType::U8,
        0x09 => DType::S8,
        0x0b => DType::S16,
        0x0c => DType::S32,
        0x0d => DType::F32,
        0x0e => DType::F64,
        other => {
            return Err(Refused::Corrupt(format!(
                "it is not an idx file: unknown element type {other:#04x} ({magic:02x?})"
            )));
        }
    };
    if magic[..2] != [0, 0] || magic[3] == 0 {
        return Err(Refused::Corrupt(format!(
            "it is not an idx file: it starts with {magic:02x?}, expected 00 00, type, rank"
        )));
    }
    let mut dims = Vec::with_capacity(magic[3].into());
    for _ in 0..magic[3] {
        let mut dim = [0; 4];
        read_header(reader, &mut dim)?;
        dims.push(u32::from_be_bytes(dim) as usize);
    }
    Ok(TensorType::new(dtype, dims))
}

fn read_header(reader: &mut impl Read, into: &mut [u8]) -> Result<(), Refused> {
    reader.read_exact(into).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Refused::Corrupt("it ends within its header".into()),
        _ => error.into(),
    })
}

fn to_native(bytes: &mut [u8], element: usize) {
    if element > 1 && cfg!(target_endian = "little") {
        bytes.chunks_exact_mut(element).for_each(<[u8]>::reverse);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Two zeros, type, rank, dimensions, then `bytes` bytes 0, 1, 2, ..
    fn file(dtype: u8, dims: &[u32], data: usize) -> Vec<u8> {
        let mut bytes = vec![0, 0, dtype, dims.len() as u8];
        dims.iter().for_each(|dim| bytes.extend(dim.to_be_bytes()));
        bytes.extend((0..data).map(|i| i as u8));
        bytes
    }

    #[test]
    fn files_are_digested_as_they_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("images");
        // More than one piece.
        let bytes = file(8, &[600, 1000], 600_000);
        std::fs::write(&path, &bytes).unwrap();
        let (array, digest) = read_digested(&path).unwrap();
        assert_eq!(array, parse(&bytes).unwrap());
        assert_eq!(digest, halite_fetch::sha256_of_file(&path).unwrap().0);
        std::fs::write(&path, &bytes[1..]).unwrap();
        assert_eq!(read_digested(&path).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(
            read_digested(directory.path()).unwrap_err().kind(),
            ErrorKind::Io
        );
    }

    #[test]
    fn every_element_type_is_read_in_the_machines_order() {
        assert_eq!(
            parse(&file(8, &[2, 3], 6)).unwrap(),
            HostArray::from_slice(&[0u8, 1, 2, 3, 4, 5], [2, 3]).unwrap()
        );
        assert_eq!(
            parse(&file(9, &[2], 2)).unwrap(),
            HostArray::from_slice(&[0i8, 1], [2]).unwrap()
        );
        assert_eq!(
            parse(&file(0xb, &[2], 4)).unwrap(),
            HostArray::from_slice(&[1i16, 0x203], [2]).unwrap()
        );
        assert_eq!(
            parse(&file(0xc, &[1], 4)).unwrap(),
            HostArray::from_slice(&[0x0001_0203i32], [1]).unwrap()
        );
        assert_eq!(
            parse(&file(0xd, &[1], 4)).unwrap(),
            HostArray::from_slice(&[f32::from_bits(0x0001_0203)], [1]).unwrap()
        );
        let double = f64::from_bits(0x0001_0203_0405_0607);
        assert_eq!(
            parse(&file(0xe, &[1, 1], 8)).unwrap(),
            HostArray::from_slice(&[double], [1, 1]).unwrap()
        );
        assert_eq!(parse(&file(8, &[0, 28], 0)).unwrap().ty().dims(), [0, 28]);
    }

    #[test]
    fn hostile_files_are_refused_without_taking_memory() {
        let max = u32::MAX;
        let cases: &[(&[u8], &str)] = &[
            (&[], "ends within its header"),
            (&[0, 0, 8], "ends within its header"),
            (&file(8, &[5, 5], 0)[..9], "ends within its header"),
            (&file(8, &[4], 3), "u8[4], which needs 12 bytes; it has 11"),
            (&file(8, &[4], 5), "u8[4], which needs 12 bytes; it has 13"),
            (&file(8, &[max, max, max, max], 10), "address space"),
            (&file(8, &[max, 1 << 30], 10), "it has 22"),
            (&file(0xe, &[max, 1 << 27], 10), "it has 22"),
            (&file(7, &[4], 4), "unknown element type 0x07"),
            (&[1, 0, 8, 1, 0, 0, 0, 0], "starts with [01, 00, 08, 01]"),
            (&[0, 0, 8, 0], "expected 00 00, type, rank"),
            (b"<!DOCTYPE html>", "not an idx file"),
        ];
        for (bytes, words) in cases {
            let error = parse(bytes).unwrap_err();
            assert!(
                error.kind() == ErrorKind::Corrupt && error.to_string().contains(words),
                "{words}: {error}"
            );
            // The same through gzip, where the size is unknown.
            let zipped = tempfile(&gzip(bytes));
            let error = read(zipped.path()).unwrap_err();
            assert!(error.kind() == ErrorKind::Corrupt, "{words}: {error}");
        }
    }

    #[test]
    fn a_compressed_file_is_read_and_a_cut_one_refused() {
        let zipped = gzip(&file(8, &[100, 100], 10_000));
        assert_eq!(
            read(tempfile(&zipped).path()).unwrap().ty().dims(),
            [100, 100]
        );
        for cut in [5, 30, zipped.len() - 4] {
            let file = tempfile(&zipped[..cut]);
            let error = read(file.path()).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("truncated") || text.contains("ends within its header"),
                "{cut}: {text}"
            );
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read("no/such/file").unwrap_err();
        assert!(
            error.kind() == ErrorKind::Io && error.to_string().contains("no/such/file"),
            "{error}"
        );
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn tempfile(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }
}
