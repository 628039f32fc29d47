//! The end of a run before its last step: limits, signals and callbacks, on which several processes
//! agree.

use halite_core::Result;
use halite_nn::Optimizer;

use super::{Fit, TrainingLoop};
use crate::{
    Task,
    callbacks::Checkpointing,
    processes::{Agreement, Wish},
};

impl<K: Task, O: Optimizer> TrainingLoop<'_, K, O> {
    /// Whether the epochs, the steps or the time of the run are over.
    pub(super) fn is_over(&self) -> bool {
        self.now.run.epoch >= self.now.run.epochs || self.limit_is_reached()
    }

    /// Whether the steps or the time of the run are over.
    pub(super) fn limit_is_reached(&self) -> bool {
        let options = &self.fit.trainer.options;
        let time = options.max_time.map(|time| time.as_secs_f64());
        options
            .max_steps
            .is_some_and(|most| self.now.run.step >= most)
            || time.is_some_and(|most| self.now.seconds() >= most)
    }

    /// Returns whether a signal, the stop flag or a callback requested a stop; of several processes,
    /// in any of them.
    pub(super) fn is_asked_to_stop(&mut self) -> Result<bool> {
        if let Some(agreement) = &self.now.agreement {
            if agreement.is_due(self.now.run.step) {
                self.agree()?;
            }
            let agreement = self.now.agreement.as_ref();
            return Ok(agreement.is_some_and(Agreement::stops));
        }
        Ok(self.fit.interrupts.reason().is_some() || self.now.run.stop_requested)
    }

    /// Returns whether a callback requested the end of the run.
    pub(super) fn is_end_requested(&mut self) -> Result<bool> {
        self.agree()?;
        Ok(self.now.run.stop_requested)
    }

    /// Agrees with the other processes, if there are some, on the time and on whether to stop.
    pub(super) fn agree(&mut self) -> Result<()> {
        let Some(agreement) = &mut self.now.agreement else {
            return Ok(());
        };
        agreement.agree(&Wish {
            step: self.now.run.step,
            done: self.now.in_flight.done().unwrap_or(self.now.first),
            seconds: self.now.run.seconds(),
            stop: self.fit.interrupts.reason(),
            is_requested: self.now.run.stop_requested,
            saved: (self.fit.callbacks.checkpointing.as_ref())
                .and_then(Checkpointing::newly_saved)
                .map(|path| path.display().to_string()),
        })?;
        self.now.run.agreed_seconds = Some(agreement.seconds());
        if let Some(reason) = agreement.stop() {
            self.fit.stop.stop_for(reason);
        }
        self.now.run.stop_requested |= agreement.is_requested();
        Ok(())
    }
}

impl<K: Task, O: Optimizer> Fit<'_, K, O> {
    /// Whether the run is asked to stop, and need not agree with other processes on the step.
    pub(super) fn stops_alone(&self) -> bool {
        self.trainer.processes.is_none() && self.stop.is_set()
    }
}
