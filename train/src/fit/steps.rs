//! The steps of an epoch: their batches are awaited, their launches are queued, and nothing is read
//! back.

use std::time::{Duration, Instant};

use halite_core::Result;
use halite_data::{DeviceBatch, Position, Prefetch};
use halite_nn::Optimizer;
use halite_telemetry::ClientMetrics;

use super::{Ended, Fit, LoopState, launches::Launches, lost};
use crate::{
    Task,
    callback::Run,
    programs::ModelParams,
    since_start::since_start,
    waits::{Limits, NextBatch, next_batch},
};

impl<K: Task, O: Optimizer> Fit<'_, K, O>
where
    ModelParams<K>: Send + Sync,
{
    /// Does the remaining steps of an epoch.
    pub(super) fn steps(&mut self, now: &mut LoopState<K, O>) -> Result<Ended> {
        let (begun, compiled) = (Instant::now(), self.compile_time());
        self.notify(now, |callback, run| callback.on_epoch_start(run))?;
        let mut prefetch = None;
        if now.run.batch < now.run.batches_per_epoch {
            let Run {
                step, epoch, batch, ..
            } = now.run;
            let options = &self.trainer.options;
            let start = Position {
                epoch,
                batch: batch * options.numerics.accumulate_grad_batches,
            };
            let sizes = Launches::new(options, step, batch, now.run.batches_per_epoch)
                .ending_after(|step| self.callbacks.wait_for(step..=step));
            prefetch = Some(self.trainer.prefetch_steps(&self.train, start, sizes)?);
        }
        let mut validating = Duration::ZERO;
        let mut limits = Limits::new(self.trainer.options.wait_limit);
        let mut ended = Ended::Complete;
        while let Some(prefetch) = &mut prefetch {
            if self.is_asked_to_stop(now)? {
                ended = Ended::Stopped;
                break;
            }
            let is_within = now.run.batch < now.run.batches_per_epoch;
            if is_within && now.run.batch > 0 && self.is_validation_due(now) {
                let begun = Instant::now();
                let called = self.validation(now)?;
                validating += begun.elapsed();
                let Some(called) = called else {
                    ended = Ended::Stopped;
                    break;
                };
                self.check_called(now, called)?;
                // A callback may have asked for the end of the run.
                continue;
            }
            self.save_if_requested(now)?;
            if is_within && self.limit_is_reached(now) {
                ended = Ended::Limit;
                break;
            }
            match next_batch("training", prefetch, &mut limits, &|| self.stops_alone()) {
                Ok(NextBatch::Batch(batch)) => self.step(now, batch)?,
                Ok(NextBatch::End) => break,
                Ok(NextBatch::Stopped) => ended = Ended::Stopped,
                Err(error) => return Err(self.save_before(now, error)),
            }
        }
        now.input_wait += prefetch.as_ref().map_or(Duration::ZERO, Prefetch::waited);
        if ended == Ended::Complete {
            self.send_window(now)?;
            self.collect_all(now)?;
        }
        let compiling = self.compile_time() - compiled;
        now.training += (begun.elapsed()).saturating_sub(compiling + validating);
        if ended == Ended::Stopped {
            // Before `prefetch` is dropped, which waits for a reader that may hang.
            self.save_stopped(now)?;
        }
        Ok(ended)
    }

    /// Queues the steps of a launch, and takes the metrics that have arrived.
    pub(super) fn step(&mut self, now: &mut LoopState<K, O>, batch: DeviceBatch) -> Result<()> {
        let _span = tracing::trace_span!("step", step = now.run.step + 1).entered();
        let of_step = self.trainer.options.numerics.accumulate_grad_batches;
        let count = batch.batches.div_ceil(of_step);
        let batch = self.trainer.batch_tree::<K>(batch)?;
        self.set_rate_factor(now)?;
        now.step_rate_factor = now.run.rate_factor;
        let (state, window) = now.live.take().ok_or_else(lost)?;
        let next = match &self.programs.steps {
            Some(steps) if count > 1 => steps.call(state, window, &batch)?,
            _ => self.programs.step.call(state, (&batch, &window))?,
        };
        let (_, window) = now.live.insert(next);
        if now.run.step == now.first {
            let (started, time) = (self.started, now.time_to_first_step.clone());
            let ready = window.shards().first().ready()?;
            ready.on_ready(Box::new(move |_| {
                _ = time.set((started.elapsed(), since_start()))
            }));
        }
        if now.time_to_first_step.get().is_some() {
            self.identity.begin();
            self.prepare_saves();
        }
        let last = now.run.step + count as u64;
        now.in_flight.push(last, window, &|| self.stop.is_set())?;
        if self.callbacks.wait_for(now.run.step + 1..=last) {
            now.in_flight.settle(last, &|| self.stop.is_set())?;
        }
        let mut called = Ok(());
        for _ in 0..count {
            now.run.step += 1;
            now.run.batch += 1;
            self.trainer.client.metrics().step();
            if called.is_ok() {
                called = self
                    .callbacks
                    .notify(&mut now.run, |callback, run| callback.on_step_end(run));
            }
        }
        self.check_called(now, called)?;
        let every = self.trainer.options.metrics_every();
        if every
            .iter()
            .any(|every| now.run.step.is_multiple_of(*every))
        {
            self.send_window(now)?;
        }
        while let Some(window) = self.arrived(now)? {
            self.log(now, window)?;
        }
        Ok(())
    }

    fn compile_time(&self) -> Duration {
        let steps = self.programs.steps.as_ref();
        let steps = steps.map_or(Duration::ZERO, |steps| steps.program().stages().total());
        self.programs.step.stages().total() + steps
    }
}
