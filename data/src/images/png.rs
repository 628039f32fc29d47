//! PNG files.

use std::io::Cursor;

use ::png::{ColorType, Decoder, Limits as Memory, Transformations};

use super::{Limits, Pixels};

/// The first bytes of a file.
pub(super) const MAGIC: [u8; 8] = [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'];

/// A byte is decompressed to at most 1,032, each of at most eight pixels.
const PIXELS_PER_BYTE: usize = 8 * 1032;

/// Memory of the decoder besides the image: rows, tables and metadata.
const WORK: usize = 64 << 20;

/// Decodes a file; returns its pixels and its EXIF metadata.
pub(super) fn decode(bytes: &[u8], limits: Limits) -> Result<(Pixels, Option<Vec<u8>>), String> {
    let failed = |error: ::png::DecodingError| format!("damaged PNG: {error}");
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Memory { bytes: WORK });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    // Palettes and 1 to 4 bits become 8 bits, of 16 bits the upper 8 stay.
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let header = decoder.read_header_info().map_err(failed)?;
    let (width, height) = (header.width as usize, header.height as usize);
    limits.check(width, height, PIXELS_PER_BYTE)?;
    let mut reader = decoder.read_info().map_err(failed)?;
    let channels = match reader.output_color_type().0 {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb => 3,
        ColorType::Rgba => 4,
        ColorType::Indexed => return Err("damaged PNG: a palette image without palette".into()),
    };
    let mut samples = vec![0; width * height * channels];
    reader.next_frame(&mut samples).map_err(failed)?;
    let exif = reader.info().exif_metadata.as_deref().map(<[u8]>::to_vec);
    let bytes = match channels {
        3 => samples,
        _ => rgb(&samples, channels),
    };
    let pixels = Pixels {
        height,
        width,
        bytes,
    };
    Ok((pixels, exif))
}

/// Drops alpha, and repeats gray.
fn rgb(samples: &[u8], channels: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(samples.len() / channels * 3);
    for pixel in samples.chunks_exact(channels) {
        match *pixel {
            [red, green, blue, _alpha] => bytes.extend([red, green, blue]),
            [gray, ..] => bytes.extend([gray; 3]),
            [] => {}
        }
    }
    bytes
}
