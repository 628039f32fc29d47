//! Rules of operations that move elements by static or dynamic places.

use halite_core::{DType, TensorType};
use halite_ir::Op;

use super::{Back, Step};
use crate::Tensor;

/// The permutation that undoes `permutation`.
pub(super) fn inverse(permutation: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; permutation.len()];
    for (to, &from) in permutation.iter().enumerate() {
        inverse[from] = to;
    }
    inverse
}

impl<'t> Step<'_, 't> {
    /// Sums over the repeated dimensions.
    #[track_caller]
    pub(super) fn broadcast(&self, mapping: &[usize]) -> Tensor<'t> {
        let (g, ty) = (self.g(), self.ty(0));
        let sizes = g.dims();
        let repeated = |dim: usize| match mapping.iter().position(|&to| to == dim) {
            Some(from) => ty.dims()[from] != sizes[dim],
            None => true,
        };
        let summed = g.sum(
            (0..sizes.len())
                .filter(|&dim| repeated(dim))
                .collect::<Vec<_>>(),
        );
        // The dimensions that are left are in the order of the result, those of the operand may be
        // in another.
        let mut left: Vec<usize> = mapping
            .iter()
            .copied()
            .filter(|&dim| !repeated(dim))
            .collect();
        let in_operand = left.clone();
        left.sort_unstable();
        let permutation: Vec<usize> = in_operand
            .iter()
            .map(|dim| {
                left.iter()
                    .position(|other| other == dim)
                    .expect("it is the same list")
            })
            .collect();
        summed.transpose(permutation).reshape(ty.dims())
    }

    #[track_caller]
    pub(super) fn concatenate(&self, dim: usize) -> Back<'t> {
        let g = self.g();
        let mut start = 0;
        let mut back = Vec::with_capacity(self.node.operands.len());
        for operand in 0..self.node.operands.len() {
            let end = start + self.ty(operand).dims()[dim];
            back.push(self.if_wanted(operand, || g.slice_dim(dim, start..end)));
            start = end;
        }
        back
    }

    /// Zeros where nothing was taken.
    #[track_caller]
    pub(super) fn slice(&self, starts: &[usize], strides: &[usize]) -> Tensor<'t> {
        let (g, ty) = (self.g(), self.ty(0));
        let taken = g.dims();
        if taken.contains(&0) {
            return self.x(0).zeros_like();
        }
        let low: Vec<i64> = starts.iter().map(|&start| start as i64).collect();
        let after =
            |dim: usize| ty.dims()[dim] - (starts[dim] + (taken[dim] - 1) * strides[dim] + 1);
        let high: Vec<i64> = (0..ty.rank()).map(|dim| after(dim) as i64).collect();
        let interior: Vec<usize> = strides.iter().map(|&stride| stride - 1).collect();
        g.pad_interior(0.0, low, high, interior)
    }

    #[track_caller]
    pub(super) fn dynamic_slice(&self) -> Back<'t> {
        let mut back = self.nothing();
        back[0] = Some(
            self.x(0)
                .zeros_like()
                .dynamic_update_slice(self.g(), &self.starts(1)),
        );
        back
    }

    #[track_caller]
    pub(super) fn dynamic_update_slice(&self) -> Back<'t> {
        let (g, starts) = (self.g(), self.starts(2));
        let mut back = self.nothing();
        back[0] = self.if_wanted(0, || {
            g.dynamic_update_slice(self.x(1).zeros_like(), &starts)
        });
        back[1] = self.if_wanted(1, || g.dynamic_slice(&starts, self.ty(1).dims()));
        back
    }

    fn starts(&self, from: usize) -> Vec<Tensor<'t>> {
        (from..self.node.operands.len())
            .map(|operand| self.x(operand))
            .collect()
    }

    #[track_caller]
    pub(super) fn pad(&self, low: &[i64], high: &[i64], interior: &[usize]) -> Back<'t> {
        let (g, ty) = (self.g(), self.ty(0));
        let inner = || {
            if ty.dims().contains(&0) {
                return self.x(0).zeros_like();
            }
            // Removed elements become zeros, then added ones are cut.
            let negated = |edges: &[i64]| edges.iter().map(|&edge| -edge).collect::<Vec<_>>();
            let spread = g.pad_interior(0.0, negated(low), negated(high), vec![0; ty.rank()]);
            let strides: Vec<usize> = interior.iter().map(|&gap| gap + 1).collect();
            spread.slice_strided(vec![0; ty.rank()], spread.dims(), strides)
        };
        // All elements that are not the operand's are padding. Subtracting the sum of those from
        // the sum of all would lose digits, and be NaN where one of them is infinite.
        let padding = || {
            let inside = TensorType::new(DType::Bool, ty.dims());
            let mask = self.trace.push_one(
                self.node.op.clone(),
                &[
                    self.trace.full(0.0, &inside),
                    self.trace.scalar(1.0, DType::Bool),
                ],
            );
            mask.select(g, g.zeros_like()).sum_all()
        };
        vec![self.if_wanted(0, inner), self.if_wanted(1, padding)]
    }

    /// A barrier in the backward pass, too: what keeps a computation from being merged forward keeps it
    /// backward.
    #[track_caller]
    pub(super) fn optimization_barrier(&self) -> Back<'t> {
        let flowing: Vec<Tensor<'t>> = self.cotangents.iter().copied().flatten().collect();
        let mut passed = self
            .trace
            .push_many(Op::OptimizationBarrier, &flowing, flowing.len())
            .into_iter();
        self.cotangents
            .iter()
            .map(|cotangent| cotangent.and_then(|_| passed.next()))
            .collect()
    }
}
