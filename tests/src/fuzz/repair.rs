//! Checksums of mutated files, made right again: what they protect is read then.

/// Of the chunks of a PNG file.
pub(super) fn png(bytes: &mut [u8]) {
    let mut at = 8;
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let Some(end) = at
            .checked_add(8 + length)
            .filter(|end| end + 4 <= bytes.len())
        else {
            return;
        };
        let checksum = checksum(&bytes[at + 4..end], 0xedb8_8320);
        bytes[end..end + 4].copy_from_slice(&checksum.to_be_bytes());
        at = end + 4;
    }
}

/// Of the lengths and the payloads of a file of records.
pub(super) fn records(bytes: &mut [u8]) {
    let mut at = 0;
    let masked = |bytes: &[u8]| {
        let checksum = checksum(bytes, 0x82f6_3b78);
        checksum
            .rotate_right(15)
            .wrapping_add(0xa282_ead8)
            .to_le_bytes()
    };
    while at + 12 <= bytes.len() {
        let length = bytes[at..at + 8].try_into().expect("eight bytes");
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        let checksum = masked(&bytes[at..at + 8]);
        bytes[at + 8..at + 12].copy_from_slice(&checksum);
        let Some(end) = (at + 12)
            .checked_add(length)
            .filter(|end| bytes.len() - 4 >= *end)
        else {
            return;
        };
        let checksum = masked(&bytes[at + 12..end]);
        bytes[end..end + 4].copy_from_slice(&checksum);
        at = end + 4;
    }
}

/// A cyclic redundancy check of 32 bits by its reflected polynomial.
fn checksum(bytes: &[u8], polynomial: u32) -> u32 {
    let step = |sum: u32, _: u32| (sum >> 1) ^ (polynomial & (sum & 1).wrapping_neg());
    !bytes
        .iter()
        .fold(!0, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), step))
}

#[cfg(test)]
mod tests {
    #[test]
    fn checksums_are_those_of_the_formats() {
        assert_eq!(super::checksum(b"123456789", 0xedb8_8320), 0xcbf4_3926);
        assert_eq!(super::checksum(b"123456789", 0x82f6_3b78), 0xe306_9283);
    }
}
