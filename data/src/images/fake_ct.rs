//! Generated CT slices in the layout of the RSNA pulmonary embolism set, for trying a pipeline
//! without it.

use std::{fmt::Write as _, fs, io, path::Path};

use halite_core::{Error, ErrorKind, Result, files};
use jpeg_encoder::{ColorType, Encoder};

use super::MAX_SIDE;
use crate::{Key, Random};

/// Columns that locate an image: folder of the study, folder of the series, end of the file name.
pub const CT_IDS: [&str; 3] = ["StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID"];

/// Columns of the labels. The first is of the image, the others of its study.
pub const CT_LABELS: [&str; 10] = [
    "pe_present_on_image",
    "negative_exam_for_pe",
    "indeterminate",
    "chronic_pe",
    "acute_and_chronic_pe",
    "central_pe",
    "leftsided_pe",
    "rightsided_pe",
    "rv_lv_ratio_gte_1",
    "rv_lv_ratio_lt_1",
];

/// A generated set of CT slices: JPEG files and tables of labels.
///
/// Each label has a sign that a network can learn: emboli are dark spots in bright vessels, on the
/// left, on the right or in the center; chronic ones have bright specks; the ratio of the
/// ventricles is visible as such; indeterminate studies have streaks. The sign is wrong in one of
/// six studies, so that no model is perfect. Anatomy and texture are those of the study: a model
/// that has seen other slices of it can know the labels from them, and a split that separates
/// images but not studies shows a score that is too good.
///
/// The same arguments give the same files, on one platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeCt {
    /// Studies with labels; a fifth of this number is written without.
    pub studies: usize,
    /// Slices of each study.
    pub slices: usize,
    /// Height and width of a slice, in pixels.
    pub side: usize,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Probability that the sign of a label is the opposite of the label, in a whole study.
const WRONG: f64 = 1.0 / 6.0;

const CONTEXT: &str = "fake CT";
const QUALITY: u8 = 90;

impl FakeCt {
    /// Writes `train.csv`, `test.csv` (without labels) and the images `train/STUDY/SERIES/0001_ID.jpg`
    /// and `test/..` into a folder, which is created. Returns the numbers of images of both.
    ///
    /// # Errors
    /// If there are no studies or slices, the side is not 16 to 65,535, or a file cannot be written.
    /// Existing tables are not replaced.
    pub fn write(&self, dir: impl AsRef<Path>) -> Result<[usize; 2]> {
        self.write_to(dir.as_ref())
    }

    fn write_to(&self, dir: &Path) -> Result<[usize; 2]> {
        let fits = (16..=MAX_SIDE).contains(&self.side);
        let count = self.studies.checked_mul(self.slices).unwrap_or(0);
        // Names of slices have four digits.
        if !fits || count == 0 || self.slices > 9_999 {
            let message = format!(
                "{} studies of {} slices of {side}x{side}; expected at least one study, 1 to 9,999 slices, and a side of 16 to {MAX_SIDE}",
                self.studies,
                self.slices,
                side = self.side
            );
            return Err(Error::invalid(CONTEXT, message));
        }
        for table in ["train.csv", "test.csv"] {
            let path = dir.join(table);
            if path.exists() {
                let message = format!("{} exists; choose another folder", path.display());
                return Err(Error::new(ErrorKind::Io, CONTEXT, message));
            }
        }
        let tests = self.studies.div_ceil(5);
        let train = self.write_part(dir, "train", 0..self.studies)?;
        let test = self.write_part(dir, "test", self.studies..self.studies + tests)?;
        // Last, so that a folder with a table is complete.
        write(&dir.join("test.csv"), test.as_bytes())?;
        write(&dir.join("train.csv"), train.as_bytes())?;
        Ok([count, tests * self.slices])
    }

    /// Writes the images of studies; returns their table.
    fn write_part(
        &self,
        dir: &Path,
        part: &str,
        studies: std::ops::Range<usize>,
    ) -> Result<String> {
        let labeled = part == "train";
        let mut table = CT_IDS.join(",");
        if labeled {
            let _ = write!(table, ",{}", CT_LABELS.join(","));
        }
        table.push('\n');
        for study in studies {
            let study = Study::new(self, study);
            let folder = dir.join(part).join(&study.id).join(&study.series);
            fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
            for slice in 0..self.slices {
                let key = study.slice_key(slice);
                let id = identifier(&mut key.random("slice id"));
                let path = folder.join(format!("{:04}_{id}.jpg", slice + 1));
                // Without waiting for the disk, as the tables do.
                fs::write(&path, study.jpeg(slice)?).map_err(|error| failed(&path, &error))?;
                let _ = write!(table, "{},{},{id}", study.id, study.series);
                if labeled {
                    for label in study.labels(slice) {
                        let _ = write!(table, ",{}", u8::from(label));
                    }
                }
                table.push('\n');
            }
        }
        Ok(table)
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    files::write_output(path, bytes).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::new(
        ErrorKind::Io,
        CONTEXT,
        format!("{}: {error}", path.display()),
    )
}

/// Twelve hexadecimal digits.
fn identifier(random: &mut Random) -> String {
    format!("{:012x}", random.u64() >> 16)
}

/// What the slices of a study have in common.
struct Study {
    set: FakeCt,
    number: usize,
    id: String,
    series: String,
    /// Of the study; the first label is that of [`Study::labels`].
    labels: [bool; 10],
    /// Whether the image shows each label, which is wrong for some.
    signs: [bool; 10],
    /// First and last slice with emboli.
    emboli: [usize; 2],
    anatomy: Anatomy,
}

/// Of a patient; lengths are relative to the side of a slice.
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
    fn new(set: &FakeCt, number: usize) -> Self {
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

    fn slice_key(&self, slice: usize) -> Key {
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

    fn labels(&self, slice: usize) -> [bool; 10] {
        let mut labels = self.labels;
        labels[0] = self.has_emboli(slice);
        labels
    }

    /// The slice as a JPEG file in color: the same tissue in three windows.
    fn jpeg(&self, slice: usize) -> Result<Vec<u8>> {
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
