//! Gradients that are computed in some launches only.

use std::panic::Location;

use halite_core::tree::Leaf;

use super::absent::no_gradient;
use crate::{Mean, Tensor, Trace, control};

impl Trace {
    /// Runs `body`, which returns the loss of a batch and its gradients by the leaves `wrt`, if
    /// `predicate`, a `bool` scalar, is true; otherwise the loss has weight 0, and the gradients are
    /// zeros. Metrics that the body reports count, and states that it updates change, only where it
    /// runs.
    ///
    /// ```
    /// use halite_core::{DType, TensorType, tree::Leaf};
    /// use halite_nn::{Mean, Trace, grad};
    ///
    /// let cx = &Trace::new();
    /// let step = cx.input(TensorType::scalar(DType::U32), "step");
    /// let w = cx.input(TensorType::new(DType::F32, [4]), "w");
    /// let is_due = (step % 5).eq(4);
    /// let (loss, gradients) = cx.gradients_if(is_due, &[w], || {
    ///     let loss = Mean::of(w.square());
    ///     let Leaf(gradient) = grad(loss.value(), &Leaf(w));
    ///     (loss, vec![gradient])
    /// });
    /// assert!(cx.mistakes().is_empty());
    /// assert_eq!(loss.weight.ty().to_string(), "f32[]");
    /// assert_eq!(gradients[0].ty().to_string(), "f32[4]");
    /// ```
    ///
    /// # Panics
    /// If `body` returns another number of gradients than there are leaves.
    #[track_caller]
    pub fn gradients_if<'t>(
        &'t self,
        predicate: Tensor<'t>,
        wrt: &[Tensor<'t>],
        body: impl FnOnce() -> (Mean<'t>, Vec<Tensor<'t>>),
    ) -> (Mean<'t>, Vec<Tensor<'t>>) {
        let site = self.called_from(Location::caller());
        let mut unused = Vec::new();
        let (gradients, [Leaf(total), Leaf(weight)]) = control::run_if(self, predicate, || {
            let (loss, gradients) = site.outside(body);
            assert_eq!(gradients.len(), wrt.len(), "a gradient for each leaf");
            let none = super::absent::without_gradient(self, &gradients);
            unused = (gradients.iter())
                .map(|gradient| none.get(&gradient.id).copied())
                .collect();
            let gradients = gradients.into_iter().map(Leaf);
            (
                gradients.collect::<Vec<_>>(),
                [Leaf(loss.total), Leaf(loss.weight)],
            )
        });
        let gradients = gradients.into_iter().zip(wrt).zip(unused);
        let gradients = gradients.map(|((Leaf(gradient), leaf), unused)| match unused {
            Some(line) => no_gradient(*leaf, line),
            None => gradient,
        });
        (Mean { total, weight }, gradients.collect())
    }
}
