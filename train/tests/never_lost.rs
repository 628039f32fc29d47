//! A run never loses trained steps: accessories that fail, data and devices that hang, memory that
//! runs out.

mod accessories;
mod faulty;
#[path = "../../tests/src/hanging.rs"]
mod hanging;
mod memory;
mod stops;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use halite_core::{Client, Result};
use halite_data::{Dataset, Field, InMemory, SampleMut};
use halite_nn::Adam;
use halite_train::{Fitted, Trainer, TrainerBuilder};

use crate::shared::plane::{Model, Plane, samples, saved};

/// Samples of one epoch: five steps of [`BATCH`].
const SAMPLES: usize = 20;
const BATCH: usize = 4;

fn points() -> InMemory {
    samples(SAMPLES)
}

/// A dataset that calls a function at each read.
struct Watched<F> {
    inner: InMemory,
    reads: AtomicUsize,
    on_read: F,
}

/// [`points`], with `on_read` called with the number of earlier reads.
fn watched(
    on_read: impl Fn(usize) + Send + Sync,
) -> Watched<impl Fn(usize, &mut [f32]) + Send + Sync> {
    altered(move |reads, _| on_read(reads))
}

/// [`points`], with `on_read` called with the number of earlier reads and the sample's `x`.
fn altered<F: Fn(usize, &mut [f32]) + Send + Sync>(on_read: F) -> Watched<F> {
    Watched {
        inner: points(),
        reads: AtomicUsize::new(0),
        on_read,
    }
}

impl<F: Fn(usize, &mut [f32]) + Send + Sync> Dataset for Watched<F> {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn fields(&self) -> &[Field] {
        self.inner.fields()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        self.inner.read(index, into)?;
        (self.on_read)(
            self.reads.fetch_add(1, Ordering::SeqCst),
            into.values_mut(0)?,
        );
        Ok(())
    }
}

fn on(client: &Client) -> TrainerBuilder {
    Trainer::builder(client).batch_size(BATCH).quiet(true)
}

fn fit(trainer: TrainerBuilder, train: impl Dataset + 'static) -> Result<Fitted<Plane>> {
    let trainer = trainer.build()?;
    trainer.fit(Plane, Model::new(), Adam::new(0.1), train, points())
}

/// (step, split) of the rows of `metrics.csv`.
fn rows(out: &Path) -> Vec<(u64, String)> {
    let text = std::fs::read_to_string(out.join("metrics.csv")).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        (cells[0].parse().unwrap(), cells[3].to_string())
    };
    text.lines().skip(1).map(row).collect()
}

fn out_in(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("run")
}
