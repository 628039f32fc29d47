//! Orientation of EXIF metadata: cameras save what the sensor sees, and how the camera was held.

use super::Pixels;

/// Tag of the orientation.
const ORIENTATION: u16 = 0x0112;

/// Turns and mirrors an image as its metadata says. Metadata that cannot be read is ignored.
pub(super) fn oriented(pixels: Pixels, exif: Option<&[u8]>) -> Pixels {
    match exif.and_then(orientation) {
        Some(number @ 2..=8) => turned(&pixels, number),
        _ => pixels,
    }
}

/// The orientation, 1 to 8, in metadata that starts with a TIFF header: a number of any type, of
/// which the first counts if there are several, as in Pillow.
fn orientation(exif: &[u8]) -> Option<u16> {
    // Some writers leave the name of the JPEG segment.
    let exif = Exif::new(exif.strip_prefix(b"Exif\0\0").unwrap_or(exif))?;
    let directory = exif.long(4)? as usize;
    for entry in 0..usize::from(exif.short(directory)?) {
        let at = directory.checked_add(2 + 12 * entry)?;
        // A whole entry: tag, type, count, and value or place of the values.
        exif.bytes.get(at..at.checked_add(12)?)?;
        if exif.short(at)? == ORIENTATION {
            let value = exif.number(exif.short(at + 2)?, exif.long(at + 4)?, at + 8)?;
            return (1..=8).find(|&number| f64::from(number) == value);
        }
    }
    None
}

struct Exif<'a> {
    bytes: &'a [u8],
    is_little: bool,
}

impl<'a> Exif<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let is_little = match bytes.get(..4)? {
            b"II*\0" | b"II\0*" => true,
            b"MM\0*" | b"MM*\0" => false,
            _ => return None,
        };
        Some(Exif { bytes, is_little })
    }

    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mut bytes: [u8; N] = self.bytes.get(at..at.checked_add(N)?)?.try_into().ok()?;
        if self.is_little {
            bytes.reverse();
        }
        Some(bytes)
    }

    fn short(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    fn long(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    /// The first of `count` numbers of a type; at `at` are these, or their place if they are longer
    /// than four bytes.
    fn number(&self, kind: u16, count: u32, at: usize) -> Option<f64> {
        let size = match kind {
            6 => 1,
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 => 8,
            _ => return None,
        };
        let all = usize::try_from(count).ok()?.checked_mul(size)?;
        let at = if all <= 4 {
            at
        } else {
            self.long(at)? as usize
        };
        if self.bytes.get(at..at.checked_add(all)?)?.is_empty() {
            return None;
        }
        Some(match kind {
            6 => f64::from(self.bytes[at]),
            3 | 8 => f64::from(self.short(at)?),
            11 => f64::from(f32::from_bits(self.long(at)?)),
            5 | 10 => f64::from(self.long(at)?) / f64::from(self.long(at + 4)?),
            12 => f64::from_be_bytes(self.array(at)?),
            _ => f64::from(self.long(at)?),
        })
    }
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
