//! Steps of several updates: against PyTorch, and resumed.

use std::{collections::BTreeMap, path::Path};

use halite::{
    nn::optim::WeightAveraging,
    prelude::*,
    train::{Alternating, Fitted, Measure, OnNotFinite, TrainerBuilder, signals::StopFlag},
};
use serde::Deserialize;

use crate::training::support::{
    Watched, client, error_of, fetched, on_all_devices, trainer, values,
};

/// `tests/golden/pytorch/alternating.py` writes it.
#[derive(Deserialize)]
struct Golden {
    shapes: BTreeMap<String, Vec<usize>>,
    /// Number of steps after which values are known.
    shown: Vec<usize>,
    params: BTreeMap<String, Vec<f64>>,
    noise: Vec<f64>,
    real: Vec<f64>,
    cases: BTreeMap<String, Case>,
}

#[derive(Deserialize)]
struct Case {
    shown: Vec<BTreeMap<String, Vec<f64>>>,
    /// Mean loss of the critic over all steps.
    loss: f64,
}

impl Golden {
    fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/pytorch/alternating.json");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).expect("the golden file is as alternating.py writes it")
    }

    /// Batches of noise and real samples, in order.
    fn data(&self) -> InMemory {
        let array = |values: &[f64]| HostArray::from_slice(values, [values.len() / 2, 2]).unwrap();
        InMemory::new([("noise", array(&self.noise)), ("real", array(&self.real))]).unwrap()
    }
}

#[derive(Clone, Debug, Tree)]
struct Net<L> {
    hidden: L,
    bias: L,
    out: L,
}

impl<'t> Net<Tensor<'t>> {
    fn forward(&self, x: Tensor<'t>) -> Tensor<'t> {
        (x.matmul(self.hidden) + self.bias).tanh().matmul(self.out)
    }
}

#[derive(Clone, Debug, Tree)]
struct Gan<L> {
    generator: Net<L>,
    critic: Net<L>,
}

impl Gan<Param> {
    fn new() -> Self {
        let uniform = Init::Uniform {
            low: -0.5,
            high: 0.5,
        };
        let param = |dims: [usize; 2]| Param::new(dims, uniform).with_dtype(DType::F64);
        let net = |last| Net {
            hidden: param([2, 5]),
            bias: param([1, 5]),
            out: param([5, last]),
        };
        Gan {
            generator: net(2),
            critic: net(1),
        }
    }
}

type GanTask = Alternating<Gan<()>, Labeled<()>>;

fn mean<'t>(values: Tensor<'t>, batch: &Labeled<Tensor<'t>>) -> Mean<'t> {
    Mean::weighted(values.sum([1]), batch.weight.convert(DType::F64))
}

/// Updates of a critic in every step, and of a generator in every `every`-th.
fn updates(every: u64) -> Result<GanTask> {
    let gan = Gan::new();
    let criticize = task(&gan, |_, gan, batch| {
        let fake = gan.critic.forward(gan.generator.forward(batch.input));
        let real = gan.critic.forward(batch.target);
        mean((real - 1.0).square() + fake.square(), batch)
    });
    let deceive = task(&gan, |_, gan, batch| {
        let fake = gan.critic.forward(gan.generator.forward(batch.input));
        mean((fake - 1.0).square(), batch)
    });
    let task = Alternating::new().update("critic.**", criticize)?;
    Ok(task.update("generator.**", deceive)?.every(every))
}

fn optimizer() -> impl Optimizer + Clone {
    let generator = Adam::new(0.05).betas(0.5, 0.9);
    generator.partition("critic.**", Adam::new(0.02)).unwrap()
}

/// Fits the first `steps` batches of the golden file, in order.
fn fit(golden: &Golden, trainer: TrainerBuilder, steps: usize, every: u64) -> Fitted<GanTask> {
    let trainer = trainer.max_epochs(1).overfit_batches(steps as u64);
    let trainer = trainer.build().unwrap();
    let model = Gan::new();
    let params = model.named().into_iter().map(|(path, _)| {
        let values = &golden.params[&path];
        Array::from_slice(client(), values, &golden.shapes[&path]).unwrap()
    });
    let params = model.rebuild(params.collect::<Vec<_>>());
    let task = updates(every).unwrap();
    trainer
        .fit_from(task, model, params, optimizer(), golden.data(), ())
        .unwrap()
}

/// Checks the parameters after each number of steps that is known.
#[track_caller]
fn check(name: &str, batches: usize, every: u64, trainer: impl Fn() -> TrainerBuilder) {
    let golden = Golden::read();
    let case = &golden.cases[name];
    for (&steps, expected) in golden.shown.iter().zip(&case.shown) {
        let fitted = fit(&golden, trainer(), batches * steps, every);
        assert_eq!(fitted.report.steps, steps as u64);
        for (path, array) in values(&fitted.model) {
            let got = array.as_slice::<f64>().unwrap();
            for (got, expected) in got.iter().zip(&expected[&path]) {
                assert!(
                    (got - expected).abs() <= 1e-9 * (1.0 + expected.abs()),
                    "{name}: `{path}` after {steps} steps is {got}, not {expected}"
                );
            }
        }
        if steps == 50 {
            let loss = fitted.report.train_metrics["loss"];
            assert!((loss - case.loss).abs() < 1e-5, "{loss} and {}", case.loss);
            assert!(fitted.report.train_metrics.contains_key("generator/loss"));
        }
    }
}

#[test]
fn alternating_updates_match_pytorch() {
    check("each step", 1, 1, || trainer().batch_size(8));
}

#[test]
fn update_of_some_steps_matches_pytorch() {
    check("every 3 steps", 1, 3, || trainer().batch_size(8));
}

#[test]
fn each_update_is_clipped() {
    check("clipped", 1, 1, || {
        trainer().batch_size(8).gradient_clip_val(0.1)
    });
}

#[test]
fn updates_accumulate_batches() {
    let run = || trainer().batch_size(2).accumulate_grad_batches(4);
    check("each step", 4, 1, run);
    check("every 3 steps", 4, 3, run);
}

#[test]
fn devices_share_the_batch_of_each_update() {
    let two = || on_all_devices().devices(client().local_devices().into_iter().take(2));
    check("every 3 steps", 1, 3, || two().batch_size(8));
}

/// A run of 100 steps with everything that a step can have besides.
fn long(trainer: TrainerBuilder, reads: impl Fn(usize) + Send + Sync + 'static) -> Fitted<GanTask> {
    let data = Watched::new(Golden::read().data(), move |read| {
        reads(read);
        Ok(())
    });
    let trainer = trainer
        .batch_size(4)
        .accumulate_grad_batches(2)
        .gradient_clip_val(0.5)
        .max_epochs(2)
        .average(WeightAveraging::ema(0.9))
        .build()
        .unwrap();
    let (task, validation) = (updates(3).unwrap(), Golden::read().data());
    trainer
        .fit(task, Gan::new(), optimizer(), data, validation)
        .unwrap()
}

#[test]
fn stopped_run_of_two_updates_is_bit_identical() {
    let expected = long(trainer(), |_| ());
    assert_eq!(expected.report.steps, 100);
    let dir = tempfile::tempdir().unwrap();
    for (attempt, after) in [150, 333].into_iter().enumerate() {
        let stop = StopFlag::new();
        let flag = stop.clone();
        let run = trainer().out(dir.path()).resume(attempt > 0);
        let run = run.checkpoint_every(7).stop_flag(&stop);
        let fitted = long(run, move |read| {
            if read == after {
                flag.stop();
            }
        });
        assert!(fitted.report.interrupted);
    }
    let resumed = long(trainer().out(dir.path()).resume(true), |_| ());
    assert_eq!(values(&resumed.model), values(&expected.model));
    let average = |fitted: &Fitted<GanTask>| values(fitted.average.as_ref().unwrap());
    assert_eq!(average(&resumed), average(&expected));
    assert_eq!(resumed.report.metrics, expected.report.metrics);
    assert_eq!(resumed.report.train_metrics, expected.report.train_metrics);
}

#[test]
fn step_of_two_updates_is_skipped_as_a_whole() {
    let golden = Golden::read();
    let mut noise = golden.noise.clone();
    // The critic's update of the second step has a finite gradient, as it sees no noise.
    noise[16] = f64::NAN;
    let data = Golden { noise, ..golden }.data();
    let gan = Gan::new();
    let real = task(&gan, |_, gan, batch| {
        mean(gan.critic.forward(batch.target).square(), batch)
    });
    let fake = task(&gan, |_, gan, batch| {
        mean(gan.generator.forward(batch.input).square(), batch)
    });
    let fit = |steps: u64| {
        let task = Alternating::new().update("critic.**", real)?;
        let task = task.update("generator.**", fake)?;
        let run = trainer().batch_size(8).max_epochs(1).overfit_batches(steps);
        let run = run.on_not_finite(OnNotFinite::Skip).build()?;
        run.fit(task, gan.clone(), Sgd::new(0.1), data.clone(), ())
    };
    let [one, two, three] = [1, 2, 3].map(|steps| values(&fit(steps).unwrap().model));
    assert_eq!(one, two);
    // The next step changes both.
    let changed = one.iter().zip(&three).filter(|(one, three)| one != three);
    assert_eq!(changed.count(), 6);
}

#[test]
fn gradient_norm_is_the_mean_over_the_updates_that_are_done() {
    let golden = Golden::read();
    // Two equal batches, and steps too small to change anything.
    let twice = |values: &[f64]| values[..16].repeat(2);
    let (noise, real) = (twice(&golden.noise), twice(&golden.real));
    let data = Golden {
        noise,
        real,
        ..golden
    }
    .data();
    let norm = |every| {
        let run = trainer().batch_size(8).max_epochs(1).overfit_batches(2);
        let run = run.log([Measure::GradientNorm]).build().unwrap();
        let (task, gan, sgd) = (updates(every).unwrap(), Gan::new(), Sgd::new(1e-30));
        let fitted = run.fit(task, gan, sgd, data.clone(), ()).unwrap();
        fitted.report.train_metrics["generator/gradient_norm"]
    };
    let [each, second] = [norm(1), norm(2)];
    assert!(each > 0.0);
    assert!((each - second).abs() < 1e-6 * each, "{each} {second}");
}

#[test]
fn updates_without_parameters_or_steps_are_refused() {
    let refused = |task: Result<GanTask>| {
        let run = trainer().batch_size(8).build().unwrap();
        let fit = |task| run.fit(task, Gan::new(), optimizer(), Golden::read().data(), ());
        error_of(task.and_then(fit)).to_string()
    };
    let message = refused(updates(0));
    assert!(
        message.contains("`generator.**` is done every 0 steps"),
        "{message}"
    );
    let gan = Gan::new();
    let loss = task(&gan, |_, gan, batch| {
        mean(gan.critic.forward(batch.target), batch)
    });
    let message = refused(Alternating::new().update("critc.**", loss));
    assert!(
        message.contains("the update `critc.**` has no parameter"),
        "{message}"
    );
    assert!(message.contains("did you mean `critic.out`?"), "{message}");
    let message = refused(updates(1).unwrap().update("critic.**", loss));
    assert!(
        message.contains("`critic.**` has an update already"),
        "{message}"
    );
    let message = refused(updates(1).unwrap().update("**.bias", loss));
    assert!(
        message.contains("`generator.**` and `**.bias` both change `generator.bias`"),
        "{message}"
    );
    let message = refused(Ok(Alternating::new()));
    assert!(message.contains("it has no update"), "{message}");
}

/// A batch norm in the critic, whose statistics both updates change.
#[derive(Clone, Debug, Tree)]
struct Normed<L> {
    generator: Linear<L>,
    norm: BatchNorm<L>,
    critic: Linear<L>,
}

#[test]
fn statistics_follow_each_update_that_is_done() {
    let net = Normed {
        generator: Linear::new(2, 2),
        norm: BatchNorm::new(2),
        critic: Linear::new(2, 1),
    };
    // The statistics see the constant 1 in the first update, and 3 in the second.
    let seen = |net: &Normed<Tensor<'_>>, value: f64, batch: &Labeled<Tensor<'_>>| {
        let _ = net
            .norm
            .forward(batch.input.convert(DType::F32) * 0.0 + value);
    };
    let first = task(&net, move |_, net, batch| {
        seen(net, 1.0, batch);
        batch.mean(
            net.critic
                .forward(batch.target.convert(DType::F32))
                .square(),
        )
    });
    let second = task(&net, move |_, net, batch| {
        seen(net, 3.0, batch);
        batch.mean(
            net.generator
                .forward(batch.target.convert(DType::F32))
                .square(),
        )
    });
    // Of each update with momentum 0.1.
    let mean_after = |every: u64, accumulated: usize| {
        let task = Alternating::new().update("critic.**", first)?;
        let task = task.update("generator.**", second)?.every(every);
        let run = trainer().batch_size(8 / accumulated).max_steps(2);
        let run = run.accumulate_grad_batches(accumulated).build()?;
        let fitted = run.fit(task, net.clone(), Sgd::new(0.1), Golden::read().data(), ())?;
        Ok::<_, Error>(fetched(&fitted.model.norm.mean).as_slice::<f32>()?[0])
    };
    let after = |values: &[f32]| {
        values
            .iter()
            .fold(0.0, |mean, value| mean * 0.9 + value * 0.1)
    };
    let close = |got: f32, values: &[f32]| {
        assert!(
            (got - after(values)).abs() < 1e-6,
            "{got} and {}",
            after(values)
        )
    };
    close(mean_after(1, 1).unwrap(), &[1.0, 3.0, 1.0, 3.0]);
    close(mean_after(2, 1).unwrap(), &[1.0, 1.0, 3.0]);
    close(mean_after(2, 2).unwrap(), &[1.0, 1.0, 1.0, 1.0, 3.0, 3.0]);
}
