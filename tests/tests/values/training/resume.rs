//! A run that is interrupted and resumed is bit-identical to an uninterrupted one.

use std::{collections::BTreeMap, path::Path, sync::OnceLock};

use halite::{
    ErrorKind,
    data::DatasetExt,
    prelude::*,
    train::{
        Fitted, Report, TrainerBuilder,
        signals::{StopFlag, StopReason},
    },
};

use crate::training::support::{
    Arms, Net, Watched, client, error_of, latest, spirals, trainer, values,
};

/// 25 steps an epoch, and 2 samples that fill no batch.
const SAMPLES: usize = 302;
const BATCH: usize = 12;

fn fit(trainer: TrainerBuilder, data: impl Dataset + 'static) -> Result<Fitted<Arms>> {
    fit_and_validate(trainer, data, spirals(100))
}

fn fit_and_validate(
    trainer: TrainerBuilder,
    data: impl Dataset + 'static,
    validation: impl Dataset + 'static,
) -> Result<Fitted<Arms>> {
    let rate = Schedule::warmup(1e-2, 10).then(Schedule::cosine(1e-2, 65));
    trainer
        .epochs(3)
        .batch_size(BATCH)
        .clip_norm(0.5)
        .log_every(10)
        .build()?
        .fit(Arms, Net::new(), Adam::new(rate), data, validation)
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    model: Vec<(String, HostArray)>,
    metrics: BTreeMap<String, f64>,
    train_metrics: BTreeMap<String, f64>,
    /// Steps, epochs, compiles of the step, blocking reads.
    counts: [u64; 4],
}

impl Outcome {
    fn of(fitted: &Fitted<Arms>) -> Self {
        let Report {
            metrics,
            train_metrics,
            steps,
            epochs,
            step_compiles,
            blocking_reads,
            ..
        } = fitted.report.clone();
        Outcome {
            model: values(&fitted.model),
            metrics,
            train_metrics,
            counts: [steps, epochs, step_compiles, blocking_reads],
        }
    }
}

/// The result on one device without an interruption.
fn uninterrupted() -> &'static Outcome {
    static OUTCOME: OnceLock<Outcome> = OnceLock::new();
    OUTCOME.get_or_init(|| Outcome::of(&fit(trainer(), spirals(SAMPLES)).unwrap()))
}

fn on(devices: usize) -> TrainerBuilder {
    trainer().devices(client().local_devices().into_iter().take(devices))
}

#[test]
fn interrupted_run_is_bit_identical() {
    // Number of samples after which each attempt is stopped: in an epoch, near its end and so in
    // validation, in the next.
    for (devices, every, stops) in [(1, 7, [160, 320].as_slice()), (3, 1, &[330])] {
        let expected = match devices {
            1 => uninterrupted().clone(),
            _ => Outcome::of(&fit(on(devices), spirals(SAMPLES)).unwrap()),
        };
        assert_eq!(expected.counts, [75, 3, 1, 0]);
        let dir = tempfile::tempdir().unwrap();
        for (attempt, &after) in stops.iter().enumerate() {
            let stop = StopFlag::new();
            let setter = stop.clone();
            let data = Watched::new(spirals(SAMPLES), move |reads| {
                if reads == after {
                    setter.stop();
                }
                Ok(())
            });
            let run = on(devices)
                .out(dir.path())
                .resume(attempt > 0)
                .checkpoint_every(every)
                .workers(attempt)
                .stop_flag(&stop);
            let fitted = fit(run, data).unwrap();
            assert_eq!(
                (fitted.report.interrupted, fitted.stopped_by),
                (true, Some(StopReason::Asked))
            );
            assert_eq!(
                latest(dir.path()).unwrap().position().step,
                fitted.report.steps,
                "it is saved where it stopped"
            );
        }
        let fitted = fit(
            on(devices).out(dir.path()).resume(true).workers(4),
            spirals(SAMPLES),
        )
        .unwrap();
        assert_eq!(Outcome::of(&fitted), expected);
        assert_eq!(
            rows(dir.path()),
            [10, 20, 25, 25, 30, 40, 50, 50, 60, 70, 75, 75]
        );
    }
}

#[test]
fn run_stopped_in_validation_counts_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    // Stopped in the scoring after the first epoch, and then in that after the last.
    for (epoch, steps) in [(0, 25), (2, 75)] {
        let stop = StopFlag::new();
        let setter = stop.clone();
        let first_read = epoch * 108;
        let validation = Watched::new(spirals(100), move |reads| {
            // Rows that fill up the last of nine batches are read too.
            if reads == first_read + 3 {
                setter.stop();
            }
            Ok(())
        });
        let run = trainer()
            .out(dir.path())
            .resume(true)
            .workers(0)
            .stop_flag(&stop);
        let fitted = fit_and_validate(run, spirals(SAMPLES), validation).unwrap();
        let report = &fitted.report;
        assert_eq!(
            (report.interrupted, report.steps, report.epochs),
            (true, steps, epoch as u64),
            "{report}"
        );
    }
    let fitted = fit(trainer().out(dir.path()).resume(true), spirals(SAMPLES)).unwrap();
    assert_eq!(fitted.report.resumed_from_step, Some(75));
    let Outcome {
        counts: [steps, epochs, ..],
        ref model,
        ref metrics,
        ref train_metrics,
    } = Outcome::of(&fitted);
    let expected = uninterrupted();
    assert_eq!(
        (model, metrics, train_metrics),
        (&expected.model, &expected.metrics, &expected.train_metrics)
    );
    // There was no step left to compile.
    assert_eq!([steps, epochs], [75, 3]);
    assert_eq!(
        rows(dir.path()),
        [10, 20, 25, 25, 30, 40, 50, 50, 60, 70, 75, 75]
    );
    let text = std::fs::read_to_string(dir.path().join("metrics.csv")).unwrap();
    assert!(
        !text.lines().any(|row| row.ends_with(",0,0")),
        "a window without a step is no row: {text}"
    );
}

#[test]
fn unreadable_data_ends_the_run_after_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let data = Watched::new(spirals(SAMPLES), move |reads| {
        match reads == BATCH * 20 + 5 {
            true => Err(Error::new(ErrorKind::Io, "read", "the cable was pulled")),
            false => Ok(()),
        }
    });
    // One thread reads, so that the sample is of the twenty-first batch.
    let error = error_of(fit(trainer().out(dir.path()).workers(1), data));
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().starts_with("loader: sample "), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("(epoch 0, batch 20): read: the cable was pulled"),
        "{error}"
    );
    let fitted = fit(trainer().out(dir.path()).resume(true), spirals(SAMPLES)).unwrap();
    assert_eq!(fitted.report.resumed_from_step, Some(20));
    assert_eq!(Outcome::of(&fitted), *uninterrupted());
}

#[test]
fn flag_set_before_a_resume_leaves_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    fit(trainer().out(dir.path()), spirals(SAMPLES)).unwrap();
    let stop = StopFlag::new();
    stop.stop();
    let again = trainer()
        .epochs(9)
        .out(dir.path())
        .resume(true)
        .stop_flag(&stop);
    let error = error_of(fit(again, spirals(SAMPLES)));
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(
        error.to_string().ends_with("step-00000075 stays"),
        "{error}"
    );
}

#[test]
fn resume_with_another_map_is_refused() {
    let scaled = |factor: f32| {
        let data = spirals(SAMPLES);
        let fields = data.fields().to_vec();
        data.map(fields, move |sample, into| {
            let x = sample.values::<f32>(0)?;
            into.write(0, &[factor * x[0], factor * x[1]])?;
            into.write(1, sample.values::<u8>(1)?)
        })
    };
    let dir = tempfile::tempdir().unwrap();
    fit(trainer().out(dir.path()), scaled(1.0)).unwrap();
    let resumed = || trainer().out(dir.path()).resume(true);
    fit(resumed(), scaled(1.0)).unwrap();
    let error = error_of(fit(resumed(), scaled(100.0))).to_string();
    for part in [
        "belongs to another run, 1 difference:",
        "training data (--data): saved sha256 ",
        "another function in a `map`",
        "--allow-changes training-data",
    ] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

#[test]
fn resume_rejects_another_run_with_every_difference() {
    let dir = tempfile::tempdir().unwrap();
    fit(trainer().out(dir.path()), spirals(SAMPLES)).unwrap();
    let resumed = || trainer().out(dir.path()).resume(true);
    let error = error_of(fit(resumed().label("circles"), spirals(SAMPLES))).to_string();
    assert!(
        error.contains("label: saved none, given circles"),
        "{error}"
    );
    let error = error_of(fit(resumed().seed(3), spirals(60))).to_string();
    for part in [
        "resume: ",
        "seed (--seed): saved 0, given 3",
        "samples (--limit, --steps): saved 302, given 60",
        "training data (--data): saved sha256 ",
        "another directory (`out`, --out)",
    ] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }

    let mut deeper = Net::new();
    deeper.hidden = vec![Linear::new(2, 16), Linear::new(16, 32)];
    let trainer = resumed().epochs(4).batch_size(BATCH).build().unwrap();
    let error = error_of(trainer.fit(Arms, deeper, Adam::new(1e-3), spirals(SAMPLES), spirals(9)))
        .to_string();
    for part in [
        "belongs to another run, 15 differences:",
        "clip_norm (--gradient-clip-val, --gradient-clip-algorithm): saved 0.5, given none",
        "optimizer (--learning-rate): saved learning_rate: warmup(0.01, 10)",
        "validation data (--data): saved sha256 ",
        "`model.hidden.0.weight` is f32[2, 32] in the checkpoint, the model has f32[2, 16]",
        "`model.hidden.1.bias` is not in the checkpoint, the model has f32[32]",
        "`slots.hidden.0.bias.second` is f32[32] in the checkpoint, the model has f32[16]",
    ] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
    let error = error_of(trainer.fit(
        Arms,
        Net::new(),
        Sgd::new(1e-3),
        spirals(SAMPLES),
        spirals(9),
    ))
    .to_string();
    assert!(
        error.contains(
            "`slots.out.bias.first` is f32[3] in the checkpoint, the model has no such array"
        ),
        "{error}"
    );
}

/// The steps of the rows of `metrics.csv`.
fn rows(out: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(out.join("metrics.csv")).unwrap();
    text.lines()
        .skip(1)
        .map(|line| line.split(',').next().unwrap().parse().unwrap())
        .collect()
}

/// [`Arms`], with another loss of the same arrays.
struct Smoothed;

impl Task for Smoothed {
    type Model = Net<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Net<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let x = model
            .hidden
            .iter()
            .fold(batch.input, |x, layer| layer.forward(x).relu());
        let logits = model.out.forward(model.norm.forward(x));
        cx.metric(
            "accuracy",
            Mean::weighted(correct(logits, batch.target), batch.weight),
        );
        CrossEntropy::new()
            .weights(batch.weight)
            .loss(logits, batch.target)
    }
}

#[test]
fn properties_are_compared_at_resume() {
    let dir = tempfile::tempdir().unwrap();
    let run = |crop: u32| {
        trainer()
            .out(dir.path())
            .resume(true)
            .property("crop", crop)
    };
    fit(run(24), spirals(SAMPLES)).unwrap();
    let error = error_of(fit(run(32), spirals(SAMPLES))).to_string();
    assert!(
        error.contains("1 difference:\n  crop: saved 24, given 32\n"),
        "{error}"
    );
    assert!(
        error.contains("`allow_changes`, --allow-changes crop"),
        "{error}"
    );
    let fitted = fit(run(32).allow_changes(["crop"]), spirals(SAMPLES)).unwrap();
    assert_eq!(fitted.report.resumed_from_step, Some(75));
    let error = error_of(fit(run(24).allow_changes(["corp"]), spirals(SAMPLES))).to_string();
    assert!(
        error.contains("unknown property `corp`") && error.contains(" crop,"),
        "{error}"
    );
    let error = trainer()
        .out(dir.path())
        .allow_changes(["crop"])
        .build()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`allow_changes` needs `resume` or `resume_from`"),
        "{error}"
    );
}

#[test]
fn another_optimizer_of_the_same_slots_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = |rate: f64, decay: f64| {
        let trainer = trainer()
            .out(dir.path())
            .resume(true)
            .batch_size(BATCH)
            .build()
            .unwrap();
        trainer.fit(
            Arms,
            Net::new(),
            Adam::new(rate).weight_decay(decay),
            spirals(SAMPLES),
            spirals(100),
        )
    };
    run(1e-3, 0.0).unwrap();
    let error = error_of(run(1e-2, 0.5)).to_string();
    assert!(
        error.contains(
            "optimizer (--learning-rate): saved learning_rate: 0.001, weight_decay: 0.0, given \
             learning_rate: 0.01, weight_decay: 0.5"
        ),
        "{error}"
    );
}

#[test]
fn another_loss_of_the_same_arrays_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let trainer = |epochs| {
        trainer()
            .out(dir.path())
            .resume(true)
            .batch_size(BATCH)
            .epochs(epochs)
            .build()
            .unwrap()
    };
    let [train, validation] = [SAMPLES, 100].map(spirals);
    trainer(1)
        .fit(
            Arms,
            Net::new(),
            Adam::new(1e-3),
            train.clone(),
            validation.clone(),
        )
        .unwrap();
    // It is a warning: no one can tell a changed loss from the same loss in other words.
    let fitted = trainer(2)
        .fit(Smoothed, Net::new(), Adam::new(1e-3), train, validation)
        .unwrap();
    assert_eq!(fitted.report.resumed_from_step, Some(25));
}
