//! The end of a run before its last step: limits, signals and callbacks, on which several processes
//! agree.

use halite_core::Result;
use halite_nn::Optimizer;

use super::{Fit, LoopState};
use crate::{
    Task,
    callbacks::Checkpointing,
    processes::{Agreement, Wish},
    programs::ModelParams,
};

impl<K: Task, O: Optimizer> Fit<'_, K, O>
where
    ModelParams<K>: Send + Sync,
{
    /// Whether the epochs, the steps or the time of the run are over.
    pub(super) fn is_over(&self, now: &LoopState<K, O>) -> bool {
        now.run.epoch >= now.run.epochs || self.limit_is_reached(now)
    }

    /// Whether the steps or the time of the run are over.
    pub(super) fn limit_is_reached(&self, now: &LoopState<K, O>) -> bool {
        let options = &self.trainer.options;
        let time = options.max_time.map(|time| time.as_secs_f64());
        options.max_steps.is_some_and(|most| now.run.step >= most)
            || time.is_some_and(|most| now.seconds() >= most)
    }

    /// Returns whether a signal, the stop flag or a callback requested a stop; of several processes,
    /// in any of them.
    pub(super) fn is_asked_to_stop(&self, now: &mut LoopState<K, O>) -> Result<bool> {
        if let Some(agreement) = &now.agreement {
            if agreement.is_due(now.run.step) {
                self.agree(now)?;
            }
            let agreement = now.agreement.as_ref();
            return Ok(agreement.is_some_and(Agreement::stops));
        }
        Ok(self.interrupts.reason().is_some() || now.run.stop_requested)
    }

    /// Returns whether a callback requested the end of the run.
    pub(super) fn is_end_requested(&self, now: &mut LoopState<K, O>) -> Result<bool> {
        self.agree(now)?;
        Ok(now.run.stop_requested)
    }

    /// Agrees with the other processes, if there are some, on the time and on whether to stop.
    pub(super) fn agree(&self, now: &mut LoopState<K, O>) -> Result<()> {
        let Some(agreement) = &mut now.agreement else {
            return Ok(());
        };
        agreement.agree(&Wish {
            step: now.run.step,
            done: now.in_flight.done().unwrap_or(now.first),
            seconds: now.run.seconds(),
            stop: self.interrupts.reason(),
            is_requested: now.run.stop_requested,
            saved: (self.callbacks.checkpointing.as_ref())
                .and_then(Checkpointing::newly_saved)
                .map(|path| path.display().to_string()),
        })?;
        now.run.agreed_seconds = Some(agreement.seconds());
        if let Some(reason) = agreement.stop() {
            self.stop.stop_for(reason);
        }
        now.run.stop_requested |= agreement.is_requested();
        Ok(())
    }

    /// Whether the run is asked to stop, and need not agree with other processes on the step.
    pub(super) fn stops_alone(&self) -> bool {
        self.trainer.processes.is_none() && self.stop.is_set()
    }
}
