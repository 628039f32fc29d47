//! The same with processes of a job, which exchange by MPI.

use std::{path::PathBuf, sync::Arc, time::Duration};

use halite_cluster::spawn;
use halite_core::{Array, Error, Result, SingleProcess};
use halite_train::{Callback, TrainerBuilder, callback::Run, signals::StopReason};
use signal_hook::{consts::SIGTERM, low_level::raise};

use super::{EXECUTORS, Trained, in_process, mlp};
use crate::shared::regression::Regression;

const SOON: Duration = Duration::from_secs(60);

fn check(holds: bool, what: impl Into<String>) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(Error::invalid("test", what)),
    }
}

#[test]
fn processes_of_a_job_train_as_one() {
    spawn(2, |job| {
        for open in EXECUTORS {
            for devices in [1, 2] {
                let run = |builder: TrainerBuilder| mlp::fit(builder, 59);
                let one = in_process(open, 1, Arc::new(SingleProcess), run)?;
                let two = in_process(open, devices, job.group(), run)?;
                let distance = one.distance(&two);
                let is_near = distance.weights < 1e-12 && distance.metrics < 1e-6;
                check(is_near, format!("{devices} devices: {distance:?}"))?;
                let bits: Vec<u8> = (two.weights.iter())
                    .flat_map(|weight| weight.to_le_bytes())
                    .collect();
                let all = job.group().all_gather("weights", &bits, SOON)?;
                check(all[0] == all[1], "replicas differ")?;
            }
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn every_process_has_devices_of_its_own() {
    // Before the processes of the job are started, and in each of them.
    let client = EXECUTORS[0](2).open().unwrap();
    spawn(2, |job| {
        let place = (job.local_rank(), job.local_size());
        check(place == (job.rank(), 2), format!("{place:?}"))?;
        let ids: Vec<u8> = client.local_devices().iter().map(|id| id.0 as u8).collect();
        let all = job.group().all_gather("devices", &ids, SOON)?;
        check(all == [[0, 1], [0, 1]], format!("{all:?}"))?;
        let mine = Array::from_slice(&client, &[job.rank() as f32], [1])?;
        let read = mine.to_vec::<f32>()?;
        check(read == [job.rank() as f32], format!("{read:?}"))
    })
    .unwrap();
}

/// Ends this process by SIGTERM after a step.
struct TerminateAt(u64);

impl Callback for TerminateAt {
    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        if run.step() == self.0 {
            raise(SIGTERM).map_err(|error| Error::invalid("test", error.to_string()))?;
        }
        Ok(())
    }
}

#[test]
fn signal_to_one_process_saves_the_steps_of_all() {
    // Each process runs this test from its start: the directory has one name in all of them.
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("signal_to_one_process");
    if std::env::var_os("HALITE_SPAWN").is_none() {
        _ = std::fs::remove_dir_all(&out);
    }
    spawn(2, |job| {
        let rank = job.group().rank();
        let stopped = |builder: TrainerBuilder| {
            let at = TerminateAt(if rank == 1 { 6 } else { 0 });
            let fitted = mlp::fit(builder.out(out.join("cut")).callback(at), 64)?;
            let is_terminated = fitted.stopped_by == Some(StopReason::Terminate);
            check(is_terminated, format!("stopped by {:?}", fitted.stopped_by))?;
            Ok(fitted)
        };
        let run = |fit: &dyn Fn(TrainerBuilder) -> Result<halite_train::Fitted<Regression>>| {
            in_process(EXECUTORS[0], 1, job.group(), fit)
        };
        let stopped: Trained = run(&stopped)?;
        let steps = stopped.steps.to_le_bytes();
        let all = job.group().all_gather("steps", &steps, SOON)?;
        check(all[0] == all[1], "stopped at different steps")?;
        let is_early = (6..20).contains(&stopped.steps);
        check(is_early, format!("stopped after {} steps", stopped.steps))?;
        let resumed = run(&|builder| mlp::fit(builder.out(out.join("cut")).resume(true), 64))?;
        let whole = run(&|builder| mlp::fit(builder.out(out.join("whole")), 64))?;
        check(resumed.weights == whole.weights, "not the same bits")
    })
    .unwrap();
}
