//! Clipping, and steps that are not finite.

use std::sync::{Arc, Mutex};

use halite_core::{DType, HostArray, Result, tree::Tree};
use halite_data::{InMemory, Labeled};
use halite_nn::{
    Adam, AdamW, Init, Mean, Optimizer, Param, Sgd, Tensor, Trace,
    optim::{Adafactor, Adagrad, Lamb, Lars, Lion, RmsProp, WeightAveraging},
};
use halite_train::{
    Callback, Fitted, GradientClipAlgorithm, OnNotFinite, Task, Trainer, TrainerBuilder,
    callback::{MetricsWindow, Run},
};

use super::{error_of, trainer};

/// Two parameters, each of which one field of the samples is the gradient of.
#[derive(Tree, Clone, Debug)]
struct Pair<L> {
    first: L,
    second: L,
}

struct Sums;

impl Task for Sums {
    type Model = Pair<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _: &'t Trace,
        model: &Pair<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let sum = batch.input * model.first + batch.target * model.second;
        Mean::weighted(sum, batch.weight)
    }
}

fn pair(dtype: DType) -> Pair<Param> {
    let param = || Param::new([1], Init::Zeros).with_dtype(dtype);
    Pair {
        first: param(),
        second: param(),
    }
}

/// Steps of one sample with these gradients, at a rate of 1.
fn fit(trainer: TrainerBuilder, gradients: &[[f32; 2]]) -> Result<Fitted<Sums>> {
    let field = |index: usize| {
        let values: Vec<f32> = gradients.iter().map(|pair| pair[index]).collect();
        HostArray::from_slice(&values, [values.len()]).unwrap()
    };
    let data = InMemory::new([("first", field(0)), ("second", field(1))]).unwrap();
    let trainer: Trainer = trainer.batch_size(1).overfit_batches(1.0).build()?;
    trainer.fit(Sums, pair(DType::F32), Sgd::new(1.0), data, ())
}

fn values(fitted: &Fitted<Sums>) -> Vec<f32> {
    let leaves = fitted.model.leaves().into_iter();
    leaves
        .map(|leaf| leaf.read().unwrap().as_slice::<f32>().unwrap()[0])
        .collect()
}

#[test]
fn clipping_is_by_norm_or_by_value() {
    let clipped = |algorithm| {
        let run = trainer()
            .gradient_clip_val(0.5)
            .gradient_clip_algorithm(algorithm);
        values(&fit(run, &[[3.0, -4.0]]).unwrap())
    };
    assert_eq!(clipped(GradientClipAlgorithm::Value), [-0.5, 0.5]);
    let norm = clipped(GradientClipAlgorithm::Norm);
    // 0.5 / (5 + 1e-6) of each.
    assert!(
        (norm[0] + 0.3).abs() < 1e-6 && (norm[1] - 0.4).abs() < 1e-6,
        "{norm:?}"
    );
}

const STEPS: [[f32; 2]; 4] = [
    [1.0, 2.0],
    [f32::INFINITY, 2.0],
    [4.0, f32::NAN],
    [8.0, 2.0],
];

#[test]
fn skipped_steps_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        trainer()
            .on_not_finite(OnNotFinite::Skip)
            .out(dir.path())
            .log_every_n_steps(2)
    };
    let fitted = fit(run(), &STEPS).unwrap();
    assert_eq!(values(&fitted), [-9.0, -4.0]);
    assert_eq!((fitted.report.steps, fitted.report.skipped_steps), (4, 2));
    assert!(
        fitted
            .report
            .to_string()
            .contains("4 in 1 epoch, 2 skipped")
    );
    // Their metrics do not count: the loss of steps 1 and 4, at the values before them.
    let expected = (0.0 + (-8.0 + 2.0 * -2.0)) / 2.0;
    assert_eq!(fitted.report.metrics["loss"], expected);
    // The count continues.
    let longer = fit(run().max_epochs(2).resume(true), &STEPS).unwrap();
    assert_eq!(longer.report.skipped_steps, 4);
    assert_eq!(values(&longer), [-18.0, -8.0]);
    // The control: without the option the run ends.
    let error = error_of(fit(trainer(), &STEPS));
    assert!(error.contains("`loss` is not finite at step 2"), "{error}");
}

/// Records the losses of the rows.
struct Losses(Arc<Mutex<Vec<Option<f64>>>>);

impl Callback for Losses {
    fn on_train_metrics(&mut self, _: &mut Run, window: &MetricsWindow) -> Result<()> {
        self.0.lock().unwrap().push(window.row.get("loss"));
        Ok(())
    }
}

#[test]
fn skipped_steps_have_no_metrics() {
    let losses = Arc::default();
    let run = || {
        trainer()
            .on_not_finite(OnNotFinite::Skip)
            .detect_anomaly(true)
            .log_every_n_steps(1)
    };
    let dir = tempfile::tempdir().unwrap();
    let logged = run().callback(Losses(Arc::clone(&losses))).out(dir.path());
    fit(logged, &STEPS).unwrap();
    let losses = losses.lock().unwrap();
    assert_eq!(*losses, [Some(0.0), None, None, Some(-12.0)]);
    // Rows of step 1, step 4 and the validation.
    let table = std::fs::read_to_string(dir.path().join("metrics.csv")).unwrap();
    assert!(
        !table.contains("\n2,") && !table.contains("\n3,"),
        "{table}"
    );
    // Nor has an epoch of them.
    let fitted = fit(run(), &STEPS[1..3]).unwrap();
    assert_eq!(fitted.report.skipped_steps, 2);
    assert!(fitted.report.train_metrics.is_empty(), "{fitted}");
}

#[test]
fn skipped_steps_of_an_unfinished_epoch_are_counted() {
    let run = trainer().on_not_finite(OnNotFinite::Skip).max_steps(3);
    let fitted = fit(run, &STEPS).unwrap();
    assert_eq!((fitted.report.steps, fitted.report.skipped_steps), (3, 2));
}

#[test]
fn anomaly_names_the_parameter() {
    let steps = [[1.0, 1.0], [1.0, f32::INFINITY], [1.0, 1.0]];
    let error = error_of(fit(trainer().detect_anomaly(true), &steps));
    assert!(
        error.contains("and the gradient of `second` is not finite at step 2"),
        "{error}"
    );
    let plain = error_of(fit(trainer(), &steps));
    assert!(!plain.contains("gradient of"), "{plain}");
}

#[test]
fn run_resumes_to_find_an_anomaly() {
    let dir = tempfile::tempdir().unwrap();
    let run = || trainer().out(dir.path()).log_every_n_steps(3);
    let fine = [[1.0, 1.0]; 4];
    fit(run().max_steps(2), &fine).unwrap();
    // The window of the checkpoint has one step of metrics less than a log entry.
    let resumed = run().max_epochs(2).resume(true);
    let resumed = resumed
        .detect_anomaly(true)
        .on_not_finite(OnNotFinite::Skip);
    let resumed = fit(resumed, &fine).unwrap();
    assert_eq!(values(&resumed), [-8.0, -8.0]);
    assert_eq!(resumed.report.steps, 8);
}

#[test]
fn skipped_steps_are_counted_after_a_resume_without_skips() {
    let dir = tempfile::tempdir().unwrap();
    let run = || trainer().out(dir.path());
    let skips = run().on_not_finite(OnNotFinite::Skip).max_steps(3);
    fit(skips, &STEPS).unwrap();
    let resumed = run().max_epochs(1).resume(true);
    let resumed = fit(resumed.detect_anomaly(true), &STEPS).unwrap();
    assert_eq!(values(&resumed), [-9.0, -4.0]);
    assert_eq!((resumed.report.steps, resumed.report.skipped_steps), (4, 2));
}

#[test]
fn averages_of_narrow_parameters_are_refused() {
    let field = HostArray::from_slice(&[1.0f32], [1]).unwrap();
    let data = InMemory::new([("first", field.clone()), ("second", field)]).unwrap();
    let run = trainer().batch_size(1).average(WeightAveraging::ema(0.9));
    let run = run.build().unwrap();
    let error = error_of(run.fit(Sums, pair(DType::Bf16), Sgd::new(1.0), data, ()));
    assert!(
        error.contains("`first` is declared in bf16") && error.contains("in f32"),
        "{error}"
    );
}

/// Its loss is finite at zeros, and its gradient by the second parameter is not.
struct Roots;

impl Task for Roots {
    type Model = Pair<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _: &'t Trace,
        model: &Pair<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let sum = batch.input * model.first + batch.target * model.second.sqrt();
        Mean::weighted(sum, batch.weight)
    }
}

#[test]
fn frozen_gradients_skip_no_step() {
    let ones = || HostArray::from_slice(&[1.0f32; 3], [3]).unwrap();
    let data = InMemory::new([("first", ones()), ("second", ones())]).unwrap();
    let fit = |from: u64| {
        let run = trainer().batch_size(1).on_not_finite(OnNotFinite::Skip);
        let run = run.detect_anomaly(true).build().unwrap();
        let sgd = Sgd::new(1.0).unfreeze("second", from).unwrap();
        let fitted = run.fit(Roots, pair(DType::F32), sgd, data.clone(), ());
        let fitted = fitted.unwrap();
        let first = fitted.model.first.read().unwrap();
        (
            first.as_slice::<f32>().unwrap()[0],
            fitted.report.skipped_steps,
        )
    };
    assert_eq!(fit(9), (-3.0, 0));
    // The control: it is not frozen from the third step on.
    assert_eq!(fit(2), (-2.0, 1));
}

/// The weights and their averages after steps with these gradients.
fn averaged<O: Optimizer>(
    optimizer: O,
    rule: WeightAveraging,
    gradients: &[[f32; 2]],
) -> Vec<Vec<f32>> {
    let field = |index: usize| {
        let values: Vec<f32> = gradients.iter().map(|pair| pair[index]).collect();
        HostArray::from_slice(&values, [values.len()]).unwrap()
    };
    let data = InMemory::new([("first", field(0)), ("second", field(1))]).unwrap();
    let run = trainer().batch_size(1).overfit_batches(1.0);
    let run = run.on_not_finite(OnNotFinite::Skip).average(rule);
    let fitted = (run.build().unwrap()).fit(Sums, pair(DType::F32), optimizer, data, ());
    let fitted = fitted.unwrap();
    let average = fitted.average.as_ref().unwrap();
    let read = |leaf: &halite_core::Array| leaf.to_vec::<f32>().unwrap()[0];
    [&fitted.model, average]
        .map(|model| model.leaves().into_iter().map(read).collect())
        .to_vec()
}

#[test]
fn skipped_steps_count_in_no_optimizer_and_no_average() {
    let done = [STEPS[0], STEPS[3], [0.5, 3.0]];
    let with_skipped = [STEPS[0], STEPS[1], STEPS[2], STEPS[3], [0.5, 3.0]];
    let ema = WeightAveraging::ema(0.5);
    fn check<O: Optimizer + Clone>(optimizer: O, rule: WeightAveraging, all: [&[[f32; 2]]; 2]) {
        let [expected, got] = all.map(|steps| averaged(optimizer.clone(), rule, steps));
        assert_eq!(got, expected, "{optimizer:?}, {rule}");
    }
    let all: [&[[f32; 2]]; 2] = [&done, &with_skipped];
    check(Sgd::new(0.1).momentum(0.9).dampening(0.5), ema, all);
    check(Adam::new(0.1), ema, all);
    check(AdamW::new(0.1), WeightAveraging::swa(), all);
    check(
        Adam::new(0.1),
        WeightAveraging::swa().start(1).every(2),
        all,
    );
    check(Lamb::new(0.1), ema, all);
    check(Lion::new(0.1), ema, all);
    check(Lars::new(0.1), ema, all);
    check(Adagrad::new(0.1), ema, all);
    check(Adafactor::new(0.1), ema, all);
    check(RmsProp::new(0.1).centered().momentum(0.5), ema, all);
}
