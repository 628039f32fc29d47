//! Reading and writing at indices that are known only when the program runs, and sorting.

use std::panic::Location;

use halite_core::{DType, TensorType};
use halite_ir::{GatherAttributes, Op, Reduction, ScatterAttributes};

use crate::{
    Tensor, Trace,
    check::{Checked, check},
    dim::Dim,
    special::wide,
};

impl<'t> Tensor<'t> {
    /// The parts of dimension `dim` at `indices`: `[a, n, b]` along 1 at `[i, j]` is
    /// `[a, i, j, b]`. Embeddings are `table.take(tokens, 0)`.
    ///
    /// An index out of range counts as the nearest that is in range; so does its gradient.
    #[track_caller]
    pub fn take(self, indices: Tensor<'t>, dim: impl Dim) -> Tensor<'t> {
        let dim = check!(self.known_dim("take", dim));
        check!(indices.check_integer("take"));
        let (ty, count) = (self.ty(), indices.rank());
        let mut slice_sizes = ty.dims().to_vec();
        slice_sizes[dim] = 1;
        let gather = GatherAttributes {
            offset_dims: (0..dim).chain(dim + count..count + ty.rank() - 1).collect(),
            collapsed_slice_dims: vec![dim],
            operand_batching_dims: vec![],
            start_indices_batching_dims: vec![],
            start_index_map: vec![dim],
            index_vector_dim: count,
            slice_sizes,
            indices_are_sorted: false,
        };
        self.gather(indices, gather)
    }

    /// `result[a, i, b] = self[a, indices[a, i, b], b]` for `dim` 1: `indices` has the dimensions
    /// of this but at `dim`.
    ///
    /// An index out of range counts as the nearest that is in range; so does its gradient.
    #[track_caller]
    pub fn take_along(self, indices: Tensor<'t>, dim: impl Dim) -> Tensor<'t> {
        let dim = check!(self.known_dim("take along", dim));
        let batch = check!(self.check_along("take along", indices, dim));
        let gather = GatherAttributes {
            offset_dims: vec![],
            collapsed_slice_dims: vec![dim],
            operand_batching_dims: batch.clone(),
            start_indices_batching_dims: batch,
            start_index_map: vec![dim],
            index_vector_dim: self.rank(),
            slice_sizes: vec![1; self.rank()],
            indices_are_sorted: false,
        };
        self.gather(indices, gather)
    }

    /// Slices at computed places, in StableHLO's terms. Indices out of range are moved so that the
    /// slices fit.
    #[track_caller]
    pub fn gather(self, indices: Tensor<'t>, gather: GatherAttributes) -> Tensor<'t> {
        self.trace.push_one(Op::Gather(gather), &[self, indices])
    }

    /// Writes at computed places, in StableHLO's terms: `combine` is the function of an old element
    /// and its update, `None` replaces it. Writes out of range are left out.
    #[track_caller]
    pub fn scatter(
        self,
        indices: Tensor<'t>,
        updates: Tensor<'t>,
        scatter: ScatterAttributes,
        combine: Option<Reduction>,
    ) -> Tensor<'t> {
        self.trace
            .push_one(Op::Scatter(scatter, combine), &[self, indices, updates])
    }

    /// This with `updates` added at `indices` of dimension `dim`: the parts of `updates` are where
    /// [`take`](Self::take) has them. Equal indices add up; writes out of range are left out.
    #[track_caller]
    pub fn scatter_add(
        self,
        indices: Tensor<'t>,
        updates: Tensor<'t>,
        dim: impl Dim,
    ) -> Tensor<'t> {
        self.scatter_at(Some(Reduction::Sum), indices, updates, dim)
    }

    /// This with `updates` in the places `indices` of dimension `dim`: the parts of `updates` are
    /// where [`take`](Self::take) has them. Of equal indices the last wins, and gets the gradient.
    /// Writes out of range are left out.
    #[track_caller]
    pub fn scatter_set(
        self,
        indices: Tensor<'t>,
        updates: Tensor<'t>,
        dim: impl Dim,
    ) -> Tensor<'t> {
        self.scatter_at(None, indices, updates, dim)
    }

    #[track_caller]
    fn scatter_at(
        self,
        combine: Option<Reduction>,
        indices: Tensor<'t>,
        updates: Tensor<'t>,
        dim: impl Dim,
    ) -> Tensor<'t> {
        let dim = check!(self.known_dim("scatter", dim));
        check!(indices.check_integer("scatter"));
        let (rank, count) = (self.rank(), indices.rank());
        let scatter = ScatterAttributes {
            update_window_dims: (0..dim).chain(dim + count..count + rank - 1).collect(),
            inserted_window_dims: vec![dim],
            input_batching_dims: vec![],
            scatter_indices_batching_dims: vec![],
            scatter_dims_to_operand_dims: vec![dim],
            index_vector_dim: count,
            unique_indices: false,
            indices_are_sorted: false,
        };
        self.scatter(indices, updates, scatter, combine)
    }

    /// 1 at the class and 0 elsewhere, along a new last dimension: `[..]` of integers to
    /// `[.., classes]`. All 0 for a class out of range.
    #[track_caller]
    pub fn one_hot(self, classes: usize, dtype: DType) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        let mut dims = self.dims();
        dims.push(classes);
        if let Err(error) = self.check_integer("one hot") {
            return self
                .trace
                .error_like(Some(error.ty().with_dims(dims).with_dtype(dtype)));
        }
        let last = self.rank();
        let class = self.counting();
        let counted = self
            .trace
            .iota(&TensorType::new(class.dtype(), &dims), last);
        class
            .unsqueeze(last)
            .broadcast_to(&dims)
            .eq(counted)
            .convert(dtype)
    }

    /// The elements along `dim` in order, smallest first or, if `descending`, largest first. NaN is
    /// larger than all.
    #[track_caller]
    pub fn sort(self, dim: impl Dim, descending: bool) -> Tensor<'t> {
        let dim = check!(self.known_dim("sort", dim));
        let sort = Op::Sort {
            dim,
            descending,
            by_bits: false,
        };
        self.trace.push_one(sort, &[self])
    }

    /// Origins of the elements along `dim` after sorting, as `s32`; equal ones keep
    /// their order.
    #[track_caller]
    pub fn argsort(self, dim: impl Dim, descending: bool) -> Tensor<'t> {
        self.sort_with_indices(dim, descending).1
    }

    /// [`sort`](Self::sort) and [`argsort`](Self::argsort) at once.
    #[track_caller]
    pub fn sort_with_indices(self, dim: impl Dim, descending: bool) -> (Tensor<'t>, Tensor<'t>) {
        let dim = match self.known_dim("sort", dim) {
            Ok(dim) => dim,
            Err(error) => return (error, error),
        };
        let places = self.trace.iota(&self.ty().with_dtype(DType::S32), dim);
        let sorted = self.trace.sort_by(&[self, places], dim, descending);
        (sorted[0], sorted[1])
    }

    /// The `count` largest elements along `dim`, largest first, and where they are, as `s32`.
    #[track_caller]
    pub fn top_k(self, count: usize, dim: impl Dim) -> (Tensor<'t>, Tensor<'t>) {
        let _site = self.trace.called_from(Location::caller());
        let dim = match self.known_dim("top k", dim) {
            Ok(dim) => dim,
            Err(error) => return (error, error),
        };
        let ty = self.ty();
        if count > ty.dims()[dim] {
            let error = self.mistake("top k", || {
                format!("{count} largest along dimension {dim} of {ty}")
            });
            return (error, error);
        }
        if !ty.dtype().is_float() || ty.elements() == 0 {
            let (sorted, places) = self.sort_with_indices(dim, true);
            let [sorted, places] = [sorted, places].map(|x| x.slice_dim(dim, ..count));
            return (sorted, places);
        }
        let places = self.trace.iota(&ty.with_dtype(DType::S32), dim);
        let sort = Op::Sort {
            dim,
            descending: true,
            by_bits: true,
        };
        let sorted = self.trace.push_many(sort, &[self.order_key(), places], 2);
        let places = sorted[1].slice_dim(dim, ..count);
        (self.take_along(places, dim), places)
    }

    /// Floats whose order by bits is the order of these by value. XLA selects the largest elements
    /// without sorting all where the comparison is one of bits and the type is `f32`.
    fn order_key(self) -> Tensor<'t> {
        let x = self.convert(wide(self.dtype())).stop_gradient();
        // Not x + 0, which compilers take for x.
        let x = x.ne(0.0).select(x, 0.0);
        x.eq(x).select(x, f64::NAN)
    }

    /// These indices in an element type in which `iota` counts any dimension: a small one would
    /// wrap around.
    #[track_caller]
    pub(crate) fn counting(self) -> Tensor<'t> {
        if self.dtype().size() < DType::S32.size() {
            self.convert(DType::S32)
        } else {
            self
        }
    }

    /// Checks that `indices` are integers, of the dimensions of this but at `dim`; the other dimensions.
    #[track_caller]
    fn check_along(self, op: &str, indices: Tensor<'t>, dim: usize) -> Checked<'t, Vec<usize>> {
        indices.check_integer(op)?;
        let (x, at) = (self.ty(), indices.ty());
        let batch: Vec<usize> = (0..x.rank()).filter(|&other| other != dim).collect();
        if at.rank() == x.rank()
            && batch
                .iter()
                .all(|&other| at.dims()[other] == x.dims()[other])
        {
            return Ok(batch);
        }
        let message = || {
            format!("indices {at} along dimension {dim} of {x}: the other dimensions must be equal")
        };
        Err(self.mistake_like(op, message, x.with_dims(at.dims())))
    }
}

impl Trace {
    /// All of `tensors`, which have equal dimensions, reordered along `dim` so that the first is
    /// sorted.
    #[track_caller]
    pub fn sort_by<'t>(
        &'t self,
        tensors: &[Tensor<'t>],
        dim: impl Dim,
        descending: bool,
    ) -> Vec<Tensor<'t>> {
        let dim = match tensors.first().map(|first| first.known_dim("sort", dim)) {
            Some(Ok(dim)) => dim,
            Some(Err(error)) => return vec![error; tensors.len()],
            None => 0,
        };
        let sort = Op::Sort {
            dim,
            descending,
            by_bits: false,
        };
        self.push_many(sort, tensors, tensors.len())
    }
}
