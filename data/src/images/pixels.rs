//! Decoded images, and steps that move pixels without interpolation.

use halite_core::{AlignedBytes, DType, HostArray, Result, TensorType};

use super::dims_of;

/// A decoded image: `height * width * 3` bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pixels {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) bytes: Vec<u8>,
}

/// The pixels of an image, borrowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) bytes: &'a [u8],
}

impl Pixels {
    pub(super) fn zeros(size: [usize; 2]) -> Self {
        let [height, width] = size;
        Pixels {
            height,
            width,
            bytes: vec![0; height * width * 3],
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        View {
            height: self.height,
            width: self.width,
            bytes: &self.bytes,
        }
    }

    pub(super) fn into_array(self) -> Result<HostArray, String> {
        let ty = TensorType::new(DType::U8, [self.height, self.width, 3]);
        let array =
            AlignedBytes::from_vec(self.bytes).and_then(|bytes| HostArray::from_aligned(bytes, ty));
        array.map_err(|error| error.message().to_owned())
    }
}

impl<'a> View<'a> {
    /// The pixels of an array.
    ///
    /// # Errors
    /// If it is not an image.
    pub(super) fn of(image: &'a HostArray, what: &str) -> Result<Self> {
        let [height, width] = dims_of(image, what)?;
        Ok(View {
            height,
            width,
            bytes: image.bytes(),
        })
    }
}

/// The part of an image of dimensions `[height, width]` at `[top, left]`, which it contains.
pub(super) fn cropped(image: View<'_>, corner: [usize; 2], dims: [usize; 2]) -> Pixels {
    let ([top, left], [height, width]) = (corner, dims);
    let mut bytes = Vec::with_capacity(height * width * 3);
    for row in top..top + height {
        let start = 3 * (row * image.width + left);
        bytes.extend_from_slice(&image.bytes[start..start + 3 * width]);
    }
    Pixels {
        height,
        width,
        bytes,
    }
}

/// Mirrors left to right.
pub(super) fn flip(image: &mut Pixels) {
    for row in image.bytes.chunks_exact_mut(3 * image.width) {
        let (pixels, _) = row.as_chunks_mut::<3>();
        pixels.reverse();
    }
}

/// Mirrors top to bottom.
pub(super) fn flip_vertical(image: &mut Pixels) {
    let row = 3 * image.width;
    let half = image.height / 2;
    let (upper, lower) = image.bytes.split_at_mut((image.height - half) * row);
    let rows = upper.chunks_exact_mut(row).take(half);
    for (above, below) in rows.zip(lower.chunks_exact_mut(row).rev()) {
        above.swap_with_slice(below);
    }
}

/// Sets a rectangle, which the image contains, to black.
pub(super) fn erase(image: &mut Pixels, corner: [usize; 2], dims: [usize; 2]) {
    let ([top, left], [height, width]) = (corner, dims);
    for row in top..top + height {
        let start = 3 * (row * image.width + left);
        image.bytes[start..start + 3 * width].fill(0);
    }
}
