//! Hexadecimal text of digests.

use std::fmt::Write as _;

/// Formats bytes as lower-case hexadecimal digits, two for each byte.
///
/// ```
/// assert_eq!(halite_core::hex(&[0x0f, 0xa0]), "0fa0");
/// ```
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a `String` does not fail");
    }
    text
}
