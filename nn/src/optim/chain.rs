use halite_core::{Family, Result};

use super::{Gradient, Named, Optimizer};
use crate::{Param, Schedule, Tensor};

/// Two optimizers, of which the second gets the step of the first as its gradient: see
/// [`Optimizer::chain`].
#[derive(Clone, Debug)]
pub struct Chain<A, B> {
    first: A,
    next: B,
}

impl<A, B> Chain<A, B> {
    pub(super) fn new(first: A, next: B) -> Self {
        Chain { first, next }
    }
}

impl<A: Optimizer, B: Optimizer> Optimizer for Chain<A, B> {
    type Slot = (A::Slot, B::Slot);

    fn slot(&self, named: Named<'_>) -> <Self::Slot as Family>::Of<Param> {
        (self.first.slot(named), self.next.slot(named))
    }

    fn direction<'t>(
        &self,
        gradient: Gradient<'t, '_>,
        slots: <Self::Slot as Family>::Of<Tensor<'t>>,
    ) -> (Tensor<'t>, <Self::Slot as Family>::Of<Tensor<'t>>) {
        let (first, next) = slots;
        let (grad, first) = self.first.direction(gradient, first);
        let (direction, next) = self.next.direction(Gradient { grad, ..gradient }, next);
        (direction, (first, next))
    }

    fn first_update(&self, named: Named<'_>) -> u64 {
        (self.first.first_update(named)).max(self.next.first_update(named))
    }

    fn is_elementwise(&self, named: Named<'_>) -> bool {
        self.first.is_elementwise(named) && self.next.is_elementwise(named)
    }

    fn schedules(&self) -> Vec<(String, &Schedule)> {
        [self.first.schedules(), self.next.schedules()].concat()
    }

    fn check(&self, params: &[Named<'_>]) -> Result<()> {
        self.first.check(params)?;
        self.next.check(params)
    }
}
