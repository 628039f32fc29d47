//! Rules of gather, scatter and sort.

use halite_core::{DType, TensorType};
use halite_ir::{ComparisonDirection, GatherAttributes, Literal, Op, Reduction, ScatterAttributes};

use super::{Back, Step, reduce::shared};
use crate::{Tensor, special::wide, tensor::splat};

impl<'t> Step<'_, 't> {
    /// Adds to where it was read from.
    #[track_caller]
    pub(super) fn gather(&self, gather: &GatherAttributes) -> Back<'t> {
        if let Some(back) = self.one_along(gather) {
            return vec![Some(back), None];
        }
        let scatter = ScatterAttributes {
            update_window_dims: gather.offset_dims.clone(),
            inserted_window_dims: gather.collapsed_slice_dims.clone(),
            input_batching_dims: gather.operand_batching_dims.clone(),
            scatter_indices_batching_dims: gather.start_indices_batching_dims.clone(),
            scatter_dims_to_operand_dims: gather.start_index_map.clone(),
            index_vector_dim: gather.index_vector_dim,
            unique_indices: false,
            indices_are_sorted: false,
        };
        // Reading moves indices into range, writing leaves out what is not.
        let indices = self.in_range(
            &gather.start_index_map,
            gather.index_vector_dim,
            &gather.slice_sizes,
        );
        vec![
            Some({
                let zeros = self.x(0).zeros_like();
                zeros.scatter(indices, self.g(), scatter, Some(Reduction::Sum))
            }),
            None,
        ]
    }

    /// Where one element is read along a dimension, as `take_along` of the targets of a loss: zero
    /// elsewhere. The compiler makes one loop of this; of writing at indices, one iteration for each.
    #[track_caller]
    fn one_along(&self, gather: &GatherAttributes) -> Option<Tensor<'t>> {
        let (x, indices) = (self.ty(0), self.ty(1));
        let [dim] = gather.start_index_map[..] else {
            return None;
        };
        let others: Vec<usize> = (0..x.rank()).filter(|&other| other != dim).collect();
        let along =
            gather.operand_batching_dims == others && gather.start_indices_batching_dims == others;
        // Indices with a dimension for their one component are scattered to.
        if !along
            || indices.rank() != x.rank()
            || gather.index_vector_dim != x.rank()
            || indices.dims()[dim] != 1
            || !gather.offset_dims.is_empty()
        {
            return None;
        }
        let at = self
            .in_range(
                &gather.start_index_map,
                gather.index_vector_dim,
                &gather.slice_sizes,
            )
            .counting();
        let counted = self.trace.iota(&x.with_dtype(at.dtype()), dim);
        let g = self.g().broadcast_to(x.dims());
        Some(
            counted
                .eq(at.broadcast_to(x.dims()))
                .select(g, g.zeros_like()),
        )
    }

    /// The indices, each component moved so that a slice of `sizes` fits.
    #[track_caller]
    fn in_range(&self, map: &[usize], vector_dim: usize, sizes: &[usize]) -> Tensor<'t> {
        let indices = self.x(1);
        let last = self.last_starts(map, vector_dim, sizes);
        self.trace
            .push_one(Op::Clamp, &[indices.zeros_like(), indices, last])
    }

    /// For each component of each index, the largest with which a slice of `sizes` fits.
    #[track_caller]
    fn last_starts(&self, map: &[usize], vector_dim: usize, sizes: &[usize]) -> Tensor<'t> {
        let (x, indices) = (self.ty(0), self.ty(1));
        let scalar = TensorType::scalar(indices.dtype());
        // An index type too small to reach the end saturates, which is correct.
        let last = |dim: usize| splat(x.dims()[dim].saturating_sub(sizes[dim]) as f64, &scalar);
        if vector_dim == indices.rank() {
            return self
                .trace
                .literal(last(map[0]))
                .broadcast_to(indices.dims());
        }
        let bytes: Vec<u8> = map
            .iter()
            .flat_map(|&dim| last(dim).to_host().bytes().to_vec())
            .collect();
        let literal = Literal::from_bytes(&bytes, scalar.with_dims([map.len()]))
            .expect("one element for each component");
        self.trace
            .literal(literal)
            .broadcast_in_dim(indices.dims(), [vector_dim])
    }

    #[track_caller]
    pub(super) fn scatter(
        &self,
        scatter: &ScatterAttributes,
        combine: Option<Reduction>,
    ) -> Back<'t> {
        let g = self.g();
        let (x, updates) = match combine {
            Some(Reduction::Sum) => (Some(g), self.if_wanted(2, || self.read_written(g, scatter))),
            None if scatter.unique_indices => (
                self.if_wanted(0, || {
                    g.scatter(self.x(1), self.x(2).zeros_like(), scatter.clone(), None)
                }),
                self.if_wanted(2, || self.read_written(g, scatter)),
            ),
            None => return self.scatter_last(scatter),
            Some(Reduction::Product) if scatter.unique_indices || !self.wants(2) => (
                self.if_wanted(0, || {
                    g.scatter(self.x(1), self.x(2), scatter.clone(), combine)
                }),
                self.if_wanted(2, || self.read_written(g * self.x(0), scatter)),
            ),
            Some(Reduction::Product) => {
                return self.none(
                    "products of factors that may be written to one place need `unique_indices`",
                );
            }
            Some(Reduction::Min | Reduction::Max) => return self.scatter_extreme(scatter, combine),
            // Integers and bool have no cotangents.
            Some(Reduction::And | Reduction::Or) => (None, None),
        };
        vec![x, None, updates]
    }

    /// For each update, the element of `from` in the place that it was written to; 0 if it was
    /// written nowhere.
    #[track_caller]
    fn read_written(&self, from: Tensor<'t>, scatter: &ScatterAttributes) -> Tensor<'t> {
        let read = self.read_places(from, scatter);
        self.written(scatter).select(read, read.zeros_like())
    }

    /// For each update, the element of `from` in its place, moved into range.
    #[track_caller]
    fn read_places(&self, from: Tensor<'t>, scatter: &ScatterAttributes) -> Tensor<'t> {
        let gather = GatherAttributes {
            offset_dims: scatter.update_window_dims.clone(),
            collapsed_slice_dims: scatter.inserted_window_dims.clone(),
            operand_batching_dims: scatter.input_batching_dims.clone(),
            start_indices_batching_dims: scatter.scatter_indices_batching_dims.clone(),
            start_index_map: scatter.scatter_dims_to_operand_dims.clone(),
            index_vector_dim: scatter.index_vector_dim,
            slice_sizes: self.window_sizes(scatter),
            indices_are_sorted: false,
        };
        from.gather(self.x(1), gather)
    }

    /// Sizes of the windows that are written, in each dimension of the operand.
    fn window_sizes(&self, scatter: &ScatterAttributes) -> Vec<usize> {
        let (x, updates) = (self.ty(0), self.ty(2));
        let mut windows = scatter
            .update_window_dims
            .iter()
            .map(|&dim| updates.dims()[dim]);
        let flat = |dim: usize| {
            scatter.inserted_window_dims.contains(&dim)
                || scatter.input_batching_dims.contains(&dim)
        };
        (0..x.rank())
            .map(|dim| {
                if flat(dim) {
                    1
                } else {
                    windows
                        .next()
                        .expect("a window dimension for each that is not dropped")
                }
            })
            .collect()
    }

    /// For each update, whether its whole window was in range, and so was written.
    #[track_caller]
    fn written(&self, scatter: &ScatterAttributes) -> Tensor<'t> {
        let (indices, updates) = (self.x(1), self.ty(2));
        let map = &scatter.scatter_dims_to_operand_dims;
        let vector_dim = scatter.index_vector_dim;
        let last = self.last_starts(map, vector_dim, &self.window_sizes(scatter));
        let fits = indices.ge(indices.zeros_like()).and(indices.le(last));
        let fits = if vector_dim == indices.rank() {
            fits
        } else {
            fits.all([vector_dim])
        };
        let batch: Vec<usize> = (0..updates.rank())
            .filter(|dim| !scatter.update_window_dims.contains(dim))
            .collect();
        fits.broadcast_in_dim(updates.dims(), batch)
    }

    /// The last of the updates to a place stays; which one that is, is found by writing their numbers
    /// the same way.
    #[track_caller]
    fn scatter_last(&self, scatter: &ScatterAttributes) -> Back<'t> {
        let (g, updates) = (self.g(), self.ty(2));
        let number = TensorType::new(DType::U32, updates.dims());
        let numbers = self
            .trace
            .iota(&TensorType::new(DType::U32, [updates.elements()]), 0)
            .reshape(number.dims())
            + 1;
        let none = self.trace.full(0.0, &self.ty(0).with_dtype(DType::U32));
        let winners = none.scatter(self.x(1), numbers, scatter.clone(), None);
        let x = self.if_wanted(0, || winners.eq(none).select(g, g.zeros_like()));
        let updates = self.if_wanted(2, || {
            let read = self.read_places(g, scatter);
            self.read_places(winners, scatter)
                .eq(numbers)
                .select(read, read.zeros_like())
        });
        vec![x, None, updates]
    }

    /// Equal extremes share the cotangent equally. The extremes are those of the value behind the barrier: see
    /// decision 0029.
    #[track_caller]
    fn scatter_extreme(&self, scatter: &ScatterAttributes, combine: Option<Reduction>) -> Back<'t> {
        let (g, given) = (
            self.g(),
            self.trace.optimization_barrier(&[self.x(0), self.x(2)]),
        );
        let (x, updates) = (given[0], given[1]);
        let y = x.scatter(self.x(1), updates, scatter.clone(), combine);
        let dtype = wide(g.dtype());
        let kept = x.eq(y).or(x.ne(x));
        let chosen = updates
            .eq(self.read_places(y, scatter))
            .or(updates.ne(updates))
            .and(self.written(scatter));
        let add = ScatterAttributes {
            unique_indices: false,
            ..scatter.clone()
        };
        let share = shared(
            g,
            kept.convert(dtype).scatter(
                self.x(1),
                chosen.convert(dtype),
                add,
                Some(Reduction::Sum),
            ),
        );
        let of_updates = || self.read_places(share, scatter);
        vec![
            self.if_wanted(0, || kept.select(share, g.zeros_like())),
            None,
            self.if_wanted(2, || chosen.select(of_updates(), updates.zeros_like())),
        ]
    }

    /// Sorts the cotangents back by the origin of each element.
    #[track_caller]
    pub(super) fn sort(&self, op: &Op, dim: usize) -> Back<'t> {
        let is_places = |&operand: &usize| {
            let maker = self
                .trace
                .recording
                .borrow()
                .maker(self.node.operands[operand]);
            maker.is_some_and(|maker| {
                matches!(&maker.op, Op::Iota { ty, dim: along } if *along == dim && ty.dtype() == DType::S32)
            })
        };
        let places = match (1..self.node.operands.len()).find(is_places) {
            Some(operand) => self.y(operand),
            None => {
                let counted = self.trace.iota(&self.ty(0).with_dtype(DType::S32), dim);
                self.trace.push_many(op.clone(), &[self.x(0), counted], 2)[1]
            }
        };
        let flowing: Vec<Tensor<'t>> = [places]
            .into_iter()
            .chain(self.cotangents.iter().copied().flatten())
            .collect();
        let mut sorted = self.trace.sort_by(&flowing, dim, false).into_iter().skip(1);
        self.cotangents
            .iter()
            .map(|cotangent| cotangent.and_then(|_| sorted.next()))
            .collect()
    }

    /// The chosen element gets the cotangent.
    #[track_caller]
    pub(super) fn arg_reduce(&self, dim: usize) -> Back<'t> {
        let Some(g) = self.cotangents[0] else {
            return self.nothing();
        };
        let ty = self.ty(0);
        let counted = self.trace.iota(&ty.with_dtype(DType::S32), dim);
        let others: Vec<usize> = (0..ty.rank()).filter(|&other| other != dim).collect();
        let chosen = self.y(1).broadcast_in_dim(ty.dims(), &others);
        let chosen = self
            .trace
            .push_one(Op::Compare(ComparisonDirection::Eq), &[counted, chosen]);
        let g = g.broadcast_in_dim(ty.dims(), &others);
        vec![Some(chosen.select(g, g.zeros_like()))]
    }
}
