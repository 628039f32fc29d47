//! Batches of CT slices: from JPEG files by the CT pipeline, or computed.

use std::{collections::BTreeMap, path::Path};

use halite::{
    data::{
        Dataset, Rows, Table,
        images::{CT_IDS, CT_LABELS, ImageTable, Transforms},
    },
    weights::{SafetensorsWriter, TensorInfo},
};
use halite_core::{DType, Error, HostArray, Result};

use super::{
    formula,
    networks::{BATCHES, Batches, Size},
};

/// Height and width of the images.
const SIDE: usize = 64;

/// Images of a batch.
fn count(size: Size) -> usize {
    match size {
        Size::Full => 8,
        Size::Small => 4,
    }
}

/// Pixels `u8[batch, side, side, 3]` and labels `f32[batch, 10]` of the first rows of
/// `DIR/train.csv`, read as `halite train ct` reads them for validation.
///
/// # Errors
/// If there are too few images, or one cannot be read.
fn read(dir: &Path, size: Size) -> Result<Batches> {
    let table = Table::read(dir.join("train.csv"))?;
    let images = ImageTable::open(dir.join("train"), &table, &CT_IDS, Transforms::new(SIDE))?
        .with_labels(&table, &CT_LABELS)?;
    let count = count(size);
    if images.len() < BATCHES * count {
        let (dir, images, needed) = (dir.display(), images.len(), BATCHES * count);
        let message = format!("{dir} has {images} images; {needed} are needed");
        return Err(Error::invalid("parity", message));
    }
    let batch = |at: usize| {
        let mut rows = Rows::zeros(images.fields(), count)?;
        for row in 0..count {
            images.read(at * count + row, &mut rows.sample_mut(row))?;
        }
        let mut arrays = rows.into_arrays().into_iter();
        let next = (arrays.next(), arrays.next());
        let (Some(pixels), Some(labels)) = next else {
            unreachable!("a table with labels has two fields");
        };
        Ok((pixels, labels))
    };
    (0..BATCHES).map(batch).collect()
}

/// Writes the batches of a folder as `images.0`, `labels.0`, .. to a safetensors file, for PyTorch.
///
/// # Errors
/// As [`read`]; if the file cannot be written.
pub(super) fn write(dir: &Path, size: Size, path: &Path) -> Result<()> {
    let batches = read(dir, size)?;
    let named = batches
        .iter()
        .enumerate()
        .flat_map(|(at, (images, labels))| {
            [
                (format!("images.{at}"), images),
                (format!("labels.{at}"), labels),
            ]
        });
    let named: Vec<(String, &HostArray)> = named.collect();
    let infos: Vec<TensorInfo> = (named.iter())
        .map(|(name, array)| TensorInfo {
            name: name.clone(),
            ty: array.ty().clone(),
        })
        .collect();
    let mut writer = SafetensorsWriter::create(path, &infos, &BTreeMap::new())?;
    for (_, array) in named {
        writer.write(array)?;
    }
    writer.finish()
}

/// Pixels from 0 to 255 and labels, both of `dtype`: of the files in `data`, else of the formula.
///
/// # Errors
/// As [`read`].
pub(super) fn batches(data: Option<&Path>, size: Size, dtype: DType) -> Result<Batches> {
    if let Some(dir) = data {
        let converted = |(pixels, labels): (HostArray, HostArray)| {
            let pixels = floats(pixels.as_slice::<u8>()?, pixels.ty().dims(), dtype)?;
            let labels = floats(labels.as_slice::<f32>()?, labels.ty().dims(), dtype)?;
            Ok((pixels, labels))
        };
        return read(dir, size)?.into_iter().map(converted).collect();
    }
    let count = count(size);
    let integers = |name: &str, high: u64, dims: &[usize]| {
        let values = formula::integers(name, high, dims)?;
        let values: Vec<f32> = (values.as_slice::<i32>()?.iter())
            .map(|&value| value as f32)
            .collect();
        floats(&values, dims, dtype)
    };
    let batch = |at: usize| {
        let pixels = integers(&format!("images.{at}"), 256, &[count, SIDE, SIDE, 3])?;
        let labels = integers(&format!("labels.{at}"), 2, &[count, CT_LABELS.len()])?;
        Ok((pixels, labels))
    };
    (0..BATCHES).map(batch).collect()
}

fn floats<T: Copy + Into<f64>>(values: &[T], dims: &[usize], dtype: DType) -> Result<HostArray> {
    let wide: Vec<f64> = values.iter().map(|&value| value.into()).collect();
    formula::array(&wide, dims, dtype)
}
