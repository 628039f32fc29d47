//! Accumulated gradients equal those of one large batch.

use halite_backends::Accelerator;
use halite_core::{
    Array, DType, Result,
    tree::{Leaf, Tree},
};
use halite_data::{Labeled, LastBatch};
use halite_nn::{
    Adam, BatchNorm, Dropout, Linear, Mean, Schedule, Sgd, Tensor, Trace, grad, jit_like, s,
};
use halite_train::{Fitted, Task, Trainer, TrainerBuilder};

use super::{error_of, trainer, weights};
use crate::shared::regression::{Regression, data, net};

fn fit_net(trainer: TrainerBuilder, samples: usize) -> Fitted<Regression> {
    let trainer = trainer
        .last_batch(LastBatch::Pad)
        .max_epochs(3)
        .build()
        .unwrap();
    let adam = Adam::new(Schedule::warmup(1e-2, 4));
    trainer
        .fit(Regression, net(), adam, data(samples), ())
        .unwrap()
}

/// The largest difference of any element of the weights.
fn distance(one: &Fitted<Regression>, other: &Fitted<Regression>) -> f64 {
    let leaves = one.model.leaves().into_iter().zip(other.model.leaves());
    let differences = leaves.flat_map(|(one, other)| {
        let (one, other) = (one.read().unwrap(), other.read().unwrap());
        let pairs: Vec<(f64, f64)> = (one.as_slice::<f64>().unwrap().iter().copied())
            .zip(other.as_slice::<f64>().unwrap().iter().copied())
            .collect();
        pairs.into_iter().map(|(one, other)| (one - other).abs())
    });
    differences.fold(0.0, f64::max)
}

#[test]
fn accumulated_steps_equal_those_of_large_batches() {
    // 40 fill two steps of 4 batches of 5; 33 do not fill the last batch, nor the last step.
    for samples in [40, 33, 21] {
        let large = fit_net(trainer().batch_size(20), samples);
        let accumulated = fit_net(trainer().batch_size(5).accumulate_grad_batches(4), samples);
        assert_eq!(large.report.steps, accumulated.report.steps);
        let distance = distance(&large, &accumulated);
        assert!(distance < 1e-12, "{samples} samples: {distance:e}");
        for (name, value) in &large.report.train_metrics {
            let other = accumulated.report.train_metrics[name];
            // Windows are in f32.
            assert!(
                (value - other).abs() < 1e-6 * value.abs(),
                "{name}: {value} and {other}"
            );
        }
        // The control: the weights move by much more.
        let other = fit_net(trainer().batch_size(5).accumulate_grad_batches(2), samples);
        assert!(self::distance(&large, &other) > 1e-6);
    }
}

#[test]
fn launches_of_several_steps_accumulate_equally() {
    let run = || trainer().batch_size(5).accumulate_grad_batches(2);
    let one = fit_net(run(), 43);
    let several = fit_net(run().steps_per_execution(2), 43);
    assert!(distance(&one, &several) < 1e-14);
}

#[test]
fn devices_accumulate_equally() {
    let on = |devices: u32| {
        let client = Accelerator::Embedded {
            devices: Some(devices),
        }
        .open()
        .unwrap();
        let builder = Trainer::builder(&client).quiet(true).batch_size(4);
        fit_net(builder.accumulate_grad_batches(3), 42)
    };
    assert!(distance(&on(1), &on(2)) < 1e-12);
}

/// A layer with statistics and a random one.
#[derive(Tree, Debug)]
struct Normed<L> {
    norm: BatchNorm<L>,
    dropout: Dropout,
    out: Linear<L>,
}

struct Normalized;

impl Task for Normalized {
    type Model = Normed<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _: &'t Trace,
        model: &Normed<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let x = model.norm.forward(batch.input.convert(DType::F32));
        let error = model.out.forward(model.dropout.forward(x)) - batch.target.convert(DType::F32);
        Mean::weighted(error.square().sum([1]), batch.weight)
    }
}

fn fit_normed(trainer: TrainerBuilder, rate: f64) -> Result<Fitted<Normalized>> {
    let model = Normed {
        norm: BatchNorm::new(3),
        dropout: Dropout::new(0.25),
        out: Linear::new(3, 1),
    };
    trainer
        .build()?
        .fit(Normalized, model, Sgd::new(rate), data(24), ())
}

#[test]
fn statistics_see_single_batches() {
    // At a rate of 0 only the statistics change: after the same batches in the same order they are
    // equal, also where the last step has fewer batches.
    let run = || trainer().overfit_batches(1.0);
    let plain = fit_normed(run(), 0.0).unwrap();
    for batches in [2, 4, 6, 8] {
        let accumulated = fit_normed(run().accumulate_grad_batches(batches), 0.0).unwrap();
        let mean = |fitted: &Fitted<Normalized>| {
            let norm = &fitted.model.norm;
            [norm.mean.read().unwrap(), norm.variance.read().unwrap()]
        };
        assert_eq!(mean(&plain), mean(&accumulated), "{batches}");
    }
}

/// Gradient of a loss by the scale of `norm`.
fn slope<'t>(norm: &BatchNorm<Tensor<'t>>, x: Tensor<'t>) -> Tensor<'t> {
    let loss = (norm.forward(x) * x).sum_all();
    let Leaf(slope) = grad(loss, &Leaf(norm.scale));
    slope
}

/// Running statistics, and the sum of the gradients, after four batches through `BatchNorm` in a
/// custom scan, or one after the other.
fn normed_batches(scans: bool) -> Vec<Vec<f32>> {
    let client = Accelerator::embedded().open().unwrap();
    let values: Vec<f32> = (0..4 * 5 * 3).map(|i| (i as f32).sin()).collect();
    let x = Array::from_slice(&client, &values, [4, 5, 3]).unwrap();
    let step = jit_like(&client, &x, move |cx, x| {
        cx.set_mode(true, None);
        let norm = BatchNorm::new(3).map_leaves(|path, param| {
            let is_one = ["scale", "variance"].contains(&&*path.to_string());
            cx.full(f64::from(u8::from(is_one)), &param.ty)
        });
        let zero = norm.scale.zeros_like();
        let sum = if scans {
            let (Leaf(sum), _) = cx.scan(Leaf(zero), Leaf(x), |Leaf(sum), Leaf(x)| {
                (Leaf(sum + slope(&norm, x)), Leaf(x.sum_all()))
            });
            sum
        } else {
            (0..4).fold(zero, |sum, batch| sum + slope(&norm, x.at(s![batch])))
        };
        [cx.updated(norm.mean), cx.updated(norm.variance), sum]
    });
    let results = step.run(&x).unwrap();
    results
        .iter()
        .map(|array| array.to_vec().unwrap())
        .collect()
}

#[test]
fn scan_of_ones_own_carries_statistics() {
    let (scanned, unrolled) = (normed_batches(true), normed_batches(false));
    for (one, other) in scanned.iter().flatten().zip(unrolled.iter().flatten()) {
        assert!((one - other).abs() < 1e-6, "{scanned:?}, {unrolled:?}");
    }
    assert!(scanned[0].iter().all(|mean| *mean != 0.0), "{scanned:?}");
}

#[test]
fn accumulating_run_resumes_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        trainer()
            .batch_size(2)
            .accumulate_grad_batches(5)
            .max_epochs(3)
    };
    let whole = fit_normed(run(), 0.05).unwrap();
    // Twelve batches: steps of 5, 5 and 2.
    assert_eq!(whole.report.steps, 9);
    for steps in [1, 3, 5] {
        let out = dir.path().join(steps.to_string());
        fit_normed(run().out(&out).max_steps(steps), 0.05).unwrap();
        let rest = fit_normed(run().out(&out).resume(true), 0.05).unwrap();
        assert_eq!(rest.report.resumed_from_step, Some(steps));
        let leaves = whole.model.leaves().into_iter().zip(rest.model.leaves());
        for (one, other) in leaves {
            assert_eq!(one.read().unwrap(), other.read().unwrap(), "{steps}");
        }
    }
}

#[test]
fn schedule_and_limits_count_steps() {
    let run = trainer()
        .batch_size(4)
        .accumulate_grad_batches(3)
        .max_steps(4);
    let fitted = super::fit(run, ()).unwrap();
    // Six batches: two steps an epoch.
    assert_eq!((fitted.report.steps, fitted.report.epochs), (4, 2));
    assert_eq!(weights(&fitted).len(), 2);
}

/// Samples without weights.
#[derive(Tree, Debug, Default)]
struct Bare<L> {
    x: L,
    y: L,
}

struct Unweighted;

impl Task for Unweighted {
    type Model = Linear<()>;
    type Batch = Bare<()>;

    fn loss<'t>(
        &self,
        _: &'t Trace,
        model: &Linear<Tensor<'t>>,
        batch: &Bare<Tensor<'t>>,
    ) -> Mean<'t> {
        let x = batch.x.convert(DType::F32);
        Mean::of(model.forward(x) - batch.y.convert(DType::F32))
    }
}

#[test]
fn batches_without_weights_fill_each_step() {
    let fit = |batches, samples| {
        let trainer = trainer().accumulate_grad_batches(batches).build()?;
        trainer.fit(
            Unweighted,
            Linear::new(3, 1),
            Sgd::new(0.1),
            data(samples),
            (),
        )
    };
    // Seven batches: the step of one is left out.
    assert_eq!(fit(2, 28).unwrap().report.steps, 3);
    let error = error_of(fit(9, 28));
    assert!(
        error.contains("`accumulate_grad_batches` is 9, an epoch has 7 batches"),
        "{error}"
    );
}
