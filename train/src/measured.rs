//! Measurements of the process that trained last. Checkpoints have them, so that a resume of a
//! finished run reports them again.

use serde::{Deserialize, Serialize};

use crate::checkpoint::Exact;

/// Measurements of training steps, as a report has them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Measured {
    /// Training metrics of the last finished epoch, by name.
    pub(crate) train_metrics: Vec<(String, Exact)>,
    pub(crate) samples_per_second: Exact,
    pub(crate) training_seconds: Exact,
    pub(crate) input_wait_seconds: Exact,
    pub(crate) device_busy_seconds: Option<Exact>,
    pub(crate) seconds_to_first_step: Exact,
    pub(crate) process_seconds_to_first_step: Option<Exact>,
    /// Loss scale of the last steps that were logged.
    #[serde(default)]
    pub(crate) loss_scale: Option<Exact>,
}
