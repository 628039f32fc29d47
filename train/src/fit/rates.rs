//! What a run has besides its steps: the factor of learning rates, and averages of the parameters.

use halite_core::{
    Array, HostArray, Result, Sharding,
    tree::{Family, Tree},
};
use halite_nn::Optimizer;

use super::{Fit, LoopState, lost};
use crate::{Task, programs::ModelParams};

impl<K: Task, O: Optimizer> Fit<'_, K, O>
where
    ModelParams<K>: Send + Sync,
{
    /// Gives the state the factor of learning rates that a callback has set, if one has since the
    /// last step.
    pub(super) fn set_rate_factor(&self, now: &mut LoopState<K, O>) -> Result<()> {
        let Some(factor) = now.run.new_rate_factor.take() else {
            return Ok(());
        };
        let (state, _) = now.live.as_mut().ok_or_else(lost)?;
        if let Some(leaf) = &mut state.rate_factor {
            let sharding = Sharding::replicated(&self.trainer.mesh);
            let host = HostArray::scalar(factor as f32);
            *leaf = Array::upload(&self.trainer.client, &host, &sharding)?;
        }
        Ok(())
    }
}

impl<K: Task, O: Optimizer> LoopState<K, O> {
    /// The model that is validated: that of the averages, if there are any.
    pub(super) fn validated_model(&self) -> Result<<K::Model as Family>::Of<&Array>> {
        let (state, _) = self.live()?;
        let model = || Tree::leaf_refs(&state.model);
        Ok(state.averaged_model().unwrap_or_else(model))
    }
}

/// Copies of the averages, with the model's other leaves.
pub(super) fn copied<F: Family>(averaged: F::Of<&Array>) -> Result<F::Of<Array>> {
    averaged.try_map_leaves(|_, array| array.copy())
}
