//! The steps of an epoch: their batches are awaited, their launches are queued, and nothing is read
//! back.

use std::time::{Duration, Instant};

use halite_core::Result;
use halite_data::{DeviceBatch, Position, Prefetch};
use halite_nn::Optimizer;
use halite_telemetry::ClientMetrics;

use super::{Ended, Fit, TrainingLoop, launches::Launches, lost};
use crate::{
    Task,
    callback::Run,
    since_start::since_start,
    waits::{Limits, NextBatch, next_batch},
};

impl<K: Task, O: Optimizer> TrainingLoop<'_, K, O> {
    /// Does the remaining steps of an epoch.
    pub(super) fn steps(&mut self) -> Result<Ended> {
        let (begun, compiled) = (Instant::now(), self.fit.compile_time());
        self.notify(|callback, run| callback.on_epoch_start(run))?;
        let mut prefetch = self.prefetch()?;
        let mut validating = Duration::ZERO;
        let mut limits = Limits::new(self.fit.trainer.options.wait_limit);
        let mut ended = Ended::Complete;
        while let Some(prefetch) = &mut prefetch {
            if self.is_asked_to_stop()? {
                ended = Ended::Stopped;
                break;
            }
            let is_within = self.now.run.batch < self.now.run.batches_per_epoch;
            if is_within && self.now.run.batch > 0 && self.is_validation_due() {
                let begun = Instant::now();
                let called = self.validation()?;
                validating += begun.elapsed();
                let Some(called) = called else {
                    ended = Ended::Stopped;
                    break;
                };
                self.check_called(called)?;
                // A callback may have asked for the end of the run.
                continue;
            }
            self.save_if_requested()?;
            if is_within && self.limit_is_reached() {
                ended = Ended::Limit;
                break;
            }
            match next_batch("training", prefetch, &mut limits, &|| {
                self.fit.stops_alone()
            }) {
                Ok(NextBatch::Batch(batch)) => self.step(batch)?,
                Ok(NextBatch::End) => break,
                Ok(NextBatch::Stopped) => ended = Ended::Stopped,
                Err(error) => return Err(self.save_before(error)),
            }
        }
        self.now.input_wait += prefetch.as_ref().map_or(Duration::ZERO, Prefetch::waited);
        if ended == Ended::Complete {
            self.send_window()?;
            self.collect_all()?;
        }
        let compiling = self.fit.compile_time() - compiled;
        self.now.training += (begun.elapsed()).saturating_sub(compiling + validating);
        if ended == Ended::Stopped {
            // Before `prefetch` is dropped, which waits for a reader that may hang.
            self.save_stopped()?;
        }
        Ok(ended)
    }

    /// The batches of the remaining steps of an epoch, if there are some.
    fn prefetch(&mut self) -> Result<Option<Prefetch>> {
        let Run {
            step,
            epoch,
            batch,
            batches_per_epoch,
            ..
        } = self.now.run;
        if batch >= batches_per_epoch {
            return Ok(None);
        }
        let trainer = self.fit.trainer;
        let start = Position {
            epoch,
            batch: batch * trainer.options.numerics.accumulate_grad_batches,
        };
        let sizes = Launches::new(&trainer.options, step, batch, batches_per_epoch)
            .ending_after(|step| self.fit.callbacks.wait_for(step..=step));
        let prefetch = trainer.prefetch_steps(&self.fit.train, start, sizes)?;
        Ok(Some(prefetch))
    }

    /// Queues the steps of a launch, and takes the metrics that have arrived.
    pub(super) fn step(&mut self, batch: DeviceBatch) -> Result<()> {
        let _span = tracing::trace_span!("step", step = self.now.run.step + 1).entered();
        let of_step = self.fit.trainer.options.numerics.accumulate_grad_batches;
        let count = batch.batches.div_ceil(of_step);
        let batch = self.fit.trainer.batch_tree::<K>(batch)?;
        self.set_rate_factor()?;
        self.now.step_rate_factor = self.now.run.rate_factor;
        let (state, window) = self.now.live.take().ok_or_else(lost)?;
        let next = match &self.fit.programs.steps {
            Some(steps) if count > 1 => steps.call(state, window, &batch)?,
            _ => self.fit.programs.step.call(state, (&batch, &window))?,
        };
        let (_, window) = self.now.live.insert(next);
        if self.now.run.step == self.now.first {
            let (started, time) = (self.fit.started, self.now.time_to_first_step.clone());
            let ready = window.shards().first().ready()?;
            ready.on_ready(Box::new(move |_| {
                _ = time.set((started.elapsed(), since_start()))
            }));
        }
        if self.now.time_to_first_step.get().is_some() {
            self.fit.identity.begin();
            self.fit.prepare_saves();
        }
        let last = self.now.run.step + count as u64;
        self.now
            .in_flight
            .push(last, window, &|| self.fit.stop.is_set())?;
        if self.fit.callbacks.wait_for(self.now.run.step + 1..=last) {
            self.now
                .in_flight
                .settle(last, &|| self.fit.stop.is_set())?;
        }
        let mut called = Ok(());
        for _ in 0..count {
            self.now.run.step += 1;
            self.now.run.batch += 1;
            self.fit.trainer.client.metrics().step();
            if called.is_ok() {
                called = self
                    .fit
                    .callbacks
                    .notify(&mut self.now.run, |callback, run| callback.on_step_end(run));
            }
        }
        self.check_called(called)?;
        let every = self.fit.trainer.options.metrics_every();
        if every
            .iter()
            .any(|every| self.now.run.step.is_multiple_of(*every))
        {
            self.send_window()?;
        }
        while let Some(window) = self.arrived()? {
            self.log(window)?;
        }
        Ok(())
    }
}

impl<K: Task, O: Optimizer> Fit<'_, K, O> {
    fn compile_time(&self) -> Duration {
        let steps = self.programs.steps.as_ref();
        let steps = steps.map_or(Duration::ZERO, |steps| steps.program().stages().total());
        self.programs.step.stages().total() + steps
    }
}
