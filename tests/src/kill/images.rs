//! Images for the trainings on pipelines of data.

use std::{fs, path::Path};

use halite::{
    Result,
    data::{
        Dataset, Table,
        images::{CT_IDS, CT_LABELS, FakeCt, ImageTable, Transforms},
        records::{Example, write_record},
    },
};

/// Writes 48 generated slices as files with a table, and the same as records, `train.tfrecord`.
pub(super) fn write(dir: &Path) -> Result<()> {
    let set = FakeCt {
        studies: 12,
        slices: 4,
        side: 32,
        seed: 1,
    };
    set.write(dir)?;
    let table = Table::read(dir.join("train.csv"))?;
    let images = ImageTable::open(dir.join("train"), &table, &CT_IDS, Transforms::new(16))?
        .with_labels(&table, &CT_LABELS)?;
    let mut records = Vec::new();
    for row in 0..images.len() {
        let mut example = Example::default();
        example.set_bytes("image/encoded", [fs::read(images.path(row))?]);
        example.set_floats("image/labels", images.labels(row).iter().copied());
        write_record(&mut records, &example.encode())?;
    }
    Ok(fs::write(dir.join("train.tfrecord"), records)?)
}
