//! Saving: the capture of a checkpoint between two steps.

use std::time::Duration;

use halite_core::{Array, Error, ErrorKind, HostArray, Pending, Result, tree::Tree};
use halite_nn::{ArraySpec, Optimizer, Processes};

use super::{Fit, LoopState, TrainingLoop, lost, whole::WholeArrays};
use crate::{
    Task,
    callback::{PendingCheckpoint, StateArrays},
    callbacks::Checkpointing,
    checkpoint::{Exact, Share, SpareMemory, StateServer, StateStream, parts_of},
    processes::{all_agree, check_replicas, patience_of_files},
    resume::{Metadata, array_specs, held_arrays},
    waits::Limits,
    window::WINDOW,
};

/// Shortest time that copies of the state may take after a request to stop or an error of the data:
/// the device works.
const STOPPED_COPIES: Duration = Duration::from_secs(60);

/// Longest time that copies of the state may take after a step missed its deadline: the device
/// probably hangs.
const LAST_COPIES: Duration = Duration::from_secs(5);

/// Time in which copies of a run that was stopped have to arrive.
fn time_of_copies<K: Task, O: Optimizer>(now: &LoopState<K, O>) -> Duration {
    now.in_flight.limits().grace().max(STOPPED_COPIES)
}

/// Copies of these arrays on the host, into the memory of the save before where there is one: started,
/// or done for those that are divided among processes.
fn copies(
    whole: &mut WholeArrays,
    chosen: &[usize],
    spare: Option<&SpareMemory>,
) -> Result<Vec<(String, Pending<HostArray>)>> {
    let copy = |index: &usize| {
        let (path, array) = whole.named(*index);
        let path = path.to_string();
        let memory = spare.and_then(|spare| spare.take(&path));
        let pending = match (whole.is_divided(*index), memory) {
            (true, memory) => Pending::ready(Ok(whole.copy(*index, memory)?)),
            (false, Some(memory)) => array.fetch_into(memory)?,
            (false, None) => array.fetch()?,
        };
        Ok((path, pending))
    };
    let copies = chosen.iter().map(copy).collect::<Result<_>>()?;
    whole.finish()?;
    Ok(copies)
}

/// A stream of these arrays, and what serves it.
fn streamed(whole: &WholeArrays, chosen: &[usize]) -> (StateStream, StateServer) {
    let types = chosen.iter().map(|&index| {
        let (path, array) = whole.named(index);
        (path.to_string(), array.ty().clone())
    });
    StateStream::new(types.collect())
}

/// Waits until all processes of a job are here.
fn meet(
    processes: Option<&Processes>,
    name: &str,
    patience: impl Fn(&Processes) -> Duration,
) -> Result<()> {
    processes.map_or(Ok(()), |all| all.group().barrier(name, patience(all)))
}

/// Bytes that the system can give to processes without swapping; `None` where it does not say.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The message of the chosen mode.
fn saving(bytes: u64, copies: bool) -> String {
    let megabytes = bytes as f64 / 1e6;
    if copies {
        format!(
            "checkpoints: {megabytes:.1} MB, copied to host memory and written while training continues"
        )
    } else {
        format!(
            "checkpoints: {megabytes:.1} MB, streamed to the disk while training waits \
             (`--checkpoint-mode copy` takes as much host memory, and training continues)"
        )
    }
}

impl<K: Task, O: Optimizer> TrainingLoop<'_, K, O> {
    /// Saves a checkpoint if a callback has requested one.
    pub(super) fn save_if_requested(&mut self) -> Result<()> {
        if self.now.run.save_requested {
            self.save()?;
        }
        Ok(())
    }

    /// Saves the steps that were done before the run was asked to stop, if there are any.
    pub(super) fn save_stopped(&mut self) -> Result<()> {
        if self.now.run.step == self.now.first {
            return Ok(());
        }
        self.save_settled()?;
        // The devices are done; copies of the state that do not arrive either must not block the
        // end of the process.
        self.give_up_copies();
        Ok(())
    }

    /// Saves after the steps that are queued are done: the state on a device that hangs cannot be
    /// saved.
    fn save_settled(&mut self) -> Result<()> {
        self.now
            .in_flight
            .settle(u64::MAX, &|| self.fit.stop.is_set())?;
        self.save()
    }

    fn give_up_copies(&self) {
        self.fit.give_up_waiting(time_of_copies(&self.now));
    }

    /// Takes the metrics of the steps of an epoch that did not end, the last of which are in a
    /// window that is still on the device.
    pub(super) fn measure_unfinished(&mut self) -> Result<()> {
        self.collect_all()?;
        let window = self.now.live()?.1.fetch()?;
        if window.wait_ready(time_of_copies(&self.now)) {
            let (means, skipped) = self.now.meter.means_with(&window.wait()?)?;
            self.now.run.train_metrics = means;
            self.now.skipped_in_window = skipped;
            return Ok(());
        }
        self.now.run.train_metrics = self.now.meter.means();
        halite_core::warning!("the metrics of the last steps did not arrive in time");
        Ok(())
    }

    /// Gives up copies of the state from a device that missed its deadline.
    pub(super) fn give_up_device(&self) {
        self.fit
            .give_up_waiting(self.now.in_flight.limits().grace().min(LAST_COPIES));
    }

    /// Saves the steps before an `error` of the data, the validation or a callback, which it
    /// returns.
    pub(super) fn save_before(&mut self, error: Error) -> Error {
        self.now.has_failed = true;
        // Of several processes the others are in a step that waits for this one, and cannot save. A
        // checkpoint without training would only keep a corrected run out of its directory.
        if self.fit.trainer.processes.is_some() || self.now.run.step == 0 {
            return error;
        }
        let saved = self.save_settled().and_then(|()| {
            self.give_up_copies();
            self.fit.callbacks.finish_saving()
        });
        // The first of two errors explains more.
        if let Err(second) = saved {
            let step = self.now.run.step;
            halite_core::warning!("no checkpoint of step {step} was saved either: {second}");
        }
        error
    }

    /// Brings everything up to the current position, and ends the checkpoint before.
    fn prepare_save(&mut self) -> Result<()> {
        // The previous checkpoint waits for its steps.
        if let Some(saved) = self.now.saved_at {
            self.now
                .in_flight
                .settle(saved.step, &|| self.fit.stop.is_set())?;
        }
        if let Some(checkpointing) = &mut self.fit.callbacks.checkpointing {
            checkpointing.finish_before(self.now.run.step)?;
        }
        // The sums in the checkpoint must cover exactly the steps before it.
        self.collect_all()?;
        // Set since the last step, also by the metrics just collected: the steps after a resume have
        // it.
        self.set_rate_factor()?;
        if !self.fit.saves_copies() {
            // A device that hangs does so in one of the steps.
            self.now
                .in_flight
                .settle(u64::MAX, &|| self.fit.stop.is_set())?;
        }
        self.check_replicas()?;
        self.fit.take_digest();
        Ok(())
    }

    /// Starts a checkpoint of the current position. Its arrays are copied to the host and written
    /// while steps continue.
    pub(super) fn save(&mut self) -> Result<()> {
        self.now.run.save_requested = false;
        let position = self.now.run.position();
        if self.fit.callbacks.checkpointing.is_none() || self.now.saved_at == Some(position) {
            return Ok(());
        }
        self.prepare_save()?;
        let metadata = self.metadata()?;
        let spare = self
            .fit
            .callbacks
            .checkpointing
            .as_ref()
            .map(Checkpointing::spare);
        let (state, window) = self.now.live.as_ref().ok_or_else(lost)?;
        let mut named = state.named();
        named.retain(|(path, _)| !self.fit.programs.left_out.contains(path));
        named.push((WINDOW.to_string(), window));
        let share = self.fit.share();
        let chosen: Vec<usize> = match &share {
            Some(share) => share.parts.iter().map(|part| part.array).collect(),
            None => (0..named.len()).collect(),
        };
        let (limits, stop) = (*self.now.in_flight.limits(), || self.fit.stop.is_set());
        let order = (share.as_ref()).map_or_else(|| chosen.clone(), Share::order);
        let mut whole = WholeArrays::new(self.fit.gather.as_ref(), named, order, limits, &stop);
        let (arrays, server) = if self.fit.saves_copies() {
            let copies = copies(&mut whole, &chosen, spare)?;
            (StateArrays::Copied(copies), None)
        } else {
            let (stream, server) = streamed(&whole, &chosen);
            (StateArrays::Streamed(stream), Some(server))
        };
        let mut checkpoint = PendingCheckpoint::new(position, arrays, share, metadata);
        self.fit
            .callbacks
            .notify(&mut self.now.run, |callback, run| {
                callback.on_checkpoint(run, &mut checkpoint)?;
                if let Some(state) = callback.state() {
                    checkpoint.callbacks.insert(callback.name(), state);
                }
                Ok(())
            })?;
        drop(checkpoint);
        if let Some(server) = server {
            // The next step waits for the others only for the time of a step.
            let processes = self.fit.trainer.processes.as_ref();
            meet(
                processes,
                "start of a streamed checkpoint",
                Processes::patience,
            )?;
            server.serve(|index| whole.copy(chosen[index], None));
            whole.finish()?;
            meet(processes, "streamed checkpoint", patience_of_files)?;
        }
        self.now.saved_at = Some(position);
        Ok(())
    }

    /// Compares the copies of the state in the processes of a job, if the user wants that.
    fn check_replicas(&mut self) -> Result<()> {
        let processes = self.fit.trainer.processes.as_ref();
        let Some(processes) = processes.filter(|_| self.fit.trainer.options.check_replicas) else {
            return Ok(());
        };
        self.now
            .in_flight
            .settle(u64::MAX, &|| self.fit.stop.is_set())?;
        let divided = self.fit.programs.divided.as_ref();
        let is_copy = |path: &str, array: &Array| {
            divided.is_none_or(|divided| divided.range(path, array.ty().elements()).is_none())
                && (self.fit.gather.is_none() || array.sharding().spec().is_replicated())
        };
        let mut copies = self.now.live()?.0.named();
        copies.retain(|(path, array)| is_copy(path, array));
        check_replicas(processes, &copies)
    }

    fn metadata(&self) -> Result<serde_json::Map<String, serde_json::Value>> {
        let metadata = Metadata {
            identity: self.fit.identity.identity().clone(),
            measured: self.measured(),
            seconds: self.now.run.seconds(),
            validated: self.now.validated.step,
            skipped: self.now.run.skipped,
            rate_factor: Exact(self.now.run.rate_factor),
            extras: self.fit.programs.train_metrics.extras(),
            metrics: self
                .now
                .meter
                .names()
                .iter()
                .map(ToString::to_string)
                .collect(),
            sums: (self.now.meter)
                .sums
                .iter()
                .map(|sum| (Exact(sum.total), Exact(sum.weight)))
                .collect(),
            callbacks: Default::default(),
        };
        match serde_json::to_value(metadata) {
            Ok(serde_json::Value::Object(map)) => Ok(map),
            other => {
                let message = format!("the state of the run is not a JSON object: {other:?}");
                Err(Error::new(ErrorKind::Internal, "checkpoint", message))
            }
        }
    }
}

impl<K: Task, O: Optimizer> Fit<'_, K, O> {
    fn give_up_waiting(&self, grace: Duration) {
        if let Some(checkpointing) = &self.callbacks.checkpointing {
            checkpointing.give_up_waiting(grace);
        }
    }

    /// True if saves copy the state and steps continue; false if they stream it and steps wait.
    fn saves_copies(&self) -> bool {
        // Without a choice there was no step.
        self.saves_copies.unwrap_or(false)
    }

    /// Chooses how the state is saved, and prints it. Processes choose together: steps of one wait
    /// for those of the others.
    pub(super) fn choose_mode(&mut self) -> Result<()> {
        let chosen = self.trainer.options.checkpoint_mode;
        let specs = array_specs(&self.programs, &self.trainer.mesh);
        let copied = (self.share()).map_or(specs.clone(), |share| share.of(&specs));
        let bytes_of = |specs: &[(String, ArraySpec)]| {
            specs.iter().map(|(_, spec)| spec.ty.bytes() as u64).sum()
        };
        let (bytes, copied) = (bytes_of(&specs), bytes_of(&copied));
        let mut copies = chosen.copies(copied, available_memory());
        if let Some(processes) = &self.trainer.processes {
            copies = all_agree(processes, "mode of checkpoints", copies)?;
        }
        self.saves_copies = Some(copies);
        let progress = &self.callbacks.progress_bar.progress;
        progress.message(&saving(bytes, copies));
        Ok(())
    }

    /// What this process writes of a checkpoint, in a job of several.
    fn share(&self) -> Option<Share> {
        let processes = self.trainer.processes.as_ref()?;
        let held = held_arrays(&self.programs, &self.trainer.mesh);
        Some(Share {
            parts: parts_of(&held, processes.rank(), processes.size()),
            arrays: held.into_iter().map(|(path, ty, _)| (path, ty)).collect(),
        })
    }

    /// Takes the memory for copies of the state, on another thread, when a run with checkpoints has
    /// done its first step.
    pub(super) fn prepare_saves(&self) {
        if let Some(checkpointing) = &self.callbacks.checkpointing
            && self.saves_copies()
            && !checkpointing.spare().is_kept()
        {
            let specs = array_specs(&self.programs, &self.trainer.mesh);
            let chosen = self.share().map_or(specs.clone(), |share| share.of(&specs));
            // Arrays that are converted on the host are converted to new memory.
            let copied = (chosen.into_iter()).filter(|(_, spec)| spec.stored == spec.ty.dtype());
            let types = copied.map(|(path, spec)| (path, spec.ty));
            checkpointing.spare().prepare(types.collect());
        }
    }

    /// Takes the digest of the data for a checkpoint; of several processes, while others wait.
    fn take_digest(&mut self) {
        if self.trainer.processes.is_some() {
            return self.identity.wait_shortly();
        }
        let limits = Limits::new(self.trainer.options.wait_limit);
        self.identity.wait_or_give_up(&limits, &self.stop);
    }
}
