//! The callback, the logger and the schedule of the example, which uses the public interface alone.

use std::{fs, path::Path};

use halite::train::TrainerBuilder;

#[allow(dead_code, reason = "`main` is of the example")]
#[path = "../../../../examples/extend.rs"]
mod extend;

use extend::{Files, StopBelow, fit_two_classes, sawtooth};

#[test]
fn example_callback_stops_the_run_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let run = |target: f64| {
        let callback = StopBelow { target, loss: None };
        let with = |trainer: TrainerBuilder| {
            let trainer = trainer.quiet(true).out(dir.path()).resume(true);
            trainer.callback(callback)
        };
        fit_two_classes(3e-2, with).unwrap()
    };
    let first = run(0.3);
    assert!(first.interrupted && first.epochs < 100, "{first}");
    assert!(first.metrics["loss"] < 0.3, "{first}");
    assert_eq!(first.stopped_by.as_deref(), Some("a loss below 0.3"));
    // The callback is new, and has the loss from the checkpoint.
    let again = run(0.3);
    assert_eq!(again.resumed_from_step, Some(first.steps));
    assert_eq!(again.steps, first.steps);
    let lower = run(0.2);
    assert!(lower.steps > first.steps, "{lower}");
}

#[test]
fn example_logger_has_each_row_once() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, from: Option<&str>| {
        let rows = dir.path().join(format!("rows of {name}"));
        fs::create_dir_all(&rows).unwrap();
        let with = |trainer: TrainerBuilder| {
            let trainer = trainer.epochs(2).log_every(3).quiet(true);
            let trainer = trainer.out(dir.path().join(name));
            let trainer = match from {
                Some(checkpoint) => trainer.resume_from(checkpoint),
                None => trainer,
            };
            trainer.logger(Files(rows.clone()))
        };
        fit_two_classes(sawtooth(3e-2, 5.0), with).unwrap();
        files(&rows)
    };
    let whole = run("whole", None);
    assert_eq!(whole.len(), 9, "{whole:?}");
    assert_eq!(run("whole", Some("8")), whole);
}

#[test]
fn example_schedule_has_the_values_of_its_formula() {
    let rate = sawtooth(2.0, 4.0);
    assert_eq!(
        [0, 1, 3, 4, 7].map(|step| rate.value(step)),
        [1.875, 1.625, 1.125, 1.875, 1.125]
    );
}

/// Names and contents of the files in a folder, in order.
fn files(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}
