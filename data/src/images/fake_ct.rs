//! Generated CT slices in the layout of the RSNA pulmonary embolism set, for trying a pipeline
//! without it.

mod study;

use std::{fmt::Write as _, fs, io, path::Path};

use halite_core::{Error, ErrorKind, Result, files};

use self::study::Study;
use super::MAX_SIDE;
use crate::Random;

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
