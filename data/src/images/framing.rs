//! Resizing and cropping.

use fast_image_resize::{
    FilterType, ResizeAlg, ResizeOptions, Resizer,
    images::{TypedImage, TypedImageRef},
    pixels::U8x3,
};
use halite_core::{DType, Error, HostArray, Result, TensorType};

use super::{MAX_PIXELS, MAX_SIDE, Pixels, View, pixels::cropped};

/// Interpolation of [`resize`]. Images that become smaller are filtered over all the pixels that a
/// new pixel covers (antialiasing), as in Pillow.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Filter {
    /// Linear interpolation between neighbours.
    #[default]
    Bilinear,
    /// Cubic interpolation (Catmull-Rom, a = -0.5).
    Bicubic,
    /// The mean over the area of a new pixel.
    Box,
    /// Lanczos over three lobes.
    Lanczos,
}

impl Filter {
    fn algorithm(self) -> ResizeAlg {
        ResizeAlg::Convolution(match self {
            Filter::Bilinear => FilterType::Bilinear,
            Filter::Bicubic => FilterType::CatmullRom,
            Filter::Box => FilterType::Box,
            Filter::Lanczos => FilterType::Lanczos3,
        })
    }
}

/// Resizes an image `u8[height, width, 3]` to these dimensions `[height, width]`.
///
/// # Errors
/// If the array is not an image; if a size is 0 or too large.
pub fn resize(image: &HostArray, dims: [usize; 2], filter: Filter) -> Result<HostArray> {
    let view = View::of(image, RESIZE)?;
    check_size(view, dims)?;
    let [height, width] = dims;
    let mut array = HostArray::try_zeros(TensorType::new(DType::U8, [height, width, 3]))?;
    resize_into(view, dims, filter, array.bytes_mut())?;
    Ok(array)
}

const RESIZE: &str = "resize";

/// As [`resize`].
pub(super) fn resized(image: View<'_>, dims: [usize; 2], filter: Filter) -> Result<Pixels> {
    check_size(image, dims)?;
    let mut pixels = Pixels::zeros(dims);
    if dims == [image.height, image.width] {
        pixels.bytes.copy_from_slice(image.bytes)
    } else {
        resize_into(image, dims, filter, &mut pixels.bytes)?
    }
    Ok(pixels)
}

fn check_size(image: View<'_>, size: [usize; 2]) -> Result<()> {
    let [height, width] = size;
    let fits = |side: usize| (1..=MAX_SIDE).contains(&side);
    if !fits(height) || !fits(width) || height * width > MAX_PIXELS {
        let message = format!(
            "u8[{}, {}, 3] to [{height}, {width}]; expected sides of 1 to {MAX_SIDE}, and at most {MAX_PIXELS} pixels",
            image.height, image.width
        );
        return Err(Error::invalid(RESIZE, message));
    }
    Ok(())
}

fn resize_into(image: View<'_>, size: [usize; 2], filter: Filter, into: &mut [u8]) -> Result<()> {
    let [height, width] = size;
    let failed = |error: String| {
        let (from_height, from_width) = (image.height, image.width);
        let message = format!("u8[{from_height}, {from_width}, 3] to [{height}, {width}]: {error}");
        Error::invalid(RESIZE, message)
    };
    let size = |side: usize| u32::try_from(side).map_err(|error| failed(error.to_string()));
    // Typed, because images of any type compile the code of all thirteen.
    let (from_width, from_height) = (size(image.width)?, size(image.height)?);
    let source = TypedImageRef::<U8x3>::from_buffer(from_width, from_height, image.bytes)
        .map_err(|error| failed(error.to_string()))?;
    let mut target = TypedImage::<U8x3>::from_buffer(size(width)?, size(height)?, into)
        .map_err(|error| failed(error.to_string()))?;
    // Never with `crop`: version 6.1 reads beyond its buffers if the weight of the outermost pixel
    // of a part is exactly 0, as in bicubic interpolation at a distance of one pixel.
    let options = ResizeOptions::new().resize_alg(filter.algorithm());
    Resizer::new()
        .resize_typed(&source, &mut target, &options)
        .map_err(|error| failed(error.to_string()))
}

/// Cuts the central part of these dimensions `[height, width]` out of an image
/// `u8[height, width, 3]`, as torchvision's `CenterCrop`: half of an odd rest is rounded to the
/// even number of pixels.
///
/// # Errors
/// If the array is not an image, or smaller.
pub fn center_crop(image: &HostArray, dims: [usize; 2]) -> Result<HostArray> {
    let [height, width] = dims;
    let view = View::of(image, "center crop")?;
    let (from_height, from_width) = (view.height, view.width);
    if height == 0 || width == 0 || height > from_height || width > from_width {
        let message = format!(
            "[{height}, {width}] of [{from_height}, {from_width}]; expected 1 to the size of the image"
        );
        return Err(Error::invalid("center crop", message));
    }
    let pixels = central(view, dims).into_array();
    pixels.map_err(|reason| Error::invalid("center crop", reason))
}

/// The central part of dimensions `[height, width]`, which the image contains.
fn central(image: View<'_>, size: [usize; 2]) -> Pixels {
    let [height, width] = size;
    let corner = [margin(image.height, height), margin(image.width, width)];
    cropped(image, corner, [height, width])
}

/// As [`Framing::apply`], of a framing that is checked.
pub(super) fn framed(framing: &Framing, image: View<'_>) -> Result<Pixels> {
    // Divisions are not exact: 224 / (224 / 256) is 256.
    let short = (framing.side as f64 / framing.crop + 1e-6).floor();
    let shorter = image.height.min(image.width) as f64;
    let dims =
        [image.height, image.width].map(|side| (short * side as f64 / shorter).floor() as usize);
    let pixels = resized(image, dims, framing.filter)?;
    match dims == [framing.side; 2] {
        true => Ok(pixels),
        false => Ok(central(pixels.view(), [framing.side; 2])),
    }
}

/// Pixels before the central `part` of a side.
fn margin(side: usize, part: usize) -> usize {
    let rest = side - part;
    // 0.5, 1.5 and 2.5 are 0, 2 and 2, as in Python.
    rest / 2 + usize::from(rest % 4 == 3)
}

/// Preparation of images for a classifier: the central square of an image, resized.
///
/// The shorter side is resized to `side / crop`, rounded down, and the central square of `side` is
/// cut out, as by torchvision's and timm's transforms of inference: `Resize(256)` and
/// `CenterCrop(224)` are `Framing::new(224)`; `Resize(232)` and `CenterCrop(224)` are
/// `Framing::new(224).crop(224.0 / 232.0)`. The pixels are those of Pillow, up to rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Framing {
    /// Height and width of the result, in pixels.
    pub side: usize,
    /// Side of the square, relative to the shorter side of the resized image: above 0, at most 1.
    pub crop: f64,
    /// Interpolation.
    pub filter: Filter,
}

impl Framing {
    /// Squares of 87.5 % of the shorter side, resized to `side` bilinearly.
    pub const fn new(side: usize) -> Self {
        Framing {
            side,
            crop: 0.875,
            filter: Filter::Bilinear,
        }
    }

    /// Sets the side of the square, relative to the shorter side of the image.
    pub const fn crop(mut self, crop: f64) -> Self {
        self.crop = crop;
        self
    }

    /// Sets the interpolation.
    pub const fn filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Returns the square of an image `u8[height, width, 3]`: `u8[side, side, 3]`.
    ///
    /// # Errors
    /// If the array is not an image, or the framing is out of range.
    pub fn apply(&self, image: &HostArray) -> Result<HostArray> {
        self.check()?;
        let pixels = framed(self, View::of(image, "framing")?)?.into_array();
        pixels.map_err(|reason| Error::invalid("framing", reason))
    }

    /// # Errors
    /// If it is out of range.
    pub(super) fn check(&self) -> Result<()> {
        let crops = self.crop > 0.0 && self.crop <= 1.0;
        let fits = (1..=MAX_SIDE).contains(&self.side);
        if !crops || !fits {
            let message = format!(
                "side {}, crop {}; expected a side of 1 to {MAX_SIDE} pixels, and a crop above 0, at most 1",
                self.side, self.crop
            );
            return Err(Error::invalid("framing", message));
        }
        Ok(())
    }
}
