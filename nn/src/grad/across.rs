//! Rules of operations between devices.

use halite_ir::{Groups, Reduction};

use super::{Back, Step, reduce::shared};
use crate::{Tensor, special::wide};

impl<'t> Step<'_, 't> {
    /// Every device gets the sum, so its cotangent is the sum of the cotangents of all devices.
    #[track_caller]
    pub(super) fn all_reduce(&self, kind: Reduction, groups: &Groups) -> Back<'t> {
        let sum = |x: Tensor<'t>| x.all_reduce(Reduction::Sum, groups.clone());
        match kind {
            Reduction::Sum => vec![Some(sum(self.g()))],
            // Equal extremes share the cotangent equally.
            Reduction::Min | Reduction::Max => {
                // Compared with the extreme of the value behind the barrier: see decision 0029.
                let (g, x) = (self.g(), self.x(0).optimization_barrier());
                let chosen = x.eq(x.all_reduce(kind, groups.clone())).or(x.ne(x));
                let share = shared(sum(g), sum(chosen.convert(wide(g.dtype()))));
                vec![Some(chosen.select(share, share.zeros_like()))]
            }
            Reduction::Product => {
                self.none("products over devices are not supported; sum logarithms instead")
            }
            // Integers and bool have no cotangents.
            Reduction::And | Reduction::Or => self.nothing(),
        }
    }

    #[track_caller]
    pub(super) fn all_gather(&self, dim: usize, groups: &Groups) -> Back<'t> {
        let scattered = self.g().reduce_scatter(Reduction::Sum, dim, groups.clone());
        vec![Some(scattered)]
    }

    #[track_caller]
    pub(super) fn collective_permute(&self, pairs: &[(usize, usize)], groups: &Groups) -> Back<'t> {
        let back: Vec<_> = pairs.iter().map(|&(from, to)| (to, from)).collect();
        vec![Some(self.g().collective_permute(back, groups.clone()))]
    }

    #[track_caller]
    pub(super) fn reduce_scatter(&self, kind: Reduction, dim: usize, groups: &Groups) -> Back<'t> {
        match kind {
            Reduction::Sum => vec![Some(self.g().all_gather(dim, groups.clone()))],
            Reduction::Min | Reduction::Max | Reduction::Product => {
                self.none("only sums are scattered back; use `all_reduce` and a slice instead")
            }
            // Integers and bool have no cotangents.
            Reduction::And | Reduction::Or => self.nothing(),
        }
    }
}
