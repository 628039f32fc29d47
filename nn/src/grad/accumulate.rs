//! Gradients of several batches, added up in a loop: the gradient of one large batch with the memory
//! of a small one.

use std::panic::Location;

use halite_core::tree::{Leaf, Tree};

use super::absent::no_gradient;
use crate::{Mean, Tensor, Trace, special::wide};

impl Trace {
    /// Runs `body` on each slice of `batches` along the first dimension, in a [scan](Self::scan),
    /// and returns the mean of the losses and of the gradients over all samples: each loss and
    /// gradient counts with the weight of the loss. `body` returns the loss of a batch and the
    /// gradients of its value by the leaves `wrt`.
    ///
    /// They equal those of one batch with all samples, as long as a sample's loss does not depend
    /// on the other samples of its batch (in training, [`BatchNorm`](crate::BatchNorm) makes it
    /// depend on them) and its weight does not depend on the parameters. Sums are in `f32`, or in
    /// `f64` for parameters in `f64`.
    ///
    /// Metrics are means over all batches, and states are carried from one batch to the next. A
    /// batch of weight 0 counts for nothing, whatever its values are.
    ///
    /// ```
    /// use halite_core::{DType, TensorType, tree::Leaf};
    /// use halite_nn::{Mean, Trace, grad};
    ///
    /// let cx = &Trace::new();
    /// let w = cx.input(TensorType::scalar(DType::F32), "w");
    /// let xs = cx.input(TensorType::new(DType::F32, [4, 16]), "xs"); // four batches of 16
    /// let (loss, gradients) = cx.accumulate_gradients(Leaf(xs), &[w], |Leaf(x)| {
    ///     let loss = Mean::of((x * w).square());
    ///     let Leaf(gradient) = grad(loss.value(), &Leaf(w));
    ///     (loss, vec![gradient])
    /// });
    /// assert!(cx.mistakes().is_empty());
    /// assert_eq!(loss.value().ty().to_string(), "f32[]");
    /// assert_eq!(gradients[0].ty().to_string(), "f32[]");
    /// ```
    ///
    /// # Panics
    /// If `body` returns another number of gradients than there are leaves.
    #[track_caller]
    pub fn accumulate_gradients<'t, X: Tree<Leaf = Tensor<'t>>>(
        &'t self,
        batches: X,
        wrt: &[Tensor<'t>],
        body: impl FnOnce(X) -> (Mean<'t>, Vec<Tensor<'t>>),
    ) -> (Mean<'t>, Vec<Tensor<'t>>) {
        let location = Location::caller();
        let site = self.called_from(location);
        let zeros = wrt.iter().map(|leaf| {
            let ty = leaf.ty();
            Leaf(self.full(0.0, &ty.with_dtype(wide(ty.dtype()))))
        });
        let mut unused = vec![None; wrt.len()];
        let (sums, [Leaf(totals), Leaf(weights)]) =
            self.scan(zeros.collect::<Vec<_>>(), batches, |sums, batch| {
                let (loss, gradients) = site.outside(|| body(batch));
                assert_eq!(gradients.len(), sums.len(), "a gradient for each leaf");
                let none = super::absent::without_gradient(self, &gradients);
                let counts = loss.weight.ne(0.0);
                let next = sums.into_iter().zip(&gradients).zip(&mut unused);
                let next = next.map(|((Leaf(sum), gradient), unused)| {
                    *unused = none.get(&gradient.id).copied();
                    let ty = sum.ty();
                    if unused.is_some() || gradient.is_error() {
                        return Leaf(sum);
                    }
                    let weighted = gradient.convert(ty.dtype()) * loss.weight.convert(ty.dtype());
                    // 0 times what is not finite is not 0.
                    Leaf(sum + counts.select(weighted, 0.0))
                });
                let total = counts.select(loss.total, 0.0);
                (next.collect(), [Leaf(total), Leaf(loss.weight)])
            });
        let loss = Mean {
            total: totals.sum([0]),
            weight: weights.sum([0]),
        };
        let nothing = loss.weight.eq(0.0);
        let weight = nothing.select(loss.weight + 1.0, loss.weight);
        let gradients = sums.into_iter().zip(wrt).zip(unused);
        let gradients = gradients.map(|((Leaf(sum), leaf), unused)| match unused {
            Some(line) => no_gradient(*leaf, line),
            None => (sum / weight.convert(sum.dtype())).convert(leaf.dtype()),
        });
        (loss, gradients.collect())
    }
}
