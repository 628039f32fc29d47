//! Optional parts of a training state.

use halite_core::{DTypePolicy, Result};
use halite_nn::{ProcessShards, optim::WeightAveraging};

/// Parts of a training state besides its model and optimizer.
#[derive(Clone, Copy, Debug)]
pub struct StateOptions {
    /// Types that devices store and compute with. Default [`DTypePolicy::F32`].
    pub precision: DTypePolicy,
    /// Rule of the [averages](super::State::average) of the parameters, if there are any.
    pub average: Option<WeightAveraging>,
    /// Whether learning rates have a [factor](super::State::rate_factor).
    pub has_rate_factor: bool,
    /// Whether steps may be [skipped](super::State::skipped) without a loss scale, which counts
    /// them itself.
    pub counts_skipped: bool,
    /// How processes divide the slots and the averages, if they do: ZeRO.
    pub shards: Option<ProcessShards>,
}

impl Default for StateOptions {
    fn default() -> Self {
        DTypePolicy::F32.into()
    }
}

impl From<DTypePolicy> for StateOptions {
    fn from(precision: DTypePolicy) -> Self {
        StateOptions {
            precision,
            average: None,
            has_rate_factor: false,
            counts_skipped: false,
            shards: None,
        }
    }
}

impl StateOptions {
    /// Whether the state has a count of skipped steps of its own.
    pub(super) fn has_skipped(&self) -> bool {
        self.counts_skipped && self.precision.loss_scale.is_none()
    }

    /// Checks the policy, and the numbers of the averages.
    pub(crate) fn check(&self) -> Result<()> {
        self.precision.check()?;
        self.average.map_or(Ok(()), |average| average.check())
    }
}
