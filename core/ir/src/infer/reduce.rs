//! Reductions, windows and sorting.

use halite_core::{DType, Result, TensorType};

use super::{Infer, contract::dilated, is_number};
use crate::{Reduction, WindowAttributes};

impl Infer<'_> {
    pub(super) fn reduce(self, kind: Reduction, dims: &[usize]) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        self.reducible(kind, x)?;
        self.ascending("dimension", dims, x)?;
        Ok(vec![x.with_dims(without(x.dims(), dims))])
    }

    pub(super) fn arg_reduce(self, dim: usize) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        self.element(x, is_number, "integers and floats")?;
        self.in_rank("dimension", dim, x)?;
        let size = x.dims()[dim];
        if size == 0 || i32::try_from(size).is_err() {
            return self.fail(format!(
                "dimension {dim} of {x} has {size} elements; it must have 1 to {}",
                i32::MAX
            ));
        }
        let value = x.with_dims(without(x.dims(), &[dim]));
        Ok(vec![value.clone(), value.with_dtype(DType::S32)])
    }

    pub(super) fn reduce_window(
        self,
        kind: Reduction,
        window: &WindowAttributes,
    ) -> Result<Vec<TensorType>> {
        let [x] = self.take()?;
        self.reducible(kind, x)?;
        Ok(vec![self.windows(x, window)?])
    }

    pub(super) fn select_and_scatter(self, window: &WindowAttributes) -> Result<Vec<TensorType>> {
        let [x, source] = self.take()?;
        self.element(x, is_number, "integers and floats")?;
        let expected = self.windows(x, window)?;
        if window
            .base_dilations
            .iter()
            .chain(&window.window_dilations)
            .any(|&dilation| dilation != 1)
        {
            return self.fail("the window has dilations; they are all to be 1");
        }
        if **source != expected {
            return self.fail(format!(
                "the source is {source}, the windows of {x} are {expected}"
            ));
        }
        Ok(vec![(*x).clone()])
    }

    pub(super) fn sort(self, dim: usize) -> Result<Vec<TensorType>> {
        let Some((first, rest)) = self.operands.split_first() else {
            return self.fail("takes one operand or more, got none");
        };
        self.in_rank("dimension", dim, first)?;
        if let Some(other) = rest.iter().find(|other| other.dims() != first.dims()) {
            return self.fail(format!(
                "{first} and {other} are sorted together, and must have the same dimensions"
            ));
        }
        Ok(self.operands.iter().map(|&ty| ty.clone()).collect())
    }

    /// One element for each position of `window` on `x`.
    fn windows(self, x: &TensorType, window: &WindowAttributes) -> Result<TensorType> {
        let WindowAttributes {
            sizes,
            strides,
            base_dilations,
            window_dilations,
            padding,
        } = window;
        for (what, list) in [
            ("window sizes", sizes),
            ("window strides", strides),
            ("base dilations", base_dilations),
            ("window dilations", window_dilations),
        ] {
            self.per_dimension(what, list, x)?;
            self.positive(what, list)?;
            for &value in list {
                self.printable(what, value)?;
            }
        }
        self.per_dimension("paddings", padding, x)?;
        let mut dims = Vec::with_capacity(x.rank());
        for (dim, &size) in x.dims().iter().enumerate() {
            let (low, high) = padding[dim];
            if low < 0 || high < 0 {
                return self.fail(format!(
                    "padding ({low}, {high}) of dimension {dim} of {x} is negative; slice first"
                ));
            }
            let padded = dilated(size, base_dilations[dim]) + i128::from(low) + i128::from(high);
            let positions = window_positions(
                padded,
                dilated(sizes[dim], window_dilations[dim]),
                strides[dim],
            );
            dims.push(self.size(|| format!("dimension {dim}"), positions)?);
        }
        Ok(x.with_dims(dims))
    }
}

/// At how many places a window fits.
pub(super) fn window_positions(padded: i128, window: i128, stride: usize) -> i128 {
    match window > padded {
        true => 0,
        false => (padded - window) / stride as i128 + 1,
    }
}

/// `dims` but for those that are gone.
pub(super) fn without(dims: &[usize], gone: &[usize]) -> Vec<usize> {
    dims.iter()
        .enumerate()
        .filter(|(dim, _)| !gone.contains(dim))
        .map(|(_, &size)| size)
        .collect()
}
