//! Slices, updates of slices, and padding.

use std::ops::{Range, RangeBounds};

use halite_ir::Op;

use crate::{
    Operand, Tensor,
    check::{bounds, check},
    dim::{Dim, place, written},
};

impl<'t> Tensor<'t> {
    /// The part within `ranges`, one for each dimension.
    #[track_caller]
    pub fn slice(self, ranges: impl AsRef<[Range<usize>]>) -> Tensor<'t> {
        let ranges = ranges.as_ref();
        let starts: Vec<usize> = ranges.iter().map(|range| range.start).collect();
        let limits: Vec<usize> = ranges.iter().map(|range| range.end).collect();
        let strides = vec![1; ranges.len()];
        self.slice_strided(starts, limits, strides)
    }

    /// The elements at `starts, starts + strides, ..` below `limits`, in each dimension.
    #[track_caller]
    pub fn slice_strided(
        self,
        starts: impl AsRef<[usize]>,
        limits: impl AsRef<[usize]>,
        strides: impl AsRef<[usize]>,
    ) -> Tensor<'t> {
        let (starts, limits, strides) = (starts.as_ref(), limits.as_ref(), strides.as_ref());
        let whole =
            starts.iter().all(|&start| start == 0) && strides.iter().all(|&stride| stride == 1);
        if whole
            && starts.len() == limits.len()
            && strides.len() == limits.len()
            && self.ty().dims() == limits
        {
            return self;
        }
        let op = Op::Slice {
            starts: starts.to_vec(),
            limits: limits.to_vec(),
            strides: strides.to_vec(),
        };
        self.trace.push_one(op, &[self])
    }

    /// The part within `range` of dimension `dim`: `x.slice_dim(1, 2..)`.
    #[track_caller]
    pub fn slice_dim(self, dim: impl Dim, range: impl RangeBounds<usize>) -> Tensor<'t> {
        let dim = check!(self.known_dim("slice", dim));
        let ty = self.ty();
        let mut ranges: Vec<Range<usize>> = ty.dims().iter().map(|&size| 0..size).collect();
        ranges[dim] = bounds(range, ty.dims()[dim]);
        self.slice(ranges)
    }

    /// The part at `index` of dimension `dim`, without that dimension; -1 is the last.
    #[track_caller]
    pub fn index(self, dim: impl Dim, index: impl Dim) -> Tensor<'t> {
        let dim = check!(self.known_dim("index", dim));
        let (ty, number) = (self.ty(), index.number());
        let Some(index) = place(number, ty.dims()[dim]) else {
            let mut dims = ty.dims().to_vec();
            dims.remove(dim);
            return self.mistake_like(
                "index",
                || {
                    let (number, size) = (written(number), ty.dims()[dim]);
                    format!("no {number} in dimension {dim} of {ty}, which has {size}")
                },
                ty.with_dims(dims),
            );
        };
        self.slice_dim(dim, index..index + 1).squeeze(dim)
    }

    /// Splits dimension `dim` into `parts` equal parts. Returns `parts` tensors in any case: error
    /// tensors if the size is not divisible.
    #[track_caller]
    pub fn split(self, dim: impl Dim, parts: usize) -> Vec<Tensor<'t>> {
        let dim = match self.known_dim("split", dim) {
            Ok(dim) => dim,
            Err(error) => return vec![error; parts],
        };
        let ty = self.ty();
        let size = ty.dims()[dim];
        if parts == 0 || !size.is_multiple_of(parts) {
            let message =
                || format!("dimension {dim} of {ty} cannot be split into {parts} equal parts");
            return vec![self.mistake("split", message); parts];
        }
        let width = size / parts;
        let mut split = Vec::with_capacity(parts);
        for part in 0..parts {
            split.push(self.slice_dim(dim, part * width..(part + 1) * width));
        }
        split
    }

    /// The part of dimensions `sizes` that begins at `starts`: one integer scalar for each
    /// dimension, all of one type. A start that is too large or negative is moved so that the part
    /// fits.
    #[track_caller]
    pub fn dynamic_slice(self, starts: &[Tensor<'t>], sizes: impl AsRef<[usize]>) -> Tensor<'t> {
        let operands: Vec<Tensor<'t>> = [self].into_iter().chain(starts.iter().copied()).collect();
        self.trace.push_one(
            Op::DynamicSlice {
                sizes: sizes.as_ref().to_vec(),
            },
            &operands,
        )
    }

    /// Replaces the part that begins at `starts` by `update`; see
    /// [`dynamic_slice`](Self::dynamic_slice).
    #[track_caller]
    pub fn dynamic_update_slice(self, update: Tensor<'t>, starts: &[Tensor<'t>]) -> Tensor<'t> {
        let operands: Vec<Tensor<'t>> = [self, update]
            .into_iter()
            .chain(starts.iter().copied())
            .collect();
        self.trace.push_one(Op::DynamicUpdateSlice, &operands)
    }

    /// Pads with `value`: `(before, after)` for each dimension. Negative numbers crop.
    #[track_caller]
    pub fn pad(self, value: impl Operand<'t>, padding: impl AsRef<[(i64, i64)]>) -> Tensor<'t> {
        let padding = padding.as_ref();
        let (low, high): (Vec<i64>, Vec<i64>) = padding.iter().copied().unzip();
        self.pad_interior(value, &low, &high, vec![0; padding.len()])
    }

    /// Pads with `value`: for each dimension `low` before, `high` after and `interior` between
    /// elements. Negative `low` and `high` crop.
    #[track_caller]
    pub fn pad_interior(
        self,
        value: impl Operand<'t>,
        low: impl AsRef<[i64]>,
        high: impl AsRef<[i64]>,
        interior: impl AsRef<[usize]>,
    ) -> Tensor<'t> {
        let (low, high, interior) = (low.as_ref(), high.as_ref(), interior.as_ref());
        let nothing =
            low.iter().chain(high).all(|&edge| edge == 0) && interior.iter().all(|&gap| gap == 0);
        if nothing && [low.len(), high.len(), interior.len()] == [self.rank(); 3] {
            return self;
        }
        let op = Op::Pad {
            low: low.to_vec(),
            high: high.to_vec(),
            interior: interior.to_vec(),
        };
        self.trace.push_one(op, &[self, value.beside(self)])
    }
}
