//! What changes while a run trains: its state on the devices, its position, and measurements.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use halite_core::{Array, Error, ErrorKind, Result};
use halite_nn::Optimizer;

use super::meter::Meter;
use crate::{
    Task, callback::Run, checkpoint::RunPosition, in_flight::InFlight, measured::Measured,
    metrics::Scores, processes::Agreement, programs::RunState,
};

/// One run: the parts that change.
pub(super) struct LoopState<K: Task, O: Optimizer> {
    /// The state and the window of metrics; `None` only while a step has them.
    pub(super) live: Option<(RunState<K, O, Array>, Array)>,
    pub(super) run: Run,
    pub(super) meter: Meter,
    pub(super) in_flight: InFlight,
    /// Steps that earlier processes of the run did.
    pub(super) first: u64,
    /// Position of the newest checkpoint, which may still be written.
    pub(super) saved_at: Option<RunPosition>,
    /// Time in which a step could have been queued and its batch was not there.
    pub(super) input_wait: Duration,
    /// Time in the steps of epochs; not in validation, nor in compiling.
    pub(super) training: Duration,
    /// Time until the first step was done, since the start of the run and of the process.
    pub(super) time_to_first_step: Arc<OnceLock<(Duration, Option<Duration>)>>,
    /// A save after an error is under way.
    pub(super) has_failed: bool,
    /// What the processes agree on, if there are several.
    pub(super) agreement: Option<Agreement>,
    /// Measurements of the process before, which are reported if this one has no step to do.
    pub(super) measured: Measured,
    pub(super) validated: Validated,
    /// Steps that were skipped in the window on the device, when the run ended.
    pub(super) skipped_in_window: u64,
    /// Factor of learning rates of the last step that was queued.
    pub(super) step_rate_factor: f64,
    /// Loss scale of the steps of the last window that arrived, if there is one.
    pub(super) loss_scale: Option<f64>,
}

/// The last validation of a run.
#[derive(Default)]
pub(super) struct Validated {
    /// The step after which it was.
    pub(super) step: Option<u64>,
    /// Seconds of the run when it began; at first, those when the process began its steps, or 0.
    pub(super) seconds: f64,
    /// Its metrics, if this process made it.
    pub(super) scores: Option<Scores>,
}

impl<K: Task, O: Optimizer> LoopState<K, O> {
    /// The state and the window.
    ///
    /// # Errors
    /// If a step took them and failed: the run is over then.
    pub(super) fn live(&self) -> Result<&(RunState<K, O, Array>, Array)> {
        self.live.as_ref().ok_or_else(lost)
    }

    /// Seconds of the run; of several processes, those that they agreed on.
    pub(super) fn seconds(&self) -> f64 {
        let agreement = self.agreement.as_ref();
        agreement.map_or_else(|| self.run.seconds(), Agreement::seconds)
    }
}

pub(super) fn lost() -> Error {
    Error::new(
        ErrorKind::Internal,
        "fit",
        "an earlier step failed and took the state with it",
    )
}
