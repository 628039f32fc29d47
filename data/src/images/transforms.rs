//! Transforms: what happens to an image between its file and the batch.

use std::ops::RangeInclusive;

use halite_core::{Error, HostArray, Result};

use super::{
    Filter, Framing, MAX_SIDE, Pixels, View,
    color::{self, Jitter},
    framing, pixels, warp,
    warp::Affine,
};
use crate::{Key, Random};

/// Transforms of images for training and for validation, in one description.
///
/// The result is always a square, `u8[side, side, 3]`. The steps, in this order:
///
/// 1. a random crop of random size, if there is one, else the central square; resized to `side`;
/// 2. flips, horizontal and vertical;
/// 3. a random rotation, translation, zoom and shear, as one bilinear interpolation, black outside;
/// 4. brightness, contrast and saturation, in random order;
/// 5. Gaussian blur;
/// 6. erasing of a rectangle.
///
/// Random choices are a pure function of the [`Key`] of a read: see [`apply`](Self::apply).
/// Parameters and distributions are those of torchvision. Images stay `u8`: normalization is done
/// on the device.
///
/// ```
/// use halite_core::HostArray;
/// use halite_data::{Key, images::Transforms};
///
/// let train = Transforms::new(8).random_resized_crop(0.8..=1.0).flip(0.5).rotate(10.0);
/// assert_eq!(train.to_string(), "8,random-resized-crop=0.8..1,flip=0.5,rotate=10");
/// assert_eq!("8,random-resized-crop=0.8..1,flip=0.5,rotate=10".parse::<Transforms>()?, train);
///
/// let image = HostArray::from_slice(&[7u8; 10 * 12 * 3], [10, 12, 3])?;
/// let key = Key { seed: 42, epoch: 0, index: 3 };
/// assert_eq!(train.apply(&image, key)?.ty().to_string(), "u8[8, 8, 3]");
/// let valid = train.for_validation();
/// assert_eq!(valid.to_string(), "8");
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Transforms {
    pub(super) framing: Framing,
    /// Area of the crop, relative to the image, and its ratio of width to height.
    pub(super) random_crop: Option<[f64; 2]>,
    pub(super) ratio: [f64; 2],
    /// Probabilities.
    pub(super) flip: f64,
    pub(super) flip_vertical: f64,
    /// Largest angle, in degrees, to both sides.
    pub(super) rotate: f64,
    /// Largest translation to each side, relative to the side.
    pub(super) translate: f64,
    pub(super) zoom: [f64; 2],
    /// Largest shear along x, in degrees.
    pub(super) shear: f64,
    pub(super) brightness: f64,
    pub(super) contrast: f64,
    pub(super) saturation: f64,
    /// Standard deviation in pixels, and probability.
    pub(super) blur: Option<[f64; 2]>,
    pub(super) blur_probability: f64,
    /// Probability, and the area of the rectangle relative to the image.
    pub(super) erase: f64,
    pub(super) erase_area: [f64; 2],
}

impl From<Framing> for Transforms {
    /// The framing, without random steps.
    fn from(framing: Framing) -> Self {
        Transforms {
            framing,
            ..Transforms::new(framing.side)
        }
    }
}

/// Ratio of width to height of a random crop, as in torchvision.
const CROP_RATIO: [f64; 2] = [3.0 / 4.0, 4.0 / 3.0];

/// Relative area and ratio of height to width of an erased rectangle, as in torchvision.
const ERASE_AREA: [f64; 2] = [0.02, 0.33];
const ERASE_RATIO: [f64; 2] = [0.3, 3.3];

/// Trials for a rectangle that fits the image.
const TRIALS: usize = 10;

/// Largest standard deviation of a blur, in pixels.
const MAX_SIGMA: f64 = 100.0;

pub(super) const CONTEXT: &str = "transforms";

impl Transforms {
    /// Resizes the shorter side of an image to `side` pixels bilinearly and cuts out the central
    /// square, for training and for validation.
    pub const fn new(side: usize) -> Self {
        Transforms {
            framing: Framing::new(side).crop(1.0),
            random_crop: None,
            ratio: CROP_RATIO,
            flip: 0.0,
            flip_vertical: 0.0,
            rotate: 0.0,
            translate: 0.0,
            zoom: [1.0; 2],
            shear: 0.0,
            brightness: 0.0,
            contrast: 0.0,
            saturation: 0.0,
            blur: None,
            blur_probability: 0.5,
            erase: 0.0,
            erase_area: ERASE_AREA,
        }
    }

    /// Sets the side of the central square, relative to the shorter side of the image: 0.875 is
    /// `Resize(256)` and `CenterCrop(224)`. By default 1.
    pub const fn crop(mut self, crop: f64) -> Self {
        self.framing.crop = crop;
        self
    }

    /// Sets the interpolation of the resize. By default bilinear.
    pub const fn filter(mut self, filter: Filter) -> Self {
        self.framing.filter = filter;
        self
    }

    /// Trains on a random part of the image instead of the central square: its area relative to the
    /// image is in `scale`, its ratio of width to height in 3/4 to 4/3.
    pub const fn random_resized_crop(mut self, scale: RangeInclusive<f64>) -> Self {
        self.random_crop = Some([*scale.start(), *scale.end()]);
        self
    }

    /// Sets the ratio of width to height of random crops.
    pub const fn crop_ratio(mut self, ratio: RangeInclusive<f64>) -> Self {
        self.ratio = [*ratio.start(), *ratio.end()];
        self
    }

    /// Mirrors an image left to right with this probability.
    pub const fn flip(mut self, probability: f64) -> Self {
        self.flip = probability;
        self
    }

    /// Mirrors an image top to bottom with this probability.
    pub const fn flip_vertical(mut self, probability: f64) -> Self {
        self.flip_vertical = probability;
        self
    }

    /// Rotates by up to `degrees` in both directions.
    pub const fn rotate(mut self, degrees: f64) -> Self {
        self.rotate = degrees;
        self
    }

    /// Translates by up to this part of the side in each direction.
    pub const fn translate(mut self, part: f64) -> Self {
        self.translate = part;
        self
    }

    /// Scales by a factor in this range.
    pub const fn zoom(mut self, factor: RangeInclusive<f64>) -> Self {
        self.zoom = [*factor.start(), *factor.end()];
        self
    }

    /// Shears along the x axis by up to `degrees` in both directions.
    pub const fn shear(mut self, degrees: f64) -> Self {
        self.shear = degrees;
        self
    }

    /// Multiplies the brightness by a factor in `1 - amount..1 + amount`.
    pub const fn brightness(mut self, amount: f64) -> Self {
        self.brightness = amount;
        self
    }

    /// Multiplies the distance to the mean gray by a factor in `1 - amount..1 + amount`.
    pub const fn contrast(mut self, amount: f64) -> Self {
        self.contrast = amount;
        self
    }

    /// Multiplies the distance of each pixel to its gray by a factor in `1 - amount..1 + amount`.
    pub const fn saturation(mut self, amount: f64) -> Self {
        self.saturation = amount;
        self
    }

    /// Blurs with this probability, by a Gaussian of a standard deviation in `sigma` pixels.
    pub const fn blur(mut self, sigma: RangeInclusive<f64>, probability: f64) -> Self {
        self.blur = Some([*sigma.start(), *sigma.end()]);
        self.blur_probability = probability;
        self
    }

    /// Sets a rectangle of 2 to 33 % of the image to black with this probability.
    pub const fn erase(mut self, probability: f64) -> Self {
        self.erase = probability;
        self
    }

    /// Height and width of the result, in pixels.
    pub const fn side(&self) -> usize {
        self.framing.side
    }

    /// Returns these transforms without the random steps: the central square, resized.
    pub const fn for_validation(&self) -> Self {
        Transforms::new(self.framing.side)
            .crop(self.framing.crop)
            .filter(self.framing.filter)
    }

    /// Returns whether the result depends on the key.
    pub fn is_random(&self) -> bool {
        *self != self.for_validation()
    }

    /// Transforms an image `u8[height, width, 3]`; returns `u8[side, side, 3]`.
    ///
    /// Random choices depend on `key` alone, and each step has random numbers of its own: another
    /// probability of flips leaves the crops as they are.
    ///
    /// # Errors
    /// If the array is not an image, or a parameter is out of range.
    pub fn apply(&self, image: &HostArray, key: Key) -> Result<HostArray> {
        self.check()?;
        let view = View::of(image, CONTEXT)?;
        let into_array = |pixels: Pixels| pixels.into_array();
        into_array(self.transformed(view, key)?).map_err(|reason| Error::invalid(CONTEXT, reason))
    }

    /// As [`apply`](Self::apply), of parameters that are [checked](Self::check).
    pub(super) fn transformed(&self, image: View<'_>, key: Key) -> Result<Pixels> {
        let mut image = match self.random_crop {
            Some(scale) => self.random_square(image, scale, &mut key.random("crop"))?,
            None => framing::framed(&self.framing, image)?,
        };
        if key.random("flip").chance(self.flip) {
            pixels::flip(&mut image);
        }
        if key.random("flip vertical").chance(self.flip_vertical) {
            pixels::flip_vertical(&mut image);
        }
        if let Some(affine) = self.affine(&mut key.random("affine")) {
            image = warp::warped(&image, affine);
        }
        let jitter = Jitter {
            brightness: self.brightness,
            contrast: self.contrast,
            saturation: self.saturation,
        };
        color::jitter(&mut image, jitter, &mut key.random("color"));
        if let Some([low, high]) = self.blur {
            let mut random = key.random("blur");
            if random.chance(self.blur_probability) {
                color::blur(&mut image, random.uniform(low, high));
            }
        }
        self.erased(&mut image, &mut key.random("erase"));
        Ok(image)
    }

    /// A part of the image of random area and ratio, resized.
    fn random_square(
        &self,
        image: View<'_>,
        scale: [f64; 2],
        random: &mut Random,
    ) -> Result<Pixels> {
        let area = (image.height * image.width) as f64;
        let [low, high] = self.ratio;
        let mut part = None;
        for _ in 0..TRIALS {
            let target = area * random.uniform(scale[0], scale[1]);
            let ratio = random.uniform(low.ln(), high.ln()).exp();
            let width = (target * ratio).sqrt().round_ties_even() as usize;
            let height = (target / ratio).sqrt().round_ties_even() as usize;
            if (1..=image.width).contains(&width) && (1..=image.height).contains(&height) {
                let top = random.below(image.height - height + 1);
                let left = random.below(image.width - width + 1);
                part = Some(([top, left], [height, width]));
                break;
            }
        }
        // The largest central part whose ratio is in range.
        let ([top, left], [height, width]) = part.unwrap_or_else(|| {
            let (height, width) = (image.height as f64, image.width as f64);
            let dims = match width / height {
                ratio if ratio < low => [(width / low).round_ties_even().min(height), width],
                ratio if ratio > high => [height, (height * high).round_ties_even().min(width)],
                _ => [height, width],
            };
            let [height, width] = dims.map(|side| (side as usize).max(1));
            let corner = [(image.height - height) / 2, (image.width - width) / 2];
            (corner, [height, width])
        });
        let side = self.framing.side;
        if [height, width] == [image.height, image.width] {
            return framing::resized(image, [side; 2], self.framing.filter);
        }
        let part = pixels::cropped(image, [top, left], [height, width]);
        framing::resized(part.view(), [side; 2], self.framing.filter)
    }

    /// A random affine map; `None` if there is nothing to do.
    fn affine(&self, random: &mut Random) -> Option<Affine> {
        let [low, high] = self.zoom;
        let identity = self.rotate == 0.0 && self.translate == 0.0 && self.shear == 0.0;
        if identity && low == 1.0 && high == 1.0 {
            return None;
        }
        let side = self.framing.side as f64;
        let mut symmetric = |largest: f64| random.uniform(-largest, largest);
        let degrees = symmetric(self.rotate);
        // Whole pixels, as in torchvision.
        let translate = [(); 2].map(|()| symmetric(self.translate * side).round_ties_even());
        let shear = [symmetric(self.shear), 0.0];
        Some(Affine {
            degrees,
            translate,
            scale: random.uniform(low, high),
            shear,
        })
    }

    fn erased(&self, image: &mut Pixels, random: &mut Random) {
        if !random.chance(self.erase) {
            return;
        }
        let area = (image.height * image.width) as f64;
        for _ in 0..TRIALS {
            let target = area * random.uniform(self.erase_area[0], self.erase_area[1]);
            let ratio = random
                .uniform(ERASE_RATIO[0].ln(), ERASE_RATIO[1].ln())
                .exp();
            let height = (target * ratio).sqrt().round_ties_even() as usize;
            let width = (target / ratio).sqrt().round_ties_even() as usize;
            if height < image.height && width < image.width {
                let top = random.below(image.height - height + 1);
                let left = random.below(image.width - width + 1);
                pixels::erase(image, [top, left], [height, width]);
                return;
            }
        }
    }

    /// # Errors
    /// If a parameter is out of range; the error names it as in the text form.
    pub(super) fn check(&self) -> Result<()> {
        self.framing.check()?;
        let within = |name: &str, values: [f64; 2], low: f64, high: f64| {
            let [first, last] = values;
            if first >= low && last <= high && first <= last {
                return Ok(());
            }
            let given = if first == last {
                format!("{first}")
            } else {
                format!("{first}..{last}")
            };
            let message = format!("{name} {given}; expected a value or a range in {low}..{high}");
            Err(Error::invalid(CONTEXT, message))
        };
        const SMALL: f64 = 1e-6;
        let side = MAX_SIDE as f64;
        within(
            "random-resized-crop",
            self.random_crop.unwrap_or([1.0; 2]),
            SMALL,
            1.0,
        )?;
        within("crop-ratio", self.ratio, 1.0 / side, side)?;
        within("flip", [self.flip; 2], 0.0, 1.0)?;
        within("flip-vertical", [self.flip_vertical; 2], 0.0, 1.0)?;
        within("rotate", [self.rotate; 2], 0.0, 180.0)?;
        within("translate", [self.translate; 2], 0.0, 1.0)?;
        within("zoom", self.zoom, 0.01, 100.0)?;
        within("shear", [self.shear; 2], 0.0, 80.0)?;
        within("brightness", [self.brightness; 2], 0.0, 1.0)?;
        within("contrast", [self.contrast; 2], 0.0, 1.0)?;
        within("saturation", [self.saturation; 2], 0.0, 1.0)?;
        within("blur", self.blur.unwrap_or([1.0; 2]), 0.01, MAX_SIGMA)?;
        within("blur-probability", [self.blur_probability; 2], 0.0, 1.0)?;
        within("erase", [self.erase; 2], 0.0, 1.0)?;
        within("erase-area", self.erase_area, SMALL, 1.0)
    }
}
