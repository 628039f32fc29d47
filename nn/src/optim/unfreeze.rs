use std::fmt;

use halite_core::{DType, Error, Family, Result, Tree, tree::Of};

use super::{Gradient, Named, Optimizer, groups::unmatched};
use crate::{Param, Pattern, Schedule, Tensor, Trace, grad};

/// An optimizer that begins later with some parameters: see [`Optimizer::unfreeze`].
#[derive(Clone)]
pub struct Unfreeze<O> {
    optimizer: O,
    pattern: Pattern,
    /// Number of the first update of the matching parameters, from 0.
    first: u64,
}

impl<O> Unfreeze<O> {
    pub(super) fn new(optimizer: O, pattern: &str, first: u64) -> Result<Self> {
        if first > u32::MAX.into() {
            let message = format!("`{pattern}` begins at step {first}, above the most, 2^32 - 1");
            return Err(Error::invalid("unfreeze", message));
        }
        Ok(Unfreeze {
            optimizer,
            pattern: pattern.parse()?,
            first,
        })
    }
}

impl<O: Optimizer> Optimizer for Unfreeze<O> {
    type Slot = O::Slot;

    fn slot(&self, named: Named<'_>) -> <Self::Slot as Family>::Of<Param> {
        self.optimizer.slot(named)
    }

    fn direction<'t>(
        &self,
        gradient: Gradient<'t, '_>,
        slot: <Self::Slot as Family>::Of<Tensor<'t>>,
    ) -> (Tensor<'t>, <Self::Slot as Family>::Of<Tensor<'t>>) {
        self.optimizer.direction(gradient, slot)
    }

    fn first_update(&self, named: Named<'_>) -> u64 {
        let before = self.optimizer.first_update(named);
        if self.pattern.matches(named.path) {
            before.max(self.first)
        } else {
            before
        }
    }

    fn is_elementwise(&self, named: Named<'_>) -> bool {
        self.optimizer.is_elementwise(named)
    }

    fn schedules(&self) -> Vec<(String, &Schedule)> {
        self.optimizer.schedules()
    }

    fn check(&self, params: &[Named<'_>]) -> Result<()> {
        if !params.iter().any(|named| self.pattern.matches(named.path)) {
            return Err(unmatched(&format!("unfreeze `{}`", self.pattern), params));
        }
        self.optimizer.check(params)
    }
}

impl<O: fmt::Debug> fmt::Debug for Unfreeze<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unfreeze")
            .field("pattern", &format_args!("{}", self.pattern))
            .field("first_update", &self.first)
            .field("optimizer", &self.optimizer)
            .finish()
    }
}

/// The gradients with zeros for the parameters that are frozen at update `step`, an integer scalar:
/// so a norm of all gradients does not have theirs. [`update`](super::update) does not change these
/// parameters in any case.
#[track_caller]
pub fn without_frozen<'t, M: Tree<Leaf = Param>, O: Optimizer>(
    optimizer: &O,
    cx: &'t Trace,
    step: Tensor<'t>,
    model: &M,
    grads: Of<M, Tensor<'t>>,
) -> Of<M, Tensor<'t>> {
    let grads = grads.into_leaves();
    let none = grad::without_gradient(cx, &grads);
    let leaves = model.named().into_iter().zip(grads);
    let active = leaves.map(|((path, param), grad)| {
        let first = optimizer.first_update(Named { path: &path, param });
        if param.trainable && first > 0 && !none.contains_key(&grad.id) {
            is_active(step, first).select(grad, grad.zeros_like())
        } else {
            grad
        }
    });
    model.rebuild(active.collect::<Vec<_>>())
}

/// Whether update `step`, an integer scalar, is at or after the one with number `first`.
#[track_caller]
pub(super) fn is_active(step: Tensor<'_>, first: u64) -> Tensor<'_> {
    let step = step.convert(DType::U32);
    step.ge(step.trace().scalar(first as f64, DType::U32))
}
