//! Damaged and hostile files: each is one error that has all of it, and none takes memory or time
//! out of proportion.

mod gguf;
mod pickles;

use std::{
    collections::BTreeMap,
    fs,
    io::{Cursor, Write},
    path::Path,
};

use halite_core::{ErrorKind, HostArray};
use halite_weights::{SafetensorsWriter, TensorInfo, TensorSource, fuzz, npy, open, open_bytes};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// The error of a file, which names it.
#[track_caller]
fn error_of(bytes: Vec<u8>) -> (ErrorKind, String) {
    let error = open_bytes(bytes, "hostile")
        .map(drop)
        .expect_err("it is refused");
    let text = error.to_string();
    assert!(text.starts_with("weights: hostile: "), "{text}");
    (error.kind(), text["weights: hostile: ".len()..].to_owned())
}

#[track_caller]
fn check(bytes: Vec<u8>, expected: &str) {
    assert_eq!(error_of(bytes).1, expected);
}

fn safetensors(header: &str, data: usize) -> Vec<u8> {
    [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        &vec![0; data],
    ]
    .concat()
}

#[test]
fn all_problems_of_a_header_are_listed() {
    let header = r#"{
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
        "big": {"dtype": "U8", "shape": [1152921504606846976], "data_offsets": [16, 1152921504606846992]},
        "lies": {"dtype": "F32", "shape": [3], "data_offsets": [16, 20]},
        "huge": {"dtype": "F64", "shape": [9223372036854775807, 2], "data_offsets": [16, 20]},
        "four": {"dtype": "F4", "shape": [2], "data_offsets": [16, 17]},
        "over": {"dtype": "U8", "shape": [4], "data_offsets": [12, 16]}
    }"#;
    let (kind, text) = error_of(safetensors(header, 20));
    assert_eq!(kind, ErrorKind::Corrupt);
    assert_eq!(
        text.split("; ").collect::<Vec<_>>(),
        [
            "`big` ends at byte 1152921504606846992, the file has 20 for tensors: it is truncated",
            "`lies` is f32[3] and has bytes 16 to 20, it needs 12",
            "`huge`: f64[9223372036854775807, 2] is larger than this machine's address space",
            "`four` has elements of type F4, which halite does not have",
            "`over` overlaps `a`",
            "bytes 16 to 20 behind the tensors belong to no tensor",
        ]
    );
}

#[test]
fn damaged_safetensors_are_refused() {
    let one = |shape: &str, offsets: &str| {
        format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    check(
        safetensors(&one("[2]", "[0,8]"), 4),
        "`a` ends at byte 8, the file has 4 for tensors: it is truncated; bytes 0 to 4 behind the \
         tensors belong to no tensor",
    );
    check(
        safetensors(&one("[2]", "[4,12]"), 12),
        "bytes 0 to 4 before `a` belong to no tensor",
    );
    let twice = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    check(safetensors(twice, 2), "2 tensors have the name `a`");
    let (_, text) = error_of(safetensors(&one("[-1]", "[0,8]"), 8));
    assert!(text.contains("its header cannot be read"), "{text}");
    let mut long = safetensors("{}", 0);
    long[..8].copy_from_slice(&9u64.to_le_bytes());
    check(
        long,
        "its header has 9 bytes, more than the file has or the format allows",
    );
}

#[test]
fn metadata_of_null_is_none() {
    let header = r#"{"__metadata__":null,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let file = open_bytes(safetensors(header, 1), "null").unwrap();
    assert!(file.metadata().is_empty());
    assert_eq!(file.tensors().len(), 1);
}

#[test]
fn files_of_no_known_format_are_refused() {
    let (kind, text) = error_of(b"<!DOCTYPE html><html>".to_vec());
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(
        text.starts_with("it starts with the bytes [3c, 21, 44"),
        "{text}"
    );
    assert!(error_of(Vec::new()).1.starts_with("the file is empty"));
}

fn archive(entries: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in entries {
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn headers_that_grow_are_refused() {
    let shape = "0,".repeat(20_000);
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape})}}");
    let length = (header.len() as u16).to_le_bytes();
    let array = [b"\x93NUMPY\x01\0", &length[..], header.as_bytes()].concat();
    let (_, text) = error_of(archive(&[("a.npy", &array)], CompressionMethod::Deflated));
    assert!(text.starts_with("`a`: the header is"), "{text}");

    let shape = "1,".repeat(64);
    let header =
        format!(r#"{{"a": {{"dtype": "U8", "shape": [{shape}1], "data_offsets": [0, 1]}}}}"#);
    check(
        safetensors(&header, 0),
        "`a` has 65 dimensions, more than 64",
    );

    // A list of bytes, each of which takes a value of 32 bytes.
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(b"a\x09\0\0\0\0\0\0\0");
    bytes.extend((16u64 << 20).to_le_bytes());
    bytes.resize(bytes.len() + (16 << 20), 0);
    check(
        bytes,
        "its header needs more than 268435456 bytes of memory",
    );
}

#[test]
fn arrays_of_2_to_the_60_bytes_are_refused() {
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1152921504606846976,)}";
    let length = (header.len() as u16).to_le_bytes();
    let array = [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), &[0; 8]].concat();
    let expected = "is u8[1152921504606846976] and has 8 bytes, it needs 1152921504606846976";
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let (_, text) = error_of(archive(&[("a.npy", &array)], method));
        assert!(text.contains(expected), "{text}");
    }
}

/// The strides of an array in column-major order are beyond the machine's integers.
#[test]
fn empty_column_major_arrays_are_read() {
    let shape = "0, 4611686018427387904, 4611686018427387904";
    let header = format!("{{'descr': '<f4', 'fortran_order': True, 'shape': ({shape})}}");
    let length = (header.len() as u16).to_le_bytes();
    let array = [b"\x93NUMPY\x01\0", &length[..], header.as_bytes()].concat();
    let file = open_bytes(array, "empty.npy").unwrap();
    file.read_elements(0, 0..0, &mut []).unwrap();
}

#[test]
fn names_do_not_reach_the_terminal_raw() {
    let header = r#"{"\u001b[31m": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}"#;
    let (_, text) = error_of(safetensors(header, 1));
    assert!(
        text.starts_with(r"`\u{1b}[31m` has elements of type F4"),
        "{text}"
    );
}

#[test]
fn truncated_files_are_refused_at_any_length() {
    let golden = |name: &str| {
        fs::read(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/golden")
                .join(name),
        )
        .unwrap()
    };
    for name in [
        "resnet.pth",
        "resnet_legacy.pth",
        "resnet.safetensors",
        "arrays.npz",
        "blocks.gguf",
    ] {
        let mut whole = golden(name);
        if name == "blocks.gguf" {
            // Behind the last tensor is padding.
            whole.truncate(whole.len() - 32);
        }
        for len in (0..whole.len()).step_by(whole.len() / 300 + 1) {
            let opened = open_bytes(whole[..len].to_vec(), "truncated");
            assert!(opened.is_err(), "{name} of {len} bytes");
        }
    }
}

#[test]
fn inflating_more_than_deflate_can_is_refused() {
    let array = npy::write(&HostArray::from_slice(&[0.0f32; 1 << 16], [1 << 16]).unwrap());
    let mut bytes = archive(&[("a.npy", &array)], CompressionMethod::Deflated);
    assert!(
        open_bytes(bytes.clone(), "small")
            .unwrap()
            .read("a")
            .is_ok()
    );
    // The central directory says 4 GB.
    let central = bytes
        .windows(4)
        .rposition(|window| window == b"PK\x01\x02")
        .unwrap();
    bytes[central + 24..central + 28].copy_from_slice(&0xffff_fff0u32.to_le_bytes());
    let (_, text) = error_of(bytes);
    assert!(text.contains("inflate to 4294967280"), "{text}");
}

#[test]
fn headers_that_lie_about_an_entry_are_refused() {
    let mut array = npy::write(&HostArray::from_slice(&[0.0f32; 4], [4]).unwrap());
    let at = array
        .windows(4)
        .position(|window| window == b"(4, ")
        .unwrap();
    array[at + 1] = b'9';
    let (_, text) = error_of(archive(
        &[("a.npy", &array), ("b.txt", b"")],
        CompressionMethod::Stored,
    ));
    assert_eq!(
        text,
        "`a` is f32[9] and has 16 bytes, it needs 36; `b.txt` is not a `.npy` file"
    );
}

/// Writes a file of the scalar `a`, and returns its value.
fn write_scalar(path: &Path) -> HostArray {
    let array = HostArray::scalar(1.0f32);
    let infos = [TensorInfo {
        name: "a".into(),
        ty: array.ty().clone(),
    }];
    let mut writer = SafetensorsWriter::create(path, &infos, &BTreeMap::new()).unwrap();
    writer.write(&array).unwrap();
    writer.finish().unwrap();
    array
}

#[test]
fn directory_with_two_formats_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let array = write_scalar(&dir.path().join("model.safetensors"));
    assert_eq!(open(dir.path()).unwrap().read("a").unwrap(), array);
    fs::write(dir.path().join("pytorch_model.bin"), "").unwrap();
    let error = open(dir.path()).unwrap_err().to_string();
    assert!(
        error.ends_with("in several formats (model.safetensors, pytorch_model.bin); open one of them by its path"),
        "{error}"
    );
}

#[test]
fn index_that_contradicts_its_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_scalar(&dir.path().join("one.safetensors"));
    let index = r#"{"weight_map": {"b": "one.safetensors", "c": "../x.safetensors", "d": "two.safetensors"}}"#;
    fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
    let error = open(dir.path()).unwrap_err().to_string();
    for part in [
        "`../x.safetensors` is not the name of a file beside it",
        "`b` is not in `one.safetensors`",
        "`a` is in `one.safetensors`, the index does not say so",
        "two.safetensors",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn unfinished_files_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    fs::write(&path, "old").unwrap();
    let ty = HostArray::scalar(1.0f32).ty().clone();
    let infos = ["a", "b"].map(|name| TensorInfo {
        name: name.into(),
        ty: ty.clone(),
    });
    let mut writer = SafetensorsWriter::create(&path, &infos, &BTreeMap::new()).unwrap();
    writer.write(&HostArray::scalar(1.0f32)).unwrap();
    assert!(writer.write(&HostArray::scalar(1i32)).is_err());
    assert!(writer.finish().is_err());
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// Every format, with bytes changed at random: an error or tensors, never a panic. The targets of
/// `tests/tests/house/fuzz.rs` do more.
#[test]
fn changed_bytes_are_survived() {
    let seeds = [
        fuzz::safetensors_seeds(),
        fuzz::torch_seeds(),
        fuzz::gguf_seeds(),
    ];
    let mut state = 20_261_126u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    let mut accepted = 0;
    for seed in seeds.concat() {
        assert!(fuzz::file(&seed), "a seed is refused");
        for _ in 0..2_000 {
            let mut bytes = seed.clone();
            for _ in 0..1 + random(3) {
                let at = random(bytes.len());
                bytes[at] = match random(3) {
                    0 => random(256) as u8,
                    1 => [0, 1, 0x7f, 0x80, 0xff][random(5)],
                    _ => bytes[at] ^ 1 << random(8),
                };
            }
            accepted += usize::from(fuzz::file(&bytes));
        }
    }
    assert!(accepted > 0);
    for seed in fuzz::pickle_seeds() {
        assert!(fuzz::pickle(&seed), "a seed is refused");
        for _ in 0..20_000 {
            let mut bytes = seed.clone();
            for _ in 0..1 + random(3) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            fuzz::pickle(&bytes);
        }
    }
}
