//! Orientation of EXIF metadata: cameras save what the sensor sees, and how the camera was held.

use super::Pixels;

/// Tag of the orientation, and the type of its value.
const ORIENTATION: u16 = 0x0112;
const SHORT: u16 = 3;

/// Turns and mirrors an image as its metadata says. Metadata that cannot be read is ignored.
pub(super) fn oriented(pixels: Pixels, exif: Option<&[u8]>) -> Pixels {
    match exif.and_then(orientation) {
        Some(number @ 2..=8) => turned(&pixels, number),
        _ => pixels,
    }
}

/// The orientation, 1 to 8, in metadata that starts with a TIFF header.
fn orientation(exif: &[u8]) -> Option<u16> {
    // Some writers leave the name of the JPEG segment.
    let exif = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    let little = match exif.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = exif.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(match little {
            true => u16::from_le_bytes(bytes),
            false => u16::from_be_bytes(bytes),
        })
    };
    let long = |at: usize| {
        let bytes = exif.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(match little {
            true => u32::from_le_bytes(bytes),
            false => u32::from_be_bytes(bytes),
        })
    };
    let directory = long(4)? as usize;
    for entry in 0..usize::from(short(directory)?) {
        let at = directory.checked_add(2 + 12 * entry)?;
        if short(at)? == ORIENTATION {
            return (short(at + 2)? == SHORT).then_some(short(at + 8)?);
        }
    }
    None
}

/// The image in orientation `number`, 2 to 8.
fn turned(image: &Pixels, number: u16) -> Pixels {
    let (height, width) = (image.height, image.width);
    let (rows, columns) = match number {
        5.. => (width, height),
        _ => (height, width),
    };
    let mut bytes = Vec::with_capacity(image.bytes.len());
    for row in 0..rows {
        for column in 0..columns {
            let (from_row, from_column) = match number {
                2 => (row, width - 1 - column),
                3 => (height - 1 - row, width - 1 - column),
                4 => (height - 1 - row, column),
                5 => (column, row),
                6 => (height - 1 - column, row),
                7 => (height - 1 - column, width - 1 - row),
                8 => (column, width - 1 - row),
                _ => (row, column),
            };
            let at = 3 * (from_row * width + from_column);
            bytes.extend_from_slice(&image.bytes[at..at + 3]);
        }
    }
    Pixels {
        height: rows,
        width: columns,
        bytes,
    }
}
