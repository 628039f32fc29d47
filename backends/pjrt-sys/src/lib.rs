//! The PJRT C API as Rust types: layouts and sizes, no logic.
#![forbid(unsafe_code)]
