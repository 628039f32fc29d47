//! Reductions over dimensions and over windows, and functions built on them.

use std::panic::Location;

use halite_core::DType;
use halite_ir::{Extreme, Op, Reduction, WindowAttributes};

use crate::{
    Tensor,
    check::check,
    conv::{Fit, spread},
    dim::{Dim, Dims},
};

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident $keep:ident $kind:ident;)*) => {
        impl<'t> Tensor<'t> {$(
            $(#[$doc])*
            #[doc = ""]
            #[doc = "Over `dims`, which go away."]
            #[track_caller]
            pub fn $name(self, dims: impl Dims) -> Tensor<'t> {
                self.reduce(Reduction::$kind, dims)
            }

            $(#[$doc])*
            #[doc = ""]
            #[doc = "Over `dims`, which stay, with size 1."]
            #[track_caller]
            pub fn $keep(self, dims: impl Dims) -> Tensor<'t> {
                self.reduce_keep(Reduction::$kind, dims)
            }
        )*}
    };
}
reductions! {
    /// Sum. Floats of 16 bits are added in `f32`, and the sum is rounded once; integers wrap
    /// around, so convert small ones first.
    sum sum_keep Sum;
    /// Product. Floats of 16 bits are multiplied in `f32`, and the product is rounded once;
    /// integers wrap around.
    prod prod_keep Product;
    /// Largest element; NaN if one is. Its gradient is shared equally between equal largest
    /// elements.
    max max_keep Max;
    /// Smallest element; NaN if one is. Its gradient is shared equally between equal smallest
    /// elements.
    min min_keep Min;
    /// Logical conjunction; bitwise and of integers.
    all all_keep And;
    /// Logical disjunction; bitwise or of integers.
    any any_keep Or;
}

impl<'t> Tensor<'t> {
    /// Sum of all elements: a scalar.
    #[track_caller]
    pub fn sum_all(self) -> Tensor<'t> {
        self.sum(self.all_dims())
    }

    /// Mean of all elements, which are floats: a scalar.
    #[track_caller]
    pub fn mean_all(self) -> Tensor<'t> {
        self.mean(self.all_dims())
    }

    /// Reduction over `dims`, which go away.
    #[track_caller]
    pub fn reduce(self, kind: Reduction, dims: impl Dims) -> Tensor<'t> {
        let mut dims = check!(self.known_dims(reduction_name(kind), dims));
        dims.sort_unstable();
        if dims.is_empty() {
            self
        } else {
            self.trace().push_one(Op::Reduce { kind, dims }, &[self])
        }
    }

    /// Reduction over `dims`, which stay, with size 1.
    #[track_caller]
    pub fn reduce_keep(self, kind: Reduction, dims: impl Dims) -> Tensor<'t> {
        let dims = check!(self.known_dims(reduction_name(kind), dims));
        self.reduce(kind, &dims).reshape(self.kept(&dims))
    }

    /// Mean of floats over `dims`, which go away.
    #[track_caller]
    pub fn mean(self, dims: impl Dims) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        check!(self.check_float("mean"));
        let dims = &check!(self.known_dims("mean", dims));
        let sizes = self.dims();
        let count: f64 = dims.iter().map(|&dim| sizes[dim] as f64).product();
        self.widened(|x| x.sum(dims) / count)
    }

    /// Mean of floats over `dims`, which stay, with size 1.
    #[track_caller]
    pub fn mean_keep(self, dims: impl Dims) -> Tensor<'t> {
        let dims = &check!(self.known_dims("mean", dims));
        self.mean(dims).reshape(self.kept(dims))
    }

    /// Mean of the squared distance from the mean, of floats, over `dims`, which go away. Divides
    /// by the count, not by one less.
    #[track_caller]
    pub fn var(self, dims: impl Dims) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        check!(self.check_float("variance"));
        let dims = &check!(self.known_dims("variance", dims));
        self.widened(|x| (x - x.mean_keep(dims)).square().mean(dims))
    }

    /// Like [`var`](Self::var), with `dims` kept as size 1.
    #[track_caller]
    pub fn var_keep(self, dims: impl Dims) -> Tensor<'t> {
        let dims = &check!(self.known_dims("variance", dims));
        self.var(dims).reshape(self.kept(dims))
    }

    /// Where the largest element along `dim` is, as `s32`; the first of equals, and NaN before all.
    #[track_caller]
    pub fn argmax(self, dim: impl Dim) -> Tensor<'t> {
        self.arg_reduce(Extreme::Max, dim).1
    }

    /// Where the smallest element along `dim` is, as `s32`; the first of equals, and NaN before
    /// all.
    #[track_caller]
    pub fn argmin(self, dim: impl Dim) -> Tensor<'t> {
        self.arg_reduce(Extreme::Min, dim).1
    }

    /// The extreme element along `dim`, which goes away, and where it is, as `s32`.
    #[track_caller]
    pub fn arg_reduce(self, kind: Extreme, dim: impl Dim) -> (Tensor<'t>, Tensor<'t>) {
        let name = match kind {
            Extreme::Max => "argmax",
            Extreme::Min => "argmin",
        };
        let dim = match self.known_dim(name, dim) {
            Ok(dim) => dim,
            Err(error) => return (error, error),
        };
        let results = self
            .trace
            .push_many(Op::ArgReduce { kind, dim }, &[self], 2);
        (results[0], results[1])
    }

    /// e^x of floats, divided so that the sum along `dim` is 1.
    #[track_caller]
    pub fn softmax(self, dim: impl Dim) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        check!(self.check_float("softmax"));
        let dim = check!(self.known_dim("softmax", dim));
        self.widened(|x| {
            let unnormalized = (x - x.max_keep([dim]).stop_gradient()).exp();
            unnormalized / unnormalized.sum_keep([dim])
        })
    }

    /// Logarithm of [`softmax`](Self::softmax), without its loss of accuracy.
    #[track_caller]
    pub fn log_softmax(self, dim: impl Dim) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        check!(self.check_float("log softmax"));
        let dim = check!(self.known_dim("log softmax", dim));
        self.widened(|x| {
            let shifted = x - x.max_keep([dim]).stop_gradient();
            shifted - shifted.exp().sum_keep([dim]).log()
        })
    }

    /// log(sum(e^x)) of floats over `dims`, which go away; -inf if all are.
    #[track_caller]
    pub fn logsumexp(self, dims: impl Dims) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        check!(self.check_float("logsumexp"));
        let dims = &check!(self.known_dims("logsumexp", dims));
        self.widened(|x| {
            let max = x.max_keep(dims).stop_gradient();
            let max = max.is_finite().select(max, 0.0);
            let sum = (x - max).exp().sum(dims);
            // All are -inf: the logarithm of 0 is right, its gradient would be NaN.
            let nothing = sum.eq(0.0);
            let log = nothing.select(sum.ones_like(), sum).log() + max.reshape(x.reduced(dims));
            nothing.select(self.trace.full(f64::NEG_INFINITY, &sum.ty()), log)
        })
    }

    /// Reduces each window of this. Padding does not count. The window fits into the padded tensor.
    #[track_caller]
    pub fn reduce_window(self, kind: Reduction, window: WindowAttributes) -> Tensor<'t> {
        self.windowed("reduce window", kind, window)
    }

    /// [`reduce_window`](Self::reduce_window) as a part of the operation `name`.
    #[track_caller]
    pub(crate) fn windowed(
        self,
        name: &str,
        kind: Reduction,
        window: WindowAttributes,
    ) -> Tensor<'t> {
        let op = Op::ReduceWindow {
            kind,
            window: window.clone(),
        };
        let y = self.trace.push_one(op, &[self]);
        if y.is_error() {
            return y;
        }
        let size = |(dim, &size): (usize, &usize)| Fit {
            dim,
            window: spread(window.sizes[dim], window.window_dilations[dim]),
            padded: (spread(size, window.base_dilations[dim]) as i64)
                .saturating_add_unsigned(window.padding[dim].0 as u64)
                .saturating_add_unsigned(window.padding[dim].1 as u64),
        };
        let dims = self.dims();
        check!(self.check_fits(name, "window", dims.iter().enumerate().map(size)));
        y
    }

    /// Sums of the elements up to and with each, along `dim`; floats of 16 bits as for
    /// [`sum`](Self::sum).
    #[track_caller]
    pub fn cumsum(self, dim: impl Dim) -> Tensor<'t> {
        let dim = check!(self.known_dim("cumulative sum", dim));
        let (rank, size) = (self.rank(), self.dims()[dim]);
        if size == 0 {
            return self;
        }
        // XLA knows this window as a cumulative sum; it was up to 18 times faster on CPU than
        // log2(n) steps.
        let mut window = WindowAttributes {
            sizes: vec![1; rank],
            strides: vec![1; rank],
            base_dilations: vec![1; rank],
            window_dilations: vec![1; rank],
            padding: vec![(0, 0); rank],
        };
        window.sizes[dim] = size;
        window.padding[dim] = (size as i64 - 1, 0);
        self.reduce_window(Reduction::Sum, window)
    }

    /// Products of the elements up to and with each, along `dim`.
    #[track_caller]
    pub fn cumprod(self, dim: impl Dim) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        self.widened(|x| x.scan_with("cumulative product", dim, 1.0, |a, b| a * b))
    }

    /// The largest of the elements up to and with each, along `dim`.
    #[track_caller]
    pub fn cummax(self, dim: impl Dim) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        self.scan_with("cumulative maximum", dim, lowest(self.dtype()), |a, b| {
            a.maximum(b)
        })
    }

    /// The smallest of the elements up to and with each, along `dim`.
    #[track_caller]
    pub fn cummin(self, dim: impl Dim) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        self.scan_with("cumulative minimum", dim, highest(self.dtype()), |a, b| {
            a.minimum(b)
        })
    }

    /// log(sum(e^x)) of the elements up to and with each, along `dim`, of floats.
    #[track_caller]
    pub fn cumlogsumexp(self, dim: impl Dim) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        check!(self.check_float("cumulative logsumexp"));
        self.widened(|x| {
            x.scan_with(
                "cumulative logsumexp",
                dim,
                f64::NEG_INFINITY,
                Tensor::log_add_exp,
            )
        })
    }

    /// log(e^x + e^right) of floats; -inf if both are.
    #[track_caller]
    pub fn log_add_exp(self, right: Tensor<'t>) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        check!(self.check_float("log add exp"));
        self.widened(|x| {
            let right = if right.dtype() == self.dtype() {
                right.convert(x.dtype())
            } else {
                right
            };
            let larger = x.maximum(right);
            // Both are -inf, or one is inf: the larger is the result, and the gradient of the
            // formula would be NaN.
            let is_inside = larger.stop_gradient().abs().ne(f64::INFINITY);
            let max = is_inside.select(larger.stop_gradient(), 0.0);
            let part = |x: Tensor<'t>| (is_inside.select(x, 0.0) - max).exp();
            is_inside.select((part(x) + part(right)).log() + max, larger)
        })
    }

    /// Every prefix combined, in log2(n) steps over the whole tensor. Unlike a window as wide as
    /// the dimension, this has a gradient that is as fast.
    #[track_caller]
    fn scan_with(
        self,
        op: &str,
        dim: impl Dim,
        identity: f64,
        combine: impl Fn(Tensor<'t>, Tensor<'t>) -> Tensor<'t>,
    ) -> Tensor<'t> {
        let dim = check!(self.known_dim(op, dim));
        let (size, rank) = (self.dims()[dim], self.rank());
        let mut scanned = self;
        let mut shift = 1;
        while shift < size {
            let mut padding = vec![(0, 0); rank];
            padding[dim] = (shift as i64, -(shift as i64));
            let before = scanned.pad(self.trace.scalar(identity, self.dtype()), padding);
            let combined = combine(scanned, before);
            scanned = if identity.is_finite() {
                combined
            } else {
                // An element equal to the padding would share its gradient with it.
                let place = self.trace.iota(&self.ty().with_dtype(DType::S32), dim);
                place.lt(shift as f64).select(scanned, combined)
            };
            shift *= 2;
        }
        scanned
    }

    fn all_dims(self) -> Vec<usize> {
        (0..self.rank()).collect()
    }

    /// The dimensions of this with size 1 at `dims`.
    pub(crate) fn kept(self, dims: &[usize]) -> Vec<usize> {
        self.dims()
            .iter()
            .enumerate()
            .map(|(dim, &size)| if dims.contains(&dim) { 1 } else { size })
            .collect()
    }

    /// The dimensions of this without `dims`.
    pub(crate) fn reduced(self, dims: &[usize]) -> Vec<usize> {
        self.dims()
            .iter()
            .enumerate()
            .filter(|(dim, _)| !dims.contains(dim))
            .map(|(_, &size)| size)
            .collect()
    }
}

/// Name of a reduction.
pub(crate) fn reduction_name(kind: Reduction) -> &'static str {
    match kind {
        Reduction::Sum => "sum",
        Reduction::Product => "product",
        Reduction::Min => "min",
        Reduction::Max => "max",
        Reduction::And => "all",
        Reduction::Or => "any",
    }
}

/// The identity of `max`, as a number that rounds to it.
pub(crate) fn lowest(dtype: DType) -> f64 {
    // A conversion from `f64` saturates at the ends of integers.
    if dtype == DType::Bool {
        0.0
    } else {
        f64::NEG_INFINITY
    }
}

/// The identity of `min`, as a number that rounds to it.
pub(crate) fn highest(_: DType) -> f64 {
    f64::INFINITY
}
