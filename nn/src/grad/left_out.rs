//! Elements that a loss leaves out: neither their values nor their derivatives count, even if these
//! are not finite.
//!
//! A select alone is not enough. The cotangent of an element that is left out is 0, and the
//! backward pass multiplies it by the derivatives of what computed the element: 0 * NaN is NaN. So
//! the backward pass remembers which elements are left out while it goes back through operations
//! that keep elements apart, and sets their cotangents to 0 where it leaves those. One select of a
//! cotangent is enough for a whole loss.

use halite_core::TensorType;
use halite_ir::{Attachment, CustomCall, Linearity, Op, Reduction};

use super::{Back, Step};
use crate::{Tensor, Trace};

/// Target of the custom call of [`leave_out`].
const TARGET: &str = "halite_leave_out";

/// Attachment of the custom call.
struct LeaveOut;

/// `values`, and 0 in place of those that are not finite where `kept`, a `bool` of the same
/// dimensions, is false. There the result must be multiplied by 0: cotangents that are not finite
/// become 0, too, after the derivatives of the elementwise operations that computed the value.
///
/// What is finite passes, so that the factor has its derivatives also where it is 0.
#[track_caller]
pub(crate) fn leave_out<'t>(cx: &'t Trace, values: Tensor<'t>, kept: Tensor<'t>) -> Tensor<'t> {
    let call = CustomCall {
        target: TARGET.to_owned(),
        attachment: Some(Attachment::new(LeaveOut)),
        ..CustomCall::default()
    };
    let [left] = cx.composite(call, [values, kept], |[values, kept]| {
        let passes = kept.or(values.is_finite());
        [passes.select(values, values.zeros_like())]
    });
    left
}

impl<'t> Tensor<'t> {
    /// Product with weights of the same dimensions; 0 where the weight is 0, also if the value
    /// there is not finite or has no derivative. By the weights, it has all derivatives where the
    /// value is finite.
    #[track_caller]
    pub(crate) fn weighted_by(self, weights: Tensor<'t>) -> Tensor<'t> {
        leave_out(self.trace, self, weights.ne(0.0)) * weights
    }
}

/// Elements of a cotangent that are left out.
#[derive(Clone)]
pub(super) struct LeftOut<'t> {
    /// False for those that are left out.
    kept: Tensor<'t>,
    /// The dimension of the cotangent for each dimension of `kept`, which is broadcast to the
    /// others.
    dims: Vec<usize>,
    /// Whether the elements that are left out may differ from 0.
    is_dirty: bool,
}

impl<'t> LeftOut<'t> {
    /// The cotangent with 0 for the elements that are left out and not finite.
    #[track_caller]
    pub(super) fn clear(&self, cotangent: Tensor<'t>) -> Tensor<'t> {
        if self.is_dirty && !cotangent.is_error() {
            // Behind a barrier: otherwise XLA's CPU compiler rounds a step in a loop of steps in
            // another way than the step alone.
            let kept = self.kept.trace.optimization_barrier(&[self.kept])[0];
            let kept = kept.broadcast_in_dim(cotangent.dims(), &self.dims);
            // For second derivatives, whose cotangents meet the same factors again.
            leave_out(self.kept.trace, cotangent, kept)
        } else {
            cotangent
        }
    }

    /// Whether both leave out the same elements.
    pub(super) fn is_like(&self, other: &LeftOut<'t>) -> bool {
        (self.kept.id, &self.dims) == (other.kept.id, &other.dims)
    }

    /// What both leave out of a cotangent of these dimensions.
    #[track_caller]
    pub(super) fn in_both(self, other: &LeftOut<'t>, dims: &[usize]) -> Self {
        let (kept, places) = if self.dims == other.dims {
            (self.kept.or(other.kept), self.dims)
        } else {
            (
                self.over(dims).or(other.over(dims)),
                (0..dims.len()).collect(),
            )
        };
        LeftOut {
            kept,
            dims: places,
            is_dirty: false,
        }
    }

    pub(super) fn or_dirty(self, is_dirty: bool) -> Self {
        LeftOut {
            is_dirty: self.is_dirty || is_dirty,
            ..self
        }
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    #[track_caller]
    fn over(&self, dims: &[usize]) -> Tensor<'t> {
        self.kept.broadcast_in_dim(dims, &self.dims)
    }

    /// The same elements at other dimensions: `moved` gives the new place of a dimension.
    fn moved(&self, moved: impl Fn(usize) -> Option<usize>) -> Option<Self> {
        Some(LeftOut {
            dims: self
                .dims
                .iter()
                .map(|&dim| moved(dim))
                .collect::<Option<_>>()?,
            ..self.clone()
        })
    }
}

impl<'t> Step<'_, 't> {
    /// The cotangents of the operands of [`leave_out`], and the elements that are left out of
    /// the first one. `after` are those of the result's cotangent.
    #[track_caller]
    pub(super) fn leave_out(&self, after: Option<&LeftOut<'t>>) -> Option<(Back<'t>, LeftOut<'t>)> {
        let Op::CustomCall(call) = &self.node.op else {
            return None;
        };
        call.attachment.as_ref()?.get::<LeaveOut>()?;
        let (g, kept) = (self.g(), self.x(1));
        let kept = after.map_or(kept, |after| kept.and(after.over(&kept.dims())));
        let left_out = LeftOut {
            kept,
            dims: (0..kept.rank()).collect(),
            is_dirty: false,
        };
        Some((vec![Some(leave_out(self.trace, g, kept)), None], left_out))
    }

    /// The elements that are left out of the operands' cotangents, from those of the result's;
    /// `None` if the operation mixes elements.
    #[track_caller]
    pub(super) fn left_out_before(&self, after: &LeftOut<'t>) -> Option<LeftOut<'t>> {
        let operand = self.ty(0);
        let result = self.trace.tensor(self.node.results[0]).ty();
        let elementwise = |is_linear: bool| {
            let mut operands = 0..self.node.operands.len();
            let are_alike = operands.all(|at| self.ty(at).dims() == result.dims());
            are_alike.then(|| after.clone().or_dirty(!is_linear))
        };
        let linearity = self.node.op.rules().linearity;
        match &self.node.op {
            Op::Unary(_) => elementwise(linearity == Linearity::First),
            Op::Binary(_) => elementwise(linearity == Linearity::Together),
            Op::Convert(_) | Op::ReducePrecision { .. } | Op::ShardingConstraint(_) | Op::Clamp => {
                elementwise(true)
            }
            // The predicate may be a scalar.
            Op::Select => Some(after.clone()),
            Op::Transpose { permutation } => after.moved(|dim| permutation.get(dim).copied()),
            Op::Broadcast { mapping, .. } => after.moved(|dim| {
                let source = mapping.iter().position(|&to| to == dim)?;
                (operand.dims()[source] == result.dims()[dim]).then_some(source)
            }),
            Op::Reduce { kind, dims } => {
                let rest: Vec<usize> = (0..operand.rank())
                    .filter(|dim| !dims.contains(dim))
                    .collect();
                let before = after.moved(|dim| rest.get(dim).copied())?;
                Some(before.or_dirty(*kind != Reduction::Sum))
            }
            Op::Reshape { .. } => self.reshaped(after, &operand, &result),
            _ => None,
        }
    }

    /// As the dimensions of the operand of a reshape.
    #[track_caller]
    fn reshaped(
        &self,
        after: &LeftOut<'t>,
        operand: &TensorType,
        result: &TensorType,
    ) -> Option<LeftOut<'t>> {
        let longer = |ty: &TensorType| -> Vec<usize> {
            (0..ty.rank()).filter(|&dim| ty.dims()[dim] != 1).collect()
        };
        let (from, to) = (longer(result), longer(operand));
        let sizes = |ty: &TensorType, dims: &[usize]| -> Vec<usize> {
            dims.iter().map(|&dim| ty.dims()[dim]).collect()
        };
        if sizes(result, &from) == sizes(operand, &to) {
            let place = |dim| Some(to[from.iter().position(|&other| other == dim)?]);
            if let Some(moved) = after.moved(place) {
                return Some(moved);
            }
        }
        Some(LeftOut {
            kept: after.over(result.dims()).reshape(operand.dims()),
            dims: (0..operand.rank()).collect(),
            is_dirty: after.is_dirty,
        })
    }
}
