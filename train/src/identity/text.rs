//! Text of programs and optimizers, without parts that differ between equal runs.

use halite_core::Code;
use halite_telemetry::program_digest;

/// Returns the version of halite, and a digest of a program without its source locations.
pub(super) fn digest_of_program(code: &Code) -> String {
    let digest = program_digest(code);
    format!("{} sha256 {digest}", env!("CARGO_PKG_VERSION"))
}

/// Returns the version of halite in a digest of a program.
pub(super) fn version_of(digest: &str) -> &str {
    digest.split(' ').next().unwrap_or_default()
}

/// Replaces addresses, such as those of function pointers, which differ between processes.
pub(super) fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut clean = parts.next().unwrap_or_default().to_string();
    for part in parts {
        clean += "0x_";
        clean += part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
    }
    clean
}
