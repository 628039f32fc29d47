//! Which checkpoints are saved and kept.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use halite_core::{Array, Result, tree::Tree};
use halite_nn::optim::WeightAveraging;
use halite_train::{
    Callback, Checkpoint, Mode, ModelCheckpoint, TrainerBuilder, callback::Run,
    checkpoint::CheckpointStore, loggers::Row,
};

use super::{error_of, fit, trainer};
use crate::shared::plane::{Model, samples, saved};

/// A run of six steps an epoch.
fn run(out: &Path, epochs: u64, checkpoint: ModelCheckpoint) -> TrainerBuilder {
    let run = trainer().out(out).max_epochs(epochs).keep_last(1);
    run.checkpoint(checkpoint).resume(true)
}

/// The loss falls, so that the first checkpoints are the best ones.
fn highest_loss() -> ModelCheckpoint {
    ModelCheckpoint::new("val_loss")
        .mode(Mode::Max)
        .save_top_k(3)
}

/// Records the losses of validations.
#[derive(Clone, Default)]
struct Losses(Arc<Mutex<Vec<(u64, f64)>>>);

impl Callback for Losses {
    fn on_validation_end(&mut self, _: &mut Run, row: &Row) -> Result<()> {
        self.0
            .lock()
            .unwrap()
            .push((row.step, row.get("loss").unwrap()));
        Ok(())
    }
}

/// Names of what is in the directory of the checkpoints, but for its own files.
fn names(out: &Path) -> Vec<String> {
    let entries = fs::read_dir(out.join("checkpoints")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("step-")).collect();
    names.sort();
    names
}

#[test]
fn best_checkpoints_are_kept_beside_the_newest() {
    let dir = tempfile::tempdir().unwrap();
    let losses = Losses::default();
    let whole = run(dir.path(), 6, highest_loss()).callback(losses.clone());
    let report = fit(whole, samples(8)).unwrap().report;
    let mut by_loss = losses.0.lock().unwrap().clone();
    by_loss.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut expected: Vec<u64> = by_loss[..3].iter().map(|(step, _)| *step).collect();
    let best = expected[0];
    assert!(!expected.contains(&36), "{by_loss:?}");
    expected.push(36);
    expected.sort_by(|a, b| b.cmp(a));
    assert_eq!(saved(dir.path()), expected);
    let best = format!("step-{best:08}");
    assert!(report.best_checkpoint.unwrap().ends_with(best));
}

#[test]
fn resumed_run_keeps_what_the_whole_one_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| dir.path().join(name);
    fit(run(&of("whole"), 6, highest_loss()), samples(8)).unwrap();
    for epochs in [2, 4, 6] {
        fit(run(&of("parts"), epochs, highest_loss()), samples(8)).unwrap();
    }
    assert_eq!(names(&of("parts")), names(&of("whole")));
    let best = |name: &str| {
        let store = CheckpointStore::open_read_only(of(name).join("checkpoints")).unwrap();
        let best = store.best().unwrap().unwrap();
        (best.step, best.metric, best.value.to_bits())
    };
    assert_eq!(best("parts"), best("whole"));

    // By another metric the ranking starts again.
    let other = run(&of("parts"), 7, ModelCheckpoint::new("train loss"));
    fit(other, samples(8)).unwrap();
    assert_eq!(saved(&of("parts")), [42]);
    assert_eq!(best("parts").1, "train loss");
}

#[test]
fn best_checkpoints_are_kept_as_weights() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| dir.path().join(name);
    let best = |name: &str| Checkpoint::load(&Model::new(), of(name)).unwrap();
    fit(run(&of("whole"), 5, highest_loss()), samples(8)).unwrap();
    let weights_only = highest_loss().save_weights_only();
    fit(run(&of("weights"), 5, weights_only.clone()), samples(8)).unwrap();
    let files = ["06", "12", "18"].map(|step| format!("step-000000{step}.safetensors"));
    assert_eq!(
        names(&of("weights")),
        [&files[..], &["step-00000030".into()]].concat()
    );
    assert_eq!(best("weights").leaves(), best("whole").leaves());

    // And those of the average, where there is one.
    let average = |run: TrainerBuilder| run.average(WeightAveraging::ema(0.9));
    let fitted = fit(
        average(run(&of("average"), 1, weights_only.clone())),
        samples(8),
    )
    .unwrap();
    fit(average(run(&of("average"), 2, weights_only)), samples(8)).unwrap();
    let read = |model: Model<Array>| model.out.weight.read().unwrap();
    let (average, model) = (read(fitted.average.unwrap()), read(fitted.model));
    assert_ne!(average, model);
    assert_eq!(best("average").out.weight, model);
    let file = of("average").join("checkpoints/step-00000006.safetensors");
    assert_eq!(
        Checkpoint::load(&Model::new(), &file).unwrap().out.weight,
        model
    );
    // By the path of the run, and of the file.
    let trainer = trainer().build().unwrap();
    for path in [of("average"), file] {
        let loaded = Checkpoint::load_average(&Model::new(), &path).unwrap();
        assert_eq!(loaded.out.weight, average);
        let loaded = trainer.load_average(&Model::new(), &path).unwrap();
        assert_eq!(read(loaded), average);
        assert_eq!(read(trainer.load(&Model::new(), &path).unwrap()), model);
    }
}

#[test]
fn no_best_checkpoint_is_kept_of_none() {
    let dir = tempfile::tempdir().unwrap();
    let none = ModelCheckpoint::default().save_top_k(0);
    let report = fit(run(dir.path(), 3, none), samples(8)).unwrap().report;
    assert_eq!(
        (report.best_checkpoint, saved(dir.path())),
        (None, vec![18])
    );
    let all = ModelCheckpoint::default().save_top_k(usize::MAX);
    fit(run(dir.path(), 5, all.clone()), samples(8)).unwrap();
    assert_eq!(saved(dir.path()), [30, 24]);
    // Also those between validations, which have no value.
    let between = tempfile::tempdir().unwrap();
    let all = all.every_n_train_steps(4);
    fit(run(between.path(), 1, all.clone()), samples(8)).unwrap();
    assert_eq!(saved(between.path()), [6, 4]);
    let report = fit(run(between.path(), 2, all.clone()).resume(true), samples(8));
    assert_eq!(
        saved(between.path()),
        [12, 8, 6, 4],
        "{:?}",
        report.map(|fit| fit.report)
    );
}

#[test]
fn names_of_checkpoints_have_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let losses = Losses::default();
    let named = ModelCheckpoint::default()
        .filename("{epoch:02d}-{val_loss:.4f}")
        .unwrap();
    let trainer = run(dir.path(), 1, named.clone().every_n_train_steps(4)).keep_last(9);
    fit(trainer.callback(losses.clone()), samples(8)).unwrap();
    let loss = losses.0.lock().unwrap()[0].1;
    let expected = format!("step-00000006-epoch=01-val_loss={loss:.4}");
    // The loss is not known after step 4.
    assert_eq!(names(dir.path()), ["step-00000004", &*expected]);
    let next = run(dir.path(), 2, named).resume_from(expected);
    assert_eq!(
        fit(next, samples(8)).unwrap().report.resumed_from_step,
        Some(6)
    );
}

#[test]
fn checkpoints_are_saved_when_they_are_due() {
    let steps = |epochs, checkpoint: ModelCheckpoint| {
        let dir = tempfile::tempdir().unwrap();
        let run = run(dir.path(), epochs, checkpoint).keep_last(99);
        fit(run, samples(8)).unwrap();
        let mut steps = saved(dir.path());
        steps.reverse();
        steps
    };
    let rules = ModelCheckpoint::default;
    assert_eq!(steps(5, rules().every_n_epochs(2)), [12, 24, 30]);
    assert_eq!(steps(3, rules().every_n_epochs(0)), [18]);
    let both = rules().every_n_epochs(0).every_n_train_steps(6);
    assert_eq!(steps(3, both), [6, 12, 18]);
    let time = Duration::from_nanos(1);
    let timed = rules().every_n_epochs(0).train_time_interval(time);
    assert_eq!(steps(1, timed), [1, 2, 3, 4, 5, 6]);
    let never = rules()
        .every_n_epochs(0)
        .train_time_interval(Duration::from_secs(900));
    assert_eq!(steps(2, never), [12]);
}

#[test]
fn best_of_a_run_without_validation_is_of_its_training() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = ModelCheckpoint::new("train_loss").mode(Mode::Max);
    let fitted = fit(run(dir.path(), 3, checkpoint), ()).unwrap();
    assert_eq!(saved(dir.path()), [18, 6]);
    assert!(
        fitted
            .report
            .best_checkpoint
            .unwrap()
            .ends_with("step-00000006")
    );
}

#[test]
fn ranking_without_a_metric_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let rules = ModelCheckpoint::default;
    for (option, checkpoint) in [
        ("save_top_k", rules().save_top_k(3)),
        ("mode", rules().mode(Mode::Min)),
        ("save_weights_only", rules().save_weights_only()),
    ] {
        let error = error_of(fit(run(dir.path(), 1, checkpoint), ()));
        let expected = format!("`{option}` needs a metric by which checkpoints are the best");
        assert!(error.contains(&expected), "{error}");
    }
    assert!(!dir.path().join("checkpoints").exists());
    fit(run(dir.path(), 1, rules().save_top_k(0)), ()).unwrap();
}

#[test]
fn ranking_of_the_end_alone_is_a_finding() {
    let findings = |checkpoint: ModelCheckpoint, every: u64| {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = checkpoint.every_n_epochs(0).every_n_train_steps(every);
        let fitted = fit(run(dir.path(), 3, checkpoint), samples(8)).unwrap();
        fitted.report.findings
    };
    let best = || ModelCheckpoint::new("val_loss").save_top_k(3);
    // Validations are after steps 6, 12 and 18.
    let found = findings(best(), 5);
    let expected = "`monitor` ranked 1 of 4 checkpoints";
    assert!(
        found.iter().any(|line| line.contains(expected)),
        "{found:?}"
    );
    for found in [findings(best(), 6), findings(ModelCheckpoint::default(), 5)] {
        assert!(
            !found.iter().any(|line| line.contains("ranked")),
            "{found:?}"
        );
    }
}
