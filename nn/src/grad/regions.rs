//! The gradients of checkpoints and branches, which recompute their bodies.

use halite_ir::{Graph, Op, Remat};

use super::{
    Back, Step,
    linearize::{BackwardInputs, Linearized},
    residuals::ResidualPolicy,
};
use crate::{Tensor, control};

impl<'t> Step<'_, 't> {
    /// Recomputes the body and pulls back through it.
    #[track_caller]
    pub(super) fn checkpoint(&self, body: &Graph, remat: Remat) -> Back<'t> {
        let Ok(linear) = self.linearize(body, 0, ResidualPolicy::Recompute(remat)) else {
            return self.broken();
        };
        let residuals = self.save_residuals(&linear, |forward| Op::Checkpoint {
            body: Box::new(forward),
            remat,
        });
        let Ok(residuals) = residuals else {
            return self.broken();
        };
        let primals: Vec<Tensor<'t>> = linear.primals.iter().map(|&at| self.x(at)).collect();
        let mut given = [primals, self.cotangents_of(&linear)].concat();
        // Compilers would see that the same is computed twice in one computation, and keep the
        // first result instead. The backward pass of a loop is a computation of its own.
        if self.node.scope == self.trace.recording.borrow().scope() && !given.is_empty() {
            given = self.trace.optimization_barrier(&given);
        }
        let (primals, cotangents) = given.split_at(linear.primals.len());
        let inputs = BackwardInputs {
            primals,
            residuals: &residuals,
            cotangents,
            ..BackwardInputs::default()
        };
        let mut back = self.nothing();
        let gradients = linear.pull_back(self.trace, inputs);
        for (&input, gradient) in linear.active_inputs.iter().zip(gradients) {
            back[input] = Some(gradient);
        }
        back
    }

    /// Records a case of the backward passes of the branches; each recomputes its branch.
    #[track_caller]
    pub(super) fn case(&self, branches: &[Graph]) -> Back<'t> {
        let inputs: Vec<Tensor<'t>> = (1..self.node.operands.len())
            .map(|operand| self.x(operand))
            .collect();
        let types: Vec<_> = inputs.iter().map(|input| input.ty()).collect();
        let wanted: Vec<usize> = (0..inputs.len())
            .filter(|&input| self.wants(1 + input))
            .collect();
        let mut regions = Vec::with_capacity(branches.len());
        for branch in branches {
            let Ok(linear) = self.linearize(branch, 1, ResidualPolicy::Recompute(Remat::Full))
            else {
                return self.broken();
            };
            let (region, gradients) = self.trace.region(&types, |inputs| {
                let primals: Vec<_> = linear.primals.iter().map(|&at| inputs[at]).collect();
                let given = BackwardInputs {
                    primals: &primals,
                    cotangents: &self.cotangents_of(&linear),
                    ..BackwardInputs::default()
                };
                let gradients = linear.pull_back(self.trace, given);
                let gradient = |&input: &usize| {
                    let at = linear
                        .active_inputs
                        .iter()
                        .position(|&active| active == input);
                    at.map_or_else(|| inputs[input].zeros_like(), |at| gradients[at])
                };
                wanted.iter().map(gradient).collect::<Vec<_>>()
            });
            regions.push(region.giving(&gradients));
        }
        let origin = self.node.origin;
        let gradients = control::push_case(self.trace, self.x(0), &inputs, regions, origin);
        let mut back = self.nothing();
        for (&input, gradient) in wanted.iter().zip(gradients) {
            back[1 + input] = Some(gradient);
        }
        back
    }

    /// The cotangents that a backward pass takes.
    pub(super) fn cotangents_of(&self, linear: &Linearized) -> Vec<Tensor<'t>> {
        let cotangents = linear
            .seeded_outputs
            .iter()
            .map(|&output| self.cotangents[output]);
        cotangents.flatten().collect()
    }
}
