//! Rules of branches, and of operations between devices.

use halite_ir::{Graph, Groups, Reduction};

use super::{Back, Step, pull_back, reduce::shared};
use crate::{Tensor, special::wide};

impl<'t> Step<'_, 't> {
    /// The gradient of the branch that ran: a case of the branches' gradients, which compute the
    /// branch again.
    #[track_caller]
    pub(super) fn case(&self, branches: &[Graph]) -> Back<'t> {
        let inputs: Vec<Tensor<'t>> = (1..self.node.operands.len())
            .map(|operand| self.x(operand))
            .collect();
        let wanted: Vec<usize> = (0..inputs.len())
            .filter(|&input| self.wants(1 + input))
            .collect();
        let types: Vec<_> = inputs.iter().map(|input| input.ty()).collect();
        let mut regions = Vec::with_capacity(branches.len());
        for (branch, graph) in branches.iter().enumerate() {
            // Values of its own: one input may be made from another outside, and that is not this
            // branch's to follow.
            let (mut region, gradients) = self.trace.region(&types, |inputs| {
                let outputs = match self.node.regions.get(branch) {
                    Some(region) => self.trace.replay(region, inputs),
                    // It was given as a graph.
                    None => self.trace.inline(graph, inputs),
                };
                let seeds: Vec<_> = outputs
                    .iter()
                    .zip(&self.cotangents)
                    .filter_map(|(&output, g)| Some((output, (*g)?)))
                    .collect();
                let wrt: Vec<Tensor<'t>> = wanted.iter().map(|&input| inputs[input]).collect();
                let gradients = pull_back(self.trace, &seeds, &wrt);
                let mut filled = Vec::with_capacity(wrt.len());
                for (input, gradient) in wrt.iter().zip(gradients) {
                    filled.push(gradient.unwrap_or_else(|| input.zeros_like()));
                }
                filled
            });
            if gradients.iter().any(|gradient| gradient.is_error()) {
                return self.broken();
            }
            region.outputs = gradients.iter().map(|gradient| gradient.id).collect();
            regions.push(region);
        }
        let gradients = self
            .trace
            .case_of(self.x(0), &inputs, regions, self.node.origin);
        let mut back = self.nothing();
        for (&input, gradient) in wanted.iter().zip(gradients) {
            back[1 + input] = Some(gradient);
        }
        back
    }

    /// Every device gets the sum of all, so what flows back into any flows back into all.
    #[track_caller]
    pub(super) fn all_reduce(&self, kind: Reduction, groups: &Groups) -> Back<'t> {
        let sum = |x: Tensor<'t>| x.all_reduce(Reduction::Sum, groups.clone());
        match kind {
            Reduction::Sum => vec![Some(sum(self.g()))],
            // Equal extremes share it equally.
            Reduction::Min | Reduction::Max => {
                // The extreme of what is behind the barrier: see decision 0029.
                let (g, x) = (self.g(), self.x(0).optimization_barrier());
                let chosen = x.eq(x.all_reduce(kind, groups.clone())).or(x.ne(x));
                let share = shared(sum(g), sum(chosen.convert(wide(g.dtype()))));
                vec![Some(chosen.select(share, share.zeros_like()))]
            }
            Reduction::Product => {
                self.none("products over devices are not done; sum logarithms instead")
            }
            // Of integers or bool.
            Reduction::And | Reduction::Or => self.nothing(),
        }
    }

    #[track_caller]
    pub(super) fn reduce_scatter(&self, kind: Reduction, dim: usize, groups: &Groups) -> Back<'t> {
        match kind {
            Reduction::Sum => vec![Some(self.g().all_gather(dim, groups.clone()))],
            Reduction::Min | Reduction::Max | Reduction::Product => {
                self.none("only sums are scattered back; use `all_reduce` and a slice instead")
            }
            // Of integers or bool.
            Reduction::And | Reduction::Or => self.nothing(),
        }
    }
}
