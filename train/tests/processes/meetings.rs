//! Samples that meet in a batch: what depends on the number of processes is refused, and the rest
//! trains as one process does.

use std::collections::BTreeMap;

use halite_core::{DType, HostArray, Result, tree::Tree};
use halite_data::InMemory;
use halite_nn::{Dropout, Init, Mean, PROCESS_AXIS, Param, Sgd, Tensor, Trace, cross_entropy, rng};
use halite_tests::{
    long::{count, record},
    random::Random,
};
use halite_train::{Fitted, Task, TrainerBuilder, Weighted, task};

use super::{EXECUTORS, alike, in_processes};

/// Width of the values of a random task.
const WIDTH: usize = 4;

/// A square matrix.
#[derive(Tree, Debug)]
struct Square<L> {
    weight: L,
}

fn square() -> Square<Param> {
    let (low, high) = (-0.5, 0.5);
    Square {
        weight: Param::new([WIDTH, WIDTH], Init::Uniform { low, high }).with_dtype(DType::F64),
    }
}

/// Samples of two vectors.
fn pairs(count: usize) -> InMemory {
    let field = |factor: f64| {
        let values: Vec<f64> = (0..WIDTH * count)
            .map(|i| (i as f64 * factor).sin())
            .collect();
        HostArray::from_slice(&values, [count, WIDTH]).unwrap()
    };
    InMemory::new([("x", field(1.7)), ("y", field(0.9))]).unwrap()
}

fn fit<K: Task<Model = Square<()>>>(builder: TrainerBuilder, task: K) -> Result<Fitted<K>> {
    let trainer = builder.batch_size(8).max_epochs(2).build()?;
    trainer.fit(task, square(), Sgd::new(0.1), pairs(32), pairs(16))
}

type Batch<'t> = halite_data::Labeled<Tensor<'t>>;

/// InfoNCE (van den Oord et al. 2018) between the vectors of each sample and those of all others.
fn contrastive<'t>(cx: &'t Trace, a: Tensor<'t>, b: Tensor<'t>, weight: Tensor<'t>) -> Mean<'t> {
    let logits = a.matmul(b.t());
    let labels = cx.arange(logits.dims()[0], DType::S32);
    Mean::weighted(cross_entropy(logits, labels), weight.convert(DType::F64))
}

/// The error of a task in a job of two processes.
fn refused<F>(loss: F) -> String
where
    F: for<'t> Fn(&'t Trace, &Square<Tensor<'t>>, &Batch<'t>) -> Mean<'t>
        + Copy
        + Send
        + Sync
        + 'static,
{
    let all = in_processes(EXECUTORS[0], [2, 1], |builder| {
        fit(builder, task(&square(), loss))
    });
    let errors = all
        .into_iter()
        .map(|result| result.unwrap_err().to_string());
    let errors: Vec<String> = errors.collect();
    assert_eq!(errors[0], errors[1]);
    errors[0].clone()
}

/// Checks that a task trains in processes as in one.
fn trains_alike<F>(loss: F)
where
    F: for<'t> Fn(&'t Trace, &Square<Tensor<'t>>, &Batch<'t>) -> Mean<'t>
        + Copy
        + Send
        + Sync
        + 'static,
{
    let run = |builder: TrainerBuilder| fit(builder, task(&square(), loss));
    let one = alike(EXECUTORS[0], [1, 1], run);
    for (open, shape) in [
        (EXECUTORS[0], [2, 1]),
        (EXECUTORS[0], [4, 2]),
        (EXECUTORS[1], [2, 1]),
    ] {
        let distance = one.distance(&alike(open, shape, run));
        assert!(
            distance.weights < 1e-12 && distance.metrics < 1e-6,
            "{shape:?}: {distance:?}"
        );
    }
}

#[test]
fn loss_that_compares_samples_is_refused_with_both_remedies() {
    let error = refused(|cx, model, batch| {
        let a = batch.input.matmul(model.weight);
        contrastive(cx, a, batch.target, batch.weight)
    });
    for part in [
        "meetings.rs:",
        "`dot` combines different samples of the batch",
        "Each of the 2 processes",
        "cx.all_gather(x)",
        "cx.per_process(y)",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn gathered_samples_train_as_in_one_process() {
    trains_alike(|cx, model, batch| {
        let a = batch.input.matmul(model.weight);
        let [a, b, weight] = [a, batch.target, batch.weight].map(|x| cx.all_gather(x));
        let loss = contrastive(cx, a, b, weight);
        cx.metric("contrastive", loss);
        loss
    });
    // The rows of this process beside those of all.
    trains_alike(|cx, model, batch| {
        let a = batch.input.matmul(model.weight);
        let logits = a.matmul(cx.all_gather(batch.target).t());
        let rows = a.dims()[0];
        let labels = cx.arange(rows, DType::S32) + cx.process_index() * rows as f64;
        batch.mean(cross_entropy(logits, labels))
    });
}

#[test]
fn marked_results_are_those_of_one_process() {
    let run = |builder: TrainerBuilder| {
        let loss = task(
            &square(),
            |cx, model: &Square<Tensor<'_>>, batch: &Batch<'_>| {
                let x = batch.input.matmul(model.weight);
                let mean = cx
                    .per_process(x.mean([0]))
                    .unsqueeze(0)
                    .broadcast_to(x.dims());
                batch.mean((x - mean).square())
            },
        );
        fit(builder, loss)
    };
    let [one, two] = [[1, 1], [2, 1]].map(|shape| alike(EXECUTORS[0], shape, run));
    assert!(one.distance(&two).weights > 1e-4);
}

#[test]
fn metrics_and_sums_of_other_weights_are_refused() {
    let error = refused(|cx, model, batch| {
        let x = batch.input.matmul(model.weight);
        let most = x.max([0, 1]).reshape([1]);
        cx.metric("most", Mean::of(most));
        batch.mean(x.square())
    });
    assert!(
        error.contains("`reduce_max` combines") && error.contains("metric `most`"),
        "{error}"
    );
    let error = refused(|cx, model, batch| {
        let x = batch.input.matmul(model.weight).square();
        let weight = cx.all_gather(batch.weight).convert(DType::F64);
        Mean {
            total: x.sum_all(),
            weight: weight.sum_all(),
        }
    });
    assert!(error.contains("its weight is that of all"), "{error}");
}

#[test]
fn random_numbers_of_a_task_are_those_of_the_samples() {
    trains_alike(|cx, model, batch| {
        let x = batch.input.matmul(model.weight);
        if !cx.is_training() {
            return batch.mean(x.square());
        }
        let noise = rng::normal(cx.next_key(), x.dims(), DType::F64);
        let kept = rng::bernoulli(cx.next_key(), [x.dims()[0]], 0.5).convert(DType::F64);
        let kept = kept.unsqueeze(1).broadcast_to(x.dims());
        // The same for all samples.
        let shift = rng::uniform(cx.next_key(), [1, WIDTH], DType::F64, -1.0, 1.0);
        batch.mean((x * kept + noise * 0.1 + shift.broadcast_to(x.dims())).square())
    });
}

/// A step of a random task, from values of the samples, `f64[rows, WIDTH]`, to others.
#[derive(Clone, Copy, Debug)]
struct Step(usize);

/// Number of kinds of steps.
const STEPS: usize = 30;

impl Step {
    fn apply<'t>(self, cx: &'t Trace, x: Tensor<'t>, weight: Tensor<'t>) -> Tensor<'t> {
        let dims = x.dims();
        let rows = dims[0];
        let wide = |row: Tensor<'t>| row.unsqueeze(0).broadcast_to(&dims);
        let number = |dim: usize| {
            let numbers = cx.arange(dims[dim], DType::F64).unsqueeze(1 - dim);
            numbers.broadcast_to(&dims) * 0.1
        };
        match self.0 {
            0 => x.tanh(),
            1 => x.matmul(weight),
            2 => x + wide(x.mean([0])),
            3 => x.softmax(1),
            4 => x.softmax(0),
            5 => x.matmul(x.t()).matmul(x) * 0.1,
            6 => x.sort(0, false),
            7 => x.sort(1, true),
            8 => x.reverse([0]),
            9 => x.reverse([1]),
            10 => cx.concat(&[x, x.tanh()], 0).slice_dim(0, rows..),
            11 => x.flatten().sin().reshape(&dims),
            12 => x.t().softmax(0).t(),
            13 => x.cumsum(0) * 0.1,
            14 => x.cumsum(1),
            15 => x * rng::normal(cx.next_key(), &dims, DType::F64),
            16 => Dropout::new(0.5).forward(x),
            17 => x * number(0),
            18 => x * number(1),
            19 => x + wide(cx.all_gather(x).mean([0])),
            20 => x + wide(x.slice_dim(0, ..1).reshape([dims[1]])),
            21 => {
                let halves = x.reshape([rows / 2, 2, dims[1]]);
                let sum = halves.sum([1]).unsqueeze(1);
                x + sum.broadcast_to(halves.dims()).reshape(&dims)
            }
            22 => x + wide(x.max([0])),
            23 => x.gt(0.1).select(x, x * 0.5),
            24 => {
                // Heads before samples.
                let heads = x.reshape([rows, 2, dims[1] / 2]).transpose([1, 0, 2]);
                let scores = heads.exp().sum([2]).unsqueeze(2).broadcast_to(heads.dims());
                (heads / scores).transpose([1, 0, 2]).reshape(&dims)
            }
            25 => {
                let heads = x.reshape([rows, 2, dims[1] / 2]).transpose([1, 0, 2]);
                let mixed = heads.matmul(heads.transpose([0, 2, 1])).matmul(heads) * 0.1;
                mixed.transpose([1, 0, 2]).reshape(&dims)
            }
            26 => x.take(x.argmax(1), 1).slice_dim(1, ..1).broadcast_to(&dims),
            27 => {
                let best = x.argmax(1).unsqueeze(1);
                x + x.take_along(best, 1).broadcast_to(&dims)
            }
            28 => x + x.sum_all().tanh().broadcast_in_dim(&dims, []),
            _ => {
                let sums = x.all_reduce(halite_ir::Reduction::Sum, PROCESS_AXIS);
                x + wide(sums.sum([0])) * 0.01
            }
        }
    }
}

/// Random tasks give the same losses on 1, 2 and 4 processes, or are refused.
#[test]
fn random_tasks_are_alike_or_refused() {
    let (mut alike_tasks, mut refused_tasks) = (0, 0);
    let (seed_of_all, tasks) = (38, count(60, 2000));
    for seed in 0..tasks {
        let mut random = Random::new(seed_of_all, seed);
        let steps: Vec<Step> = (0..random.below(5) + 1)
            .map(|_| Step(random.below(STEPS)))
            .collect();
        let run = |builder: TrainerBuilder| {
            let steps = steps.clone();
            let loss = task(
                &square(),
                move |cx, model: &Square<Tensor<'_>>, batch: &Batch<'_>| {
                    let first = batch.input.matmul(model.weight);
                    // Bounded, so that none diverges.
                    let x = (steps.iter())
                        .fold(first, |x, step| step.apply(cx, x, model.weight).tanh());
                    batch.mean((x - batch.target).square())
                },
            );
            let trainer = builder.batch_size(8).max_epochs(1).build()?;
            trainer.fit(loss, square(), Sgd::new(0.01), pairs(16), ())
        };
        let one = alike(EXECUTORS[0], [1, 1], run);
        for processes in [2, 4] {
            let mut all = in_processes(EXECUTORS[0], [processes, 1], run).into_iter();
            match all.next().expect("there is a process") {
                Ok(several) => {
                    alike_tasks += 1;
                    let distance = one.distance(&several);
                    let is_same = distance.weights < 1e-9 && distance.metrics < 1e-5;
                    assert!(
                        is_same,
                        "seed {seed}, {processes} processes: {steps:?}: {distance:?}"
                    );
                }
                Err(error) => {
                    refused_tasks += 1;
                    let text = error.to_string();
                    assert!(
                        text.contains("cx.all_gather(x)"),
                        "seed {seed}: {steps:?}: {text}"
                    );
                }
            }
        }
    }
    println!("{alike_tasks} alike, {refused_tasks} refused");
    let summary = BTreeMap::from([
        ("seed", seed_of_all),
        ("tasks", tasks),
        ("alike", alike_tasks),
        ("refused", refused_tasks),
        ("wrong", 0),
    ]);
    record("tasks", &summary);
    assert!(
        alike_tasks > 10 && refused_tasks > 10,
        "{alike_tasks} {refused_tasks}"
    );
}
