//! A network of dense layers in `f64`.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use halite_core::Result;
use halite_data::{Dataset, Field, InMemory, LastBatch, SampleMut};
use halite_nn::{Adam, Param, Schedule};
use halite_tests::long::part;
use halite_train::{EarlyStopping, Fitted, OnNotFinite, TrainerBuilder};

use super::{EXECUTORS, Trained, alike, in_processes, most};
use crate::shared::regression::{Net, Regression, data, net, of_inputs};

/// As [`data`], with a NaN in sample 9.
fn with_nan(count: usize) -> InMemory {
    let mut x: Vec<f64> = (0..3 * count).map(|i| (i as f64 * 1.7).sin()).collect();
    x[3 * 9] = f64::NAN;
    of_inputs(x)
}

/// Five epochs of this many samples in batches of 16, validated on 21.
pub(super) fn fit(builder: TrainerBuilder, samples: usize) -> Result<Fitted<Regression>> {
    fit_epochs(builder, samples, 5)
}

/// Two epochs of these samples.
fn fit_on(
    builder: TrainerBuilder,
    samples: InMemory,
    on_not_finite: OnNotFinite,
) -> Result<Fitted<Regression>> {
    let trainer = builder.batch_size(16).max_epochs(2);
    let trainer = trainer.on_not_finite(on_not_finite).build()?;
    trainer.fit(Regression, net(), Adam::new(1e-3), samples, ())
}

pub(super) fn fit_epochs(
    builder: TrainerBuilder,
    samples: usize,
    epochs: u64,
) -> Result<Fitted<Regression>> {
    fit_net(builder, net(), samples, epochs)
}

pub(super) fn fit_net(
    builder: TrainerBuilder,
    net: Net<Param>,
    samples: usize,
    epochs: u64,
) -> Result<Fitted<Regression>> {
    let trainer = builder.last_batch(LastBatch::Pad).batch_size(16);
    let adam = Adam::new(Schedule::warmup(1e-3, 4));
    let trainer = trainer.max_epochs(epochs).gradient_clip_val(0.5).build()?;
    trainer.fit(Regression, net, adam, data(samples), data(21))
}

#[test]
fn processes_train_as_one() {
    for open in EXECUTORS {
        let one = alike(open, [1, 1], |builder| fit(builder, 64));
        for &shape in part(&[[2, 1], [2, 2], [4, 1]], &[2]) {
            let several = alike(open, shape, |builder| fit(builder, 64));
            check(&one, &several);
        }
    }
}

/// Weights are equal but for rounding in `f64`; metrics pass through windows in `f32`.
fn check(one: &Trained, several: &Trained) {
    let distance = one.distance(several);
    assert!(distance.weights < 1e-12, "{distance:?}");
    assert!(distance.metrics < 1e-6, "{distance:?}");
}

#[test]
fn hundred_steps_agree_on_eight_devices() {
    let run = |builder: TrainerBuilder| fit_epochs(builder, 64, 25);
    for open in EXECUTORS {
        let one = alike(open, [1, 1], run);
        assert_eq!(one.steps, 100);
        for &shape in part(&[[1, 8], [2, 4], [4, 2], [8, 1]], &[1]) {
            check(&one, &alike(open, shape, run));
        }
    }
}

#[test]
fn uneven_batches_count_each_sample_once() {
    // Batches of 16; the last one of 49 has a sample, in one of four processes.
    for samples in [49, 59] {
        let one = alike(EXECUTORS[0], [1, 1], |builder| fit(builder, samples));
        let four = alike(EXECUTORS[0], [4, 1], |builder| fit(builder, samples));
        check(&one, &four);
    }
}

#[test]
fn accumulated_batches_are_exchanged_once() {
    let run = |builder: TrainerBuilder| fit(builder.accumulate_grad_batches(3), 53);
    let one = alike(EXECUTORS[0], [1, 1], run);
    check(&one, &alike(EXECUTORS[0], [2, 1], run));
}

#[test]
fn launches_of_several_steps_equal_single_ones() {
    let run = |builder: TrainerBuilder| {
        let builder = builder.log_every_n_steps(4);
        fit(builder.steps_per_execution(2), 64)
    };
    let single = alike(EXECUTORS[0], [2, 1], |builder| fit(builder, 64));
    let several = alike(EXECUTORS[0], [2, 1], run);
    assert!(most(&single.weights, &several.weights) < 1e-14);
}

#[test]
fn not_finite_samples_end_every_process() {
    let all = in_processes(EXECUTORS[0], [2, 1], |builder| {
        fit_on(builder, with_nan(64), OnNotFinite::Stop)
    });
    let errors: Vec<String> = (all.into_iter())
        .map(|result| result.unwrap_err().to_string())
        .collect();
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("sample 9"), "{}", errors[0]);
}

#[test]
fn every_process_skips_the_same_steps() {
    let run = |builder: TrainerBuilder| fit_on(builder, with_nan(64), OnNotFinite::Skip);
    let one = alike(EXECUTORS[0], [1, 1], run);
    let two = alike(EXECUTORS[0], [2, 1], run);
    assert!(most(&one.weights, &two.weights) < 1e-12);
    assert!(one.weights.iter().all(|weight| weight.is_finite()));
}

#[test]
fn early_stopping_is_the_same_everywhere() {
    let run = |builder: TrainerBuilder| {
        let stopping = EarlyStopping::new("validation loss")
            .patience(1)
            .min_delta(0.5);
        fit(builder.callback(stopping), 64)
    };
    let one = alike(EXECUTORS[0], [1, 1], run);
    assert!(one.steps < 20);
    assert_eq!(one.steps, alike(EXECUTORS[0], [2, 1], run).steps);
}

/// Data whose digest takes long.
struct SlowDigest(InMemory);

impl Dataset for SlowDigest {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn fields(&self) -> &[Field] {
        self.0.fields()
    }
    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        self.0.read(index, into)
    }
    fn digest(&self) -> Option<String> {
        thread::sleep(Duration::from_secs(12));
        self.0.digest()
    }
}

#[test]
fn other_processes_do_not_wait_for_the_digest_of_the_data() {
    let runs = tempfile::tempdir().unwrap();
    let all = in_processes(EXECUTORS[0], [2, 1], |builder| {
        let builder = builder.out(runs.path()).checkpoint_every(2);
        let builder = builder.process_timeout(Duration::from_secs(5));
        let trainer = builder.batch_size(16).max_epochs(1).build()?;
        let samples = SlowDigest(data(64));
        trainer.fit(Regression, net(), Adam::new(1e-3), samples, ())
    });
    for trained in all {
        assert_eq!(trained.unwrap().steps, 4);
    }
}

#[test]
fn different_options_are_refused() {
    let ranks = AtomicUsize::new(0);
    let all = in_processes(EXECUTORS[0], [2, 1], |builder| {
        let seed = ranks.fetch_add(1, Ordering::SeqCst) as u64;
        fit(builder.seed(seed), 64)
    });
    for error in all {
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("the processes do not train the same"),
            "{error}"
        );
        assert!(error.contains("seed: "), "{error}");
    }
}

#[test]
fn different_data_are_refused() {
    let ranks = AtomicUsize::new(0);
    let all = in_processes(EXECUTORS[0], [2, 1], |builder| {
        // As many samples; only the last one differs.
        let mut x: Vec<f64> = (0..3 * 64).map(|i| (i as f64 * 1.7).sin()).collect();
        x[3 * 63] += ranks.fetch_add(1, Ordering::SeqCst) as f64;
        fit_on(builder, of_inputs(x), OnNotFinite::Stop)
    });
    for error in all {
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("training data: 64 samples, digest of some "),
            "{error}"
        );
    }
}

#[test]
fn axis_of_processes_has_their_number() {
    let with_axis = |size: usize| {
        let all = in_processes(EXECUTORS[0], [2, 2], |builder| {
            fit(builder.mesh([("process", size), ("data", 2)]), 64)
        });
        all.into_iter().next().expect("there are two")
    };
    assert!(with_axis(2).is_ok());
    let error = with_axis(3).unwrap_err().to_string();
    assert_eq!(
        error,
        "trainer: the axis `process` of the mesh is 3, and the job has 2 processes"
    );
}

#[test]
fn batch_is_divided_among_processes() {
    let all = in_processes(EXECUTORS[0], [3, 1], |builder| fit(builder, 64));
    let error = all.into_iter().next().unwrap().unwrap_err().to_string();
    assert_eq!(
        error,
        "trainer: `batch_size` 16 is not divisible by 3 devices of 3 processes; 15 and 18 would be"
    );
}
