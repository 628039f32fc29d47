//! Windows of training metrics: their copies to the host, and the callbacks that get them.

use std::mem::replace;

use halite_core::Result;
use halite_nn::Optimizer;

use super::{Fit, LoopState, lost, meter::Arrived};
use crate::{Task, loss_scale::LOSS_SCALE, programs::ModelParams};

/// Steps after which several processes take a window of metrics: more than are queued, so that none
/// waits for a step that others have not launched.
const WINDOW_DELAY: u64 = 16;

impl<K: Task, O: Optimizer> Fit<'_, K, O>
where
    ModelParams<K>: Send + Sync,
{
    /// Starts the copy of the window to the host, and a new window.
    pub(super) fn send_window(&mut self, now: &mut LoopState<K, O>) -> Result<()> {
        let metrics = &self.programs.train_metrics;
        let empty = metrics.upload(&self.trainer.client, &self.trainer.mesh)?;
        let (_, window) = now.live.as_mut().ok_or_else(lost)?;
        let full = replace(window, empty);
        let (step, rate_factor) = (now.run.step, now.step_rate_factor);
        now.meter.push(step, rate_factor, full.fetch()?);
        Ok(())
    }

    /// Takes the next window if it has arrived. Several processes take each window after the same
    /// step, at which all have it, so that callbacks act alike.
    pub(super) fn arrived(&self, now: &mut LoopState<K, O>) -> Result<Option<Arrived>> {
        if now.agreement.is_none() {
            return now.meter.poll();
        }
        match now.meter.first_pending() {
            Some(step) if step + WINDOW_DELAY <= now.run.step => {
                now.in_flight.settle(step, &|| self.stop.is_set())?;
                now.meter.wait(now.in_flight.limits(), &self.stop)
            }
            _ => Ok(None),
        }
    }

    /// Waits for all windows that were sent.
    pub(super) fn collect_all(&mut self, now: &mut LoopState<K, O>) -> Result<()> {
        // First for the steps of the windows: a device that hangs does so in one of them.
        if let Some(last) = now.meter.last_pending() {
            now.in_flight.settle(last, &|| self.stop.is_set())?;
        }
        while let Some(window) = now.meter.wait(now.in_flight.limits(), &self.stop)? {
            self.log(now, window)?;
        }
        Ok(())
    }

    pub(super) fn log(&mut self, now: &mut LoopState<K, O>, window: Arrived) -> Result<()> {
        let skipped = window.extras.skipped;
        now.run.skipped += skipped;
        if skipped > 0 {
            halite_core::warning!(
                "{skipped} of the last steps up to step {} changed nothing: their gradients are not \
                 finite (`on_not_finite`)",
                window.step()
            );
        }
        if !window.is_relevant() {
            return Ok(());
        }
        now.loss_scale = window.mean(LOSS_SCALE).or(now.loss_scale);
        let newest = replace(&mut now.run.rate_factor, window.rate_factor);
        let mut window = window.at(now.run.epoch, now.run.seconds());
        let completed = self.callbacks.complete_row(&now.run, &mut window.row);
        now.run.rate_factor = newest;
        self.check_called(now, completed)?;
        self.notify(now, |callback, run| callback.on_train_metrics(run, &window))
    }
}
