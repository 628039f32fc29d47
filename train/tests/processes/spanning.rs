//! One program on the devices of all processes, as on GPUs: the results are those of one process with
//! as many devices, to the bit.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use halite_core::{
    Client, Collective, DeviceId, ProcessGroup, Result, SingleProcess, ThreadProcess,
};
use halite_reference::{Node, Options, Reference};
use halite_train::{CheckpointMode, Fitted, Strategy, Task, TrainerBuilder};

use super::{Trained, evaluation::fit_scored, mlp, trained};
use crate::shared::{regression::wide_net, scored};

/// Width of a network whose parameters are most of the memory.
const WIDTH: usize = 4000;

/// Every parameter that is divisible is sharded.
fn fsdp() -> Strategy {
    Strategy::fsdp().min_elements(1)
}

fn open(devices: u32, node: Option<Node>) -> Result<Client> {
    let options = Options {
        devices,
        threads: 1,
        node,
        ..Options::default()
    };
    Ok(Client::new(Reference::new(&options)?))
}

/// What each process has computed, each with `devices` of all.
fn spanning<K: Task>(
    [processes, devices]: [usize; 2],
    fit: impl Fn(TrainerBuilder) -> Result<Fitted<K>> + Sync,
) -> Vec<Result<Trained>> {
    let run = |process: ThreadProcess| {
        let node = Node {
            index: process.rank() as u32,
            count: process.size() as u32,
            store: process.store("devices")?,
            patience: Duration::from_secs(60),
        };
        trained(&open(devices as u32, Some(node))?, Arc::new(process), &fit)
    };
    thread::scope(|scope| {
        let all = ThreadProcess::group(processes).into_iter();
        let all: Vec<_> = all.map(|process| scope.spawn(|| run(process))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// What one process with all devices computes.
fn alone<K: Task>(devices: u32, fit: impl Fn(TrainerBuilder) -> Result<Fitted<K>>) -> Trained {
    trained(&open(devices, None).unwrap(), Arc::new(SingleProcess), fit).unwrap()
}

#[test]
fn every_strategy_equals_one_process() {
    for strategy in [Strategy::data_parallel(), fsdp()] {
        let run = |builder: TrainerBuilder| mlp::fit(builder.strategy(strategy.clone()), 53);
        let one = alone(4, run);
        for shape in [[2, 2], [4, 1]] {
            for each in spanning(shape, run) {
                assert_eq!(each.unwrap(), one, "{strategy} on {shape:?}");
            }
        }
    }
}

#[test]
fn collected_metrics_equal_one_process() {
    let rows = scored::rows(21);
    let run = |builder: TrainerBuilder| fit_scored(builder, &rows);
    let one = alone(4, run);
    for each in spanning([2, 2], run) {
        assert_eq!(each.unwrap().validation, one.validation);
    }
}

#[test]
fn launches_of_several_accumulated_steps_equal_one_process() {
    let run = |builder: TrainerBuilder| {
        let builder = builder.log_every_n_steps(4).accumulate_grad_batches(2);
        mlp::fit(builder.steps_per_execution(2), 64)
    };
    let one = alone(2, run);
    for each in spanning([2, 1], run) {
        assert_eq!(each.unwrap(), one);
    }
}

#[test]
fn resumed_run_has_the_same_bits() {
    let runs = tempfile::tempdir().unwrap();
    let run = |name: &str, epochs: u64, strategy: &Strategy, mode| {
        let out = runs.path().join(format!("{name}-{strategy}-{mode:?}"));
        let fit = |builder: TrainerBuilder| {
            let builder = builder.out(&out).resume(true).strategy(strategy.clone());
            let builder = builder.checkpoint_mode(mode);
            mlp::fit_epochs(builder, 64, epochs)
        };
        let mut all = spanning([2, 2], fit).into_iter().map(Result::unwrap);
        let first = all.next().expect("there are two");
        assert_eq!(all.next(), Some(first.clone()));
        first.weights
    };
    for strategy in [Strategy::data_parallel(), fsdp()] {
        for mode in [CheckpointMode::Copy, CheckpointMode::Stream] {
            let expected = run("whole", 4, &strategy, mode);
            run("cut", 2, &strategy, mode);
            let resumed = run("cut", 4, &strategy, mode);
            assert_eq!(resumed, expected, "{strategy}, {mode:?}");
        }
    }
}

/// The most memory that a device of four processes has used, of a run without or with checkpoints of
/// a state that is sharded.
fn memory_peak(mode: Option<CheckpointMode>) -> u64 {
    let runs = tempfile::tempdir().unwrap();
    let peaks = Mutex::new(Vec::new());
    let all = spanning([4, 1], |builder| {
        let builder = match mode {
            Some(mode) => builder.out(runs.path()).checkpoint_mode(mode),
            None => builder,
        };
        let fitted = mlp::fit_net(builder.strategy(fsdp()), wide_net(WIDTH), 32, 1)?;
        peaks
            .lock()
            .unwrap()
            .extend(fitted.report.device_memory_peak);
        Ok(fitted)
    });
    all.into_iter().for_each(|each| drop(each.unwrap()));
    let peaks = peaks.into_inner().unwrap();
    assert_eq!(peaks.len(), 4);
    peaks.into_iter().max().expect("there are four")
}

#[test]
fn checkpoints_gather_one_array_at_a_time() {
    // Parameters and two slots of Adam, each of 3, 1 and 1 rows of this width.
    let largest = 3 * 8 * WIDTH as u64;
    let without = memory_peak(None);
    for mode in [CheckpointMode::Copy, CheckpointMode::Stream] {
        let with = memory_peak(Some(mode));
        let limit = without + largest + largest / 4;
        assert!(with < limit, "{mode:?}: {with} bytes, {without} without");
    }
}

#[test]
fn mesh_without_a_process_is_refused_everywhere() {
    let first = [0, 1].map(DeviceId);
    let all = spanning([3, 1], |builder| mlp::fit(builder.devices(first), 64));
    for each in all {
        let error = each.unwrap_err().to_string();
        assert!(
            error.contains("process 2 has none of the 2 devices of the mesh"),
            "{error}"
        );
    }
}

#[test]
fn axis_of_processes_is_refused() {
    let all = spanning([2, 1], |builder| {
        mlp::fit(builder.mesh([("process", 2), ("data", 1)]), 64)
    });
    for each in all {
        let error = each.unwrap_err().to_string();
        assert!(error.contains("one program runs on 2 devices"), "{error}");
    }
}
