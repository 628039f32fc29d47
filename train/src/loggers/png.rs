//! Pictures as PNG files, without compression.

use halite_core::{Error, Result};

/// Most bytes of a stored block of a zlib stream.
const BLOCK: usize = 0xffff;

/// Encodes `pixels`, `[height][width][channels]`.
///
/// # Errors
/// If their number does not fit the dimensions, or there are not 1, 3 or 4 channels.
pub(super) fn encode(pixels: &[u8], size: [u32; 3]) -> Result<Vec<u8>> {
    let [height, width, channels] = size;
    let color = match channels {
        1 => 0,
        3 => 2,
        4 => 6,
        _ => {
            let message = format!("a picture has 1, 3 or 4 channels, not {channels}");
            return Err(Error::invalid("image", message));
        }
    };
    let row = width as usize * channels as usize;
    if height == 0 || row == 0 || row.checked_mul(height as usize) != Some(pixels.len()) {
        let message = format!(
            "{} bytes given, a picture of u8[{height}, {width}, {channels}] has another number, at \
             least 1",
            pixels.len()
        );
        return Err(Error::invalid("image", message));
    }
    // Before each row stands the number of its filter: none.
    let rows: Vec<u8> = pixels
        .chunks(row)
        .flat_map(|row| [&[0], row].concat())
        .collect();
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, color, 0, 0, 0]);
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, data) in [
        (b"IHDR", header),
        (b"IDAT", zlib(&rows)),
        (b"IEND", Vec::new()),
    ] {
        let length = u32::try_from(data.len());
        let length = length.map_err(|_| Error::invalid("image", "a picture of 4 GiB or more"))?;
        let start = png.len() + 4;
        png.extend(length.to_be_bytes());
        png.extend_from_slice(name);
        png.extend(data);
        png.extend(crc32(&png[start..]).to_be_bytes());
    }
    Ok(png)
}

/// A zlib stream of stored blocks.
fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let blocks = bytes.len().div_ceil(BLOCK);
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        let length = block.len() as u16;
        stream.push(u8::from(index + 1 == blocks));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend_from_slice(block);
    }
    stream.extend(adler32(bytes).to_be_bytes());
    stream
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (1u32, 0u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65521;
        high = (high + low) % 65521;
    }
    high << 16 | low
}

/// CRC-32 of ISO 3309.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 * (crc & 1))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_have_their_published_values() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    #[test]
    fn pixels_that_do_not_fit_are_refused() {
        let error = encode(&[0; 5], [2, 3, 1]).unwrap_err().to_string();
        let expected = "image: 5 bytes given, a picture of u8[2, 3, 1] has another number";
        assert!(error.starts_with(expected), "{error}");
        assert!(encode(&[], [0, 0, 1]).is_err() && encode(&[0; 2], [1, 1, 2]).is_err());
    }
}
