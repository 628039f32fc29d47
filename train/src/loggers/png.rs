//! Pictures as PNG files, without compression.

use halite_core::{Error, Result};
use png::{ColorType, Compression, Encoder};

/// Encodes `pixels`, `[height][width][channels]`.
///
/// # Errors
/// If their number does not fit the dimensions, or there are not 1, 3 or 4 channels.
pub(super) fn encode(pixels: &[u8], size: [u32; 3]) -> Result<Vec<u8>> {
    let [height, width, channels] = size;
    let color = match channels {
        1 => ColorType::Grayscale,
        3 => ColorType::Rgb,
        4 => ColorType::Rgba,
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
    let mut png = Vec::new();
    let mut encoder = Encoder::new(&mut png, width, height);
    encoder.set_color(color);
    encoder.set_compression(Compression::NoCompression);
    let written = encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(pixels));
    written.map_err(|error| Error::invalid("image", "the picture has no PNG").caused_by(error))?;
    Ok(png)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_decoded_again() {
        for channels in [1, 3, 4] {
            let pixels: Vec<u8> = (0..2 * 5 * channels as u8).map(|at| at * 5).collect();
            let file = encode(&pixels, [2, 5, channels]).unwrap();
            let mut reader = png::Decoder::new(std::io::Cursor::new(file))
                .read_info()
                .unwrap();
            let mut decoded = vec![0; reader.output_buffer_size().unwrap()];
            let info = reader.next_frame(&mut decoded).unwrap();
            assert_eq!((info.height, info.width), (2, 5));
            assert_eq!(decoded, pixels);
        }
    }

    #[test]
    fn pixels_that_do_not_fit_are_refused() {
        let error = encode(&[0; 5], [2, 3, 1]).unwrap_err().to_string();
        let expected = "image: 5 bytes given, a picture of u8[2, 3, 1] has another number";
        assert!(error.starts_with(expected), "{error}");
        assert!(encode(&[], [0, 0, 1]).is_err() && encode(&[0; 2], [1, 1, 2]).is_err());
    }
}
