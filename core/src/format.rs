//! Numbers and bytes as text.

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

/// Formats a count with its digits grouped by thousands.
///
/// ```
/// assert_eq!(halite_core::format_count(1_234_567), "1,234,567");
/// ```
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!(
            [0, 999, 1000, 60_000, 1_234_567].map(format_count),
            ["0", "999", "1,000", "60,000", "1,234,567"]
        );
    }
}
