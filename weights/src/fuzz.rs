//! Entry points into this crate's parsers for fuzzing. Not part of the public API, and without
//! stability.
//!
//! Each function takes any bytes, returns whether they were accepted, and panics if a property does
//! not hold.

use std::io::{Cursor, Write};

use halite_core::HostArray;

use crate::{TensorSource, WeightFile, npy, open_bytes, pickle::Pickle};

/// Largest tensor that is read: more elements than any seed has.
const LARGEST: usize = 1 << 20;

/// A file of any format, whose tensors are read.
pub fn file(data: &[u8]) -> bool {
    let Ok(file) = open_bytes(data.to_vec(), "fuzz") else {
        return false;
    };
    read_all(&file);
    true
}

fn read_all(file: &WeightFile) {
    for (index, tensor) in file.tensors().iter().enumerate() {
        assert!(
            tensor.ty.checked_bytes().is_ok(),
            "{} is too large",
            tensor.ty
        );
        if tensor.ty.bytes() > LARGEST {
            continue;
        }
        let mut array = HostArray::zeros(tensor.ty.clone());
        let elements = tensor.ty.elements();
        let whole = file.read_elements(index, 0..elements, array.bytes_mut());
        if whole.is_err() || elements < 2 {
            continue;
        }
        // Parts are what the whole has.
        let (size, half) = (tensor.ty.dtype().size(), elements / 2);
        let mut part = vec![0; (elements - half) * size];
        let read = file.read_elements(index, half..elements, &mut part);
        read.expect("a part of what was read is read");
        assert_eq!(
            part,
            array.bytes()[half * size..],
            "a part of `{}`",
            tensor.name
        );
    }
}

/// safetensors files.
pub fn safetensors_seeds() -> Vec<Vec<u8>> {
    let file = |header: &str, data: &[u8]| {
        [
            &(header.len() as u64).to_le_bytes()[..],
            header.as_bytes(),
            data,
        ]
        .concat()
    };
    vec![
        file("{}", &[]),
        file(
            r#"{"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}"#,
            &[1; 9],
        ),
        file(
            r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}}"#,
            &[1; 6],
        ),
    ]
}

/// A pickle alone.
pub fn pickle(data: &[u8]) -> bool {
    Pickle::read(&mut &data[..]).is_ok()
}

/// Valid inputs of [`pickle`].
pub fn pickle_seeds() -> Vec<Vec<u8>> {
    vec![
        tensor_pickle(),
        b"\x80\x02}q\x00(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00b]q\x01(NG\0\0\0\0\0\0\0\0eu."
            .to_vec(),
    ]
}

/// What `torch.save({"w": torch.zeros(2, 3).t()})` pickles.
fn tensor_pickle() -> Vec<u8> {
    [
        &b"\x80\x02}q\x00X\x01\x00\x00\x00wq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\x00\x00\x00storageq\x03"[..],
        b"ctorch\nFloatStorage\nq\x04X\x01\x00\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06K\x06tq\x07QK\x00K\x03K\x02\x86q\x08",
        b"K\x01K\x03\x86q\x09\x89ccollections\nOrderedDict\nq\x0a)Rq\x0btq\x0cRq\x0ds.",
    ]
    .concat()
}

/// Files of `torch.save` in both forms, and archives of NumPy.
pub fn torch_seeds() -> Vec<Vec<u8>> {
    let tensor = tensor_pickle();
    let legacy = [
        crate::torch::LEGACY_MAGIC,
        b"\x80\x02M\xe9\x03.\x80\x02}q\x00X\x0d\x00\x00\x00little_endianq\x01\x88s.",
        &tensor,
        b"\x80\x02]q\x00X\x01\x00\x00\x000q\x01a.",
        &6u64.to_le_bytes(),
        &[1; 24],
    ]
    .concat();
    let array = HostArray::from_slice(&[1.0f32, 2.0], [2]).expect("as many values as elements");
    let array = npy::write(&array);
    vec![
        archive(
            &[
                ("x/data.pkl", &tensor),
                ("x/byteorder", b"little"),
                ("x/data/0", &[1; 24]),
            ],
            false,
        ),
        legacy,
        archive(&[("a.npy", &array), ("b.npy", &array)], false),
        archive(&[("a.npy", &array)], true),
    ]
}

fn archive(entries: &[(&str, &[u8])], compressed: bool) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let method = if compressed {
        zip::CompressionMethod::Deflated
    } else {
        zip::CompressionMethod::Stored
    };
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in entries {
        zip.start_file(*name, options)
            .expect("an archive in memory is written");
        zip.write_all(bytes)
            .expect("an archive in memory is written");
    }
    zip.finish()
        .expect("an archive in memory is written")
        .into_inner()
}

/// GGUF files.
pub fn gguf_seeds() -> Vec<Vec<u8>> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let header = |tensors: u64, pairs: u64| {
        [
            &b"GGUF\x03\0\0\0"[..],
            &tensors.to_le_bytes(),
            &pairs.to_le_bytes(),
        ]
        .concat()
    };
    let tensor = |name: &str, dims: &[u64], kind: u32, offset: u64| {
        let dims: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
        let rank = (dims.len() as u32 / 8).to_le_bytes();
        [
            text(name),
            rank.to_vec(),
            dims,
            kind.to_le_bytes().to_vec(),
            offset.to_le_bytes().to_vec(),
        ]
        .concat()
    };
    let file = |header: Vec<u8>, data: &[u8]| {
        let mut bytes = header;
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        [&bytes[..], data].concat()
    };
    let list = [
        text("tokens"),
        vec![9, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        text("a"),
    ]
    .concat();
    let number = [text("n"), vec![4, 0, 0, 0, 7, 0, 0, 0]].concat();
    let blocks = [
        tensor("a", &[32, 1], 2, 0),
        tensor("b", &[32], 3, 32),
        tensor("c", &[32], 8, 64),
        tensor("d", &[256], 12, 128),
        tensor("e", &[256], 14, 288),
    ];
    vec![
        file(header(0, 0), &[]),
        file(
            [header(1, 2), list, number, tensor("x", &[2], 0, 0)].concat(),
            &[1; 8],
        ),
        file([header(5, 0), blocks.concat()].concat(), &[1; 512]),
    ]
}
