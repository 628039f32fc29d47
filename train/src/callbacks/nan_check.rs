//! Ends a run with a number that is not finite, and keeps it out of the checkpoints.

use std::{collections::HashSet, sync::Arc};

use halite_core::{Error, ErrorKind, Result};
use halite_data::Loader;

use super::LossGrowth;
use crate::{
    OnNotFinite, Report,
    callback::{Callback, MetricsWindow, NotFinite, PendingCheckpoint, Run},
    cause::{Batches, Cause},
    finite,
    window::Window,
};

/// Name of its state in the checkpoints.
pub(crate) const NAME: &str = "NaN check";

/// Checks metrics when they arrive, and the arrays of each checkpoint before it is written.
#[derive(Clone)]
pub(crate) struct NanCheck {
    pub(crate) window: Window,
    pub(crate) loader: Loader,
    /// Paths, in the state, of the parameters that are trained.
    pub(crate) trained: Arc<HashSet<String>>,
    /// Batches of each step.
    pub(crate) batches: Batches,
    pub(crate) on_not_finite: OnNotFinite,
    /// `None` where a loss that grows is expected.
    pub(crate) growth: Option<LossGrowth>,
}

impl NanCheck {
    fn cause(&self, step: u64) -> Cause {
        self.window.cause(&self.loader, &self.batches, step)
    }
}

impl Callback for NanCheck {
    fn name(&self) -> String {
        NAME.to_string()
    }

    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        self.batches.starts_at(run.step, run.epoch, run.batch);
        Ok(())
    }

    fn on_train_metrics(&mut self, _: &mut Run, window: &MetricsWindow) -> Result<()> {
        if let Some(growth) = &mut self.growth {
            growth.add(&window.row);
        }
        let MetricsWindow {
            not_finite,
            anomaly,
            ..
        } = window;
        let anomaly = anomaly.as_ref();
        if let (OnNotFinite::Skip, Some(NotFinite { metric, step })) = (self.on_not_finite, anomaly)
        {
            halite_core::warning!(
                "step {step} was skipped: the gradient of `{metric}` is not finite"
            );
            return finite::check_metrics(not_finite.as_ref(), None, |step| self.cause(step));
        }
        finite::check_metrics(not_finite.as_ref(), anomaly, |step| self.cause(step))
    }

    fn on_fit_end(&mut self, _: &mut Run, report: &mut Report) -> Result<()> {
        let finding = self.growth.as_ref().and_then(LossGrowth::finding);
        report.findings.extend(finding.map(str::to_owned));
        Ok(())
    }

    fn on_checkpoint(&mut self, run: &mut Run, checkpoint: &mut PendingCheckpoint) -> Result<()> {
        let (check, step) = (self.clone(), run.step);
        checkpoint.for_each_array(move |name, array| {
            let cause = |step| check.cause(step);
            finite::check_array(name, array, &check.window, &check.trained, step, cause)
        });
        Ok(())
    }

    fn state(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self.growth.as_ref()?.saved()).ok()
    }

    fn load_state(&mut self, state: serde_json::Value) -> Result<()> {
        let saved = serde_json::from_value(state)
            .map_err(|error| Error::new(ErrorKind::Corrupt, "resume", error.to_string()))?;
        if let Some(growth) = &mut self.growth {
            growth.restore(saved);
        }
        Ok(())
    }
}
