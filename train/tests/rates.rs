//! Averages of the parameters and factors of learning rates: validated, saved, and exact after a
//! resume.

use std::{
    path::Path,
    sync::{Arc, LazyLock, Mutex},
};

use halite_backends::Accelerator;
use halite_core::{Array, Client, DType, HostArray, Result, TensorType, tree::Tree};
use halite_data::Labeled;
use halite_nn::{
    Adam, BatchNorm, Linear, Param, Schedule, Sgd, Tensor, optim::WeightAveraging,
    schedule::Plateau,
};
use halite_train::{
    Callback, Fitted, LearningRateMonitor, ReduceLrOnPlateau, Trainer, TrainerBuilder, Weighted,
    callback::{MetricsWindow, Run},
    checkpoint::Saved,
    loggers::Row,
    signals::StopFlag,
    task,
};

use crate::shared::plane::{Model, Plane, samples, saved};

/// Steps of an epoch of 20 samples in batches of 4.
const STEPS: u64 = 5;

fn client() -> &'static Client {
    static CLIENT: LazyLock<Client> =
        LazyLock::new(|| "embedded".parse::<Accelerator>().unwrap().open().unwrap());
    &CLIENT
}

fn builder(epochs: u64, seed: u64) -> TrainerBuilder {
    Trainer::builder(client())
        .batch_size(4)
        .epochs(epochs)
        .seed(seed)
        .log_every(1)
        .quiet(true)
}

fn fit(builder: TrainerBuilder, rate: impl Into<Schedule>) -> Fitted<Plane> {
    let trainer = builder.build().unwrap();
    let fitted = trainer.fit(Plane, Model::new(), Sgd::new(rate), samples(20), samples(8));
    fitted.unwrap()
}

fn weights(model: &crate::shared::plane::Model<halite_core::Array>) -> Vec<f32> {
    model.out.weight.to_vec::<f32>().unwrap()
}

#[test]
fn average_is_that_of_the_weights_after_each_step() {
    let average = WeightAveraging::ema(0.5);
    let mut expected: Option<Vec<f32>> = None;
    // Each run has the steps of the one before.
    for epochs in 1..=3 {
        let fitted = fit(builder(epochs, 3).batch_size(20).average(average), 0.1);
        let now = weights(&fitted.model);
        let next = match expected {
            None => now,
            Some(before) => (before.iter().zip(now))
                .map(|(a, b)| 0.5 * a + 0.5 * b)
                .collect(),
        };
        let got = weights(fitted.average.as_ref().unwrap());
        for (got, expected) in got.iter().zip(&next) {
            assert!((got - expected).abs() < 1e-6, "{got}, {expected}");
        }
        expected = Some(next);
    }
}

/// Inputs whose mean and variance batch norm has, as state.
#[derive(Tree, Debug)]
struct Normed<L> {
    norm: BatchNorm<L>,
    out: Linear<L>,
}

fn normed() -> Normed<Param> {
    Normed {
        norm: BatchNorm::new(2),
        out: Linear::new(2, 1),
    }
}

/// The running mean and variance of its batch norm.
fn statistics(model: &Normed<Array>) -> Vec<f32> {
    let [mean, variance] = [&model.norm.mean, &model.norm.variance];
    [mean, variance]
        .map(|leaf| leaf.to_vec::<f32>().unwrap())
        .concat()
}

/// Mean and variance of 20 samples. As one batch, they do not depend on the weights.
fn statistics_of_data() -> Vec<f64> {
    let x: Vec<f64> = (0..40).map(|i| f64::from(i as f32).sin()).collect();
    let expected = |power: i32, about: [f64; 2]| {
        let of = |at: usize| {
            x.iter()
                .skip(at)
                .step_by(2)
                .map(move |x| (x - about[at]).powi(power))
        };
        [0, 1].map(|at| of(at).sum::<f64>())
    };
    let mean = expected(1, [0.0; 2]).map(|sum| sum / 20.0);
    let variance = expected(2, mean).map(|sum| sum / 19.0);
    [mean, variance].concat()
}

#[track_caller]
fn assert_statistics_of_data(model: &Normed<Array>) {
    for (got, expected) in statistics(model).iter().zip(statistics_of_data()) {
        // A momentum of 0.1: a thousandth of those before is left.
        assert!(
            (f64::from(*got) - expected).abs() < 2e-3,
            "{got} {expected}"
        );
    }
}

/// At the end of an epoch and of steps within one, also in what is saved.
#[test]
fn averages_without_validation_have_statistics_of_their_own() {
    for (batch_size, max_steps) in [(20, 2), (10, 3)] {
        let loss = task(
            &normed(),
            |_, net: &Normed<Tensor<'_>>, batch: &Labeled<Tensor<'_>>| {
                let error = net.out.forward(net.norm.forward(batch.input)) - batch.target;
                batch.mean(error.square().sum([1]))
            },
        );
        let dir = tempfile::tempdir().unwrap();
        let run = builder(2, 3)
            .batch_size(batch_size)
            .average(WeightAveraging::ema(0.999))
            .max_steps(max_steps)
            .out(dir.path());
        let run = run.build().unwrap();
        let fitted = run.fit(loss, normed(), Sgd::new(0.1), samples(20), ());
        let average = fitted.unwrap().average.unwrap();
        let loaded = run.load_average(&normed(), dir.path()).unwrap();
        assert_eq!(statistics(&loaded), statistics(&average));
        let [mean, variance] = [0, 2].map(|at| f64::from(statistics(&average)[at]));
        let expected = statistics_of_data();
        match batch_size {
            20 => assert_statistics_of_data(&average),
            // Of batches of half of the samples.
            _ => assert!(
                (mean - expected[0]).abs() < 0.2 && (variance - expected[2]).abs() < 0.2,
                "{mean} {variance}, {expected:?}"
            ),
        }
    }
}

#[test]
fn validated_averages_have_statistics_of_their_own() {
    let net = normed();
    let loss = task(
        &net,
        |_, net: &Normed<Tensor<'_>>, batch: &Labeled<Tensor<'_>>| {
            let error = net.out.forward(net.norm.forward(batch.input)) - batch.target;
            batch.mean(error.square().sum([1]))
        },
    );
    let fit = |epochs: u64, out: Option<&Path>| {
        let run = builder(epochs, 3).batch_size(20);
        let run = run.average(WeightAveraging::ema(0.999));
        let run = match out {
            Some(out) => run.out(out).resume(true),
            None => run,
        };
        let run = run.build().unwrap();
        run.fit(loss, normed(), Sgd::new(0.1), samples(20), samples(8))
            .unwrap()
    };
    let fitted = fit(1, None);
    assert_statistics_of_data(fitted.average.as_ref().unwrap());
    // The control: those of training have seen one batch.
    let trained = statistics(&fitted.model);
    assert!(
        (f64::from(trained[2]) - statistics_of_data()[2]).abs() > 0.1,
        "{trained:?}"
    );
    // Saved and continued.
    let dir = tempfile::tempdir().unwrap();
    fit(2, Some(dir.path()));
    let [resumed, whole] = [fit(4, Some(dir.path())), fit(4, None)];
    let [resumed, whole] = [&resumed, &whole].map(|fit| statistics(fit.average.as_ref().unwrap()));
    assert_eq!(resumed, whole);
}

/// Stops a run after this many steps.
#[derive(Clone, Debug)]
struct StopAfter(u64);

impl Callback for StopAfter {
    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        if run.step() == self.0 {
            run.stop();
        }
        Ok(())
    }
}

#[test]
fn state_is_averaged_with_the_weights() {
    let net = normed;
    let loss = task(
        &net(),
        |_, net: &Normed<Tensor<'_>>, batch: &Labeled<Tensor<'_>>| {
            let error = net.out.forward(net.norm.forward(batch.input)) - batch.target;
            batch.mean(error.square().sum([1]))
        },
    );
    // A run that is stopped has the averages of its steps.
    let fit = |steps: u64, out: Option<&Path>| {
        let run = builder(2, 3)
            .batch_size(5)
            .average(WeightAveraging::ema(0.5))
            .callback(StopAfter(steps));
        let run = match out {
            Some(out) => run.out(out).resume(true),
            None => run,
        };
        let run = run.build().unwrap();
        run.fit(loss, net(), Sgd::new(0.1), samples(20), ())
            .unwrap()
    };
    let of = statistics;
    let mut expected: Option<Vec<f32>> = None;
    for steps in 1..=4 {
        let fitted = fit(steps, None);
        let now = of(&fitted.model);
        let next = match expected {
            None => now,
            Some(before) => (before.iter().zip(&now))
                .map(|(a, b)| 0.5 * a + 0.5 * b)
                .collect(),
        };
        let got = of(fitted.average.as_ref().unwrap());
        let most = got
            .iter()
            .zip(&next)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        assert!(most < 1e-6, "{got:?}, {next:?}");
        expected = Some(next);
    }
    // Saved and continued.
    let dir = tempfile::tempdir().unwrap();
    fit(2, Some(dir.path()));
    let resumed = fit(4, Some(dir.path()));
    assert_eq!(
        of(resumed.average.as_ref().unwrap()),
        of(fit(4, None).average.as_ref().unwrap())
    );
    let trainer = builder(1, 3).build().unwrap();
    let loaded = trainer.load_average(&net(), dir.path()).unwrap();
    assert_eq!(of(&loaded), of(resumed.average.as_ref().unwrap()));
}

#[test]
fn validation_is_of_the_average() {
    let fitted = fit(builder(2, 3).average(WeightAveraging::swa()), 0.1);
    let trainer = builder(1, 3).build().unwrap();
    let score = |model| {
        let metrics = trainer.validate(Plane, model, samples(8)).unwrap();
        metrics
            .iter()
            .find(|(name, _)| &**name == "loss")
            .unwrap()
            .1
    };
    let (last, average) = (
        score(&fitted.model),
        score(fitted.average.as_ref().unwrap()),
    );
    assert_ne!(last, average);
    assert_eq!(fitted.report.metrics["loss"], average);
}

#[test]
fn saved_average_is_loaded() {
    let out = tempfile::tempdir().unwrap();
    let options = || builder(2, 3).out(out.path());
    let fitted = fit(options().average(WeightAveraging::ema(0.9)), 0.1);
    let trainer = builder(1, 3).build().unwrap();
    let [last, average] = [
        trainer.load(&Model::new(), out.path()).unwrap(),
        trainer.load_average(&Model::new(), out.path()).unwrap(),
    ];
    assert_eq!(weights(&last), weights(&fitted.model));
    assert_eq!(weights(&average), weights(fitted.average.as_ref().unwrap()));
    let validated = trainer.load_validated(&Model::new(), out.path()).unwrap();
    assert_eq!(weights(&validated), weights(fitted.validated()));
    assert_eq!(weights(&validated), weights(&average));
    // Without an average it is another run.
    let other = options().resume(true).epochs(3).build().unwrap();
    let other = other.fit(Plane, Model::new(), Sgd::new(0.1), samples(20), samples(8));
    let error = other.unwrap_err().to_string();
    assert!(
        error.contains("average: saved ema(0.9), given nothing"),
        "{error}"
    );
}

/// Arrays of the newest checkpoint, as bytes.
fn arrays(out: &Path, names: &[&str]) -> Vec<Vec<u8>> {
    let mut saved = Saved::of_run(out).unwrap();
    let ty = |name: &&str| match name.ends_with("weight") {
        true => TensorType::new(DType::F32, [2, 1]),
        false => TensorType::scalar(DType::F32),
    };
    let array = |name: &&str| -> HostArray { saved.take(name, &ty(name)).unwrap() };
    names
        .iter()
        .map(array)
        .map(|array| array.bytes().to_vec())
        .collect()
}

/// Every loss but the first counts as no improvement.
fn plateau_rule() -> Plateau {
    Plateau {
        factor: 0.5,
        patience: 0,
        threshold: 0.99,
        ..Plateau::new("validation loss")
    }
}

fn plateau() -> ReduceLrOnPlateau {
    ReduceLrOnPlateau::new(plateau_rule())
}

/// The last state of a run of four epochs that is stopped after each of them.
#[test]
fn average_with_plateau_resumes_to_the_bit() {
    let names = ["model.out.weight", "average.out.weight", "rate_factor"];
    let options = |epochs, out: &Path| {
        builder(epochs, 5)
            .out(out)
            .resume(true)
            .average(WeightAveraging::ema(0.9).start(2).every(3))
            .callback(plateau())
    };
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fit(options(4, whole.path()), 0.05);
    for epochs in 1..=4 {
        let fitted = fit(options(epochs, parts.path()), 0.05);
        assert_eq!(fitted.report.steps, epochs * STEPS);
        assert_eq!(fitted.report.step_compiles, 1, "for any factor");
    }
    assert_eq!(saved(parts.path())[0], 4 * STEPS);
    let expected = arrays(whole.path(), &names);
    assert_eq!(arrays(parts.path(), &names), expected);
    assert_eq!(
        expected[2],
        0.125f32.to_le_bytes(),
        "set after the last epoch"
    );
}

/// A callback that halves the rate before the second epoch.
struct Halves(f64);

impl Callback for Halves {
    fn changes_learning_rate(&self) -> bool {
        true
    }

    fn on_epoch_start(&mut self, run: &mut Run) -> Result<()> {
        let factor = if run.epoch() == 0 { 1.0 } else { self.0 };
        run.set_learning_rate_factor(factor)
    }
}

#[test]
fn factor_of_a_callback_is_that_of_the_schedule() {
    let by_callback = fit(builder(2, 7).callback(Halves(0.5)), 0.1);
    let by_schedule = fit(builder(2, 7), Schedule::from(0.1).then_at(STEPS, 0.05));
    for (a, b) in weights(&by_callback.model)
        .iter()
        .zip(weights(&by_schedule.model))
    {
        assert!((a - b).abs() < 1e-6, "{a}, {b}");
    }
    let other = fit(builder(2, 7), 0.1);
    assert_ne!(weights(&other.model), weights(&by_callback.model));
}

/// A callback that halves the rate once, after the first validation.
struct HalvesOnce;

impl Callback for HalvesOnce {
    fn changes_learning_rate(&self) -> bool {
        true
    }

    fn on_validation_end(&mut self, run: &mut Run, _: &Row) -> Result<()> {
        if run.step() == STEPS {
            run.set_learning_rate_factor(0.5)?;
        }
        Ok(())
    }
}

#[test]
fn factor_that_is_set_before_a_save_is_in_it() {
    let out = tempfile::tempdir().unwrap();
    let options = |epochs| builder(epochs, 7).out(out.path()).resume(true);
    let whole = fit(builder(2, 7).callback(HalvesOnce), 0.1);
    fit(options(1).callback(HalvesOnce), 0.1);
    assert_eq!(arrays(out.path(), &["rate_factor"]), [0.5f32.to_le_bytes()]);
    let resumed = fit(options(2).callback(HalvesOnce), 0.1);
    assert_eq!(weights(&resumed.model), weights(&whole.model));
}

#[test]
fn resumed_run_knows_the_factor_of_its_checkpoint() {
    let out = tempfile::tempdir().unwrap();
    let options = |epochs| builder(epochs, 7).out(out.path()).resume(true);
    fit(options(2).callback(Halves(0.3)), 0.1);
    let saved = || arrays(out.path(), &["rate_factor"]);
    assert_eq!(saved(), [0.3f32.to_le_bytes()]);
    fit(options(3).callback(Halves(1.0)), 0.1);
    assert_eq!(saved(), [1.0f32.to_le_bytes()]);
}

#[test]
fn resumed_plateau_has_the_rule_of_its_checkpoint() {
    let out = tempfile::tempdir().unwrap();
    let options = |epochs| builder(epochs, 5).out(out.path()).resume(true);
    fit(options(1).callback(plateau()), 0.05);
    let other = ReduceLrOnPlateau::new(Plateau {
        patience: 5,
        ..plateau_rule()
    });
    let other = options(2).callback(other).build().unwrap();
    let other = other.fit(Plane, Model::new(), Sgd::new(0.05), samples(20), samples(8));
    let error = other.unwrap_err().to_string();
    assert!(
        error.contains("patience=0,") && error.contains("patience=5,"),
        "{error}"
    );
    fit(options(2).callback(plateau()), 0.05);
}

/// A callback that halves the rate within an epoch, and records the rates of the rows.
struct HalvesAt(u64, Arc<Mutex<Vec<f64>>>);

impl Callback for HalvesAt {
    fn changes_learning_rate(&self) -> bool {
        true
    }

    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        if run.step() == self.0 {
            run.set_learning_rate_factor(0.5)?;
        }
        Ok(())
    }

    fn on_train_metrics(&mut self, _: &mut Run, window: &MetricsWindow) -> Result<()> {
        let rate = window.row.get("learning_rate").unwrap();
        self.1.lock().unwrap().push(rate);
        Ok(())
    }
}

#[test]
fn logged_rate_is_that_of_the_step() {
    let rates = Arc::default();
    let halves = HalvesAt(3, Arc::clone(&rates));
    let run = builder(1, 7).callback(halves).callback(LearningRateMonitor);
    fit(run, 0.1);
    let rates = rates.lock().unwrap();
    assert_eq!(*rates, [0.1, 0.1, 0.1, 0.05, 0.05]);
}

struct Undeclared;

impl Callback for Undeclared {
    fn on_epoch_start(&mut self, run: &mut Run) -> Result<()> {
        run.set_learning_rate_factor(0.5)
    }
}

#[test]
fn wrong_factors_or_monitors_are_named() {
    let error = |builder: TrainerBuilder| {
        let trainer = builder.build().unwrap();
        let fitted = trainer.fit(Plane, Model::new(), Sgd::new(0.1), samples(20), samples(8));
        fitted.unwrap_err().to_string()
    };
    let undeclared = error(builder(1, 1).callback(Undeclared));
    assert!(
        undeclared.contains("`Callback::changes_learning_rate`"),
        "{undeclared}"
    );
    let negative = error(builder(2, 1).callback(Halves(-1.0)));
    assert!(
        negative.contains("the factor of learning rates is -1"),
        "{negative}"
    );
    let monitor = ReduceLrOnPlateau::new(Plateau::new("acuracy"));
    let monitor = error(builder(1, 1).callback(monitor));
    assert!(monitor.contains("no metric `acuracy`; it has"), "{monitor}");
    let wrong = builder(1, 1).average(WeightAveraging::ema(2.0)).build();
    assert!(wrong.unwrap_err().to_string().contains("decay is 2"));
}

#[test]
fn rate_that_is_far_too_large_is_a_finding() {
    let findings = |rate: f64| {
        let trainer = builder(4, 7).build().unwrap();
        let fitted = trainer.fit(
            Plane,
            Model::new(),
            Adam::new(rate),
            samples(20),
            samples(8),
        );
        fitted.unwrap().report.findings.join("\n")
    };
    let found = findings(1e9);
    assert!(found.contains("the training loss is"), "{found}");
    assert!(!findings(0.1).contains("the training loss is"));
}

#[test]
fn rate_that_is_far_too_large_is_a_finding_after_a_resume() {
    let out = tempfile::tempdir().unwrap();
    let found = |epochs| {
        let trainer = builder(epochs, 7).out(out.path()).resume(true);
        let (adam, data) = (Adam::new(1e9), samples(20));
        let fitted = trainer
            .build()
            .unwrap()
            .fit(Plane, Model::new(), adam, data, samples(8));
        fitted.unwrap().report.findings.join("\n")
    };
    let first = |found: &str| {
        let was = found.split_once(", was ").expect(found).1;
        was.split_once(", and").unwrap().0.to_string()
    };
    let (before, after) = (first(&found(1)), found(2));
    assert!(before.ends_with("up to step 1"), "{before}");
    assert_eq!(first(&after), before, "{after}");
}

/// Stops the run when its second validation starts.
struct StopAtSecond(StopFlag, u64);

impl Callback for StopAtSecond {
    fn on_validation_start(&mut self, _: &mut Run) -> Result<()> {
        self.1 += 1;
        if self.1 == 2 {
            self.0.stop();
        }
        Ok(())
    }
}

#[test]
fn statistics_of_averages_survive_a_stop_in_a_validation() {
    let loss = task(
        &normed(),
        |_, net: &Normed<Tensor<'_>>, batch: &Labeled<Tensor<'_>>| {
            let error = net.out.forward(net.norm.forward(batch.input)) - batch.target;
            batch.mean(error.square().sum([1]))
        },
    );
    let fit = |out: &Path, stops: bool| {
        let run = builder(3, 3).average(WeightAveraging::ema(0.9));
        let run = run.out(out).resume(true);
        let flag = StopFlag::new();
        let run = match stops {
            true => run.stop_flag(&flag).callback(StopAtSecond(flag.clone(), 0)),
            false => run,
        };
        let trainer = run.build().unwrap();
        let fitted = trainer.fit(loss, normed(), Sgd::new(0.1), samples(20), samples(8));
        let fitted = fitted.unwrap();
        assert_eq!(fitted.stopped_by.is_some(), stops);
        statistics(fitted.average.as_ref().unwrap())
    };
    let [stopped, whole] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    fit(stopped.path(), true);
    assert_eq!(fit(stopped.path(), false), fit(whole.path(), false));
}
