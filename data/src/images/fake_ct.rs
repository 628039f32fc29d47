//! Generated CT slices in the layout of the RSNA pulmonary embolism set, for trying a pipeline
//! without it.

mod study;

use std::{fmt::Write as _, fs, io, path::Path};

use halite_core::{DType, Error, ErrorKind, Result, TensorType, files};

use self::study::Study;
use super::{MAX_PIXELS, MAX_SIDE, Transforms, decode_pixels};
use crate::{Dataset, Field, Random, SampleMut};

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

/// The images with labels of a generated set, as [`FakeCt::write`] writes them, but without files:
/// each read generates, encodes and decodes an image.
///
/// The fields are those of [`ImageTable`](super::ImageTable) with labels: `image: u8[side, side, 3]`
/// and `label: f32[10]`, those of [`CT_LABELS`].
#[derive(Clone, Debug)]
pub struct FakeCtImages {
    set: FakeCt,
    transforms: Transforms,
    fields: [Field; 2],
}

const CONTEXT: &str = "fake CT";

impl FakeCt {
    /// Writes `train.csv`, `test.csv` (without labels) and the images
    /// `train/STUDY/SERIES/0001_ID.jpg` and `test/..` into a folder, which is created. Returns the
    /// numbers of images of both.
    ///
    /// # Errors
    /// If there are no studies or slices, the side is not 16 to 65,535, or a file cannot be
    /// written. Existing tables are not replaced.
    pub fn write(&self, dir: impl AsRef<Path>) -> Result<[usize; 2]> {
        self.write_to(dir.as_ref())
    }

    /// The images with labels as a dataset, without files.
    ///
    /// # Errors
    /// As [`write`](Self::write); if the transforms are out of range.
    pub fn images(&self, transforms: Transforms) -> Result<FakeCtImages> {
        self.check()?;
        transforms.check()?;
        let side = transforms.side();
        Ok(FakeCtImages {
            set: *self,
            transforms,
            fields: [
                Field::new("image", TensorType::new(DType::U8, [side, side, 3])),
                Field::new("label", TensorType::new(DType::F32, [CT_LABELS.len()])),
            ],
        })
    }

    /// The number of images with labels.
    fn check(&self) -> Result<usize> {
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
        Ok(count)
    }

    fn write_to(&self, dir: &Path) -> Result<[usize; 2]> {
        let count = self.check()?;
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

impl FakeCtImages {
    /// Number of the study of a sample, from 0.
    pub fn study(&self, index: usize) -> usize {
        index / self.set.slices
    }

    /// Returns the same images [without random steps](Transforms::for_validation).
    pub fn for_validation(&self) -> Self {
        FakeCtImages {
            transforms: self.transforms.for_validation(),
            ..self.clone()
        }
    }
}

impl Dataset for FakeCtImages {
    fn len(&self) -> usize {
        self.set.studies * self.set.slices
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let study = Study::new(&self.set, self.study(index));
        let slice = index % self.set.slices;
        let pixels = decode_pixels(&study.jpeg(slice)?, MAX_PIXELS)
            .map_err(|reason| Error::new(ErrorKind::Internal, CONTEXT, reason))?;
        let image = self.transforms.transformed(pixels.view(), into.key())?;
        into.bytes_mut(0).copy_from_slice(&image.bytes);
        into.write(
            1,
            &study.labels(slice).map(|label| f32::from(u8::from(label))),
        )
    }

    fn digest(&self) -> Option<String> {
        Some(format!("{:?}, {}", self.set, self.transforms))
    }

    fn name(&self) -> String {
        "fake CT".to_owned()
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
