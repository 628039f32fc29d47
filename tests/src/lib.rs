//! Cross-crate tests: conformance, golden values, end to end. This is what the tests share.
#![forbid(unsafe_code)]

#[cfg(unix)]
pub mod corrupt;
pub mod differences;
pub mod eval;
pub mod fuzz;
pub mod golden;
#[cfg(unix)]
pub mod kill;
#[cfg(unix)]
pub mod process;
pub mod random;
#[cfg(unix)]
pub mod runs;
#[cfg(target_os = "linux")]
pub mod soak;
