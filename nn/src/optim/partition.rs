use std::fmt;

use halite_core::{Family, Result};

use super::{Gradient, Named, Optimizer, groups::unmatched};
use crate::{Param, Pattern, Schedule, Tensor};

/// Two optimizers for different parameters: see [`Optimizer::partition`].
#[derive(Clone)]
pub struct Partition<A, B> {
    rest: A,
    pattern: Pattern,
    matched: B,
}

impl<A, B> Partition<A, B> {
    pub(super) fn new(rest: A, pattern: &str, matched: B) -> Result<Self> {
        Ok(Partition {
            rest,
            pattern: pattern.parse()?,
            matched,
        })
    }
}

impl<A: Optimizer, B: Optimizer> Optimizer for Partition<A, B> {
    type Slot = (Option<A::Slot>, Option<B::Slot>);

    fn slot(&self, named: Named<'_>) -> <Self::Slot as Family>::Of<Param> {
        if self.pattern.matches(named.path) {
            (None, Some(self.matched.slot(named)))
        } else {
            (Some(self.rest.slot(named)), None)
        }
    }

    fn direction<'t>(
        &self,
        gradient: Gradient<'t, '_>,
        slot: <Self::Slot as Family>::Of<Tensor<'t>>,
    ) -> (Tensor<'t>, <Self::Slot as Family>::Of<Tensor<'t>>) {
        match slot {
            (Some(slot), _) => {
                let (direction, slot) = self.rest.direction(gradient, slot);
                (direction, (Some(slot), None))
            }
            (None, Some(slot)) => {
                let (direction, slot) = self.matched.direction(gradient, slot);
                (direction, (None, Some(slot)))
            }
            (None, None) => unreachable!("`slot` describes one of the two"),
        }
    }

    fn first_update(&self, named: Named<'_>) -> u64 {
        if self.pattern.matches(named.path) {
            self.matched.first_update(named)
        } else {
            self.rest.first_update(named)
        }
    }

    fn is_elementwise(&self, named: Named<'_>) -> bool {
        if self.pattern.matches(named.path) {
            self.matched.is_elementwise(named)
        } else {
            self.rest.is_elementwise(named)
        }
    }

    fn schedules(&self) -> Vec<(String, &Schedule)> {
        let matched = self.matched.schedules().into_iter();
        let matched =
            matched.map(|(name, schedule)| (format!("{name} of {}", self.pattern), schedule));
        self.rest.schedules().into_iter().chain(matched).collect()
    }

    fn check(&self, params: &[Named<'_>]) -> Result<()> {
        let matches = |named: &Named<'_>| self.pattern.matches(named.path);
        let (matched, rest): (Vec<Named<'_>>, Vec<_>) = params.iter().copied().partition(matches);
        if matched.is_empty() {
            return Err(unmatched(&format!("partition `{}`", self.pattern), params));
        }
        self.matched.check(&matched)?;
        self.rest.check(&rest)
    }
}

/// By pattern.
impl<A: fmt::Debug, B: fmt::Debug> fmt::Debug for Partition<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entry(&format_args!("{}", self.pattern), &self.matched)
            .entry(&format_args!("others"), &self.rest)
            .finish()
    }
}
