//! When a run validates.

use std::{sync::Arc, time::Duration};

use halite_core::{Error, ErrorKind, Result};
use halite_data::{Dataset, Field, SampleMut};
use halite_train::{
    Callback, EarlyStopping, Interval,
    callback::Run,
    loggers::{CsvLog, Row},
};

use super::{Validations, error_of, fit, trainer, weights};
use crate::shared::plane::{Plane, samples, saved};

/// Steps after which three epochs of six steps are validated.
fn validated(
    change: impl FnOnce(halite_train::TrainerBuilder) -> halite_train::TrainerBuilder,
) -> Vec<u64> {
    let validations = Validations::default();
    let run = trainer().max_epochs(3).callback(validations.clone());
    fit(change(run), samples(8)).unwrap();
    validations.steps()
}

#[test]
fn validation_is_due_at_its_interval() {
    assert_eq!(validated(|run| run), [6, 12, 18]);
    assert_eq!(
        validated(|run| run.val_check_interval(0.5)),
        [3, 6, 9, 12, 15, 18]
    );
    // The last step is always validated.
    assert_eq!(
        validated(|run| run.val_check_interval(4)),
        [4, 8, 12, 16, 18]
    );
    assert_eq!(validated(|run| run.check_val_every_n_epoch(2)), [12, 18]);
    let each = Interval::Time(Duration::from_nanos(1));
    assert_eq!(validated(|run| run.val_check_interval(each)).len(), 18);
    assert_eq!(
        validated(|run| run.val_check_interval(Duration::from_secs(3600))),
        [18]
    );
    let launches = |run: halite_train::TrainerBuilder| run.steps_per_execution(2);
    assert_eq!(
        validated(|run| launches(run).val_check_interval(4)),
        [4, 8, 12, 16, 18]
    );
}

#[test]
fn validations_do_not_change_the_weights() {
    let often = fit(trainer().max_epochs(2).val_check_interval(1), samples(8)).unwrap();
    let never = fit(trainer().max_epochs(2), ()).unwrap();
    assert_eq!(weights(&often), weights(&never));
    assert_eq!(often.report.train_metrics, never.report.train_metrics);
}

#[test]
fn rows_are_in_the_order_of_their_steps() {
    let dir = tempfile::tempdir().unwrap();
    let run = trainer().out(dir.path()).max_epochs(3).log_every_n_steps(2);
    fit(run.val_check_interval(3), samples(8)).unwrap();
    let rows = CsvLog::read(dir.path().join("metrics.csv")).unwrap();
    assert!(rows.is_sorted_by_key(|row| row.step), "{rows:?}");
}

#[test]
fn run_without_validation_saves_each_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let run = |epochs| trainer().out(dir.path()).max_epochs(epochs);
    let fitted = fit(run(2), ()).unwrap();
    assert_eq!(saved(dir.path()), [12, 6]);
    assert_eq!(fitted.report.metrics, fitted.report.train_metrics);
    assert_eq!(fitted.report.best_checkpoint, None);
    let longer = fit(run(3).resume(true), ()).unwrap();
    assert_eq!(longer.report.steps, 18);
}

/// Ends the run with an error in the first validation at a step.
struct FailsAt(u64);

impl Callback for FailsAt {
    fn on_validation_end(&mut self, run: &mut Run, _: &Row) -> Result<()> {
        match run.step() == self.0 {
            true => Err(Error::new(ErrorKind::Io, "custom", "it failed")),
            false => Ok(()),
        }
    }
}

#[test]
fn validation_within_an_epoch_is_not_repeated_by_a_resume() {
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        trainer()
            .out(dir.path())
            .max_epochs(2)
            .val_check_interval(4)
    };
    let error = error_of(fit(run().callback(FailsAt(8)), samples(8)));
    assert!(error.contains("it failed"), "{error}");
    // Saved with the validation that was made.
    assert_eq!(saved(dir.path())[0], 8);
    let validations = Validations::default();
    let rest = run().resume(true).callback(validations.clone());
    let rest = fit(rest, samples(8)).unwrap();
    assert_eq!(validations.steps(), [12]);
    let whole = fit(trainer().max_epochs(2), samples(8)).unwrap();
    assert_eq!(weights(&rest), weights(&whole));
}

/// Data of which no sample can be read.
struct Unreadable(halite_data::InMemory);

impl Dataset for Unreadable {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fields(&self) -> &[Field] {
        self.0.fields()
    }

    fn read(&self, _: usize, _: &mut SampleMut<'_>) -> Result<()> {
        Err(Error::new(ErrorKind::Io, "data", "unreadable"))
    }
}

#[test]
fn sanity_check_finds_unreadable_data_before_the_first_step() {
    let dir = tempfile::tempdir().unwrap();
    let run = || trainer().out(dir.path());
    let error = error_of(fit(run().num_sanity_val_steps(1), Unreadable(samples(8))));
    assert!(error.contains("validated before the first step"), "{error}");
    assert!(saved(dir.path()).is_empty());
    error_of(fit(run(), Unreadable(samples(8))));
    assert_eq!(saved(dir.path()), [6]);
}

#[test]
fn other_batches_of_an_evaluation_have_equal_metrics() {
    let builder = trainer();
    let fitted = fit(builder.clone(), ()).unwrap();
    let metrics = |size| {
        let trainer = builder.clone().eval_batch_size(size).build().unwrap();
        let validated = trainer.validate(Plane, &fitted.model, samples(10));
        let tested = trainer.test(Plane, &fitted.model, samples(10));
        let validated = validated.unwrap();
        assert_eq!(validated, tested.unwrap());
        validated[0].1
    };
    assert!((metrics(10) - metrics(3)).abs() < 1e-6);
    let limited = builder.limit_val_batches(1).build().unwrap();
    let first = limited.validate(Plane, &fitted.model, samples(10));
    let of_four = limited.test(Plane, &fitted.model, samples(4));
    assert_eq!(first.unwrap(), of_four.unwrap());
}

#[test]
fn several_sets_are_validated_by_name() {
    let dir = tempfile::tempdir().unwrap();
    // One client for all.
    let builder = trainer();
    let run = |epochs| {
        let run = builder.clone().max_epochs(epochs).out(dir.path());
        run.resume(epochs > 2)
    };
    let sets = || [("clean", samples(8)), ("short", samples(5))];
    let fitted = fit(run(2), sets()).unwrap();
    let names: Vec<&String> = fitted.report.metrics.keys().collect();
    assert_eq!(names, ["clean/loss", "short/loss"]);
    for (name, data) in sets() {
        let metrics = builder.clone().build().unwrap();
        let metrics = metrics.validate(Plane, &fitted.model, data).unwrap();
        let of_run = fitted.report.metrics[&format!("{name}/loss")];
        assert!((metrics[0].1 - of_run).abs() < 1e-6 * of_run, "{name}");
    }
    let table = std::fs::read_to_string(dir.path().join("metrics.csv")).unwrap();
    assert!(table.contains("clean/loss"), "{table}");
    // The best checkpoint is that of the first set, and a resume continues it.
    assert!(fitted.report.best_checkpoint.is_some());
    assert_eq!(fit(run(3), sets()).unwrap().report.steps, 18);
    // Sets of different types.
    let others: Vec<(&str, Arc<dyn Dataset>)> = vec![
        ("a", Arc::new(samples(4))),
        ("b", Arc::new(Box::new(samples(3)))),
    ];
    assert_eq!(fit(builder, others).unwrap().report.metrics.len(), 2);
}

#[test]
fn monitor_names_a_set() {
    let stopped = |monitor: &str| {
        let stopping = EarlyStopping::new(monitor).patience(1).min_delta(1e9);
        let run = trainer().max_epochs(9).callback(stopping);
        fit(run, [("clean", samples(8)), ("noisy", samples(5))])
    };
    assert_eq!(stopped("noisy/loss").unwrap().report.epochs, 2);
    let message = error_of(stopped("loss"));
    assert!(
        message.contains("`validation clean/loss`, `validation noisy/loss`"),
        "{message}"
    );
}

#[test]
fn names_of_sets_are_checked() {
    let refused = |names: [&str; 2]| error_of(fit(trainer(), names.map(|name| (name, samples(4)))));
    let twice = refused(["clean", "clean"]);
    assert!(
        twice.contains("two validation sets have the name `clean`"),
        "{twice}"
    );
    for name in ["", "a b", "a/b", "a,b"] {
        let message = refused(["clean", name]);
        assert!(
            message.contains(&format!("the name {name:?} of a validation set")),
            "{message}"
        );
    }
    let empty = error_of(fit(
        trainer(),
        [("clean", samples(4)), ("none", samples(0))],
    ));
    assert!(empty.contains("validation data `none`"), "{empty}");
}
