//! GGUF files.

use halite_core::ErrorKind;

use crate::hostile::{check, error_of};

/// A header with these tensors: name, dimensions in the order of the file, type, offset; then `data`
/// bytes.
fn gguf(tensors: &[(&str, &[u64], u32, u64)], data: usize) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    for (name, dims, kind, offset) in tensors {
        bytes.extend((name.len() as u64).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(32) + data, 0);
    bytes
}

#[test]
fn all_problems_of_tensors_are_listed() {
    const F32: u32 = 0;
    const Q8_0: u32 = 8;
    let (kind, text) = error_of(gguf(
        &[
            ("a", &[8], F32, 0),
            ("over", &[4], F32, 16),
            ("beyond", &[4], F32, 64),
            ("far", &[1], F32, u64::MAX),
            ("big", &[1 << 60], F32, 0),
            ("huge", &[1 << 62, 1 << 62], F32, 0),
            ("odd", &[33], Q8_0, 0),
        ],
        64,
    ));
    assert_eq!(kind, ErrorKind::Corrupt);
    let problems: Vec<&str> = text.split("; ").collect();
    assert_eq!(problems.len(), 6, "{text}");
    for (problem, part) in problems.iter().zip([
        "`beyond` has 16 bytes at 64, the file has 64 for tensors",
        "`far` has 4 bytes at 18446744073709551615",
        "`big` has 4611686018427387904 bytes at 0",
        "`huge`: f32[4611686018427387904, 4611686018427387904] is larger than",
        "`odd`",
        "`over` overlaps `a`",
    ]) {
        assert!(problem.starts_with(part), "{part}: {text}");
    }
}

#[test]
fn unknown_blocks_are_all_named() {
    let (kind, text) = error_of(gguf(&[("a", &[256], 6, 0), ("b", &[256], 16, 0)], 0));
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(
        text.starts_with("`a` is Q5_0;") && text.contains("`b` is type 16;"),
        "{text}"
    );
}

#[test]
fn counts_beyond_the_file_are_refused() {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(u64::MAX.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    check(bytes, "18446744073709551615 tensors in 8 bytes");
}
