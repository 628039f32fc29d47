//! A number that is not finite stops a run, by name and step, and never gets into a checkpoint.

use halite::{
    ErrorKind,
    data::{Loader, LoaderOptions, Position},
    prelude::*,
    train::{Fitted, TrainerBuilder, checkpoint::Saved},
};

use crate::training::support::{error_of, latest, trainer};

const SAMPLES: usize = 40;
const BATCH: usize = 4;
/// The sample that is not like the others.
const BAD: usize = 17;

#[derive(Tree)]
struct Slope<L> {
    slope: L,
}

#[derive(Tree, Default)]
struct Point<L> {
    x: L,
    y: L,
    weight: L,
}

/// Squares of errors.
struct Squares;

impl Task for Squares {
    type Model = Slope<()>;
    type Batch = Point<()>;

    fn loss<'t>(
        &self,
        _cx: &'t Trace,
        model: &Slope<Tensor<'t>>,
        batch: &Point<Tensor<'t>>,
    ) -> Mean<'t> {
        Mean::weighted((batch.x * model.slope - batch.y).square(), batch.weight)
    }
}

/// A loss that is finite, and a metric that may be not.
struct Ratio;

impl Task for Ratio {
    type Model = Slope<()>;
    type Batch = Point<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Slope<Tensor<'t>>,
        batch: &Point<Tensor<'t>>,
    ) -> Mean<'t> {
        cx.metric("size", Mean::weighted(batch.x.abs(), batch.weight));
        cx.metric("ratio", Mean::weighted(batch.y / batch.x, batch.weight));
        Mean::weighted((batch.x * model.slope).square(), batch.weight)
    }
}

/// A loss that is finite, and has no slope at 0.
struct Root;

impl Task for Root {
    type Model = Slope<()>;
    type Batch = Point<()>;

    fn loss<'t>(
        &self,
        _cx: &'t Trace,
        model: &Slope<Tensor<'t>>,
        batch: &Point<Tensor<'t>>,
    ) -> Mean<'t> {
        Mean::weighted((batch.x * model.slope).square().sqrt(), batch.weight)
    }
}

/// `y = 2 x`, and one sample with this `x`.
fn line(bad: Option<f32>) -> InMemory {
    let mut x: Vec<f32> = (1..=SAMPLES)
        .map(|index| index as f32 / SAMPLES as f32)
        .collect();
    if let Some(bad) = bad {
        x[BAD] = bad;
    }
    let y: Vec<f32> = x.iter().map(|x| 2.0 * x).collect();
    let array = |values: &[f32]| HostArray::from_slice(values, [SAMPLES]).unwrap();
    InMemory::new([("x", array(&x)), ("y", array(&y))]).unwrap()
}

/// A seed with which the bad sample comes late in the first epoch, and the step it comes in, from
/// 1.
fn late() -> (u64, u64) {
    let at = |seed| {
        let loader =
            Loader::new(line(Some(f32::NAN)), LoaderOptions::shuffled(BATCH, seed)).unwrap();
        let has_it = |batch: &usize| {
            let read = loader
                .read(Position {
                    epoch: 0,
                    batch: *batch,
                })
                .unwrap();
            read.arrays[0]
                .as_slice::<f32>()
                .unwrap()
                .iter()
                .any(|x| x.is_nan())
        };
        (
            seed,
            (0..loader.batches_per_epoch())
                .find(has_it)
                .expect("every sample is in the epoch") as u64
                + 1,
        )
    };
    (0..100)
        .map(at)
        .find(|(_, step)| (6..9).contains(step))
        .expect("one of a hundred orders")
}

/// Runs `task`, and returns its error and newest checkpoint.
fn diverge<K: Task<Model = Slope<()>, Batch = Point<()>>>(
    task: K,
    bad: f32,
    with: impl FnOnce(TrainerBuilder) -> TrainerBuilder,
) -> (Error, Option<Saved>) {
    let dir = tempfile::tempdir().unwrap();
    let trainer = with(
        trainer()
            .out(dir.path())
            .batch_size(BATCH)
            .seed(late().0)
            .epochs(3),
    )
    .build()
    .unwrap();
    let error = error_of(fit(&trainer, task, line(Some(bad))));
    assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
    let mut weights = latest(dir.path());
    if let Some(saved) = &mut weights {
        let arrays = saved
            .arrays()
            .filter(|(name, _)| name.starts_with("model."));
        let wanted: Vec<_> = arrays
            .map(|(name, ty)| (name.to_string(), ty.clone()))
            .collect();
        for ((name, _), array) in wanted.iter().zip(saved.take_some(&wanted).unwrap()) {
            let values = array.as_slice::<f32>().unwrap();
            assert!(values.iter().all(|value| value.is_finite()), "{name}");
        }
    }
    (error, latest(dir.path()))
}

fn fit<K: Task<Model = Slope<()>, Batch = Point<()>>>(
    trainer: &Trainer,
    task: K,
    data: InMemory,
) -> Result<Fitted<K>> {
    trainer.fit(
        task,
        Slope {
            slope: Param::new([], Init::Ones),
        },
        Sgd::new(0.1),
        data,
        line(None),
    )
}

#[test]
fn nan_is_reported_with_its_step_at_any_interval() {
    let (_, step) = late();
    for (bad, log_every, checkpoint_every) in [
        (f32::NAN, 1, None),
        (f32::INFINITY, 50, None),
        (f32::NAN, 50, Some(1)),
        // Finite, and its square is not.
        (1e30, 50, Some(4)),
        (f32::NEG_INFINITY, 3, Some(2)),
    ] {
        let (error, saved) = diverge(Squares, bad, |trainer| {
            let trainer = trainer.log_every(log_every);
            checkpoint_every.map_or(trainer.clone(), |every| trainer.checkpoint_every(every))
        });
        let expected = format!("fit: `loss` is not finite at step {step}; ");
        assert!(
            error.to_string().starts_with(&expected),
            "{error}, with {log_every} and {checkpoint_every:?}"
        );
        let newest = checkpoint_every.map(|every| (step - 1) / every * every);
        assert_eq!(
            saved.map(|saved| saved.position().step),
            newest,
            "with {log_every} and {checkpoint_every:?}"
        );
    }
}

#[test]
fn nan_metric_stops_the_run() {
    let (_, step) = late();
    let (error, _) = diverge(Ratio, 0.0, |trainer| trainer);
    assert!(
        error
            .to_string()
            .starts_with(&format!("fit: `ratio` is not finite at step {step}; ")),
        "{error}"
    );
}

#[test]
fn nan_gradient_is_found_before_saving() {
    let (_, step) = late();
    let (error, saved) = diverge(Root, 0.0, |trainer| trainer.checkpoint_every(1));
    assert!(
        error.to_string().starts_with(&format!(
            "fit: after step {step} an element of `model.slope` is NaN; "
        )),
        "{error}"
    );
    assert_eq!(saved.unwrap().position().step, step - 1);
    // Without checkpoints it is the next step's loss that tells.
    let (error, _) = diverge(Root, 0.0, |trainer| trainer);
    assert!(
        error
            .to_string()
            .starts_with(&format!("fit: `loss` is not finite at step {}; ", step + 1)),
        "{error}"
    );
}

#[test]
fn diverged_run_resumes_with_a_smaller_rate() {
    let dir = tempfile::tempdir().unwrap();
    let (seed, step) = late();
    let run = || {
        trainer()
            .out(dir.path())
            .batch_size(BATCH)
            .seed(seed)
            .epochs(3)
            .checkpoint_every(2)
    };
    error_of(fit(&run().build().unwrap(), Squares, line(Some(f32::NAN))));
    let resumed = run()
        .resume(true)
        .allow_changes(["training data"])
        .build()
        .unwrap();
    let fitted = fit(&resumed, Squares, line(None)).unwrap();
    assert_eq!(fitted.report.resumed_from_step, Some((step - 1) / 2 * 2));
    assert!(fitted.report.metrics["loss"] < 0.1, "{}", fitted.report);
}

#[test]
fn nan_validation_ends_the_run_after_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let validated_on = |bad: Option<f32>| {
        let trainer = trainer()
            .out(dir.path())
            .batch_size(BATCH)
            .epochs(2)
            .resume(true);
        let trainer = trainer.allow_changes(["validation data"]).build().unwrap();
        trainer.fit(
            Squares,
            Slope {
                slope: Param::new([], Init::Ones),
            },
            Sgd::new(0.1),
            line(None),
            line(bad),
        )
    };
    let error = error_of(validated_on(Some(f32::NAN)));
    assert_eq!(error.kind(), ErrorKind::Diverged);
    assert!(
        error
            .to_string()
            .starts_with("validate: `loss` is not finite: "),
        "{error}"
    );
    let saved = latest(dir.path()).unwrap();
    assert_eq!(saved.position().step, 10);
    let place = format!(
        "; validated after step 10; the checkpoint {} stays",
        saved.path().display()
    );
    assert!(error.to_string().contains(&place), "{error}");
    let fitted = validated_on(None).unwrap();
    assert_eq!(
        (fitted.report.resumed_from_step, fitted.report.steps),
        (Some(10), 20)
    );
}
