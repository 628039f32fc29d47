//! PNG files.

use std::io::{Cursor, Read};

use ::png::{ColorType, DecodeOptions, Decoder, Limits as Memory, Transformations};
use flate2::bufread::ZlibDecoder;

use super::{Limits, Pixels};

/// The first bytes of a file.
pub(super) const MAGIC: [u8; 8] = [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'];

/// A byte is decompressed to at most 1,032, each of at most eight pixels.
const PIXELS_PER_BYTE: usize = 8 * 1032;

/// Memory of the decoder besides the image: rows, tables and metadata.
const WORK: usize = 64 << 20;

/// Color type, in the header, of an image whose pixels are indices of a palette.
const INDEXED: u8 = 3;

/// Most bytes of a text that is decompressed.
const LONGEST_TEXT: u64 = 1 << 20;

/// Decodes a file; returns its pixels and its EXIF metadata.
pub(super) fn decode(bytes: &[u8], limits: Limits) -> Result<(Pixels, Option<Vec<u8>>), String> {
    let failed = |error: ::png::DecodingError| format!("damaged PNG: {error}");
    // The decoder takes a color that is not whole for granted.
    let palette =
        chunks(bytes).find(|chunk| chunk.kind == b"PLTE" && bytes.get(25) == Some(&INDEXED));
    if let Some(palette) = palette.filter(|palette| palette.content.len() % 3 != 0) {
        let length = palette.content.len();
        return Err(format!(
            "damaged PNG: a palette of {length} bytes; a color has 3"
        ));
    }
    let mut options = DecodeOptions::default();
    options.set_ignore_adler32(false);
    let mut decoder = Decoder::new_with_options(Cursor::new(bytes), options);
    decoder.set_limits(Memory { bytes: WORK });
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
    // The checksum of the pixels is behind them, and a file that is cut off has no end.
    reader.finish().map_err(failed)?;
    let pixels = Pixels {
        height,
        width,
        bytes: match channels {
            3 => samples,
            _ => rgb(&samples, channels),
        },
    };
    Ok((pixels, exif(bytes)))
}

/// A chunk of a file.
struct Chunk<'a> {
    kind: &'a [u8],
    content: &'a [u8],
}

/// The chunks of a file, up to one that is cut off.
fn chunks(bytes: &[u8]) -> impl Iterator<Item = Chunk<'_>> {
    let mut rest = bytes.get(MAGIC.len()..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (kind, after) = after.split_at_checked(4)?;
        let (content, after) = after.split_at_checked(length)?;
        // A checksum follows.
        rest = after.get(4..)?;
        Some(Chunk { kind, content })
    })
}

/// EXIF metadata, as Pillow finds them: of the chunk `eXIf`, also after the image, or of a text.
fn exif(bytes: &[u8]) -> Option<Vec<u8>> {
    let last = chunks(bytes).filter(|chunk| chunk.kind == b"eXIf").last();
    if let Some(chunk) = last {
        return Some(chunk.content.to_vec());
    }
    let text = chunks(bytes).filter_map(|chunk| profile(&chunk)).last()?;
    // An empty line, a name, a length, and digits in lines.
    let lines = std::str::from_utf8(&text).ok()?.split('\n').skip(3);
    let digits: Vec<u8> = lines
        .flat_map(str::bytes)
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let (pairs, _) = digits.as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect()
}

/// The text of a chunk that has the keyword of EXIF metadata, as ImageMagick writes them.
fn profile(chunk: &Chunk<'_>) -> Option<Vec<u8>> {
    let text = chunk.content.strip_prefix(b"Raw profile type exif\0")?;
    let inflated = |compressed: &[u8]| {
        let mut text = Vec::new();
        let mut decoder = ZlibDecoder::new(compressed).take(LONGEST_TEXT);
        decoder.read_to_end(&mut text).ok().map(|_| text)
    };
    match (chunk.kind, text) {
        (b"tEXt", text) => Some(text.to_vec()),
        (b"zTXt", [0, compressed @ ..]) => inflated(compressed),
        // Its language and translated keyword precede the text.
        (b"iTXt", [is_compressed, _, rest @ ..]) => {
            let text = rest.splitn(3, |&byte| byte == 0).nth(2)?;
            match is_compressed {
                0 => Some(text.to_vec()),
                _ => inflated(text),
            }
        }
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use ::png::{BitDepth, ColorType, Encoder};

    use super::*;

    #[test]
    fn damage_behind_the_rows_is_an_error() {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 4, 4);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        let samples: Vec<u8> = (0..48).collect();
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&samples).unwrap();
        writer.finish().unwrap();
        let decoded = |file: &[u8]| {
            let limits = Limits {
                most: 1 << 20,
                length: file.len(),
            };
            decode(file, limits).map(|(pixels, _)| pixels.bytes)
        };
        assert_eq!(decoded(&file).unwrap(), samples);
        // Without the chunk of the end.
        assert!(decoded(&file[..file.len() - 12]).is_err());
        // Another checksum of the samples, in a chunk whose own checksum is right.
        let start = file.windows(4).position(|bytes| bytes == b"IDAT").unwrap();
        let end = file.len() - 12 - 4;
        file[end - 1] ^= 1;
        let mut crc = flate2::Crc::new();
        crc.update(&file[start..end]);
        file[end..end + 4].copy_from_slice(&crc.sum().to_be_bytes());
        let error = decoded(&file).unwrap_err();
        assert!(error.contains("damaged PNG"), "{error}");
    }
}
