//! Brightness, contrast, saturation and blur.

use halite_core::{Error, HostArray, Result};

use super::{Pixels, View};
use crate::Random;

/// Largest changes of color, each 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jitter {
    pub(super) brightness: f64,
    pub(super) contrast: f64,
    pub(super) saturation: f64,
}

/// Changes brightness, contrast and saturation by random factors, in random order.
pub(super) fn jitter(image: &mut Pixels, jitter: Jitter, random: &mut Random) {
    let mut order = [0, 1, 2];
    order.swap(2, random.below(3));
    order.swap(1, random.below(2));
    let amounts = [jitter.brightness, jitter.contrast, jitter.saturation];
    let factors = amounts.map(|amount| random.uniform(1.0 - amount, 1.0 + amount));
    for step in order {
        match (step, factors[step]) {
            // The factor of an amount of 0.
            (_, 1.0) => {}
            (0, factor) => brighten(image, factor),
            (1, factor) => contrast(image, factor),
            (_, factor) => saturate(image, factor),
        }
    }
}

/// Changes the color of an image by factors: 1 leaves it, 0 makes it black (brightness), one gray
/// (contrast) or gray (saturation). In this order, as torchvision's `adjust_brightness`,
/// `adjust_contrast` and `adjust_saturation`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColorFactors {
    /// Factor of all values.
    pub brightness: f64,
    /// Factor of the distance to the mean gray of the image.
    pub contrast: f64,
    /// Factor of the distance to the gray of each pixel.
    pub saturation: f64,
}

/// Changes the color of an image `u8[height, width, 3]`.
///
/// # Errors
/// If the array is not an image, or a factor is negative or not finite.
pub fn adjust_color(image: &HostArray, factors: ColorFactors) -> Result<HostArray> {
    const CONTEXT: &str = "color";
    let mut pixels = owned(image, CONTEXT)?;
    let all = [factors.brightness, factors.contrast, factors.saturation];
    if !all.iter().all(|factor| (0.0..=1e6).contains(factor)) {
        let message = format!("{factors:?}; expected factors of 0 to 1e6");
        return Err(Error::invalid(CONTEXT, message));
    }
    brighten(&mut pixels, factors.brightness);
    contrast(&mut pixels, factors.contrast);
    saturate(&mut pixels, factors.saturation);
    (pixels.into_array()).map_err(|reason| Error::invalid(CONTEXT, reason))
}

/// Blurs an image `u8[height, width, 3]` by a Gaussian of standard deviation `sigma` in pixels, cut
/// off at three of them, as torchvision's `gaussian_blur` with a kernel of `2 * ceil(3 sigma) + 1`
/// pixels. Beyond the border the image is mirrored.
///
/// # Errors
/// If the array is not an image, or `sigma` is not in 0.01 to 100.
pub fn gaussian_blur(image: &HostArray, sigma: f64) -> Result<HostArray> {
    const CONTEXT: &str = "gaussian blur";
    let mut pixels = owned(image, CONTEXT)?;
    if !(0.01..=100.0).contains(&sigma) {
        let message = format!("sigma {sigma}; expected 0.01 to 100 pixels");
        return Err(Error::invalid(CONTEXT, message));
    }
    blur(&mut pixels, sigma);
    (pixels.into_array()).map_err(|reason| Error::invalid(CONTEXT, reason))
}

fn owned(image: &HostArray, context: &str) -> Result<Pixels> {
    let view = View::of(image, context)?;
    Ok(Pixels {
        height: view.height,
        width: view.width,
        bytes: view.bytes.to_vec(),
    })
}

fn brighten(image: &mut Pixels, factor: f64) {
    blend(image, 0.0, factor);
}

fn contrast(image: &mut Pixels, factor: f64) {
    let (pixels, _) = image.bytes.as_chunks::<3>();
    let sum: u64 = pixels.iter().map(|pixel| u64::from(gray(*pixel))).sum();
    let mean = (sum as f64 / pixels.len() as f64 + 0.5).floor();
    blend(image, mean, factor);
}

/// Each value, moved to `base` or away from it.
fn blend(image: &mut Pixels, base: f64, factor: f64) {
    let table: [u8; 256] =
        std::array::from_fn(|value| (base + factor * (value as f64 - base)) as u8);
    for byte in &mut image.bytes {
        *byte = table[usize::from(*byte)];
    }
}

fn saturate(image: &mut Pixels, factor: f64) {
    let factor = factor as f32;
    let (pixels, _) = image.bytes.as_chunks_mut::<3>();
    for pixel in pixels {
        let gray = f32::from(gray(*pixel));
        *pixel = pixel.map(|value| (gray + factor * (f32::from(value) - gray)) as u8);
    }
}

/// Luma of ITU-R 601.
fn gray(pixel: [u8; 3]) -> u8 {
    let [red, green, blue] = pixel;
    let sum = 19_595 * u32::from(red) + 38_470 * u32::from(green) + 7_471 * u32::from(blue);
    ((sum + 0x8000) >> 16) as u8
}

pub(super) fn blur(image: &mut Pixels, sigma: f64) {
    let radius = (3.0 * sigma).ceil() as usize;
    let weight = |place: usize| (-0.5 * ((place as f64 - radius as f64) / sigma).powi(2)).exp();
    let weights: Vec<f64> = (0..=2 * radius).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    let weights: Vec<f32> = weights.iter().map(|weight| (weight / sum) as f32).collect();
    let (height, width) = (image.height, image.width);
    let row_length = 3 * width;
    let mut wide = vec![0.0_f32; image.bytes.len()];
    let mut sums = vec![0.0_f32; row_length];
    for (row, into) in wide.chunks_exact_mut(row_length).enumerate() {
        for (place, weight) in weights.iter().enumerate() {
            let start = mirrored(row + place, radius, height) * row_length;
            let from = &image.bytes[start..start + row_length];
            for (to, from) in into.iter_mut().zip(from) {
                *to += weight * f32::from(*from);
            }
        }
    }
    let rows = wide.chunks_exact(row_length);
    for (from, into) in rows.zip(image.bytes.chunks_exact_mut(row_length)) {
        sums.fill(0.5);
        for (place, weight) in weights.iter().enumerate() {
            // Columns whose source is inside of the row; the others one by one.
            let first = radius.saturating_sub(place).min(width);
            let last = (width + radius).saturating_sub(place).clamp(first, width);
            let start = first + place - radius.min(first + place);
            let inner = &from[3 * start.min(width)..];
            let targets = &mut sums[3 * first..3 * last];
            for (to, from) in targets.iter_mut().zip(inner) {
                *to += weight * from;
            }
            for column in (0..first).chain(last..width) {
                let source = mirrored(column + place, radius, width);
                for channel in 0..3 {
                    sums[3 * column + channel] += weight * from[3 * source + channel];
                }
            }
        }
        for (to, from) in into.iter_mut().zip(&sums) {
            *to = *from as u8;
        }
    }
}

/// Position `shifted - radius`, mirrored at the first and the last of `side` without repeating
/// them.
fn mirrored(shifted: usize, radius: usize, side: usize) -> usize {
    let period = 2 * (side - 1);
    if period == 0 {
        return 0;
    }
    // Congruent and not negative.
    let position = (shifted + period * radius - radius) % period;
    position.min(period - position)
}
