//! Numbers and bytes as text, and the distance between texts.

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

/// Number of characters to insert, remove or replace to get from one text to the other: messages
/// name the nearest of what there is.
///
/// ```
/// assert_eq!(halite_core::edit_distance("weight", "wieght"), 2);
/// ```
pub fn edit_distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, from) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, to) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
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
