//! Text of programs and optimizers, without parts that differ between equal runs.

use sha2::{Digest, Sha256};

/// Returns the version of halite, and a digest of a program without its source locations.
pub(super) fn digest_of_program(code: &[u8]) -> String {
    let digest = Sha256::digest(without_locations(&String::from_utf8_lossy(code)));
    let digest = halite_core::hex(&digest);
    format!("{} sha256 {digest}", env!("CARGO_PKG_VERSION"))
}

/// Returns the version of halite in a digest of a program.
pub(super) fn version_of(digest: &str) -> &str {
    digest.split(' ').next().unwrap_or_default()
}

/// Removes ` loc(..)` and lines such as `#loc3 = ..` from MLIR text.
pub(super) fn without_locations(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !line.starts_with("#loc")) {
        let mut parts = line.split(" loc(");
        clean += parts.next().unwrap_or_default();
        for part in parts {
            // A location is a name such as `#loc3`, or a string.
            let end = match part.strip_prefix('"') {
                Some(string) => string.find("\")").map(|end| end + 3),
                None => part.find(')').map(|end| end + 1),
            };
            clean += &part[end.unwrap_or(part.len())..];
        }
        clean.push('\n');
    }
    clean
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

/// Returns the lines of two pretty `Debug` texts that differ; all of them if the structures differ.
pub(super) fn lines_that_differ(saved: &str, given: &str) -> (String, String) {
    let lines = |text: &str| {
        text.lines()
            .map(|line| line.trim().trim_end_matches(',').to_string())
            .collect::<Vec<_>>()
    };
    let (saved, given) = (lines(saved), lines(given));
    if saved.len() != given.len() {
        return (saved.join(" "), given.join(" "));
    }
    let (saved, given): (Vec<_>, Vec<_>) = saved
        .into_iter()
        .zip(given)
        .filter(|(then, now)| then != now)
        .unzip();
    (saved.join(", "), given.join(", "))
}
