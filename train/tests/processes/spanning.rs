//! One program on the devices of all processes, as on GPUs: the results are those of one process with
//! as many devices, to the bit.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use halite_core::{
    Array, Client, Collective, Device, DeviceId, HostArray, Mesh, PartitionSpec, ProcessGroup,
    Result, Sharding, SingleProcess, ThreadProcess,
};
use halite_embedded::{Embedded, Node, Options};
use halite_nn::jit;
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
    Ok(Client::new(Embedded::new(&options)?))
}

/// What each process has computed, each with `devices` of all.
fn spanning<K: Task>(
    shape: [usize; 2],
    fit: impl Fn(TrainerBuilder) -> Result<Fitted<K>> + Sync,
) -> Vec<Result<Trained>> {
    in_processes(shape, |client, group| trained(&client, group, &fit))
}

/// The results of processes that have one client's devices together, each `devices` of them.
fn in_processes<T: Send>(
    [processes, devices]: [usize; 2],
    run: impl Fn(Client, Arc<dyn ProcessGroup>) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let run = |process: ThreadProcess| {
        let node = Node {
            index: process.rank() as u32,
            count: process.size() as u32,
            store: process.store("devices")?,
            patience: Duration::from_secs(60),
        };
        let group: Arc<dyn ProcessGroup> = Arc::new(process);
        let client = open(devices as u32, Some(node))?.with_processes(group.clone());
        run(client, group)
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

/// The errors of two processes that launch programs on all devices: `launch` takes the rank and what
/// launches the program with a factor.
fn errors_of_launches(
    launch: impl Fn(usize, &dyn Fn(f64) -> Result<()>) -> Result<()> + Sync,
) -> Vec<String> {
    let all = in_processes([2, 1], |client, group| {
        let devices = client.devices().into_iter().map(Device::id);
        let mesh = Arc::new(Mesh::new([("data", 2)], devices)?);
        let rows = Sharding::new(&mesh, PartitionSpec::first("data"))?;
        let x = Array::upload(&client, &HostArray::from_slice(&[1f32, 2.0], [2])?, &rows)?;
        let programs =
            [1.0, 2.0].map(|factor| (factor, jit(&client, move |_, [x]| [x.sum_all() * factor])));
        launch(group.rank(), &|factor| {
            let program = programs.iter().find(|(known, _)| *known == factor);
            let (_, program) = program.expect("one of the factors");
            program.run([&x])?.iter().try_for_each(|y| y.wait())
        })
    });
    let errors = all.into_iter().filter_map(Result::err);
    errors.map(|error| error.to_string()).collect()
}

#[test]
fn same_programs_on_all_devices_are_launched() {
    let errors = errors_of_launches(|_, launch| {
        launch(2.0)?;
        launch(1.0)?;
        launch(2.0)
    });
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn program_of_one_process_is_refused_before_its_launch() {
    let started = Instant::now();
    let errors = errors_of_launches(|rank, launch| launch(1.0 + rank as f64));
    assert_eq!(errors.len(), 2);
    for error in &errors {
        assert!(
            error.contains("processes launch different programs"),
            "{error}"
        );
        for rank in 0..2 {
            let launched = format!("process {rank} launches `");
            assert!(error.contains(&launched), "{error}");
        }
        assert!(
            error.contains("train/tests/processes/spanning.rs:"),
            "{error}"
        );
    }
    // Under `if rank == 0`, and then one that all launch.
    let errors = errors_of_launches(|rank, launch| {
        if rank == 0 {
            launch(1.0)?;
        }
        launch(2.0)
    });
    assert_eq!(errors.len(), 2);
    assert!(
        errors[0].contains("processes launch different programs"),
        "{}",
        errors[0]
    );
    assert!(started.elapsed() < Duration::from_secs(30), "it waited");
}

/// The other process ends without a launch.
#[test]
fn program_that_others_never_launch_is_named() {
    let errors = errors_of_launches(|rank, launch| match rank {
        0 => launch(1.0),
        _ => Ok(()),
    });
    let [error] = &errors[..] else {
        panic!("{errors:?}")
    };
    for part in [
        "process 0 launches `",
        "train/tests/processes/spanning.rs:",
        "as number 1",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}
