//! Options of the trainer by Lightning's names: lengths, limits, validation, accumulation, steps that
//! are not finite. On the embedded executor.

mod accumulate;
mod collected;
mod lengths;
mod model_checkpoint;
mod not_finite;
mod predicting;
mod predictions;
mod range_test;
mod unfreeze;
mod validation;

use std::sync::{Arc, Mutex};

use halite_backends::Accelerator;
use halite_core::{HostArray, Result, tree::Tree};
use halite_data::ValidationSet;
use halite_nn::Adam;
use halite_train::{Callback, Fitted, Trainer, TrainerBuilder, callback::Run, loggers::Row};

use crate::shared::plane::{Model, Plane, samples};

fn trainer() -> TrainerBuilder {
    let client = Accelerator::Embedded { devices: None }.open().unwrap();
    Trainer::builder(&client).batch_size(4).quiet(true)
}

/// Fits 24 samples: six batches of four in an epoch.
fn fit(trainer: TrainerBuilder, validation: impl ValidationSet) -> Result<Fitted<Plane>> {
    let (model, adam) = (Model::new(), Adam::new(0.1));
    trainer
        .build()?
        .fit(Plane, model, adam, samples(24), validation)
}

fn weights(fitted: &Fitted<Plane>) -> Vec<HostArray> {
    let leaves = fitted.model.leaves().into_iter();
    leaves.map(|leaf| leaf.read().unwrap()).collect()
}

fn error_of<T>(result: Result<T>) -> String {
    result.err().expect("it fails").to_string()
}

/// Records the steps after which a run was validated.
#[derive(Clone, Default)]
struct Validations(Arc<Mutex<Vec<u64>>>);

impl Validations {
    fn steps(&self) -> Vec<u64> {
        self.0.lock().unwrap().clone()
    }
}

impl Callback for Validations {
    fn on_validation_end(&mut self, run: &mut Run, row: &Row) -> Result<()> {
        assert_eq!(run.step(), row.step);
        self.0.lock().unwrap().push(row.step);
        Ok(())
    }
}
