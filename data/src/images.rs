//! Color images: decoding of PNG and JPEG, resizing and cropping, folders of images.
//!
//! An image is an array `u8[height, width, 3]` of red, green and blue, from 0 to 255.
//!
//! ```no_run
//! // Needs a folder with a folder of images for each class.
//! use halite_data::{Loader, LoaderOptions, images::{Framing, ImageFolder, read_image}};
//!
//! # fn main() -> halite_core::Result<()> {
//! let photo = read_image("photo.jpg")?; // u8[height, width, 3]
//! let framing = Framing::new(224);
//! let square = framing.apply(&photo)?; // u8[224, 224, 3]
//! let folder = ImageFolder::open("pictures", framing)?; // pictures/cat/1.jpg, pictures/dog/7.png
//! println!("{:?}", folder.classes()); // ["cat", "dog"]
//! let loader = Loader::new(folder, LoaderOptions::shuffled(64, 42))?; // decodes on worker threads
//! # let _ = (square, loader);
//! # Ok(())
//! # }
//! ```
//!
//! Files are not trusted: sizes are compared with the length of the file before memory is taken.

mod color;
mod fake;
mod fake_ct;
mod folder;
mod framing;
mod glyphs;
mod jpeg;
mod labels;
mod listing;
mod orientation;
mod parts;
mod pixels;
mod png;
mod sheet;
mod statistics;
mod table;
mod targets;
mod transforms;
mod transforms_text;
mod warp;

use std::path::Path;

use halite_core::{DType, Error, ErrorKind, HostArray, Result, files, guard};

use self::pixels::{Pixels, View};
pub use self::{
    color::{ColorFactors, adjust_color, gaussian_blur},
    fake::FakeImages,
    fake_ct::{CT_IDS, CT_LABELS, FakeCt, FakeCtImages},
    folder::ImageFolder,
    framing::{Filter, Framing, center_crop, resize},
    labels::{IMAGENET_CLASSES, imagenet_classes},
    parts::{ClassFolders, Parts},
    sheet::contact_sheet,
    statistics::ImageStatistics,
    table::ImageTable,
    transforms::Transforms,
    warp::{Affine, affine},
};

/// Largest width and height of an image, in pixels.
pub const MAX_SIDE: usize = 65_535;

/// Largest number of pixels of an image: 400 MB when it is decoded.
pub const MAX_PIXELS: usize = 1 << 27;

/// Reads a PNG or JPEG file as `u8[height, width, 3]`.
///
/// The format is detected from the content. Gray images, palettes and 16-bit channels become RGB of
/// 8 bits, an alpha channel is dropped, and the orientation of EXIF metadata is applied, as in
/// `ImageOps.exif_transpose(Image.open(path)).convert("RGB")` of Pillow.
///
/// JPEG has no checksums: compressed data that were changed and still decode are other pixels.
///
/// # Errors
/// [`ErrorKind::Io`] if the file cannot be read; [`ErrorKind::Corrupt`] if it is damaged, of another
/// format, or larger than [`MAX_SIDE`] and [`MAX_PIXELS`] allow. Errors name the file.
pub fn read_image(path: impl AsRef<Path>) -> Result<HostArray> {
    read_path(path.as_ref())
}

fn read_path(path: &Path) -> Result<HostArray> {
    let pixels = read_pixels(path)?.into_array();
    pixels.map_err(|reason| {
        let message = format!("{}: {reason}", path.display());
        Error::new(ErrorKind::Corrupt, CONTEXT, message)
    })
}

/// As [`read_image`].
fn read_pixels(path: &Path) -> Result<Pixels> {
    let failed =
        |kind, reason: String| Error::new(kind, CONTEXT, format!("{}: {reason}", path.display()));
    let bytes =
        files::read_input(path).map_err(|error| failed(ErrorKind::Io, error.to_string()))?;
    decode_pixels(&bytes, MAX_PIXELS).map_err(|reason| failed(ErrorKind::Corrupt, reason))
}

/// Decodes the content of a PNG or JPEG file, as [`read_image`].
///
/// # Errors
/// As [`read_image`].
pub fn decode_image(bytes: &[u8]) -> Result<HostArray> {
    decode(bytes, MAX_PIXELS).map_err(|reason| Error::new(ErrorKind::Corrupt, CONTEXT, reason))
}

const CONTEXT: &str = "read image";

/// Decodes an image of at most `most` pixels.
pub(crate) fn decode(bytes: &[u8], most: usize) -> Result<HostArray, String> {
    decode_pixels(bytes, most)?.into_array()
}

fn decode_pixels(bytes: &[u8], most: usize) -> Result<Pixels, String> {
    let limits = Limits {
        most,
        length: bytes.len(),
    };
    let (name, decoder): (_, Decoder) = if bytes.starts_with(&png::MAGIC) {
        ("PNG", png::decode)
    } else if bytes.starts_with(&jpeg::MAGIC) {
        ("JPEG", jpeg::decode)
    } else {
        return Err(format!("neither PNG nor JPEG; {}", describe_start(bytes)));
    };
    let (pixels, exif) = guarded(name, decoder, bytes, limits)?;
    Ok(orientation::oriented(pixels, exif.as_deref()))
}

/// A decoder of a format: pixels, and EXIF metadata.
type Decoder = fn(&[u8], Limits) -> Result<(Pixels, Option<Vec<u8>>), String>;

/// Decodes with code of other crates, whose panics are errors of the file.
fn guarded(
    name: &str,
    decoder: Decoder,
    bytes: &[u8],
    limits: Limits,
) -> Result<(Pixels, Option<Vec<u8>>), String> {
    let decoded = guard::call(|| decoder(bytes, limits));
    decoded.unwrap_or_else(|panic| Err(format!("damaged {name}: {panic}")))
}

/// The start of a file, for messages.
fn describe_start(bytes: &[u8]) -> String {
    let known: [(&[u8], &str); 5] = [
        (b"GIF8", "it is a GIF"),
        (b"RIFF", "it is a WebP or another RIFF file"),
        (b"BM", "it is a BMP"),
        (b"II*\0", "it is a TIFF"),
        (b"MM\0*", "it is a TIFF"),
    ];
    let found = known.iter().find(|(magic, _)| bytes.starts_with(magic));
    match (found, bytes.is_empty()) {
        (Some((_, name)), _) => (*name).to_owned(),
        (None, true) => "it is empty".to_owned(),
        (None, false) => format!("it starts with {:02x?}", &bytes[..bytes.len().min(8)]),
    }
}

/// Limits of the size of an image.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Number of pixels.
    most: usize,
    /// Length of the file in bytes.
    length: usize,
}

impl Limits {
    /// Checks the size that a header declares, in a format that has at most `density` pixels for
    /// each byte of a file.
    fn check(self, width: usize, height: usize, density: usize) -> Result<(), String> {
        let size = format!("its header declares {width}x{height} pixels");
        if width == 0 || height == 0 {
            return Err(size);
        }
        if width > MAX_SIDE || height > MAX_SIDE {
            return Err(format!("{size}; a side has at most {MAX_SIDE}"));
        }
        let pixels = width * height;
        if pixels > self.most {
            return Err(format!("{size}; an image has at most {}", self.most));
        }
        if pixels / density > self.length {
            return Err(format!(
                "{size}, which {} bytes cannot contain",
                self.length
            ));
        }
        Ok(())
    }
}

/// The dimensions `[height, width]` of an image.
///
/// # Errors
/// If the array is not an image.
fn dims_of(image: &HostArray, what: &str) -> Result<[usize; 2]> {
    match (image.ty().dims(), image.ty().dtype()) {
        (&[height, width, 3], DType::U8) if height > 0 && width > 0 => Ok([height, width]),
        _ => {
            let message = format!("an array {}; expected u8[height, width, 3]", image.ty());
            Err(Error::invalid(what, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_a_decoder_is_an_error() {
        let limits = Limits { most: 1, length: 1 };
        let panics: Decoder = |bytes, _| panic!("row {} of {}", bytes[0], bytes.len());
        let error = guarded("JPEG", panics, &[7], limits).unwrap_err();
        assert_eq!(error, "damaged JPEG: the decoder panicked: row 7 of 1");
    }
}
