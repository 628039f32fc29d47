//! Training by several processes equals training by one: losses, metrics and weights. The processes
//! are threads with a client each, on both executors; in `job` they are processes.

mod evaluation;
mod gpt;
mod job;
mod layers;
mod meetings;
mod mlp;
mod operations;
mod runs;
mod single;
mod spanning;
mod zero;

use std::{
    sync::{Arc, Mutex},
    thread,
};

use halite_backends::Accelerator;
use halite_core::{
    Array, Client, HostArray, PartitionSpec, ProcessGroup, Result, ThreadProcess, tree::Tree,
};
use halite_nn::ArrayCollectives;
use halite_tests::long::part;
use halite_train::{
    Callback, Fitted, Task, Trainer, TrainerBuilder,
    callback::{MetricsWindow, Run},
};

/// An executor with this number of devices.
type Open = fn(u32) -> Accelerator;

/// Both executors.
const EXECUTORS: [Open; 2] = [
    |devices| Accelerator::Embedded {
        devices: Some(devices),
    },
    |devices| Accelerator::Cpu {
        devices: Some(devices),
    },
];

/// What a run has computed.
#[derive(Clone, Debug, Default, PartialEq)]
struct Trained {
    /// Training loss of each step.
    losses: Vec<f64>,
    /// The elements of all leaves of the model.
    weights: Vec<f64>,
    /// Metrics of the validation, by name.
    validation: Vec<(String, f64)>,
    steps: u64,
}

/// Largest differences of two runs.
#[derive(Debug)]
struct Distance {
    weights: f64,
    /// Of losses and of metrics of the validation.
    metrics: f64,
}

impl Trained {
    fn distance(&self, other: &Self) -> Distance {
        assert_eq!(self.steps, other.steps);
        assert_eq!(self.losses.len(), self.steps as usize);
        let metrics = |trained: &Self| -> Vec<f64> {
            let validation = trained.validation.iter().map(|(_, value)| *value);
            trained.losses.iter().copied().chain(validation).collect()
        };
        Distance {
            weights: most(&self.weights, &other.weights),
            metrics: most(&metrics(self), &metrics(other)),
        }
    }
}

fn most(ones: &[f64], others: &[f64]) -> f64 {
    assert_eq!(ones.len(), others.len());
    let pairs = ones.iter().zip(others);
    pairs.fold(0.0, |most, (one, other)| (one - other).abs().max(most))
}

/// Records the training loss of each step.
#[derive(Clone, Default)]
struct Losses(Arc<Mutex<Vec<f64>>>);

impl Callback for Losses {
    fn on_train_metrics(&mut self, _: &mut Run, window: &MetricsWindow) -> Result<()> {
        let loss = window.row.get("loss").expect("a step has samples");
        self.0.lock().unwrap().push(loss);
        Ok(())
    }
}

/// Runs `fit` in one process of a job, on this number of devices.
fn in_process<K: Task>(
    open: Open,
    devices: usize,
    group: Arc<dyn ProcessGroup>,
    fit: impl Fn(TrainerBuilder) -> Result<Fitted<K>>,
) -> Result<Trained> {
    trained(&open(devices as u32).open()?, group, fit)
}

/// Runs `fit` in one process of a job, with this client.
fn trained<K: Task>(
    client: &Client,
    group: Arc<dyn ProcessGroup>,
    fit: impl Fn(TrainerBuilder) -> Result<Fitted<K>>,
) -> Result<Trained> {
    let losses = Losses::default();
    let builder = Trainer::builder(client).quiet(true).processes(group);
    let fitted = fit(builder.log_every_n_steps(1).callback(losses.clone()))?;
    let leaves = fitted.model.leaves().into_iter();
    let weights = leaves.flat_map(|leaf| {
        let host = read(client, leaf);
        match host.as_slice::<f64>() {
            Ok(values) => values.to_vec(),
            Err(_) => {
                let values = host.as_slice::<f32>().unwrap().iter();
                values.map(|value| f64::from(*value)).collect()
            }
        }
    });
    Ok(Trained {
        weights: weights.collect(),
        losses: losses.0.lock().unwrap().clone(),
        validation: (fitted.report.metrics.iter())
            .map(|(name, value)| (name.to_string(), *value))
            .collect(),
        steps: fitted.report.steps,
    })
}

/// The elements of an array, of which other processes may have parts.
fn read(client: &Client, array: &Array) -> HostArray {
    if array.is_fully_addressable() {
        return array.read().unwrap();
    }
    let all = ArrayCollectives::new(client, array.sharding().mesh());
    let replicated = all.reshard(array, &PartitionSpec::replicated()).unwrap();
    replicated.read().unwrap()
}

/// Runs `fit` in this number of processes, each with this number of devices, and returns what each
/// has computed.
fn in_processes<K: Task>(
    open: Open,
    [processes, devices]: [usize; 2],
    fit: impl Fn(TrainerBuilder) -> Result<Fitted<K>> + Sync,
) -> Vec<Result<Trained>> {
    let run = |process: ThreadProcess| in_process(open, devices, Arc::new(process), &fit);
    thread::scope(|scope| {
        let all = ThreadProcess::group(processes).into_iter();
        let all: Vec<_> = all.map(|process| scope.spawn(|| run(process))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// What each process has computed, which is the same to the bit.
fn alike<K: Task>(
    open: Open,
    shape: [usize; 2],
    fit: impl Fn(TrainerBuilder) -> Result<Fitted<K>> + Sync,
) -> Trained {
    let mut all = in_processes(open, shape, fit)
        .into_iter()
        .map(Result::unwrap);
    let first = all.next().expect("there is a process");
    for other in all {
        assert_eq!(first, other, "replicas differ");
    }
    first
}

/// Checks that 100 steps on eight devices, whatever the number of processes, give the weights of one
/// process with one device. XLA's plugin compiles in each process, for seconds: it is given one of
/// the numbers of processes, and all in a long test.
fn hundred_steps_agree<K: Task>(fit: impl Fn(TrainerBuilder) -> Result<Fitted<K>> + Copy + Sync) {
    let every = [[1, 8], [4, 2], [2, 4], [8, 1]];
    for (open, few) in EXECUTORS.into_iter().zip([&[0, 1, 2, 3][..], &[1]]) {
        let one = alike(open, [1, 1], fit);
        assert_eq!(one.steps, 100);
        for &shape in part(&every, few) {
            let distance = one.distance(&alike(open, shape, fit));
            assert!(distance.weights < 1e-12, "{shape:?}: {distance:?}");
        }
    }
}
