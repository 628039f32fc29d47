//! Types and shardings of a state.

use std::sync::Arc;

use halite_core::{
    DType, TensorType,
    tree::{Family, Tree},
};
use halite_nn::{
    Optimizer, Param, ShardedType,
    optim::{Averages, Slots},
};

use super::{Rule, State, StateOptions};
use crate::Scaling;

impl<F: Family, S: Family> State<F, S, ShardedType> {
    /// The types and shardings of the state of `net`.
    pub(crate) fn of_types<M: Tree<Leaf = Param, Family = F>>(
        net: &M,
        optimizer: Arc<dyn Optimizer<Slot = S>>,
        types: StateTypes<F, S>,
    ) -> Self {
        let StateTypes {
            model,
            slots,
            scale,
            average,
            options,
        } = types;
        let scalar = |dtype| ShardedType::replicated(TensorType::scalar(dtype));
        State {
            model,
            slots,
            step: scalar(DType::U32),
            key: ShardedType::replicated(TensorType::new(DType::U32, [2])),
            scale,
            average,
            rate_factor: options.has_rate_factor.then(|| scalar(DType::F32)),
            skipped: options.has_skipped().then(|| scalar(DType::U32)),
            rule: Rule::of(net, optimizer, &options),
        }
    }
}

/// The parts of a state whose types depend on its model.
pub(crate) struct StateTypes<F: Family, S: Family> {
    pub(crate) model: F::Of<ShardedType>,
    pub(crate) slots: Slots<S, ShardedType>,
    pub(crate) scale: Option<Scaling<ShardedType>>,
    pub(crate) average: Option<Averages<ShardedType>>,
    pub(crate) options: StateOptions,
}
