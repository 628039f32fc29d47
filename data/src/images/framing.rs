//! Resizing and cropping.

use fast_image_resize::{
    FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer,
    images::{Image, ImageRef},
};
use halite_core::{DType, Error, HostArray, Result, TensorType};

use super::{MAX_PIXELS, MAX_SIDE, dims_of};

/// Interpolation of [`resize`]. Images that become smaller are filtered over all the pixels that a new
/// pixel covers (antialiasing), as in Pillow.
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
/// If the array is no image; if a size is 0 or too large.
pub fn resize(image: &HostArray, dims: [usize; 2], filter: Filter) -> Result<HostArray> {
    const RESIZE: &str = "resize";
    let [from_height, from_width] = dims_of(image, RESIZE)?;
    let [height, width] = dims;
    let fits = |side: usize| (1..=MAX_SIDE).contains(&side);
    if !fits(height) || !fits(width) || height * width > MAX_PIXELS {
        let message = format!(
            "{} to [{height}, {width}]; expected sides of 1 to {MAX_SIDE}, and at most {MAX_PIXELS} pixels",
            image.ty()
        );
        return Err(Error::invalid(RESIZE, message));
    }
    let failed = |error: String| {
        let message = format!("{} to [{height}, {width}]: {error}", image.ty());
        Error::invalid(RESIZE, message)
    };
    let size = |side: usize| u32::try_from(side).map_err(|error| failed(error.to_string()));
    let source = ImageRef::new(
        size(from_width)?,
        size(from_height)?,
        image.bytes(),
        PixelType::U8x3,
    )
    .map_err(|error| failed(error.to_string()))?;
    let mut array = HostArray::try_zeros(TensorType::new(DType::U8, [height, width, 3]))?;
    let mut target = Image::from_slice_u8(
        size(width)?,
        size(height)?,
        array.bytes_mut(),
        PixelType::U8x3,
    )
    .map_err(|error| failed(error.to_string()))?;
    // Never with `crop`: version 6.1 reads beyond its buffers if the weight of the outermost pixel
    // of a part is exactly 0, as in bicubic interpolation at a distance of one pixel.
    let options = ResizeOptions::new().resize_alg(filter.algorithm());
    Resizer::new()
        .resize(&source, &mut target, &options)
        .map_err(|error| failed(error.to_string()))?;
    Ok(array)
}

/// Cuts the central part of these dimensions `[height, width]` out of an image
/// `u8[height, width, 3]`, as torchvision's `CenterCrop`: half of an odd rest is rounded to the even
/// number of pixels.
///
/// # Errors
/// If the array is no image, or smaller.
pub fn center_crop(image: &HostArray, dims: [usize; 2]) -> Result<HostArray> {
    let [height, width] = dims;
    let [from_height, from_width] = dims_of(image, "center crop")?;
    if height == 0 || width == 0 || height > from_height || width > from_width {
        let message = format!(
            "[{height}, {width}] of [{from_height}, {from_width}]; expected 1 to the size of the image"
        );
        return Err(Error::invalid("center crop", message));
    }
    let (top, left) = (margin(from_height, height), margin(from_width, width));
    let mut array = HostArray::try_zeros(TensorType::new(DType::U8, [height, width, 3]))?;
    let rows = array.bytes_mut().chunks_exact_mut(3 * width);
    for (row, into) in rows.enumerate() {
        let start = 3 * ((top + row) * from_width + left);
        into.copy_from_slice(&image.bytes()[start..start + 3 * width]);
    }
    Ok(array)
}

/// Pixels before the central `part` of a side.
fn margin(side: usize, part: usize) -> usize {
    let rest = side - part;
    // 0.5, 1.5 and 2.5 are 0, 2 and 2, as in Python.
    rest / 2 + usize::from(rest % 4 == 3)
}

/// Preparation of images for a classifier: the central square of an image, resized.
///
/// The shorter side is resized to `side / crop`, rounded down, and the central square of `side` is cut
/// out, as by torchvision's and timm's transforms of inference: `Resize(256)` and `CenterCrop(224)` are
/// `Framing::new(224)`; `Resize(232)` and `CenterCrop(224)` are `Framing::new(224).crop(224.0 / 232.0)`.
/// The pixels are those of Pillow, up to rounding.
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
    /// If the array is no image, or the framing is out of range.
    pub fn apply(&self, image: &HostArray) -> Result<HostArray> {
        self.check()?;
        let [height, width] = dims_of(image, "framing")?;
        // Divisions are not exact: 224 / (224 / 256) is 256.
        let short = (self.side as f64 / self.crop + 1e-6).floor();
        let shorter = height.min(width) as f64;
        let resized = [height, width].map(|side| (short * side as f64 / shorter).floor() as usize);
        center_crop(&resize(image, resized, self.filter)?, [self.side; 2])
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
