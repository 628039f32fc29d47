//! Cross-crate tests: conformance, golden values, end to end. This is what the tests share.
#![forbid(unsafe_code)]

pub mod differences;
pub mod eval;
pub mod golden;
