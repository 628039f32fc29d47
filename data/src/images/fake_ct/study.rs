//! Studies of a generated set: labels, anatomy and pixels.

use halite_core::{Error, ErrorKind, Result};
use jpeg_encoder::{ColorType, Encoder};

use super::{CONTEXT, FakeCt, identifier};
use crate::{Key, Random};

/// Probability that the sign of a label is the opposite of the label, in a whole study.
const WRONG: f64 = 1.0 / 6.0;

/// Quality of JPEG files, up to 100.
const QUALITY: u8 = 90;

/// What the slices of a study have in common.
pub(super) struct Study {
    set: FakeCt,
    number: usize,
    pub(super) id: String,
    pub(super) series: String,
    /// Labels of the study, of which the first is that of [`Study::labels`].
    labels: [bool; 10],
    /// Whether the image shows each label, which is wrong for some.
    signs: [bool; 10],
    /// First and last slice with emboli.
    emboli: [usize; 2],
    anatomy: Anatomy,
}

/// Anatomy of a patient; lengths are relative to the side of a slice.
struct Anatomy {
    /// Half axes of the body.
    body: [f64; 2],
    center: [f64; 2],
    /// Half axis and distance from the center of the lungs.
    lung: f64,
    lung_distance: f64,
    vessel: f64,
    /// Waves of the tissue: frequencies along both axes, and phase.
    waves: [[f64; 3]; 4],
    tissue: f64,
    noise: f64,
}

impl Study {
    pub(super) fn new(set: &FakeCt, number: usize) -> Self {
        let key = Key {
            seed: set.seed,
            epoch: 0,
            index: number,
        };
        let mut random = key.random("study");
        let id = identifier(&mut random);
        let series = identifier(&mut random);
        let labels = study_labels(&mut key.random("labels"));
        let mut wrong = key.random("signs");
        let signs = labels.map(|label| label != wrong.chance(WRONG));
        let mut range = key.random("range");
        let length = (set.slices as f64 * range.uniform(0.3, 0.7)).ceil() as usize;
        let first = range.below(set.slices - length.min(set.slices) + 1);
        let mut shape = key.random("anatomy");
        let anatomy = Anatomy {
            body: [shape.uniform(0.4, 0.47), shape.uniform(0.32, 0.42)],
            center: [shape.uniform(0.47, 0.53), shape.uniform(0.47, 0.53)],
            lung: shape.uniform(0.12, 0.16),
            lung_distance: shape.uniform(0.19, 0.24),
            vessel: shape.uniform(0.035, 0.05),
            waves: std::array::from_fn(|_| {
                let frequency = |random: &mut Random| random.uniform(-40.0, 40.0);
                [
                    frequency(&mut shape),
                    frequency(&mut shape),
                    shape.uniform(0.0, std::f64::consts::TAU),
                ]
            }),
            tissue: shape.uniform(100.0, 140.0),
            noise: shape.uniform(4.0, 10.0),
        };
        Study {
            set: *set,
            number,
            id,
            series,
            labels,
            signs,
            emboli: [first, (first + length).min(set.slices)],
            anatomy,
        }
    }

    pub(super) fn slice_key(&self, slice: usize) -> Key {
        Key {
            seed: self.set.seed,
            epoch: 1 + slice as u64,
            index: self.number,
        }
    }

    fn has_emboli(&self, slice: usize) -> bool {
        let [first, last] = self.emboli;
        !self.labels[1] && !self.labels[2] && (first..last).contains(&slice)
    }

    pub(super) fn labels(&self, slice: usize) -> [bool; 10] {
        let mut labels = self.labels;
        labels[0] = self.has_emboli(slice);
        labels
    }

    /// The slice as a JPEG file in color: the same tissue in three windows.
    pub(super) fn jpeg(&self, slice: usize) -> Result<Vec<u8>> {
        let side = self.set.side;
        let failed = |error: String| Error::new(ErrorKind::Io, CONTEXT, error);
        let mut random = self.slice_key(slice).random("pixels");
        let shapes = self.shapes(slice, &mut random);
        let mut pixels = Vec::with_capacity(side * side * 3);
        let depth = slice as f64 / self.set.slices as f64;
        for row in 0..side {
            let y = (row as f64 + 0.5) / side as f64;
            for column in 0..side {
                let x = (column as f64 + 0.5) / side as f64;
                let noise = (random.f64() + random.f64() - 1.0) * 2.0 * self.anatomy.noise;
                let value = self.tissue(x, y, depth, &shapes) + noise;
                for (level, width) in [(40.0, 1.0), (90.0, 1.6), (-20.0, 0.8)] {
                    pixels.push(((value - level) * width + 40.0).clamp(0.0, 255.0) as u8);
                }
            }
        }
        let size = u16::try_from(side).map_err(|error| failed(error.to_string()))?;
        let mut bytes = Vec::new();
        Encoder::new(&mut bytes, QUALITY)
            .encode(&pixels, size, size, ColorType::Rgb)
            .map_err(|error| failed(error.to_string()))?;
        Ok(bytes)
    }

    /// Ellipses of a slice, from the largest to the smallest.
    fn shapes(&self, slice: usize, random: &mut Random) -> Vec<Ellipse> {
        let anatomy = &self.anatomy;
        let [x, y] = anatomy.center;
        let distance = anatomy.lung_distance;
        let mut shapes = vec![
            Ellipse::new(
                [x - distance, y],
                [anatomy.lung * 0.9, anatomy.lung * 1.4],
                30.0,
            ),
            Ellipse::new(
                [x + distance, y],
                [anatomy.lung * 0.9, anatomy.lung * 1.4],
                30.0,
            ),
        ];
        // The ventricles: their ratio is the sign of two labels.
        let [wide, narrow] = [self.signs[8], self.signs[9]];
        let ratio = match (wide, narrow) {
            (true, false) => 1.5,
            (false, true) => 0.7,
            _ => 1.05,
        } * random.uniform(0.95, 1.05);
        let size = 0.055;
        shapes.push(Ellipse::new(
            [x - 0.05, y + 0.16],
            [size * ratio, size * ratio],
            170.0,
        ));
        shapes.push(Ellipse::new([x + 0.06, y + 0.16], [size, size], 170.0));
        // Vessels: center, left and right; a negative study has brighter ones.
        let bright = if self.signs[1] { 215.0 } else { 185.0 };
        let vessel = anatomy.vessel;
        let places = [
            [x, y - 0.1],
            [x + distance, y - 0.02],
            [x - distance, y - 0.02],
        ];
        for (place, side) in places.into_iter().zip([5, 6, 7]) {
            // Vessels with emboli in any slice are wider in all.
            let radius = vessel * if self.signs[side] { 1.35 } else { 1.0 };
            shapes.push(Ellipse::new(place, [radius; 2], bright));
            if self.has_emboli(slice) && self.signs[side] {
                let shifted = [place[0] + random.uniform(-0.3, 0.3) * radius, place[1]];
                shapes.push(Ellipse::new(shifted, [radius * 0.6; 2], 70.0));
            }
        }
        if self.has_emboli(slice) {
            // At least one, whatever the signs are.
            shapes.push(Ellipse::new(places[0], [vessel * 0.6; 2], 70.0));
        }
        shapes.extend(self.spots(random));
        shapes
    }

    fn spots(&self, random: &mut Random) -> Vec<Ellipse> {
        let [x, y] = self.anatomy.center;
        let mut shapes = Vec::new();
        for (label, count, below) in [(3, 5, 0.2), (4, 5, -0.2)] {
            if self.signs[label] {
                for _ in 0..count {
                    let place = [
                        x + random.uniform(-0.12, 0.12),
                        y + below + random.uniform(-0.05, 0.05),
                    ];
                    shapes.push(Ellipse::new(place, [0.014; 2], 250.0));
                }
            }
        }
        shapes
    }

    /// Brightness at a point.
    fn tissue(&self, x: f64, y: f64, depth: f64, shapes: &[Ellipse]) -> f64 {
        let anatomy = &self.anatomy;
        // Slices become narrower to the end of the body.
        let scale = 1.0 - 0.1 * depth;
        let body = Ellipse::new(anatomy.center, anatomy.body.map(|axis| axis * scale), 0.0);
        if !body.contains(x, y) {
            return 5.0;
        }
        let wave = |[a, b, phase]: &[f64; 3]| (a * x + b * y + phase + depth).sin();
        let texture: f64 = anatomy.waves.iter().map(wave).sum();
        let mut value = anatomy.tissue + 6.0 * texture;
        for shape in shapes {
            if shape.contains(x, y) {
                value = shape.value + 3.0 * texture;
            }
        }
        if self.signs[2] {
            // Streaks of motion.
            value += 18.0 * (120.0 * (x + 0.4 * y)).sin();
        }
        value
    }
}

/// Labels of a study that do not contradict each other; the first is of the image and not set.
fn study_labels(random: &mut Random) -> [bool; 10] {
    let mut labels = [false; 10];
    let kind = random.f64();
    if kind < 0.45 {
        labels[1] = true;
        return labels;
    }
    if kind < 0.55 {
        labels[2] = true;
        return labels;
    }
    match random.f64() {
        age if age < 0.3 => labels[3] = true,
        age if age < 0.5 => labels[4] = true,
        _ => {}
    }
    for side in [5, 6, 7] {
        labels[side] = random.chance(0.5);
    }
    if !labels[5..8].contains(&true) {
        labels[5 + random.below(3)] = true;
    }
    let wide = random.chance(0.5);
    (labels[8], labels[9]) = (wide, !wide);
    labels
}

/// A filled ellipse; lengths are relative to the side of a slice.
struct Ellipse {
    center: [f64; 2],
    axes: [f64; 2],
    value: f64,
}

impl Ellipse {
    fn new(center: [f64; 2], axes: [f64; 2], value: f64) -> Self {
        Ellipse {
            center,
            axes,
            value,
        }
    }

    fn contains(&self, x: f64, y: f64) -> bool {
        let (a, b) = (
            (x - self.center[0]) / self.axes[0],
            (y - self.center[1]) / self.axes[1],
        );
        a * a + b * b < 1.0
    }
}
