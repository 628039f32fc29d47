//! How long a run is, and on which data.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use halite_core::Result;
use halite_data::{Dataset, Field, LastBatch, SampleMut};
use halite_nn::Adam;
use halite_train::{Callback, Limit, callback::Run};

use super::{Validations, error_of, fit, trainer, weights};
use crate::shared::plane::{Model, Plane, samples, saved};

#[test]
fn run_of_max_steps_resumes_within_the_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fit(trainer().max_steps(16), samples(8)).unwrap();
    assert_eq!((whole.report.steps, whole.report.epochs), (16, 2));
    assert!(!whole.report.interrupted && whole.report.metrics["loss"].is_finite());

    let run = |steps| trainer().out(dir.path().join("run")).max_steps(steps);
    let part = fit(run(9), samples(8)).unwrap();
    assert_eq!((part.report.steps, part.report.interrupted), (9, false));
    // The last step is validated and saved, within the epoch.
    assert_ne!(part.report.metrics, part.report.train_metrics);
    assert_eq!(saved(&dir.path().join("run"))[0], 9);

    let rest = fit(run(16).resume(true), samples(8)).unwrap();
    assert_eq!(rest.report.resumed_from_step, Some(9));
    assert_eq!(weights(&rest), weights(&whole));
    assert_eq!(rest.report.train_metrics, whole.report.train_metrics);

    // The same length again validates; a shorter one is refused.
    let again = fit(run(16).resume(true), samples(8)).unwrap();
    assert_eq!(again.report.metrics, whole.report.metrics);
    let error = error_of(fit(run(12).resume(true), samples(8)));
    assert!(
        error.contains("has 16 steps of training, and `max_steps` is 12: nothing would be trained"),
        "{error}"
    );
}

#[test]
fn first_of_both_lengths_ends_the_run() {
    let steps = |epochs, steps| {
        let fitted = fit(trainer().max_epochs(epochs).max_steps(steps), ()).unwrap();
        (fitted.report.steps, fitted.report.epochs)
    };
    assert_eq!(steps(2, 100), (12, 2));
    assert_eq!(steps(2, 8), (8, 1));
    // The last step of an epoch ends it.
    assert_eq!(steps(9, 12), (12, 2));
}

/// Makes each step take some time.
struct Slow;

impl Callback for Slow {
    fn on_step_end(&mut self, _: &mut Run) -> Result<()> {
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    }
}

/// Uses the rest of the time before the second epoch.
struct Sleeps(Duration);

impl Callback for Sleeps {
    fn on_epoch_start(&mut self, run: &mut Run) -> Result<()> {
        while run.epoch() == 1 && run.seconds() <= self.0.as_secs_f64() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

#[test]
fn time_that_is_over_before_a_step_keeps_the_metrics() {
    let time = Duration::from_secs(4);
    let run = trainer().max_epochs(2).max_time(time);
    let report = fit(run.callback(Sleeps(time)), samples(8)).unwrap().report;
    assert_eq!((report.steps, report.epochs), (6, 1));
    let one = fit(trainer(), samples(8)).unwrap().report;
    assert_eq!(report.train_metrics, one.train_metrics);
}

#[test]
fn run_ends_after_max_time() {
    let dir = tempfile::tempdir().unwrap();
    let run = trainer().out(dir.path()).callback(Slow);
    let fitted = fit(run.max_time(Duration::from_millis(300)), samples(8)).unwrap();
    let report = fitted.report;
    assert!(report.steps > 0 && report.steps < 20, "{report}");
    assert!(!report.interrupted && report.metrics["loss"].is_finite());
    assert_eq!(saved(dir.path())[0], report.steps);
}

#[test]
fn development_run_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let validations = Validations::default();
    let run = trainer().out(dir.path().join("run")).max_epochs(50);
    let run = run.checkpoint_every(1).fast_dev_run(2);
    let fitted = fit(run.callback(validations.clone()), samples(400)).unwrap();
    assert_eq!((fitted.report.steps, validations.steps()), (2, vec![2]));
    assert!(!dir.path().join("run").exists());
    let error = error_of(trainer().out("run").resume(true).fast_dev_run(1).build());
    assert!(error.contains("`fast_dev_run` begins a new run"), "{error}");
}

/// Records the samples that are read.
struct Recorded(Arc<Mutex<Vec<usize>>>, halite_data::InMemory);

impl Dataset for Recorded {
    fn len(&self) -> usize {
        self.1.len()
    }

    fn fields(&self) -> &[Field] {
        self.1.fields()
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        self.0.lock().unwrap().push(index);
        self.1.read(index, into)
    }
}

/// The samples that two epochs read, in order.
fn read_by(
    change: impl FnOnce(halite_train::TrainerBuilder) -> halite_train::TrainerBuilder,
) -> Vec<usize> {
    let read = Arc::default();
    let trainer = change(trainer().workers(0).max_epochs(2)).build().unwrap();
    let data = Recorded(Arc::clone(&read), samples(26));
    trainer
        .fit(Plane, Model::new(), Adam::new(0.1), data, ())
        .unwrap();
    let read = read.lock().unwrap();
    read.clone()
}

#[test]
fn limits_choose_the_batches_of_an_epoch() {
    assert_eq!(read_by(|trainer| trainer).len(), 48);
    // The last batch has samples twice, whose weight is 0.
    assert_eq!(
        read_by(|trainer| trainer.last_batch(LastBatch::Pad)).len(),
        56
    );
    let shuffled = read_by(|trainer| trainer.limit_train_batches(2));
    assert_eq!(shuffled.len(), 16);
    assert_ne!(shuffled[..8], shuffled[8..]);
    assert_eq!(
        read_by(|trainer| trainer.limit_train_batches(0.5)).len(),
        24
    );
    let same = read_by(|trainer| trainer.overfit_batches(2));
    assert_eq!(
        same,
        [(0..8).collect::<Vec<_>>(), (0..8).collect()].concat()
    );
}

#[test]
fn limit_of_no_batch_is_refused_before_the_first_step() {
    let error = error_of(fit(trainer().limit_train_batches(0.1), ()));
    assert!(
        error.contains("`limit_train_batches` is 0.1: none of 6 batches"),
        "{error}"
    );
    let error = error_of(fit(trainer().limit_val_batches(0.1), samples(8)));
    assert!(
        error.contains("`limit_val_batches` is 0.1: none of 2 batches"),
        "{error}"
    );
    assert!(fit(trainer().limit_val_batches(0), samples(8)).is_ok());
}

#[test]
fn resume_with_another_limit_of_the_data_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = || trainer().out(dir.path()).max_epochs(2);
    fit(run().limit_train_batches(3), samples(8)).unwrap();
    let again = |limit: Limit| run().max_epochs(3).resume(true).limit_train_batches(limit);
    let error = error_of(fit(again(Limit::Batches(4)), samples(8)));
    assert!(
        error.contains("limit_train_batches (--limit-train-batches): saved 3, given 4"),
        "{error}"
    );
    // Validation may change: the weights do not depend on it.
    let run = again(Limit::Batches(3))
        .limit_val_batches(1)
        .eval_batch_size(2);
    assert_eq!(fit(run, samples(8)).unwrap().report.steps, 9);
}
