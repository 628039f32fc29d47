//! Metrics of whole validation sets, from the rows of all batches.

use std::fs;

use halite_core::{ErrorKind, Result};
use halite_data::Labeled;
use halite_nn::{Adam, Mean, Tensor, Trace};
use halite_train::{
    Collect, EarlyStopping, Fitted, Mode, ModelCheckpoint, Report, Task, TrainerBuilder,
    metrics::{Confusion, PrecisionRecall, RocAuc, SetMetric, confusion, roc_auc},
};

use super::{error_of, trainer};
use crate::shared::scored::{LABELS, Scale, Scored, data, label, rows, scale};

fn fit<K: Task<Model = Scale<()>>>(
    trainer: TrainerBuilder,
    task: K,
    [scores, targets]: [&[f32]; 2],
) -> Result<Fitted<K>> {
    let (train_scores, train_targets) = rows(8);
    trainer.build()?.fit(
        task,
        scale(),
        Adam::new(0.1),
        data(&train_scores, &train_targets),
        data(scores, targets),
    )
}

#[test]
fn collected_metrics_are_those_of_the_whole_set() {
    let dir = tempfile::tempdir().unwrap();
    let (scores, targets) = rows(21);
    let best = ModelCheckpoint::new("roc_auc/b");
    let stopping = EarlyStopping::new("val_roc_auc").patience(1);
    let run = trainer().out(dir.path()).max_epochs(3);
    let run = run.checkpoint(best).callback(stopping);
    let fitted = fit(run, Scored, [&scores, &targets]).unwrap();
    let of = |name: &str| fitted.report.metrics[name];
    let classes = |label: usize| -> Vec<bool> {
        let targets = self::label(&targets, label).into_iter();
        targets.map(|target| target == 1.0).collect()
    };
    let aucs = [0, 1].map(|index| roc_auc(&label(&scores, index), &classes(index)).unwrap());
    assert_eq!([of("roc_auc/a"), of("roc_auc/b")], aucs);
    assert_eq!(of("roc_auc"), (aucs[0] + aucs[1]) / 2.0);

    // The scores never change, so the second validation is no improvement.
    assert_eq!(fitted.report.epochs, 2);
    assert!(fitted.report.best_checkpoint.is_some());
    let first = |values: &[f32]| -> Vec<usize> {
        let rows = values.chunks(2);
        rows.map(|row| usize::from(row[1] > row[0])).collect()
    };
    let matrix = confusion(&first(&scores), &first(&targets), 2).unwrap();
    assert_eq!(fitted.report.confusion[0].matrix().unwrap(), matrix);
    assert_eq!(of("classes/accuracy"), matrix.accuracy());

    let table = fs::read_to_string(dir.path().join("metrics.csv")).unwrap();
    assert!(table.contains("roc_auc/b"), "{table}");
    let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(page.contains("Confusion matrix `classes`"));
    let read = Report::read(dir.path().join("report.json")).unwrap();
    assert_eq!(read.confusion, fitted.report.confusion);
    assert!(
        read.to_string()
            .contains("classes: true classes in rows, predicted")
    );
    assert_eq!(fitted.report.train_metrics.len(), 1);
}

#[test]
fn label_of_one_class_is_left_out_of_the_mean() {
    let (scores, mut targets) = rows(12);
    targets
        .iter_mut()
        .skip(1)
        .step_by(2)
        .for_each(|target| *target = 0.0);
    let fitted = fit(trainer(), Scored, [&scores, &targets]).unwrap();
    let of = |name: &str| fitted.report.metrics[name];
    assert!(of("roc_auc/b").is_nan() && of("average_precision/b").is_nan());
    assert_eq!(of("roc_auc"), of("roc_auc/a"));
}

#[test]
fn undefined_values_do_not_end_a_run() {
    let (scores, _) = rows(12);
    let dir = tempfile::tempdir().unwrap();
    let stopping = EarlyStopping::new("roc_auc/b").patience(1);
    let best = ModelCheckpoint::new("roc_auc/b");
    let run = trainer().out(dir.path()).max_epochs(3);
    let run = run.checkpoint(best).callback(stopping);
    let fitted = fit(run, Scored, [&scores, &[0.0; 24]]).unwrap();
    assert_eq!(fitted.report.epochs, 3);
    assert_eq!(fitted.report.best_checkpoint, None);
}

/// Collects one metric.
struct Collecting {
    metric: SetMetric,
    weighted: bool,
    /// Whether the scores are NaN.
    not_a_number: bool,
    name: &'static str,
}

impl Task for Collecting {
    type Model = Scale<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Scale<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let weight = match self.weighted {
            true => batch.weight,
            false => batch.weight.ones_like(),
        };
        let (name, metric) = (self.name, self.metric.clone());
        let scores = match self.not_a_number {
            true => (batch.input - 100.0).log(),
            false => batch.input,
        };
        cx.collect(name, metric, scores, batch.target, weight);
        Scored.loss(cx, model, batch)
    }
}

fn collecting(metric: impl Into<SetMetric>) -> Collecting {
    Collecting {
        metric: metric.into(),
        weighted: true,
        not_a_number: false,
        name: "mine",
    }
}

fn refused(task: Collecting, change: impl FnOnce(&mut [f32], &mut [f32])) -> String {
    let (mut scores, mut targets) = rows(10);
    change(&mut scores, &mut targets);
    error_of(fit(trainer(), task, [&scores, &targets]))
}

#[test]
fn invalid_rows_are_errors_with_label_and_batch() {
    let auc = || collecting(RocAuc::by_label(&LABELS));
    let target = refused(auc(), |_, targets| targets[11] = 2.0);
    let expected = "`mine` of the label `b`: row 1 of batch 2 has the target 2; expected 0 to 1";
    assert!(target.contains(expected), "{target}");
    let few = collecting(RocAuc::by_label(&LABELS).most_bytes(10 * 2 * 16 - 1));
    let few = refused(few, |_, _| ());
    let expected = "the rows of `mine` take 320 bytes, 16 a sample and label, and the limit is 319";
    assert!(few.contains(expected), "{few}");
}

#[test]
fn nan_scores_are_a_divergence() {
    let (scores, targets) = rows(10);
    let auc = Collecting {
        not_a_number: true,
        ..collecting(RocAuc::by_label(&LABELS))
    };
    let error = fit(trainer(), auc, [&scores, &targets]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged);
    assert!(
        error
            .to_string()
            .contains("row 0 of batch 1 has the score NaN"),
        "{error}"
    );
}

#[test]
fn mistakes_of_collecting_are_found_before_the_run() {
    let mistakes = [
        (
            collecting(RocAuc::by_label(&["a"])),
            "expected both [batch, .., 1]",
        ),
        (
            collecting(RocAuc::by_label(&["a", "a"])),
            "two labels have the name `a`",
        ),
        (
            collecting(Confusion::of_classes(&["a", "b"])),
            "targets as integers",
        ),
        (
            collecting(PrecisionRecall::of_labels::<&str>(&[])),
            "no label or class is named",
        ),
        (
            Collecting {
                weighted: false,
                ..collecting(RocAuc::by_label(&LABELS))
            },
            "the weight of `mine` does not depend on `batch.weight`",
        ),
        (
            Collecting {
                name: "roc_auc",
                ..collecting(RocAuc::by_label(&LABELS))
            },
            "`roc_auc` is collected already",
        ),
        (
            Collecting {
                name: "loss",
                ..collecting(RocAuc::by_label(&LABELS))
            },
            "two metrics `loss`",
        ),
    ];
    for (task, expected) in mistakes {
        let message = refused(task, |_, _| ());
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn values_by_label_improve_upward() {
    assert_eq!(Mode::of("validation roc_auc/a"), Some(Mode::Max));
}

#[test]
fn batches_of_a_validation_do_not_change_a_bit() {
    let (scores, targets) = rows(21);
    let builder = trainer();
    let fitted = fit(builder.clone(), Scored, [&scores, &targets]).unwrap();
    let metrics = |size| {
        let trainer = builder.clone().eval_batch_size(size).build().unwrap();
        let metrics = trainer.validate(Scored, &fitted.model, data(&scores, &targets));
        metrics.unwrap().split_off(1)
    };
    assert_eq!(metrics(21), metrics(4));
}
