//! Search for NaN, infinities and invalid labels in the data, after a run has diverged. It reads
//! batches again on the host, so that steps have no overhead.

use std::time::{Duration, Instant};

use half::{bf16, f16};
use halite_core::{DType, HostArray, Result};
use halite_data::{HostBatch, Loader, Order, Permutation, Position};
use halite_nn::ClassTarget;

/// Time limit of the search.
const LIMIT: Duration = Duration::from_secs(60);

/// Result of the search.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cause {
    /// A value that no model can learn from, and its place.
    Data(String),
    /// The batches were searched and are valid; `labels` is true if labels were checked.
    NotData { labels: bool },
    /// The batches could not be searched.
    Unknown,
}

/// Searches the batches of these steps, counted from 1, in their order.
pub(crate) fn of_steps(
    loader: &Loader,
    batches: &Batches,
    targets: &[Target],
    steps: impl IntoIterator<Item = u64>,
) -> Cause {
    let of_step = batches.of_step.max(1);
    let per_epoch = loader.batches_per_epoch().div_ceil(of_step) as u64;
    let positions = steps
        .into_iter()
        .filter_map(|step| batches.position_of(step, per_epoch));
    let first = |position: Position| Position {
        batch: position.batch * of_step,
        ..position
    };
    let of_steps = positions.flat_map(|position| loader.epoch_from(first(position)).take(of_step));
    of_batches(loader, targets, of_steps)
}

/// Mapping from the steps of a process to the batches of its data. The number of a step alone does
/// not suffice: a run may have resumed with another batch size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batches {
    /// Steps before the process started.
    first: u64,
    /// The position of the first step.
    epoch: u64,
    batch: u64,
    /// Batches of a step.
    of_step: usize,
}

impl Batches {
    /// The mapping for steps of this many batches.
    pub(crate) fn of_step(batches: usize) -> Self {
        Batches {
            of_step: batches,
            ..Batches::default()
        }
    }

    /// Sets the position at which a process starts: after `step` steps of the run, and `batch` of
    /// the epoch.
    pub(crate) fn starts_at(&mut self, step: u64, epoch: u64, batch: usize) {
        (self.first, self.epoch, self.batch) = (step, epoch, batch as u64);
    }

    /// The place of a step, counted from 1, among the steps of an epoch. For a step before the
    /// process started, that which is as far before its first one.
    fn position_of(&self, step: u64, per_epoch: u64) -> Option<Position> {
        let first = self.epoch.checked_mul(per_epoch)?.checked_add(self.batch)?;
        let index = (first.checked_add(step)?.checked_sub(1)?).checked_sub(self.first)?;
        Some(Position {
            epoch: index / per_epoch,
            batch: (index % per_epoch) as usize,
        })
    }
}

/// Searches one pass over a dataset.
pub(crate) fn of_pass(loader: &Loader, targets: &[Target]) -> Cause {
    of_batches(loader, targets, loader.epoch(0))
}

/// Field of the batch that a loss uses as class labels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// Index of the leaf of the batch, and so of the field of the dataset.
    pub(crate) field: usize,
    pub(crate) classes: ClassTarget,
}

fn of_batches(
    loader: &Loader,
    targets: &[Target],
    batches: impl IntoIterator<Item = Result<HostBatch>>,
) -> Cause {
    let begun = Instant::now();
    let mut looked = false;
    for batch in batches {
        let Ok(batch) = batch else {
            return Cause::Unknown;
        };
        let position = batch.position;
        let weights = batch
            .arrays
            .last()
            .and_then(|weights| weights.as_slice::<f32>().ok());
        let counts = |row: usize| weights.is_none_or(|weights| weights[row] != 0.0);
        for (index, (field, array)) in loader
            .dataset()
            .fields()
            .iter()
            .zip(&batch.arrays)
            .enumerate()
        {
            let found = first_not_finite(array, counts)
                .map(|(at, value)| (at, format!("{value}")))
                .or_else(|| {
                    targets
                        .iter()
                        .filter(|target| target.field == index)
                        .find_map(|target| out_of_range(array, target, counts))
                });
            if let Some((at, what)) = found {
                let row = at.first().copied().unwrap_or_default();
                let (epoch, number) = (position.epoch, position.batch);
                let sample = sample(loader, position, row);
                return Cause::Data(format!(
                    "field `{}` has {what} at {at:?} of the batch, in sample {sample} of the \
                     dataset (epoch {epoch}, batch {number})",
                    field.name
                ));
            }
        }
        looked = true;
        if begun.elapsed() > LIMIT {
            return Cause::Unknown;
        }
    }
    if looked {
        Cause::NotData {
            labels: !targets.is_empty(),
        }
    } else {
        Cause::Unknown
    }
}

/// Index in the dataset of a row of a batch.
fn sample(loader: &Loader, position: Position, row: usize) -> usize {
    let (len, options) = (loader.dataset().len(), loader.options());
    let place =
        (position.batch * options.batch_size + options.shard.index * loader.rows() + row) % len;
    match options.order {
        Order::Sequential => place,
        Order::Shuffled { seed } => Permutation::new(len, seed, position.epoch).at(place),
    }
}

/// Place and value of the first NaN or infinity in a row that counts.
fn first_not_finite(
    array: &HostArray,
    counts: impl Fn(usize) -> bool,
) -> Option<(Vec<usize>, f64)> {
    fn first<T: Copy + Into<f64>>(values: &[T]) -> impl Iterator<Item = (usize, f64)> {
        values
            .iter()
            .map(|&value| value.into())
            .enumerate()
            .filter(|(_, value)| !value.is_finite())
    }
    let found: Box<dyn Iterator<Item = (usize, f64)>> = match array.ty().dtype() {
        DType::F16 => Box::new(first(array.as_slice::<f16>().ok()?)),
        DType::Bf16 => Box::new(first(array.as_slice::<bf16>().ok()?)),
        DType::F32 => Box::new(first(array.as_slice::<f32>().ok()?)),
        DType::F64 => Box::new(first(array.as_slice::<f64>().ok()?)),
        _ => return None,
    };
    let mut found = found.map(|(index, value)| (place(array.ty().dims(), index), value));
    found.find(|(at, _)| counts(at.first().copied().unwrap_or_default()))
}

/// Place of the first invalid label in a row that counts, and a description.
fn out_of_range(
    array: &HostArray,
    target: &Target,
    counts: impl Fn(usize) -> bool,
) -> Option<(Vec<usize>, String)> {
    let ClassTarget {
        classes,
        ignored,
        location,
        ..
    } = &target.classes;
    let (labels, dims) = (integers(array)?, array.ty().dims());
    let is_class = |label: i128| {
        (0..*classes as i128).contains(&label)
            || ignored.is_some_and(|ignored| label == ignored.into())
    };
    let mut bad = labels
        .into_iter()
        .enumerate()
        .filter(|(_, label)| !is_class(*label));
    let (at, label) = bad.find_map(|(index, label)| {
        let at = place(dims, index);
        counts(at.first().copied().unwrap_or_default()).then_some((at, label))
    })?;
    let last = classes.saturating_sub(1);
    Some((
        at,
        format!(
            "the label {label}, and the loss at {location} has {classes} classes, 0 to {last},"
        ),
    ))
}

fn integers(array: &HostArray) -> Option<Vec<i128>> {
    fn wide<T: Copy + Into<i128>>(values: &[T]) -> Vec<i128> {
        values.iter().map(|&value| value.into()).collect()
    }
    match array.ty().dtype() {
        DType::S8 => array.as_slice::<i8>().ok().map(wide),
        DType::S16 => array.as_slice::<i16>().ok().map(wide),
        DType::S32 => array.as_slice::<i32>().ok().map(wide),
        DType::S64 => array.as_slice::<i64>().ok().map(wide),
        DType::U8 => array.as_slice::<u8>().ok().map(wide),
        DType::U16 => array.as_slice::<u16>().ok().map(wide),
        DType::U32 => array.as_slice::<u32>().ok().map(wide),
        DType::U64 => array.as_slice::<u64>().ok().map(wide),
        _ => None,
    }
}

/// Converts a row-major index to the indices of an element.
fn place(dims: &[usize], mut index: usize) -> Vec<usize> {
    let mut at: Vec<usize> = dims
        .iter()
        .rev()
        .map(|&size| {
            let here = index % size;
            index /= size;
            here
        })
        .collect();
    at.reverse();
    at
}
