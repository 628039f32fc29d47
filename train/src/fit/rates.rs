//! What a run has besides its steps: the factor of learning rates, and averages of the parameters.

use halite_core::{
    Array, HostArray, Result, Sharding,
    tree::{Family, Tree},
};
use halite_nn::{Optimizer, optim::averaged};

use super::{Fit, TrainingLoop, lost};
use crate::{Task, programs::RunState};

impl<K: Task, O: Optimizer> TrainingLoop<'_, K, O> {
    /// Gives the state the factor of learning rates that a callback has set, if one has since the
    /// last step.
    pub(super) fn set_rate_factor(&mut self) -> Result<()> {
        let Some(factor) = self.now.run.new_rate_factor.take() else {
            return Ok(());
        };
        let (state, _) = self.now.live.as_mut().ok_or_else(lost)?;
        if let Some(leaf) = &mut state.rate_factor {
            let sharding = Sharding::replicated(&self.fit.trainer.mesh);
            let host = HostArray::scalar(factor as f32);
            *leaf = Array::upload(&self.fit.trainer.client, &host, &sharding)?;
        }
        Ok(())
    }
}

impl<K: Task, O: Optimizer> Fit<'_, K, O> {
    /// Calls `with` with the model that is validated: that of the averages, if there are any.
    pub(super) fn with_validated<R>(
        &self,
        state: &RunState<K, O, Array>,
        with: impl FnOnce(&<K::Model as Family>::Of<&Array>) -> Result<R>,
    ) -> Result<R> {
        let Some(average) = &state.average else {
            return with(&Tree::leaf_refs(&state.model));
        };
        let gathered = self.programs.gather.as_ref();
        let gathered = gathered.map(|gather| gather.run(average, &state.step));
        let gathered = gathered.transpose()?;
        let average = gathered.as_ref().unwrap_or(average);
        with(&averaged::<K::Model, Array>(&state.model, average))
    }
}

/// Copies of these arrays.
pub(super) fn copied<F: Family>(arrays: &F::Of<&Array>) -> Result<F::Of<Array>> {
    let arrays = Tree::leaf_refs(arrays);
    arrays.try_map_leaves(|_, array| array.copy())
}
