//! Rotation and affine maps, with bilinear interpolation.

use halite_core::{Error, HostArray, Result};

use super::{Pixels, View};

/// An affine map of an image around its center: shear, then rotation and scale, then translation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Rotation, clockwise, in degrees.
    pub degrees: f64,
    /// Translation `[x, y]` in pixels, to the right and down.
    pub translate: [f64; 2],
    /// Factor of both sides, above 0.
    pub scale: f64,
    /// Angles of shear along `[x, y]`, in degrees.
    pub shear: [f64; 2],
}

impl Default for Affine {
    /// The identity.
    fn default() -> Self {
        Affine {
            degrees: 0.0,
            translate: [0.0; 2],
            scale: 1.0,
            shear: [0.0; 2],
        }
    }
}

/// Maps an image `u8[height, width, 3]` to one of the same size, with bilinear interpolation, as
/// torchvision's `functional.affine` of a Pillow image. Pixels from outside of the image are black.
///
/// # Errors
/// If the array is not an image, a number is not finite, or the scale is not above 0.
pub fn affine(image: &HostArray, affine: Affine) -> Result<HostArray> {
    const CONTEXT: &str = "affine map";
    let view = View::of(image, CONTEXT)?;
    let [x, y] = affine.translate;
    let numbers = [affine.degrees, x, y, affine.shear[0], affine.shear[1]];
    let finite = numbers.iter().all(|number| number.abs() < 1e9);
    if !finite || !(1e-6..=1e6).contains(&affine.scale) {
        let message = format!("{affine:?}; expected finite numbers and a scale of 1e-6 to 1e6");
        return Err(Error::invalid(CONTEXT, message));
    }
    let warped = mapped(view, affine).into_array();
    warped.map_err(|reason| Error::invalid(CONTEXT, reason))
}

pub(super) fn warped(image: &Pixels, affine: Affine) -> Pixels {
    mapped(image.view(), affine)
}

fn mapped(image: View<'_>, affine: Affine) -> Pixels {
    let [a, b, c, d, e, f] = inverse(affine, [image.width, image.height]);
    let mut result = Pixels::zeros([image.height, image.width]);
    let (right, bottom) = (image.width as f64, image.height as f64);
    let rows = result.bytes.chunks_exact_mut(3 * image.width);
    for (row, into) in rows.enumerate() {
        let y = row as f64 + 0.5;
        let (start_x, start_y) = (b * y + c, e * y + f);
        let (pixels, _) = into.as_chunks_mut::<3>();
        for (column, to) in pixels.iter_mut().enumerate() {
            let x = column as f64 + 0.5;
            let (from_x, from_y) = (a * x + start_x, d * x + start_y);
            if from_x >= 0.0 && from_x < right && from_y >= 0.0 && from_y < bottom {
                *to = interpolated(image, from_x - 0.5, from_y - 0.5);
            }
        }
    }
    result
}

/// The color at a position; pixels beyond the border are those of the border.
fn interpolated(image: View<'_>, x: f64, y: f64) -> [u8; 3] {
    let (left, top) = (x.floor(), y.floor());
    let (right_part, lower_part) = ((x - left) as f32, (y - top) as f32);
    // A negative number becomes 0.
    let columns = [left, left + 1.0].map(|x| (x as usize).min(image.width - 1));
    let rows = [top, top + 1.0].map(|y| (y as usize).min(image.height - 1));
    let pixel = |row: usize, column: usize| -> &[u8] {
        let start = 3 * (row * image.width + column);
        &image.bytes[start..start + 3]
    };
    let upper = [pixel(rows[0], columns[0]), pixel(rows[0], columns[1])];
    let lower = [pixel(rows[1], columns[0]), pixel(rows[1], columns[1])];
    std::array::from_fn(|channel| {
        let along = |[left, right]: [&[u8]; 2]| {
            let (left, right) = (f32::from(left[channel]), f32::from(right[channel]));
            left + (right - left) * right_part
        };
        let (upper, lower) = (along(upper), along(lower));
        (upper + (lower - upper) * lower_part + 0.5) as u8
    })
}

/// The map from positions of the result to positions of the image: `x = a x' + b y' + c`,
/// `y = d x' + e y' + f`.
fn inverse(affine: Affine, size: [usize; 2]) -> [f64; 6] {
    let [width, height] = size;
    let (sin, cos) = affine.degrees.to_radians().sin_cos();
    let [tan_x, tan_y] = affine.shear.map(|angle| angle.to_radians().tan());
    // Shear along x, then along y, then the rotation.
    let shear = [[1.0, -tan_x], [-tan_y, 1.0 + tan_x * tan_y]];
    let row = |x: f64, y: f64| [0, 1].map(|column| x * shear[0][column] + y * shear[1][column]);
    let forward = [row(cos, -sin), row(sin, cos)];
    let [[p, q], [r, s]] = forward.map(|row| row.map(|value| value * affine.scale));
    let determinant = p * s - q * r;
    let (a, b) = (s / determinant, -q / determinant);
    let (d, e) = (-r / determinant, p / determinant);
    let (center_x, center_y) = (width as f64 / 2.0, height as f64 / 2.0);
    let x = center_x + affine.translate[0];
    let y = center_y + affine.translate[1];
    let (c, f) = (center_x - a * x - b * y, center_y - d * x - e * y);
    [a, b, c, d, e, f]
}
