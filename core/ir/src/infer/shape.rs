//! Constants, and operations that move elements by static indices.

use halite_core::{DType, Result, TensorType};

use super::Infer;
use crate::Literal;

impl Infer<'_> {
    pub(super) fn constant(self, literal: &Literal) -> Result<Vec<TensorType>> {
        let [] = self.take()?;
        Ok(vec![literal.ty().clone()])
    }

    pub(super) fn iota(self, ty: &TensorType, dim: usize) -> Result<Vec<TensorType>> {
        let [] = self.take()?;
        self.in_rank("dimension", dim, ty)?;
        if ty.dtype() == DType::Bool {
            return self.fail(format!("{ty} cannot count; takes integers and floats"));
        }
        Ok(vec![ty.clone()])
    }

    pub(super) fn broadcast(self, dims: &[usize], mapping: &[usize]) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        let result = x.with_dims(dims);
        self.per_dimension("mapped dimensions", mapping, x)?;
        self.distinct("mapped dimension", mapping, &result)?;
        for (from, &to) in mapping.iter().enumerate() {
            if x.dims()[from] != 1 && x.dims()[from] != dims[to] {
                return self.fail(format!(
                    "dimension {from} of {x} is {}, dimension {to} of {result} is {}; only a dimension of 1 is repeated",
                    x.dims()[from],
                    dims[to]
                ));
            }
        }
        Ok(vec![result])
    }

    pub(super) fn reshape(self, dims: &[usize]) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        let result = x.with_dims(dims);
        self.usable(&result)?;
        if x.elements() != result.elements() {
            return self.fail(format!(
                "{x} has {} elements, {result} has {}; a reshape keeps them all",
                x.elements(),
                result.elements()
            ));
        }
        Ok(vec![result])
    }

    pub(super) fn transpose(self, permutation: &[usize]) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        self.per_dimension("permuted dimensions", permutation, x)?;
        self.distinct("dimension", permutation, x)?;
        let dims: Vec<usize> = permutation.iter().map(|&dim| x.dims()[dim]).collect();
        Ok(vec![x.with_dims(dims)])
    }

    pub(super) fn reverse(self, dims: &[usize]) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        self.distinct("dimension", dims, x)?;
        Ok(vec![(*x).clone()])
    }

    pub(super) fn concatenate(self, dim: usize) -> Result<Vec<TensorType>> {
        let Some((first, rest)) = self.operands.split_first() else {
            return self.fail("takes one operand or more, got none");
        };
        self.in_rank("dimension", dim, first)?;
        let mut dims = first.dims().to_vec();
        for other in rest {
            let same = |(i, (a, b)): (usize, (&usize, &usize))| i == dim || a == b;
            if other.dtype() != first.dtype()
                || other.rank() != first.rank()
                || !first.dims().iter().zip(other.dims()).enumerate().all(same)
            {
                return self.fail(format!(
                    "{first} and {other} along dimension {dim}: the element type and all other dimensions must be equal"
                ));
            }
            dims[dim] = self.size(
                || format!("dimension {dim}"),
                dims[dim] as i128 + other.dims()[dim] as i128,
            )?;
        }
        Ok(vec![first.with_dims(dims)])
    }

    pub(super) fn slice(
        self,
        starts: &[usize],
        limits: &[usize],
        strides: &[usize],
    ) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        self.per_dimension("starts", starts, x)?;
        self.per_dimension("limits", limits, x)?;
        self.per_dimension("strides", strides, x)?;
        self.positive("strides", strides)?;
        let mut dims = Vec::with_capacity(x.rank());
        for (dim, &size) in x.dims().iter().enumerate() {
            let (start, limit) = (starts[dim], limits[dim]);
            if start > limit || limit > size {
                return self.fail(format!(
                    "{start}..{limit} of dimension {dim} of {x}, whose indices are 0..{size}"
                ));
            }
            self.printable("stride", strides[dim])?;
            dims.push((limit - start).div_ceil(strides[dim]));
        }
        Ok(vec![x.with_dims(dims)])
    }

    pub(super) fn pad(
        self,
        low: &[i64],
        high: &[i64],
        interior: &[usize],
    ) -> Result<Vec<TensorType>> {
        let [x, value] = self.take()?;
        if value.rank() != 0 || value.dtype() != x.dtype() {
            return self.fail(format!(
                "the padding value is {value}, for {x} it must be {}[]",
                x.dtype()
            ));
        }
        self.per_dimension("low paddings", low, x)?;
        self.per_dimension("high paddings", high, x)?;
        self.per_dimension("interior paddings", interior, x)?;
        let mut dims = Vec::with_capacity(x.rank());
        for (dim, &size) in x.dims().iter().enumerate() {
            self.printable("interior padding", interior[dim])?;
            let between = size.saturating_sub(1) as i128 * interior[dim] as i128;
            let padded = size as i128 + between + i128::from(low[dim]) + i128::from(high[dim]);
            let what = || {
                format!(
                    "dimension {dim} of {x}, padded by {} before, {} after, {} between,",
                    low[dim], high[dim], interior[dim]
                )
            };
            dims.push(self.size(what, padded)?);
        }
        Ok(vec![x.with_dims(dims)])
    }

    /// Attributes are signed 64-bit numbers in the program.
    pub(super) fn printable(self, what: &str, value: usize) -> Result<()> {
        match i64::try_from(value) {
            Ok(_) => Ok(()),
            Err(_) => self.fail(format!("{what} {value} is larger than {}", i64::MAX)),
        }
    }
}
