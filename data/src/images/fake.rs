//! Generated images, for benchmarks and for trying a program without data.

use halite_core::{DType, Error, Result, TensorType};

use super::MAX_SIDE;
use crate::{Dataset, Field, SampleMut};

/// Generated images: noise around the color of a class. The same arguments give the same samples.
///
/// The fields are those of [`ImageFolder`](super::ImageFolder): `image: u8[side, side, 3]` and
/// `label: u32[]`; of [gray](Self::gray) images those of [`Mnist`](crate::Mnist): `image: u8[side, side]`
/// and `label: u8[]`.
#[derive(Clone, Debug)]
pub struct FakeImages {
    count: usize,
    classes: u32,
    seed: u64,
    /// Channels of a pixel: 3 or 1.
    channels: usize,
    fields: [Field; 2],
}

impl FakeImages {
    /// Creates `count` samples of `classes` classes, in turn.
    ///
    /// # Errors
    /// If there are no samples or classes, or the side is 0 or too large.
    pub fn new(count: usize, side: usize, classes: usize, seed: u64) -> Result<Self> {
        let image = TensorType::new(DType::U8, [side, side, 3]);
        Self::of(
            count,
            classes,
            seed,
            [image, TensorType::scalar(DType::U32)],
        )
    }

    /// Creates `count` samples of gray images in `classes` classes, in turn.
    ///
    /// # Errors
    /// As [`new`](Self::new); if there are more than 256 classes.
    pub fn gray(count: usize, side: usize, classes: usize, seed: u64) -> Result<Self> {
        if classes > 256 {
            let message = format!("{classes} classes; labels of gray images are u8: at most 256");
            return Err(Error::invalid(CONTEXT, message));
        }
        let image = TensorType::new(DType::U8, [side, side]);
        Self::of(count, classes, seed, [image, TensorType::scalar(DType::U8)])
    }

    fn of(count: usize, classes: usize, seed: u64, types: [TensorType; 2]) -> Result<Self> {
        let [image, label] = types;
        let side = image.dims()[0];
        let fits = (1..=MAX_SIDE).contains(&side) && count > 0;
        match u32::try_from(classes) {
            Ok(classes @ 1..) if fits => Ok(FakeImages {
                count,
                classes,
                seed,
                channels: image.dims().get(2).copied().unwrap_or(1),
                fields: [Field::new("image", image), Field::new("label", label)],
            }),
            _ => {
                let message = format!(
                    "{count} images of {side}x{side} in {classes} classes; expected at least one of each, and sides of 1 to {MAX_SIDE}"
                );
                Err(Error::invalid(CONTEXT, message))
            }
        }
    }
}

const CONTEXT: &str = "fake images";

impl Dataset for FakeImages {
    fn len(&self) -> usize {
        self.count
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let label = (index % self.classes as usize) as u32;
        let color = mixed(u64::from(label)).to_le_bytes();
        let mut state = mixed(self.seed ^ (index as u64).rotate_left(32));
        for row in into.bytes_mut(0).chunks_mut(24) {
            for part in row.chunks_mut(8) {
                state = mixed(state);
                let noise = state.to_le_bytes();
                part.iter_mut().zip(noise).for_each(|(to, from)| *to = from);
            }
            // The mean of noise and color.
            for (place, byte) in row.iter_mut().enumerate() {
                *byte = *byte / 2 + color[place % self.channels] / 2;
            }
        }
        match self.channels {
            1 => into.write(1, &[label as u8]),
            _ => into.write(1, &[label]),
        }
    }

    fn digest(&self) -> Option<String> {
        Some(format!(
            "{} fake images {} in {} classes of seed {}",
            self.count, self.fields[0].ty, self.classes, self.seed
        ))
    }

    fn name(&self) -> String {
        "fake images".to_owned()
    }
}

/// splitmix64
fn mixed(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
