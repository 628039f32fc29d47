//! Pooling to a given size: adaptive average and maximum pooling.

use std::panic::Location;

use halite_core::DType;
use halite_ir::{Extreme, Literal};

use super::Padding;
use crate::{
    Tensor,
    check::{Checked, check},
};

/// The windows of one dimension: the bins of PyTorch's adaptive pooling, which may overlap.
struct Bins {
    /// First element of each bin.
    starts: Vec<usize>,
    /// Number of elements of each bin.
    sizes: Vec<usize>,
}

impl Bins {
    /// Bin `i` is from `floor(i * size / count)` to `ceil((i + 1) * size / count)`.
    fn new(size: usize, count: usize) -> Self {
        let [size, count] = [size as u128, count as u128];
        let start = |bin: u128| (bin * size / count) as usize;
        let end = |bin: u128| ((bin + 1) * size).div_ceil(count) as usize;
        Bins {
            starts: (0..count).map(start).collect(),
            sizes: (0..count).map(|bin| end(bin) - start(bin)).collect(),
        }
    }

    fn largest(&self) -> usize {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Elements of each bin, `s32[bins, largest]`; the last element of a smaller one is repeated.
    fn elements(&self) -> Literal {
        let largest = self.largest();
        let bins = self.starts.iter().zip(&self.sizes);
        let places: Vec<i32> = bins
            .flat_map(|(&start, &size)| {
                (0..largest).map(move |at| (start + at.min(size - 1)) as i32)
            })
            .collect();
        Literal::new(&places, [self.starts.len(), largest]).expect("bins times largest elements")
    }
}

impl<'t> Tensor<'t> {
    /// Mean over bins so that the spatial sizes become `size`: `[batch, spatial.., features]` to
    /// `[batch, size.., features]` (`torch.nn.AdaptiveAvgPool2d`). Bin `i` of `m` over `n` elements
    /// is from `floor(i * n / m)` to `ceil((i + 1) * n / m)`.
    #[track_caller]
    pub fn adaptive_avg_pool(self, size: impl AsRef<[usize]>) -> Tensor<'t> {
        let (_site, size) = (self.trace.called_from(Location::caller()), size.as_ref());
        check!(self.check_float("adaptive average pool"));
        let window = check!(self.adaptive_window("adaptive average pool", size));
        if let Some(window) = window {
            return self.avg_pool(window, [], Padding::Valid);
        }
        self.widened(|x| {
            let dims = (1..=size.len()).rev();
            dims.fold(x, |x, dim| {
                if x.dims()[dim] == size[dim - 1] {
                    x
                } else {
                    x.mean_of_bins(dim, size[dim - 1])
                }
            })
        })
    }

    /// Maximum over bins so that the spatial sizes become `size`; otherwise like
    /// [`adaptive_avg_pool`](Self::adaptive_avg_pool) (`torch.nn.AdaptiveMaxPool2d`). The gradient
    /// goes to the first of equal maxima; NaN counts as larger than any number.
    #[track_caller]
    pub fn adaptive_max_pool(self, size: impl AsRef<[usize]>) -> Tensor<'t> {
        let (_site, size) = (self.trace.called_from(Location::caller()), size.as_ref());
        let window = check!(self.adaptive_window("adaptive max pool", size));
        if let Some(window) = window {
            return self.max_pool(window, [], Padding::Valid);
        }
        // The last dimension first: of equal maxima, the first in row-major order has the gradient.
        let dims = (1..=size.len()).rev();
        dims.fold(self, |x, dim| {
            if x.dims()[dim] == size[dim - 1] {
                x
            } else {
                let bins = Bins::new(x.dims()[dim], size[dim - 1]);
                x.bins(dim, &bins).arg_reduce(Extreme::Max, dim + 1).0
            }
        })
    }

    /// Checks the sizes; the window, if bins are equal and do not overlap.
    #[track_caller]
    fn adaptive_window(self, op: &str, size: &[usize]) -> Checked<'t, Option<Vec<usize>>> {
        let ty = self.ty();
        if self.is_error() {
            return Err(self);
        }
        if ty.rank() != size.len() + 2 {
            return Err(self.mistake(op, || {
                format!(
                    "{ty} to size {size:?}; expected [batch, spatial.., features] and a size for each \
                     spatial dimension"
                )
            }));
        }
        let spatial = &ty.dims()[1..=size.len()];
        let is_bad = |size: &usize| *size == 0 || i32::try_from(*size).is_err();
        if size.iter().chain(spatial).any(is_bad) {
            return Err(self.mistake(op, || {
                format!("spatial sizes {spatial:?} of {ty} to {size:?}; each must be at least 1")
            }));
        }
        let is_tiled = spatial
            .iter()
            .zip(size)
            .all(|(from, to)| from.is_multiple_of(*to));
        Ok(is_tiled.then(|| {
            spatial
                .iter()
                .zip(size)
                .map(|(from, to)| from / to)
                .collect()
        }))
    }

    /// Dimension `dim` as `[bins, largest]`.
    #[track_caller]
    fn bins(self, dim: usize, bins: &Bins) -> Tensor<'t> {
        self.take(self.trace.literal(bins.elements()), dim)
    }

    #[track_caller]
    fn mean_of_bins(self, dim: usize, count: usize) -> Tensor<'t> {
        let bins = Bins::new(self.dims()[dim], count);
        let each = self.bins(dim, &bins);
        let dims = each.dims();
        let vector = |values: Vec<f64>| {
            let literal = Literal::new(&values, [count]).expect("a number for each bin");
            self.trace.literal(literal)
        };
        let largest = bins.largest();
        let each = if bins.sizes.iter().all(|&size| size == largest) {
            each
        } else {
            let sizes = vector(bins.sizes.iter().map(|&size| size as f64).collect());
            let place = self.trace.arange(largest, DType::F64);
            let is_own = place
                .broadcast_in_dim([count, largest], [1])
                .lt(sizes.broadcast_in_dim([count, largest], [0]));
            let is_own = is_own.broadcast_in_dim(&dims, [dim, dim + 1]);
            is_own.select(each, 0.0)
        };
        let sums = each.sum([dim + 1]);
        let sizes = vector(bins.sizes.iter().map(|&size| size as f64).collect());
        sums / sizes
            .convert(self.dtype())
            .broadcast_in_dim(sums.dims(), [dim])
    }
}
