//! Statistics of image files: sizes, and mean and standard deviation of the channels.

use std::{collections::BTreeMap, path::Path};

use halite_core::Error;

use super::{Pixels, read_pixels};

/// Statistics of images, as they are in their files, before any transform.
#[derive(Debug, Default)]
pub struct ImageStatistics {
    /// Number of images of each `[height, width]`.
    pub sizes: BTreeMap<[usize; 2], usize>,
    /// Files that cannot be read or decoded.
    pub damaged: Vec<Error>,
    /// Number of pixels, and sums of values and their squares, by channel.
    pixels: u64,
    sums: [u64; 3],
    squares: [u64; 3],
}

impl ImageStatistics {
    /// Reads a file. A damaged one is counted, and is not an error.
    pub fn add(&mut self, path: impl AsRef<Path>) {
        match read_pixels(path.as_ref()) {
            Ok(image) => self.add_pixels(&image),
            Err(error) => self.damaged.push(error),
        }
    }

    fn add_pixels(&mut self, image: &Pixels) {
        *self.sizes.entry([image.height, image.width]).or_default() += 1;
        let (pixels, _) = image.bytes.as_chunks::<3>();
        self.pixels += pixels.len() as u64;
        for pixel in pixels {
            for (channel, &value) in pixel.iter().enumerate() {
                self.sums[channel] += u64::from(value);
                self.squares[channel] += u64::from(value) * u64::from(value);
            }
        }
    }

    /// Number of images that were read.
    pub fn count(&self) -> usize {
        self.sizes.values().sum()
    }

    /// Mean of red, green and blue over all pixels, from 0 to 1; 0 without images.
    pub fn mean(&self) -> [f64; 3] {
        self.sums.map(|sum| sum as f64 / self.total() / 255.0)
    }

    /// Standard deviation of red, green and blue over all pixels, of values from 0 to 1.
    pub fn std(&self) -> [f64; 3] {
        let mean = self.mean();
        std::array::from_fn(|channel| {
            let square = self.squares[channel] as f64 / self.total() / (255.0 * 255.0);
            (square - mean[channel] * mean[channel]).max(0.0).sqrt()
        })
    }

    fn total(&self) -> f64 {
        self.pixels.max(1) as f64
    }
}
