//! Windows of training metrics: their copies to the host, and the callbacks that get them.

use std::mem::replace;

use halite_core::Result;
use halite_nn::Optimizer;

use super::{TrainingLoop, lost, meter::Arrived};
use crate::{Task, loss_scale::LOSS_SCALE};

/// Steps after which several processes take a window of metrics: more than are queued, so that none
/// waits for a step that others have not launched.
const WINDOW_DELAY: u64 = 16;

impl<K: Task, O: Optimizer> TrainingLoop<'_, K, O> {
    /// Starts the copy of the window to the host, and a new window.
    pub(super) fn send_window(&mut self) -> Result<()> {
        let metrics = &self.fit.programs.train_metrics;
        let empty = metrics.upload(&self.fit.trainer.client, &self.fit.trainer.mesh)?;
        let (_, window) = self.now.live.as_mut().ok_or_else(lost)?;
        let full = replace(window, empty);
        let (step, rate_factor) = (self.now.run.step, self.now.step_rate_factor);
        self.now.meter.push(step, rate_factor, full.fetch()?);
        Ok(())
    }

    /// Takes the next window if it has arrived. Several processes take each window after the same
    /// step, at which all have it, so that callbacks act alike.
    pub(super) fn arrived(&mut self) -> Result<Option<Arrived>> {
        if self.now.agreement.is_none() {
            return self.now.meter.poll();
        }
        match self.now.meter.first_pending() {
            Some(step) if step + WINDOW_DELAY <= self.now.run.step => {
                self.now
                    .in_flight
                    .settle(step, &|| self.fit.stop.is_set())?;
                self.now
                    .meter
                    .wait(self.now.in_flight.limits(), &self.fit.stop)
            }
            _ => Ok(None),
        }
    }

    /// Waits for all windows that were sent.
    pub(super) fn collect_all(&mut self) -> Result<()> {
        // First for the steps of the windows: a device that hangs does so in one of them.
        if let Some(last) = self.now.meter.last_pending() {
            self.now
                .in_flight
                .settle(last, &|| self.fit.stop.is_set())?;
        }
        while let Some(window) = self
            .now
            .meter
            .wait(self.now.in_flight.limits(), &self.fit.stop)?
        {
            self.log(window)?;
        }
        Ok(())
    }

    pub(super) fn log(&mut self, window: Arrived) -> Result<()> {
        let skipped = window.extras.skipped;
        self.now.run.skipped += skipped;
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
        self.now.loss_scale = window.mean(LOSS_SCALE).or(self.now.loss_scale);
        let newest = replace(&mut self.now.run.rate_factor, window.rate_factor);
        let mut window = window.at(self.now.run.epoch, self.now.run.seconds());
        let completed = self
            .fit
            .callbacks
            .complete_row(&self.now.run, &mut window.row);
        self.now.run.rate_factor = newest;
        self.check_called(completed)?;
        self.notify(|callback, run| callback.on_train_metrics(run, &window))
    }
}
