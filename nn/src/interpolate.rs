//! Resizing of spatial dimensions by interpolation, with PyTorch's places.

use std::panic::Location;

use halite_core::DType;
use halite_ir::Literal;

use crate::{
    Tensor,
    check::{Checked, check},
};

/// Interpolation of [`Tensor::interpolate`], the `mode` of `torch.nn.functional.interpolate`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Interpolation {
    /// The element at `floor(i * scale)`: `mode="nearest"`.
    Nearest,
    /// The element whose center is nearest: `mode="nearest-exact"`, as in Pillow and scikit-image.
    NearestExact,
    /// Weighted mean of neighbors in each dimension: `mode="linear"`, `"bilinear"` or
    /// `"trilinear"`, without antialiasing.
    Linear {
        /// True if the centers of the corner elements stay where they are; false if their outer
        /// edges do.
        align_corners: bool,
    },
}

/// Arithmetic of places, in the type that PyTorch computes them in.
#[derive(Clone, Copy)]
enum Arithmetic {
    F32,
    F64,
}

impl Arithmetic {
    fn round(self, value: f64) -> f64 {
        match self {
            Arithmetic::F32 => f64::from(value as f32),
            Arithmetic::F64 => value,
        }
    }
}

/// Sizes of one dimension and how places map.
#[derive(Clone, Copy)]
struct Axis {
    from: usize,
    to: usize,
    /// Factor that the user gave; otherwise the ratio of the sizes counts.
    factor: Option<f64>,
}

/// An element and its successor for each place, with the weight of the successor.
struct Neighbors {
    first: Vec<i32>,
    second: Vec<i32>,
    weight: Vec<f64>,
}

impl Axis {
    /// Distance in the input between neighbors in the output.
    fn scale(self, arithmetic: Arithmetic) -> f64 {
        let scale = match self.factor {
            Some(factor) => 1.0 / factor,
            None => arithmetic.round(self.from as f64) / arithmetic.round(self.to as f64),
        };
        arithmetic.round(scale)
    }

    /// The element for each place of the output. `f32` is what PyTorch computes them in, except for
    /// sequences of `f64`.
    fn nearest(self, is_exact: bool) -> Vec<i32> {
        let arithmetic = Arithmetic::F32;
        let scale = self.scale(arithmetic);
        let place = |at: usize| {
            let at = at as f64 + if is_exact { 0.5 } else { 0.0 };
            let place = arithmetic.round(arithmetic.round(at) * scale).floor();
            (place as usize).min(self.from - 1) as i32
        };
        match (is_exact, self.to == self.from, self.to == 2 * self.from) {
            (false, true, _) => (0..self.to as i32).collect(),
            (false, _, true) => (0..self.to as i32).map(|at| at / 2).collect(),
            _ => (0..self.to).map(place).collect(),
        }
    }

    fn neighbors(self, align_corners: bool, arithmetic: Arithmetic) -> Neighbors {
        let round = |value| arithmetic.round(value);
        let place = |at: usize| {
            let at = round(at as f64);
            match align_corners {
                true if self.to < 2 => 0.0,
                true => round(at * round((self.from - 1) as f64 / (self.to - 1) as f64)),
                false => round(round(self.scale(arithmetic) * round(at + 0.5)) - 0.5).max(0.0),
            }
        };
        let mut neighbors = Neighbors {
            first: Vec::with_capacity(self.to),
            second: Vec::with_capacity(self.to),
            weight: Vec::with_capacity(self.to),
        };
        for place in (0..self.to).map(place) {
            let first = (place as usize).min(self.from - 1);
            neighbors.first.push(first as i32);
            neighbors.second.push((first + 1).min(self.from - 1) as i32);
            neighbors
                .weight
                .push(round(place - first as f64).clamp(0.0, 1.0));
        }
        neighbors
    }
}

const OP: &str = "interpolate";

impl<'t> Tensor<'t> {
    /// Resizes the spatial dimensions: `[batch, spatial.., features]` to `[batch, size..,
    /// features]`. Neighbors and weights are those of `torch.nn.functional.interpolate(x, size)`.
    ///
    /// ```
    /// use halite_core::{DType, TensorType};
    /// use halite_nn::{Interpolation, Trace};
    ///
    /// let cx = Trace::new();
    /// let x = cx.input(TensorType::new(DType::F32, [1, 8, 8, 3]), "x");
    /// let bilinear = Interpolation::Linear { align_corners: false };
    /// assert_eq!(x.interpolate([5, 20], bilinear).dims(), [1, 5, 20, 3]);
    /// assert_eq!(x.interpolate_by([2.0, 2.0], Interpolation::Nearest).dims(), [1, 16, 16, 3]);
    /// ```
    #[track_caller]
    pub fn interpolate(self, size: impl AsRef<[usize]>, method: Interpolation) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        let spatial = check!(self.spatial_sizes(size.as_ref().len()));
        let axes = spatial.iter().zip(size.as_ref()).map(|(&from, &to)| Axis {
            from,
            to,
            factor: None,
        });
        self.resize(axes.collect(), method)
    }

    /// Resizes the spatial dimensions by factors: a size `n` becomes `floor(n * factor)`, and
    /// places are divided by the factor, as in `torch.nn.functional.interpolate(x,
    /// scale_factor=..)` and `torch.nn.Upsample(scale_factor=..)`.
    #[track_caller]
    pub fn interpolate_by(self, factors: impl AsRef<[f64]>, method: Interpolation) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        let factors = factors.as_ref();
        let spatial = check!(self.spatial_sizes(factors.len()));
        let axes = spatial.iter().zip(factors).map(|(&from, &factor)| Axis {
            from,
            // NaN and negative factors become 0, which is a mistake below.
            to: (from as f64 * factor).floor() as usize,
            factor: Some(factor),
        });
        self.resize(axes.collect(), method)
    }

    /// The spatial sizes, if there are `count`.
    #[track_caller]
    fn spatial_sizes(self, count: usize) -> Checked<'t, Vec<usize>> {
        self.check_float(OP)?;
        let ty = self.ty();
        if ty.rank() == count + 2 {
            return Ok(ty.dims()[1..=count].to_vec());
        }
        Err(self.mistake(OP, || {
            format!(
                "{count} sizes or factors for {ty}; expected [batch, spatial.., features] and one for \
                 each spatial dimension"
            )
        }))
    }

    #[track_caller]
    fn resize(self, axes: Vec<Axis>, method: Interpolation) -> Tensor<'t> {
        let is_bad = |size: usize| size == 0 || i32::try_from(size).is_err();
        if let Some(axis) = axes
            .iter()
            .find(|axis| is_bad(axis.from) || is_bad(axis.to))
        {
            return self.mistake(OP, || {
                let (ty, Axis { from, to, .. }) = (self.ty(), axis);
                format!("a dimension of {from} to {to} in {ty}; both must be at least 1")
            });
        }
        let dims = axes.iter().enumerate().map(|(at, &axis)| (at + 1, axis));
        match method {
            Interpolation::Nearest => dims.fold(self, |x, (dim, axis)| {
                x.nearest_along(dim, &axis.nearest(false))
            }),
            Interpolation::NearestExact => dims.fold(self, |x, (dim, axis)| {
                x.nearest_along(dim, &axis.nearest(true))
            }),
            Interpolation::Linear { align_corners } => self.widened(|x| {
                dims.rev()
                    .fold(x, |x, (dim, axis)| x.linear_along(dim, axis, align_corners))
            }),
        }
    }

    /// The elements at `places` of a dimension.
    #[track_caller]
    fn nearest_along(self, dim: usize, places: &[i32]) -> Tensor<'t> {
        let mut dims = self.dims();
        let size = dims[dim];
        if places.len().is_multiple_of(size) {
            // Repeating is a broadcast, and its gradient a sum, where that of a gather is a scatter.
            let times = places.len() / size;
            let is_repeated = |(at, &place): (usize, &i32)| place as usize == at / times;
            if places.iter().enumerate().all(is_repeated) {
                dims.insert(dim + 1, times);
                let kept: Vec<usize> = (0..dims.len()).filter(|&at| at != dim + 1).collect();
                let repeated = self.broadcast_in_dim(&dims, kept);
                dims.remove(dim + 1);
                dims[dim] *= times;
                return repeated.reshape(dims);
            }
        }
        let places = Literal::new(places, [places.len()]).expect("one dimension");
        self.take(self.trace.literal(places), dim)
    }

    #[track_caller]
    fn linear_along(self, dim: usize, axis: Axis, align_corners: bool) -> Tensor<'t> {
        let cx = self.trace;
        let arithmetic = match self.dtype() {
            DType::F64 => Arithmetic::F64,
            _ => Arithmetic::F32,
        };
        // Whatever the factor, as in PyTorch.
        if axis.from == axis.to {
            return self;
        }
        let neighbors = axis.neighbors(align_corners, arithmetic);
        let at = |places: &[i32]| {
            let places = Literal::new(places, [axis.to]).expect("a place for each output");
            self.take(cx.literal(places), dim)
        };
        let (first, second) = (at(&neighbors.first), at(&neighbors.second));
        let weights = |values: &[f64]| {
            let values = Literal::new(values, [axis.to]).expect("a weight for each output");
            let values = cx.literal(values).convert(self.dtype());
            values.broadcast_in_dim(first.dims(), [dim])
        };
        let rest: Vec<f64> = (neighbors.weight.iter())
            .map(|weight| arithmetic.round(1.0 - weight))
            .collect();
        first * weights(&rest) + second * weights(&neighbors.weight)
    }
}
