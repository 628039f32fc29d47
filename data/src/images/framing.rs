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
    let [height, width] = dims_of(image, RESIZE)?;
    resized(image, [0.0, 0.0, height as f64, width as f64], dims, filter)
}

const RESIZE: &str = "resize";

/// Resizes the part `[top, left, height, width]` of an image.
fn resized(
    image: &HostArray,
    [top, left, part_height, part_width]: [f64; 4],
    [height, width]: [usize; 2],
    filter: Filter,
) -> Result<HostArray> {
    let [from_height, from_width] = dims_of(image, RESIZE)?;
    let fits = |side: usize| (1..=MAX_SIDE).contains(&side);
    if !fits(height) || !fits(width) || height * width > MAX_PIXELS {
        let message = format!(
            "to [{height}, {width}]; expected sides of 1 to {MAX_SIDE}, and at most {MAX_PIXELS} pixels"
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
    let options = ResizeOptions::new().resize_alg(filter.algorithm()).crop(
        left,
        top,
        part_width,
        part_height,
    );
    Resizer::new()
        .resize(&source, &mut target, &options)
        .map_err(|error| failed(error.to_string()))?;
    Ok(array)
}

/// Cuts the central part of these dimensions `[height, width]` out of an image
/// `u8[height, width, 3]`; of an odd rest, the larger half is below and to the right.
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
    let (top, left) = ((from_height - height) / 2, (from_width - width) / 2);
    let mut array = HostArray::try_zeros(TensorType::new(DType::U8, [height, width, 3]))?;
    let rows = array.bytes_mut().chunks_exact_mut(3 * width);
    for (row, into) in rows.enumerate() {
        let start = 3 * ((top + row) * from_width + left);
        into.copy_from_slice(&image.bytes()[start..start + 3 * width]);
    }
    Ok(array)
}

/// Preparation of images for a classifier: the central square of an image, resized.
///
/// The square is a part of the shorter side; 0.875 is what resizing the shorter side to 256 and
/// cropping 224 amounts to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Framing {
    /// Height and width of the result, in pixels.
    pub side: usize,
    /// Side of the square, relative to the shorter side of the image: above 0, at most 1.
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
        let square = (height.min(width) as f64 * self.crop).max(1.0).round();
        let start = |side: usize| ((side as f64 - square) / 2.0).floor();
        let part = [start(height), start(width), square, square];
        resized(image, part, [self.side, self.side], self.filter)
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
