//! Fuzzing of the reader of libraries, with the smallest ones that it accepts.

use std::path::Path;

use object::elf;

use super::elf::{Dynamic, directories};

/// Reads any bytes as a library; returns whether they are one.
pub(crate) fn library_needs(data: &[u8]) -> bool {
    let Ok(dynamic) = Dynamic::read(data) else {
        return false;
    };
    for path in [&dynamic.runpath, &dynamic.rpath].into_iter().flatten() {
        assert!(
            !directories(path, Path::new("/origin")).is_empty(),
            "{path}"
        );
    }
    true
}

/// Libraries with and without needs.
pub(crate) fn library_needs_seeds() -> Vec<Vec<u8>> {
    vec![
        library(&[]),
        library(&[(elf::DT_NEEDED, "libc.so.6")]),
        library(&[
            (elf::DT_NEEDED, "libmpi.so.12"),
            (elf::DT_NEEDED, "libm.so.6"),
            (elf::DT_RUNPATH, "$ORIGIN/../lib:/opt/${LIB}"),
        ]),
        library(&[(elf::DT_NEEDED, "liba.so"), (elf::DT_RPATH, "${ORIGIN}:")]),
    ]
}

/// Returns a library for this machine's architecture with a dynamic section of these strings alone.
pub(super) fn library(strings: &[(i64, &str)]) -> Vec<u8> {
    const DYNAMIC: u64 = 64 + 2 * 56;

    let mut names = vec![0];
    let mut entries: Vec<[u64; 2]> = Vec::new();
    for (tag, text) in strings {
        entries.push([*tag as u64, names.len() as u64]);
        names.extend(text.bytes().chain([0]));
    }
    let length = (entries.len() as u64 + 3) * 16;
    let end = DYNAMIC + length + names.len() as u64;
    entries.push([elf::DT_STRTAB as u64, DYNAMIC + length]);
    entries.push([elf::DT_STRSZ as u64, names.len() as u64]);
    entries.push([0, 0]);

    let machine = super::elf::this_machine().unwrap_or_default();
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [elf::ET_DYN, machine] {
        bytes.extend(half.to_le_bytes());
    }
    bytes.extend(1_u32.to_le_bytes());
    for word in [0, 64, 0_u64] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(0_u32.to_le_bytes());
    for half in [64, 56, 2, 64, 0, 0_u16] {
        bytes.extend(half.to_le_bytes());
    }
    for (kind, start, size) in [(elf::PT_LOAD, 0, end), (elf::PT_DYNAMIC, DYNAMIC, length)] {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(4_u32.to_le_bytes());
        for word in [start, start, start, size, size, 8] {
            bytes.extend(word.to_le_bytes());
        }
    }
    for word in entries.into_iter().flatten() {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(names);
    bytes
}
