//! ZeRO-1: optimizer states and averages are divided among processes, and training is as with whole
//! ones.

use halite_core::{DTypePolicy, Error, HostArray, Result};
use halite_data::{InMemory, Labeled, LastBatch};
use halite_nn::{
    Adafactor, Adagrad, Adam, AdamW, Decay, Lamb, Lars, Linear, Lion, Mean, Muon, Optimizer, Param,
    RmsProp, Schedule, Sgd, Tensor, Trace, optim::WeightAveraging,
};
use halite_tests::long::part;
use halite_train::{Fitted, Measure, OnNotFinite, Strategy, Task, TrainerBuilder};

use super::{EXECUTORS, Open, Trained, alike, in_processes, most};
use crate::shared::regression::{Net, Regression, data, net, of_inputs};

/// Five epochs of 59 samples in batches of 16, validated on 21.
fn fit<O: Optimizer>(builder: TrainerBuilder, optimizer: O) -> Result<Fitted<Regression>> {
    fit_model(builder, net(), optimizer)
}

fn fit_model<O: Optimizer>(
    builder: TrainerBuilder,
    model: Net<Param>,
    optimizer: O,
) -> Result<Fitted<Regression>> {
    let builder = builder.last_batch(LastBatch::Pad).batch_size(16);
    let trainer = builder.max_epochs(5).build()?;
    trainer.fit(Regression, model, optimizer, data(59), data(21))
}

fn strategy(name: &str) -> Strategy {
    name.parse().unwrap()
}

/// Checks that a run with divided states equals the same run with whole ones in one process.
fn check(open: Open, run: impl Fn(TrainerBuilder) -> Result<Fitted<Regression>> + Sync) {
    let whole = alike(
        open,
        [1, 1],
        |builder| run(builder.strategy(strategy("dp"))),
    );
    for shape in [[2, 1], [2, 2], [4, 1]] {
        let zero = alike(open, shape, |builder| {
            run(builder.strategy(strategy("zero1")))
        });
        let distance = whole.distance(&zero);
        assert!(distance.weights < 1e-12, "{shape:?}: {distance:?}");
        assert!(distance.metrics < 1e-6, "{shape:?}: {distance:?}");
    }
}

#[test]
fn every_elementwise_optimizer_divides_its_state() {
    let check = |run: &(dyn Fn(TrainerBuilder) -> Result<Fitted<Regression>> + Sync)| {
        check(EXECUTORS[0], run);
    };
    check(&|b| fit(b, Sgd::new(1e-2)));
    check(&|b| fit(b, Sgd::new(1e-2).momentum(0.9).nesterov().weight_decay(0.1)));
    check(&|b| {
        fit(
            b,
            AdamW::new(Schedule::warmup(1e-2, 4)).decay(Decay::Matrices),
        )
    });
    check(&|b| fit(b, RmsProp::new(1e-3).centered().momentum(0.9)));
    check(&|b| fit(b, Adagrad::new(1e-2).initial_accumulator(0.1)));
    check(&|b| fit(b, Lion::new(1e-3)));
}

#[test]
fn parts_of_a_model_have_their_own_settings() {
    let combined = || -> Result<_> {
        let adam = AdamW::new(1e-3).group("bias", |adam| adam.weight_decay(0.0))?;
        let adam = adam.unfreeze("hidden", 7)?;
        adam.partition("out", Lion::new(1e-3).chain(Sgd::new(0.5).momentum(0.9)))
    };
    check(EXECUTORS[0], |builder| fit(builder, combined()?));
    let frozen = || halite_nn::freeze(net(), "bias").unwrap();
    check(EXECUTORS[0], |builder| {
        fit_model(builder, frozen(), Adam::new(1e-3))
    });
}

#[test]
fn hundred_steps_of_adam_with_everything_agree() {
    let run = |builder: TrainerBuilder| {
        let builder = builder.gradient_clip_val(0.5).accumulate_grad_batches(2);
        let builder = builder
            .on_not_finite(OnNotFinite::Skip)
            .detect_anomaly(true);
        let builder = builder.log([Measure::GradientNorm]);
        let trainer = builder
            .batch_size(16)
            .max_steps(100)
            .max_epochs(50)
            .build()?;
        trainer.fit(Regression, net(), Adam::new(1e-3), data(64), data(21))
    };
    for open in EXECUTORS {
        let one = alike(open, [1, 1], run);
        assert_eq!(one.steps, 100);
        for &shape in part(&[[1, 8], [2, 4], [4, 2], [8, 1]], &[1, 2]) {
            let zero = alike(open, shape, |builder| {
                run(builder.strategy(strategy("zero2")))
            });
            let distance = one.distance(&zero);
            assert!(distance.weights < 1e-12, "{shape:?}: {distance:?}");
            assert!(distance.metrics < 1e-6, "{shape:?}: {distance:?}");
        }
    }
}

#[test]
fn averages_are_divided_and_gathered() {
    let of_average = |fitted: Fitted<Regression>| -> Result<Fitted<Regression>> {
        let average = fitted.average.expect("the run has averages");
        Ok(Fitted {
            model: average,
            average: None,
            ..fitted
        })
    };
    let swa = || WeightAveraging::swa().start(3).every(2);
    check(EXECUTORS[0], |b| {
        of_average(fit(b.average(swa()), Adam::new(1e-3))?)
    });
    let ema = || WeightAveraging::ema(0.9);
    check(EXECUTORS[1], |b| {
        of_average(fit(b.average(ema()), Adam::new(1e-3))?)
    });
}

#[test]
fn divided_states_resume_in_other_numbers_of_processes() {
    let runs = tempfile::tempdir().unwrap();
    let run = |builder: TrainerBuilder, out: &str, epochs: u64| {
        let builder = builder.average(WeightAveraging::ema(0.9)).batch_size(16);
        let builder = builder.out(runs.path().join(out)).resume(true);
        let trainer = builder.max_epochs(epochs).build()?;
        let fitted = trainer.fit(Regression, net(), Adam::new(1e-3), data(64), ())?;
        let average = fitted.average.expect("the run has averages");
        Ok(Fitted {
            model: average,
            average: None,
            ..fitted
        })
    };
    let uncut = alike(EXECUTORS[0], [1, 1], |builder| run(builder, "uncut", 4));
    for (epochs, shape) in [(1, [2, 2]), (2, [4, 1]), (3, [1, 2]), (4, [2, 1])] {
        let cut = alike(EXECUTORS[0], shape, |builder| run(builder, "cut", epochs));
        assert_eq!(cut.steps, 4 * epochs);
        if epochs == 4 {
            assert!(most(&uncut.weights, &cut.weights) < 1e-12);
        }
    }
}

/// A linear map of large inputs, whose first gradients overflow under a loss scale.
struct Large;

impl Task for Large {
    type Model = Linear<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        _: &'t Trace,
        model: &Linear<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let error = model.forward(batch.input) - batch.target;
        Mean::weighted(error.square().sum([1]), batch.weight)
    }
}

#[test]
fn scaled_losses_skip_the_same_steps() {
    let x: Vec<f32> = (0..64 * 5).map(|i| (i as f32 * 1.7).sin() * 40.0).collect();
    let run = |builder: TrainerBuilder, name: &str| {
        let [x, y] = [5, 1].map(|n| HostArray::from_slice(&x[..64 * n], [64, n]).unwrap());
        let data = InMemory::new([("x", x), ("y", y)]).unwrap();
        let builder = builder.precision(DTypePolicy::F16_MIXED).batch_size(16);
        let trainer = builder.max_epochs(5).strategy(strategy(name)).build()?;
        trainer.fit(Large, Linear::new(5, 1), Adam::new(1e-2), data, ())
    };
    let whole = alike(EXECUTORS[0], [2, 1], |builder| run(builder, "dp"));
    let zero = alike(EXECUTORS[0], [2, 1], |builder| run(builder, "zero1"));
    assert!(most(&whole.weights, &zero.weights) < 1e-6);
}

#[test]
fn anomaly_of_a_shard_is_found_everywhere() {
    let mut x: Vec<f64> = (0..3 * 64).map(|i| (i as f64 * 1.7).sin()).collect();
    x[3 * 9] = f64::NAN;
    let run = |builder: TrainerBuilder| {
        let builder = builder.detect_anomaly(true).strategy(strategy("zero1"));
        let trainer = builder.batch_size(16).max_epochs(2).build()?;
        trainer.fit(Regression, net(), Adam::new(1e-3), of_inputs(x.clone()), ())
    };
    let errors = errors(in_processes(EXECUTORS[0], [2, 1], run));
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("`hidden`"), "{}", errors[0]);
}

fn errors(all: Vec<Result<Trained>>) -> Vec<String> {
    let errors = all.into_iter().map(Result::unwrap_err);
    errors.map(|error: Error| error.to_string()).collect()
}

#[test]
fn optimizers_of_whole_parameters_keep_them() {
    fn check<O: Optimizer + Clone>(name: &str, optimizer: O) {
        let run = |builder: TrainerBuilder| fit(builder, optimizer.clone());
        let one = alike(EXECUTORS[0], [1, 1], run);
        let two = alike(EXECUTORS[0], [2, 1], run);
        assert!(most(&one.weights, &two.weights) < 1e-10, "{name}");
        let explicit = |builder: TrainerBuilder| run(builder.strategy(strategy("zero1")));
        let errors = errors(in_processes(EXECUTORS[0], [2, 1], explicit));
        let expected = format!(
            "strategy: `zero1` divides the elements of a parameter among processes, and {name} \
             needs those of `hidden`"
        );
        assert!(errors[0].starts_with(&expected), "{}", errors[0]);
    }
    check("Lamb", Lamb::new(1e-3));
    check("Lars", Lars::new(1e-2));
    check("Adafactor", Adafactor::new(1e-3));
    check("Muon", Muon::new(1e-3));
    let both = AdamW::new(1e-3).partition("hidden", Muon::new(1e-3));
    check("Partition<AdamW, Muon>", both.unwrap());
}

#[test]
fn parameters_are_sharded_within_a_process_only() {
    for name in ["fsdp", "tp"] {
        let run = |builder: TrainerBuilder| fit(builder.strategy(strategy(name)), Adam::new(1e-3));
        let errors = errors(in_processes(EXECUTORS[0], [2, 1], run));
        let expected =
            format!("strategy: `{name}` shards parameters over the devices of one process");
        assert!(errors[0].starts_with(&expected), "{}", errors[0]);
    }
    // Over the devices of each process they are.
    let sharded = |builder: TrainerBuilder| {
        let fsdp = Strategy::fsdp().min_elements(1);
        fit(builder.strategy(fsdp), Adam::new(1e-3))
    };
    let one = alike(EXECUTORS[1], [1, 1], |b| fit(b, Adam::new(1e-3)));
    let several = alike(EXECUTORS[1], [2, 2], sharded);
    assert!(most(&one.weights, &several.weights) < 1e-12);
}

#[test]
fn devices_of_one_process_divide_it_as_well() {
    let run = |builder: TrainerBuilder| {
        let zero = Strategy::zero1().min_elements(1);
        fit(
            builder.strategy(zero).gradient_clip_val(0.5),
            Adam::new(1e-3),
        )
    };
    let whole = |builder: TrainerBuilder| fit(builder.gradient_clip_val(0.5), Adam::new(1e-3));
    for open in EXECUTORS {
        let one = alike(open, [1, 1], whole);
        let eight = alike(open, [1, 8], run);
        assert!(most(&one.weights, &eight.weights) < 1e-12);
    }
}
