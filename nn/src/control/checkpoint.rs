//! Checkpoints: bodies whose residuals are recomputed in the backward pass.

use std::panic::Location;

use halite_core::tree::Tree;
use halite_ir::{Op, Remat};

use crate::{Tensor, Trace, context, trace::capture};

impl Trace {
    /// Returns the result of `body`. Gradients save only the tensors that it uses from outside and
    /// recompute the rest: less memory for more work.
    ///
    /// ```
    /// use halite_core::{DType, TensorType, tree::Leaf};
    /// use halite_nn::{Trace, grad};
    ///
    /// let cx = &Trace::new();
    /// let x = cx.input(TensorType::new(DType::F32, [3]), "x");
    /// let Leaf(y) = cx.checkpoint(|| Leaf(x.sin().exp()));
    /// let Leaf(slope) = grad(y.sum_all(), &Leaf(x));
    /// assert!(cx.mistakes().is_empty());
    /// assert_eq!(slope.ty().to_string(), "f32[3]");
    /// ```
    #[track_caller]
    pub fn checkpoint<'t, T: Tree<Leaf = Tensor<'t>>>(&'t self, body: impl FnOnce() -> T) -> T {
        self.checkpoint_with(Remat::Full, body)
    }

    /// Like [`checkpoint`](Self::checkpoint), with a choice of what is recomputed.
    #[track_caller]
    pub fn checkpoint_with<'t, T: Tree<Leaf = Tensor<'t>>>(
        &'t self,
        remat: Remat,
        body: impl FnOnce() -> T,
    ) -> T {
        let location = Location::caller();
        let (region, (result, side, outputs)) = self.region(&[], |_| {
            let (result, side) = context::with_side_outputs(self, body);
            let outputs = super::usable(self, "checkpoint", &result, location);
            (result, side, outputs)
        });
        let mut outputs = match outputs {
            Ok(outputs) => outputs,
            Err(_) => return super::errors_like(self, &result),
        };
        let given = outputs.len();
        outputs.extend(side.leaves().map(|id| self.tensor(id)));
        if outputs.is_empty() {
            return result;
        }
        let mut regions = vec![region.giving(&outputs)];
        let operands: Vec<Tensor<'t>> = capture(self, &mut regions)
            .into_iter()
            .map(|id| self.tensor(id))
            .collect();
        let op = Op::Checkpoint {
            body: Box::new(regions[0].graph(self)),
            remat,
        };
        let _site = self.called_from(location);
        let mut results = self.push(op, &operands);
        let states: Vec<Tensor<'t>> = side
            .updates
            .iter()
            .map(|&(state, _)| self.tensor(state))
            .collect();
        super::side_outputs::report(
            self,
            side.with(results.split_off(given), |name, total, weight| {
                (name, total, weight)
            }),
            states.into_iter(),
        );
        result.with_leaves(results)
    }
}
