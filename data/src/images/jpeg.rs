//! JPEG files.

use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

use super::{Limits, MAX_SIDE, Pixels};

/// The first bytes of a file.
pub(super) const MAGIC: [u8; 3] = [0xff, 0xd8, 0xff];

/// A block of 8x8 pixels has at least one bit.
const PIXELS_PER_BYTE: usize = 8 * 64;

/// Passes over a progressive image; files of common encoders have about ten.
const MAX_SCANS: usize = 64;

/// Decodes a file; returns its pixels and its EXIF metadata.
pub(super) fn decode(bytes: &[u8], limits: Limits) -> Result<(Pixels, Option<Vec<u8>>), String> {
    let failed = |error| format!("damaged JPEG: {error:?}");
    let options = DecoderOptions::new_safe()
        .set_strict_mode(true)
        .set_max_width(MAX_SIDE)
        .set_max_height(MAX_SIDE)
        .jpeg_set_max_scans(MAX_SCANS)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(failed)?;
    let info = decoder.info().ok_or("damaged JPEG: no header")?;
    let (width, height) = (usize::from(info.width), usize::from(info.height));
    limits.check(width, height, PIXELS_PER_BYTE)?;
    let mut pixels = vec![0; width * height * 3];
    if decoder.output_buffer_size() != Some(pixels.len()) {
        return Err("a JPEG of colors that do not become RGB".into());
    }
    decoder.decode_into(&mut pixels).map_err(failed)?;
    let exif = decoder.exif().cloned();
    let pixels = Pixels {
        height,
        width,
        bytes: pixels,
    };
    Ok((pixels, exif))
}
