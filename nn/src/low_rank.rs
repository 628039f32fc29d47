//! Weights with a low-rank term, `W + s a b`: products by such a weight are `x W + s (x a) b`, and
//! neither `a b` nor the gradient by `W` is computed.
//!
//! The sum is recorded as well, for operations other than products; a program without any does not
//! contain it.

use std::{cell::RefCell, collections::HashMap};

use halite_core::DType;
use halite_ir::DotAttributes;

use crate::{Tensor, trace::Id};

/// Parts of a weight with a low-rank term.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LowRank<'t> {
    /// `[layers.., in.., out..]`
    pub(crate) base: Tensor<'t>,
    /// `[layers.., in.., rank]`
    pub(crate) a: Tensor<'t>,
    /// `[layers.., rank, out..]`
    pub(crate) b: Tensor<'t>,
    pub(crate) spec: Spec,
}

/// Factor and dimensions of a low-rank term.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spec {
    /// Factor of the term.
    pub(crate) scale: f64,
    /// Leading dimensions that count layers.
    pub(crate) stacked: usize,
    /// Dimensions after these that a product contracts.
    pub(crate) inputs: usize,
}

/// The low-rank sums of a trace, by their numbers: those of their parts.
#[derive(Default)]
struct Sums(RefCell<HashMap<Id, ([Id; 3], Spec)>>);

impl<'t> LowRank<'t> {
    /// The parts of a tensor that is a [low-rank sum](Self::sum).
    pub(crate) fn of(tensor: Tensor<'t>) -> Option<Self> {
        let sums = tensor.trace.state::<Sums>().0.borrow();
        let &([base, a, b], spec) = sums.get(&tensor.id)?;
        let [base, a, b] = [base, a, b].map(|id| tensor.trace.tensor(id));
        Some(LowRank { base, a, b, spec })
    }

    /// The sum `base + scale a b`, whose products are computed without it.
    #[track_caller]
    pub(crate) fn sum(self) -> Tensor<'t> {
        let LowRank { base, a, b, spec } = self;
        let layers: Vec<usize> = (0..spec.stacked).collect();
        let term = a.dot_general(
            b,
            DotAttributes {
                lhs_batching: layers.clone(),
                rhs_batching: layers,
                lhs_contracting: vec![spec.stacked + spec.inputs],
                rhs_contracting: vec![spec.stacked],
                ..DotAttributes::default()
            },
            a.dtype(),
        );
        let sum = base + term * spec.scale;
        if !sum.is_error() {
            let ids = [base, a, b].map(|tensor| tensor.id);
            let sums = &base.trace().state::<Sums>().0;
            sums.borrow_mut().insert(sum.id, (ids, spec));
        }
        sum
    }

    /// The product with `x` that `dot` describes, if it contracts the inputs of the weight and keeps
    /// its outputs.
    #[track_caller]
    pub(crate) fn product(
        self,
        x: Tensor<'t>,
        dot: &DotAttributes,
        result: DType,
    ) -> Option<Tensor<'t>> {
        let LowRank { base, a, b, spec } = self;
        let mut contracted = dot.rhs_contracting.clone();
        contracted.sort_unstable();
        let is_dense = dot.rhs_batching.is_empty() && spec.stacked == 0;
        if !is_dense || contracted != (0..spec.inputs).collect::<Vec<_>>() {
            return None;
        }
        let inner = x.dot_general(a, dot.clone(), result);
        let rank = inner.rank().checked_sub(1)?;
        let term = inner.dot_general(
            b,
            DotAttributes {
                lhs_contracting: vec![rank],
                rhs_contracting: vec![0],
                ..DotAttributes::default()
            },
            result,
        );
        Some(x.dot_general(base, dot.clone(), result) + term * spec.scale)
    }

    /// This of one layer, given its parts.
    pub(crate) fn of_layer(spec: Spec, parts: [Tensor<'t>; 3]) -> Self {
        let [base, a, b] = parts;
        let stacked = spec.stacked.saturating_sub(1);
        let spec = Spec { stacked, ..spec };
        LowRank { base, a, b, spec }
    }
}
