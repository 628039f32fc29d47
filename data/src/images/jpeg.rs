//! JPEG files.
//!
//! The segments before the first scan are read here: they choose the decoder. `zune-jpeg` is the
//! faster one, and decodes the files of nearly all encoders; `jpeg-decoder` decodes the others, of
//! several scans or unusual samplings, for which version 0.5.15 of the first returns other pixels.

use jpeg_decoder::{ColorTransform, PixelFormat};
use memchr::memchr;
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

/// Name of the segment of EXIF metadata.
const EXIF: &[u8] = b"Exif\0\0";

/// Decodes a file; returns its pixels and its EXIF metadata.
pub(super) fn decode(bytes: &[u8], limits: Limits) -> Result<(Pixels, Option<Vec<u8>>), String> {
    let headers = Headers::read(bytes)?;
    let frame = &headers.frame;
    limits.check(frame.width, frame.height, PIXELS_PER_BYTE)?;
    headers.check_scans(bytes)?;
    let size = frame.width * frame.height * 3;
    let bytes = if headers.is_common() {
        common(bytes, size)?
    } else {
        any(bytes, &headers, size)?
    };
    let pixels = Pixels {
        height: frame.height,
        width: frame.width,
        bytes,
    };
    Ok((pixels, headers.exif))
}

/// What the segments before the first scan say.
struct Headers {
    frame: Frame,
    /// Ids of the components in the first scan.
    scanned: Vec<u8>,
    /// Whether three components are red, green and blue.
    is_rgb: bool,
    /// Whether there are bytes between segments, or two segments disagree about the colors.
    is_odd: bool,
    /// Contents of the segments of EXIF metadata, one after the other.
    exif: Option<Vec<u8>>,
    /// Where the first scan begins.
    end: usize,
}

struct Frame {
    /// Marker of its segment: how it is coded.
    marker: u8,
    width: usize,
    height: usize,
    ids: Vec<u8>,
    /// Horizontal and vertical sampling factors of the components, 1 to 4.
    sampling: Vec<[u8; 2]>,
}

impl Headers {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let cut = || "damaged JPEG: it is cut off before its first scan".to_owned();
        let (mut frame, mut exif) = (None::<Frame>, None::<Vec<u8>>);
        let (mut is_jfif, mut is_rgb, mut is_odd) = (false, None, false);
        let mut at = 2;
        loop {
            is_odd |= bytes.get(at) != Some(&0xff);
            let marker = next_marker(bytes, &mut at).ok_or_else(cut)?;
            if marker == END {
                return Err("damaged JPEG: it ends before its first scan".into());
            }
            if is_alone(marker) {
                continue;
            }
            let segment = next_segment(bytes, &mut at).ok_or_else(cut)?;
            match marker {
                0xe0 if segment.starts_with(b"JFIF\0") => is_jfif = true,
                0xee if segment.starts_with(b"Adobe") => {
                    is_rgb = segment.get(11).map(|&transform| transform == 0);
                }
                0xe1 if segment.starts_with(EXIF) => {
                    let content = &segment[EXIF.len()..];
                    exif.get_or_insert_default().extend_from_slice(content);
                }
                // Huffman tables, an extension, and conditioning of arithmetic coding.
                0xc4 | 0xc8 | 0xcc => {}
                0xc0..=0xcf => frame = Some(Frame::read(marker, segment)?),
                SCAN => {
                    let frame = frame.ok_or("damaged JPEG: a scan before the frame")?;
                    let scanned = components_of(segment).collect();
                    let end = at;
                    let is_odd = is_odd || is_jfif && is_rgb == Some(true);
                    let is_rgb = !is_jfif && is_rgb.unwrap_or(frame.ids == *b"RGB");
                    return Ok(Headers {
                        frame,
                        scanned,
                        is_rgb,
                        is_odd,
                        exif,
                        end,
                    });
                }
                _ => {}
            }
        }
    }

    /// Checks what follows the headers: the marker of the end, without which the file is cut off, though
    /// a decoder may have all bits that it needs; and that scans of a file that is not progressive
    /// have each component once, since decoders differ in which of two they take.
    fn check_scans(&self, bytes: &[u8]) -> Result<(), String> {
        let ends = bytes.ends_with(&[0xff, END]);
        if ends && self.frame.is_progressive() {
            return Ok(());
        }
        let (mut at, mut scanned) = (self.end, self.scanned.clone());
        while let Some(marker) = next_marker(bytes, &mut at) {
            if marker == END {
                return Ok(());
            }
            if is_alone(marker) {
                continue;
            }
            let Some(segment) = next_segment(bytes, &mut at) else {
                break;
            };
            if marker == SCAN && !self.frame.is_progressive() {
                scanned.extend(components_of(segment));
                let is_twice = |(at, id): (usize, &u8)| scanned[..at].contains(id);
                if scanned.iter().enumerate().any(is_twice) {
                    return Err("damaged JPEG: two scans of one component".into());
                }
            }
        }
        if ends {
            Ok(())
        } else {
            Err("damaged JPEG: it is cut off, without the marker of its end".into())
        }
    }

    /// Whether the file is of a kind that `zune-jpeg` decodes as libjpeg does: one scan, or
    /// progressive, with chroma components of one block for 1, 2 or 4 of luma in each direction.
    fn is_common(&self) -> bool {
        let frame = &self.frame;
        let is_known = |factors: &[u8; 2]| factors.iter().all(|factor| [1, 2, 4].contains(factor));
        let is_sampling_known = match &frame.sampling[..] {
            [gray] => is_known(gray),
            [luma, [1, 1], [1, 1]] => is_known(luma),
            [luma, [1, 1], [1, 1], black] => is_known(luma) && luma == black,
            _ => false,
        };
        let is_whole = frame.is_progressive() || self.scanned.len() == frame.sampling.len();
        is_sampling_known && is_whole && !self.is_odd
    }
}

impl Frame {
    fn read(marker: u8, segment: &[u8]) -> Result<Self, String> {
        let coding = match marker {
            0xc0..=0xc2 => None,
            0xc3 => Some("lossless coding"),
            0xc5..=0xc7 => Some("hierarchical coding"),
            _ => Some("arithmetic coding"),
        };
        if let Some(coding) = coding {
            return Err(format!(
                "a JPEG with {coding}; expected a baseline or progressive one with Huffman codes"
            ));
        }
        let (&[bits, h1, h0, w1, w0, count], components) =
            (segment.split_first_chunk()).ok_or("damaged JPEG: its frame is cut off")?;
        if bits != 8 {
            return Err(format!("a JPEG of {bits} bits a channel; expected 8"));
        }
        let components = components.as_chunks::<3>().0;
        if components.len() != usize::from(count) || ![1, 3, 4].contains(&count) {
            return Err(format!("a JPEG of {count} channels; expected 1, 3 or 4"));
        }
        let sampling: Vec<[u8; 2]> = (components.iter())
            .map(|&[_, factors, _]| [factors >> 4, factors & 15])
            .collect();
        if sampling
            .iter()
            .flatten()
            .any(|factor| !(1..=4).contains(factor))
        {
            return Err("damaged JPEG: sampling factors out of range; expected 1 to 4".into());
        }
        Ok(Frame {
            marker,
            width: u16::from_be_bytes([w1, w0]).into(),
            height: u16::from_be_bytes([h1, h0]).into(),
            ids: components.iter().map(|component| component[0]).collect(),
            sampling,
        })
    }

    fn is_progressive(&self) -> bool {
        self.marker == 0xc2
    }

    /// Whether scans of single components have other numbers of blocks than `jpeg-decoder` 0.3.2
    /// reads: those of a component whose factor is neither 1 nor the largest.
    fn is_miscounted(&self) -> bool {
        let is_miscounted = |axis: usize, size: usize| {
            let factors = self
                .sampling
                .iter()
                .map(|factors| usize::from(factors[axis]));
            let largest = factors.clone().max().unwrap_or(1);
            factors.into_iter().any(|factor| {
                let blocks = (size * factor).div_ceil(8 * largest);
                blocks != (size.div_ceil(8 * largest) * factor).min(size.div_ceil(8))
            })
        };
        is_miscounted(0, self.width) || is_miscounted(1, self.height)
    }
}

/// Markers of a scan and of the end.
const SCAN: u8 = 0xda;
const END: u8 = 0xd9;

/// Whether a marker has no segment.
fn is_alone(marker: u8) -> bool {
    matches!(marker, 0x01 | 0xd0..=0xd9)
}

/// The next marker, after which `at` is; compressed data before it are skipped.
fn next_marker(bytes: &[u8], at: &mut usize) -> Option<u8> {
    loop {
        *at += memchr(0xff, bytes.get(*at..)?)?;
        *at += bytes.get(*at..)?.iter().position(|&byte| byte != 0xff)?;
        let marker = bytes[*at];
        *at += 1;
        // A byte 255 of compressed data is followed by 0.
        if marker != 0 {
            return Some(marker);
        }
    }
}

/// The content of the segment at `at`, which moves behind it.
fn next_segment<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let (&length, rest) = bytes.get(*at..)?.split_first_chunk()?;
    let length = usize::from(u16::from_be_bytes(length)).checked_sub(2)?;
    *at += 2 + length;
    rest.get(..length)
}

/// Ids of the components of a scan, given its segment.
fn components_of(segment: &[u8]) -> impl Iterator<Item = u8> {
    let (count, components) = segment.split_first().unwrap_or((&0, &[]));
    let components = components.as_chunks::<2>().0.iter();
    components.take((*count).into()).map(|&[id, _]| id)
}

/// Decodes a [common](Headers::is_common) file.
fn common(bytes: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let failed = |error| format!("damaged JPEG: {error:?}");
    let options = DecoderOptions::new_safe()
        .set_strict_mode(true)
        .set_max_width(MAX_SIDE)
        .set_max_height(MAX_SIDE)
        .jpeg_set_max_scans(MAX_SCANS)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(failed)?;
    let mut pixels = vec![0; size];
    if decoder.output_buffer_size() != Some(size) {
        return Err("a JPEG of colors that do not become RGB".into());
    }
    decoder.decode_into(&mut pixels).map_err(failed)?;
    Ok(pixels)
}

/// Decodes any other file. The crate decodes the components of larger images in threads of its own.
fn any(bytes: &[u8], headers: &Headers, size: usize) -> Result<Vec<u8>, String> {
    let frame = &headers.frame;
    let unsupported = |what: &str| {
        let of = |factors: &[u8; 2]| format!("{}x{}", factors[0], factors[1]);
        let sampling: Vec<String> = frame.sampling.iter().map(of).collect();
        let sampling = sampling.join(", ");
        format!(
            "a JPEG of {what} and sampling factors {sampling}, which is not supported; save it again"
        )
    };
    if frame.sampling.len() == 4 {
        return Err(unsupported("four channels, unusual segments or scans"));
    }
    let has_single = frame.is_progressive() || headers.scanned.len() < frame.sampling.len();
    if has_single && frame.is_miscounted() {
        return Err(unsupported("several scans"));
    }
    let mut decoder = jpeg_decoder::Decoder::new(bytes);
    decoder.set_max_decoding_buffer_size(size);
    if frame.sampling.len() == 3 {
        decoder.set_color_transform(if headers.is_rgb {
            ColorTransform::RGB
        } else {
            ColorTransform::YCbCr
        });
    }
    let decoded = decoder
        .decode()
        .map_err(|error| format!("damaged JPEG: {error}"))?;
    let is_gray = decoder
        .info()
        .is_some_and(|info| info.pixel_format == PixelFormat::L8);
    let pixels: Vec<u8> = if is_gray {
        decoded.iter().flat_map(|&gray| [gray; 3]).collect()
    } else {
        decoded
    };
    if pixels.len() == size {
        Ok(pixels)
    } else {
        Err("damaged JPEG: its frame changes".into())
    }
}
