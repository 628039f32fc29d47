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
            shards: None,
        }
    }
}

impl StateOptions {
    /// Checks the policy, and the numbers of the averages.
    pub(crate) fn check(&self) -> Result<()> {
        self.precision.check()?;
        self.average.map_or(Ok(()), |average| average.check())
    }
}
