//! CRC-32C, the checksum of records.

/// The checksum of `bytes`, masked: that of data which themselves end in a checksum would be a
/// constant.
pub(super) fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use crc32c::crc32c;

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        let cases: [(&[u8], u32); 6] = [
            (b"", 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (&descending, 0x113f_db5c),
        ];
        for (bytes, expected) in cases {
            assert_eq!(crc32c(bytes), expected, "{bytes:?}");
        }
    }

    /// Long inputs take other instructions than short ones.
    #[test]
    fn long_checksums_are_those_of_single_bits() {
        let bytes: Vec<u8> = (0..60_000_u32).map(|at| ((at * at) >> 5) as u8).collect();
        for length in [63, 64, 255, 768, 1000, 24_576, 25_000, 60_000] {
            let bits = bytes[..length].iter().fold(!0, |crc, byte| {
                (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                    (crc >> 1) ^ (0x82f6_3b78 * (crc & 1))
                })
            });
            assert_eq!(crc32c(&bytes[..length]), !bits, "{length} bytes");
        }
    }
}
