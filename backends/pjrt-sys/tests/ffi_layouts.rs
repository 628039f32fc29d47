//! Compares the structs of XLA's FFI with the layouts that a C compiler gives to the header of API
//! 0.3 (`xla/ffi/api/c_api.h` of jaxlib 0.10.2), on targets with 64-bit pointers.

#![cfg(target_pointer_width = "64")]

use halite_pjrt_sys::ffi::FFI_LAYOUTS;

/// Offsets of the fields of each struct, without the size and list of extensions at its start.
const EXPECTED: &[(&str, &[(&str, usize)])] = &[
    ("XLA_FFI_Extension_Base", &[("r#type", 8), ("next", 16)]),
    (
        "XLA_FFI_Api_Version",
        &[("major_version", 16), ("minor_version", 20)],
    ),
    ("XLA_FFI_Metadata", &[("api_version", 8), ("traits", 32)]),
    (
        "XLA_FFI_Metadata_Extension",
        &[("extension_base", 0), ("metadata", 24)],
    ),
    (
        "XLA_FFI_Api",
        &[
            ("api_version", 16),
            ("internal_api", 40),
            ("error_create", 48),
        ],
    ),
    (
        "XLA_FFI_Error_Create_Args",
        &[("message", 16), ("errc", 24)],
    ),
    (
        "XLA_FFI_Buffer",
        &[("dtype", 16), ("data", 24), ("rank", 32), ("dims", 40)],
    ),
    ("XLA_FFI_ByteSpan", &[("ptr", 0), ("len", 8)]),
    ("XLA_FFI_Scalar", &[("dtype", 0), ("value", 8)]),
    ("XLA_FFI_Args", &[("size", 16), ("types", 24), ("args", 32)]),
    ("XLA_FFI_Rets", &[("size", 16), ("types", 24), ("rets", 32)]),
    (
        "XLA_FFI_Attrs",
        &[("size", 16), ("types", 24), ("names", 32), ("attrs", 40)],
    ),
    (
        "XLA_FFI_CallFrame",
        &[
            ("api", 16),
            ("ctx", 24),
            ("stage", 32),
            ("args", 40),
            ("rets", 80),
            ("attrs", 120),
        ],
    ),
];

#[test]
fn offsets_match_the_real_header() {
    let found: Vec<(&str, Vec<(&str, usize)>)> = FFI_LAYOUTS
        .iter()
        .map(|layout| {
            let fields = (layout.fields.iter())
                .filter(|field| !["struct_size", "extension_start"].contains(&field.name))
                .map(|field| (field.name, field.offset));
            (layout.name, fields.collect())
        })
        .collect();
    let expected: Vec<_> = (EXPECTED.iter())
        .map(|(name, fields)| (*name, fields.to_vec()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn frame_ends_with_its_attributes() {
    let frame = FFI_LAYOUTS.last().unwrap();
    assert_eq!((frame.name, frame.end_at(0)), ("XLA_FFI_CallFrame", 168));
}
