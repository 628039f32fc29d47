//! Cross-crate tests: conformance, golden values, end to end.
#![forbid(unsafe_code)]
