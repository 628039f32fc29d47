//! `.npz` archives of NumPy, whose entries are `.npy` files, and single `.npy` files.

use std::io::BufReader;

use halite_core::{ErrorKind, Result, TensorType};

use crate::{
    Format, TensorInfo, WeightFile,
    archive::Archive,
    input::Input,
    npy::{self, Described},
    place::{Order, Place},
    problems::Problems,
};

/// Reads the headers of an archive's arrays.
pub(crate) fn open_npz(archive: &Archive) -> Result<WeightFile> {
    let origin = archive.input.origin();
    let (mut problems, mut refused) = (Problems::default(), Problems::default());
    let (mut tensors, mut entries) = (Vec::new(), Vec::new());
    for (entry_name, &entry) in &archive.entries {
        let Some(name) = entry_name.strip_suffix(".npy") else {
            problems.push(format!("`{entry_name}` is not a `.npy` file"));
            continue;
        };
        let read = npy::describe(BufReader::new(archive.reader(entry)), None);
        let checked = read.and_then(|described| Ok((described.ty.checked_bytes()?, described)));
        match checked {
            Ok((bytes, described)) if (described.data + bytes) as u64 != entry.size => {
                problems.push(format!(
                    "`{name}` is {} and has {} bytes, it needs {bytes}",
                    described.ty,
                    entry.size.saturating_sub(described.data as u64),
                ));
            }
            Ok((
                _,
                Described {
                    ty,
                    column_major,
                    data,
                },
            )) => {
                let place = archive.place(entry, data as u64, order(&ty, column_major));
                let name = name.to_owned();
                tensors.push((TensorInfo { name, ty }, place));
                entries.push(entry);
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                refused.push(format!("`{name}`: {}", error.message()));
            }
            Err(error) => problems.push(format!("`{name}`: {}", error.message())),
        }
    }
    problems.into_result(ErrorKind::Corrupt, origin)?;
    refused.into_result(ErrorKind::Unsupported, origin)?;
    let mut file = WeightFile::new(Format::Npz, origin, tensors)?;
    file.checked_when_read(entries);
    Ok(file)
}

/// Reads the header of a single array, whose name is that of the file without its ending.
pub(crate) fn open_npy(input: Input) -> Result<WeightFile> {
    let origin = input.origin().to_owned();
    let mut problems = Problems::default();
    let Described {
        ty,
        column_major,
        data,
    } = npy::describe(BufReader::new(input.reader()), None)
        .map_err(|error| error.with_note(&origin))?;
    let held = input.len() - data as u64;
    match ty.checked_bytes() {
        Ok(bytes) if bytes as u64 == held => {}
        Ok(bytes) => problems.push(format!("{held} bytes of data, {ty} needs {bytes}")),
        Err(error) => problems.push(error.message()),
    }
    problems.into_result(ErrorKind::Corrupt, &origin)?;
    let stem = std::path::Path::new(&origin).file_stem();
    let name = stem.unwrap_or_default().to_string_lossy().into_owned();
    let order = order(&ty, column_major);
    let place = Place {
        input,
        offset: data as u64,
        order,
        deflated: None,
    };
    WeightFile::new(Format::Npz, &origin, vec![(TensorInfo { name, ty }, place)])
}

fn order(ty: &TensorType, column_major: bool) -> Order {
    // Both orders are the same for vectors and empty arrays.
    let long = ty.dims().iter().filter(|&&dim| dim != 1).count();
    if !column_major || long < 2 || ty.dims().contains(&0) {
        return Order::RowMajor;
    }
    let mut stride = 1;
    let strides = ty.dims().iter().map(|&dim| {
        let this = stride;
        stride *= dim;
        this
    });
    Order::Strided(strides.collect())
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use halite_core::HostArray;
    use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

    use crate::{TensorSource, npy, open_bytes};

    #[test]
    fn entries_with_another_checksum_are_damaged() {
        let array = HostArray::from_slice(&[1.0f32, 2.0, 3.0], [3]).unwrap();
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
            for name in ["a.npy", "b.npy"] {
                let options = SimpleFileOptions::default().compression_method(method);
                zip.start_file(name, options).unwrap();
                zip.write_all(&npy::write(&array)).unwrap();
            }
            let whole = zip.finish().unwrap().into_inner();
            let file = open_bytes(whole.clone(), "whole").unwrap();
            for _ in 0..2 {
                assert_eq!(file.read("b").unwrap(), array);
            }
            // A bit of the checksum of the first entry in the directory.
            let mut damaged = whole;
            let directory = damaged
                .windows(4)
                .position(|bytes| bytes == b"PK\x01\x02")
                .unwrap();
            damaged[directory + 16] ^= 1;
            let file = open_bytes(damaged, "damaged").unwrap();
            assert_eq!(file.read("b").unwrap(), array);
            let error = file.read("a").unwrap_err().to_string();
            assert!(
                error.contains("`a` is damaged: the archive has another checksum"),
                "{error}"
            );
        }
    }
}
