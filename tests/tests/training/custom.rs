//! The callback and the logger of the examples, which use the public interface alone.

use std::{fs, path::Path};

use halite::train::TrainerBuilder;

#[allow(dead_code, reason = "`main` is of the example")]
#[path = "../../../examples/callback.rs"]
mod callback;
#[allow(dead_code, reason = "`main` is of the example")]
#[path = "../../../examples/logger.rs"]
mod logger;

use callback::StopBelow;
use logger::JsonLines;

#[test]
fn example_callback_stops_the_run_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let run = |target: f64| {
        let callback = StopBelow { target, loss: None };
        let with = |trainer: TrainerBuilder| {
            let trainer = trainer.quiet(true).out(dir.path()).resume(true);
            trainer.callback(callback)
        };
        callback::fit_two_classes(with).unwrap()
    };
    let first = run(0.3);
    assert!(first.interrupted && first.epochs < 100, "{first}");
    assert!(first.metrics["loss"] < 0.3, "{first}");
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
        let rows = dir.path().join(format!("{name}.jsonl"));
        let with = |trainer: TrainerBuilder| {
            let trainer = trainer.epochs(2).log_every(3).quiet(true);
            let trainer = trainer.out(dir.path().join(name));
            let trainer = match from {
                Some(checkpoint) => trainer.resume_from(checkpoint),
                None => trainer,
            };
            trainer.logger(JsonLines(rows.clone()))
        };
        logger::fit_two_classes(with).unwrap();
        lines(&rows)
    };
    let whole = run("whole", None);
    assert_eq!(whole.len(), 9, "{whole:?}");
    assert_eq!(run("whole", Some("8")), whole);
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(str::to_string).collect()
}
