//! Metrics of a validation are those of every sample once, however uneven the samples are divided.

use halite_core::Result;
use halite_data::Labeled;
use halite_nn::{Mean, Sgd, Tensor, Trace};
use halite_train::{Fitted, Task, TrainerBuilder, metrics::average_precision};

use super::{EXECUTORS, Trained, alike, in_processes};
use crate::shared::{
    regression::{Net, Regression, data, inputs, net, targets_of},
    scored::{self, Rows, Scored, label, scale},
};

/// Counts samples, so that every sum is exact.
struct Counting;

impl Task for Counting {
    type Model = Net<()>;
    type Batch = Labeled<()>;

    fn loss<'t>(
        &self,
        cx: &'t Trace,
        model: &Net<Tensor<'t>>,
        batch: &Labeled<Tensor<'t>>,
    ) -> Mean<'t> {
        let is_positive = batch.target.gt(0.0).convert(batch.weight.dtype());
        let positive = Mean::weighted(is_positive.flatten(), batch.weight);
        cx.metric("positive", positive);
        Regression.loss(cx, model, batch)
    }
}

/// One step, and a validation of this many samples in batches of 8.
fn fit(builder: TrainerBuilder, samples: usize) -> Result<Fitted<Counting>> {
    let trainer = builder.batch_size(8).eval_batch_size(8).max_steps(1);
    let trainer = trainer.build()?;
    trainer.fit(Counting, net(), Sgd::new(1e-3), data(8), data(samples))
}

fn metric(trained: &Trained, name: &str) -> f64 {
    let mut metrics = trained.validation.iter();
    let found = metrics.find(|(other, _)| other == name);
    found.expect("the validation has the metric").1
}

#[test]
fn metrics_count_each_sample_once() {
    // Batches with a sample in one of the processes, in some of them, and in all but unevenly.
    for samples in [1, 3, 9, 21] {
        let count = targets_of(&inputs(samples))
            .iter()
            .filter(|y| **y > 0.0)
            .count();
        let expected = count as f64 / samples as f64;
        let one = alike(EXECUTORS[0], [1, 1], |builder| fit(builder, samples));
        for (executor, shape) in [(0, [2, 2]), (1, [4, 1]), (0, [8, 1])] {
            let open = EXECUTORS[executor];
            let several = alike(open, shape, |builder| fit(builder, samples));
            let positive = metric(&several, "positive");
            assert!(
                (positive - expected).abs() < 1e-7,
                "{positive} of {expected}"
            );
            assert_eq!(positive, metric(&one, "positive"), "{samples} on {shape:?}");
            let difference = metric(&one, "mae") - metric(&several, "mae");
            // These pass through windows in `f32`.
            assert!(difference.abs() < 1e-6, "{difference:e}");
        }
    }
}

/// One step, and a validation of these rows in batches of 8.
pub(super) fn fit_scored(builder: TrainerBuilder, rows: &Rows) -> Result<Fitted<Scored>> {
    let trainer = builder.batch_size(8).eval_batch_size(8).max_steps(1);
    let train = scored::rows(8);
    let [train, test] = [&train, rows].map(|(scores, targets)| scored::data(scores, targets));
    (trainer.build()?).fit(Scored, scale(), Sgd::new(1e-3), train, test)
}

#[test]
fn collected_metrics_are_those_of_one_device() {
    // Batches of padding alone in some of the processes, and uneven ones.
    for samples in [5, 21] {
        let rows = scored::rows(samples);
        let collected = |executor: usize, shape| {
            let fit = |builder| fit_scored(builder, &rows);
            let mut trained = alike(EXECUTORS[executor], shape, fit);
            trained.validation.retain(|(name, _)| name != "loss");
            trained.validation
        };
        let targets: Vec<bool> = (label(&rows.1, 1).iter()).map(|y| *y > 0.0).collect();
        let expected = average_precision(&label(&rows.0, 1), &targets).unwrap();
        let one = collected(0, [1, 1]);
        let name = "average_precision/b".to_owned();
        assert!(one.contains(&(name, expected)), "{one:?}");
        for (executor, shape) in [
            (0, [1, 8]),
            (0, [2, 2]),
            (0, [8, 1]),
            (1, [1, 8]),
            (1, [2, 1]),
        ] {
            assert_eq!(collected(executor, shape), one, "{samples} on {shape:?}");
        }
    }
}

#[test]
fn invalid_row_of_one_process_ends_all() {
    let mut rows = scored::rows(8);
    rows.1[0] = 2.0;
    let fit = |builder| fit_scored(builder, &rows);
    for result in in_processes(EXECUTORS[0], [2, 1], fit) {
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains("row 0 of batch 1 has the target 2"),
            "{error}"
        );
    }
}
