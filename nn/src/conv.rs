//! Convolutions and pooling, channels last, for which halite's kernels and XLA's CPU code are faster.

mod adaptive;
mod transposed;

use std::panic::Location;

use halite_core::DType;
use halite_ir::{ConvolutionAttributes, ConvolutionDims, Op, Reduction, WindowAttributes};

pub use self::transposed::ConvTransposeOptions;
use crate::{
    Tensor,
    check::{Checked, check},
    trace,
};

/// Padding of a window at the edges.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Padding {
    /// No padding: elements that no whole window covers are left out.
    #[default]
    Valid,
    /// Pads so that there are `ceil(size / stride)` windows; an odd element goes after.
    Same,
    /// The number of elements `(before, after)` per spatial dimension.
    Explicit(Vec<(i64, i64)>),
}

/// Options of a convolution. An empty list means 1 for every spatial dimension.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ConvOptions {
    /// Stride of the window, per spatial dimension.
    pub strides: Vec<usize>,
    /// Padding at the edges.
    pub padding: Padding,
    /// Dilation of the input: values above 1 make a transposed convolution.
    pub input_dilation: Vec<usize>,
    /// Dilation of the kernel: values above 1 make a dilated convolution.
    pub kernel_dilation: Vec<usize>,
    /// Number of separate groups of features; 0 counts as 1.
    pub groups: usize,
}

/// A window along a dimension, for [`Tensor::check_fits`].
pub(crate) struct Fit {
    pub(crate) dim: usize,
    /// Extent of the window.
    pub(crate) window: usize,
    /// Size of the dimension with its padding.
    pub(crate) padded: i64,
}

/// Extent of `size` elements, of which neighbours are `by` apart.
pub(crate) fn spread(size: usize, by: usize) -> usize {
    size.saturating_sub(1)
        .saturating_mul(by)
        .saturating_add(size.min(1))
}

impl Padding {
    /// Padding `(before, after)` per dimension, for inputs of `sizes` and windows that span `extents`.
    fn resolve(
        &self,
        sizes: &[usize],
        extents: &[usize],
        strides: &[usize],
    ) -> Result<Vec<(i64, i64)>, String> {
        match self {
            Padding::Valid => Ok(vec![(0, 0); sizes.len()]),
            Padding::Same => Ok((0..sizes.len())
                .map(|dim| {
                    let windows = sizes[dim].div_ceil(strides[dim].max(1));
                    let reach = windows
                        .saturating_sub(1)
                        .saturating_mul(strides[dim])
                        .saturating_add(extents[dim]);
                    let total = reach.saturating_sub(sizes[dim]);
                    ((total / 2) as i64, (total - total / 2) as i64)
                })
                .collect()),
            Padding::Explicit(padding) if padding.len() == sizes.len() => Ok(padding.clone()),
            Padding::Explicit(padding) => Err(format!(
                "padding of {} dimensions given for {} spatial dimensions",
                padding.len(),
                sizes.len()
            )),
        }
    }
}

impl<'t> Tensor<'t> {
    /// Convolves `[batch, spatial.., in]` with a kernel `[spatial.., in / groups, out]` to
    /// `[batch, spatial.., out]`.
    #[track_caller]
    pub fn conv(self, kernel: Tensor<'t>, options: &ConvOptions) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        let (x, k) = (self.ty(), kernel.ty());
        if self.is_error() || kernel.is_error() {
            return self.trace.error_like(Some(x));
        }
        if x.rank() < 2 || x.rank() != k.rank() {
            let names = trace::names(&[self, kernel]);
            let message = format!(
                "{x} with kernel {k}; expected [batch, spatial.., in] and [spatial.., in, out]{names}"
            );
            return self.trace.fail("convolution", message, Some(x));
        }
        let spatial = x.rank() - 2;
        let strides = check!(self.per_dimension("strides", &options.strides, spatial));
        let input_dilation =
            check!(self.per_dimension("input dilations", &options.input_dilation, spatial));
        let kernel_dilation =
            check!(self.per_dimension("kernel dilations", &options.kernel_dilation, spatial));
        let sizes: Vec<usize> = (0..spatial)
            .map(|dim| spread(x.dims()[1 + dim], input_dilation[dim]))
            .collect();
        let extents: Vec<usize> = (0..spatial)
            .map(|dim| spread(k.dims()[dim], kernel_dilation[dim]))
            .collect();
        let padding = match options.padding.resolve(&sizes, &extents, &strides) {
            Ok(padding) => padding,
            Err(message) => return self.mistake("convolution", || message),
        };
        let last = ConvolutionDims {
            batch: 0,
            feature: spatial + 1,
            spatial: (1..=spatial).collect(),
        };
        let convolution = ConvolutionAttributes {
            input: last.clone(),
            kernel: ConvolutionDims {
                batch: spatial + 1,
                feature: spatial,
                spatial: (0..spatial).collect(),
            },
            output: last,
            strides,
            padding,
            input_dilation,
            kernel_dilation,
            reversal: vec![false; spatial],
            feature_groups: options.groups.max(1),
            batch_groups: 1,
            precision: Vec::new(),
        };
        self.conv_general(kernel, convolution, x.dtype())
    }

    /// Convolution in StableHLO's terms, with a kernel that fits into the padded input, and the element
    /// type of the result.
    #[track_caller]
    pub fn conv_general(
        self,
        kernel: Tensor<'t>,
        convolution: ConvolutionAttributes,
        result: DType,
    ) -> Tensor<'t> {
        let op = Op::Convolution(convolution.clone(), result);
        let y = self.trace.push_one(op, &[self, kernel]);
        if y.is_error() {
            return y;
        }
        let (x, k) = (self.ty(), kernel.ty());
        let spatial = 0..convolution.strides.len();
        let windows = spatial.map(|i| {
            let (dim, padding) = (convolution.input.spatial[i], convolution.padding[i]);
            let input = spread(x.dims()[dim], convolution.input_dilation[i]);
            Fit {
                dim,
                window: spread(
                    k.dims()[convolution.kernel.spatial[i]],
                    convolution.kernel_dilation[i],
                ),
                padded: (input as i64)
                    .saturating_add(padding.0)
                    .saturating_add(padding.1),
            }
        });
        check!(self.check_fits("convolution", "kernel", windows));
        y
    }

    /// Checks that no window is larger than the padded dimension that it moves along; nothing is
    /// left then, and its mean is NaN and its gradient 0.
    #[track_caller]
    pub(crate) fn check_fits(
        self,
        op: &str,
        what: &str,
        windows: impl IntoIterator<Item = Fit>,
    ) -> Checked<'t> {
        let x = self.ty();
        let fits = |fit: &Fit| x.dims()[fit.dim] == 0 || fit.window as i64 <= fit.padded;
        let Some(Fit {
            dim,
            window,
            padded,
        }) = windows.into_iter().find(|fit| !fits(fit))
        else {
            return Ok(());
        };
        Err(self.mistake(op, || {
            format!(
                "the {what} spans {window} elements of dimension {dim} of {x}, which has {padded} \
                 with its padding; use a smaller {what}, or more padding"
            )
        }))
    }

    /// Maximum of each window, for `[batch, spatial.., features]`. `window` and `strides` are per
    /// spatial dimension; without strides, they equal the window. The gradient goes to the first of
    /// equal maxima; NaN counts as larger than any number.
    #[track_caller]
    pub fn max_pool(
        self,
        window: impl AsRef<[usize]>,
        strides: impl AsRef<[usize]>,
        padding: Padding,
    ) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        self.pool(
            "max pool",
            Reduction::Max,
            window.as_ref(),
            strides.as_ref(),
            &padding,
        )
    }

    /// Mean of each window, for floats; otherwise like [`max_pool`](Self::max_pool). Padding counts
    /// as zeros.
    #[track_caller]
    pub fn avg_pool(
        self,
        window: impl AsRef<[usize]>,
        strides: impl AsRef<[usize]>,
        padding: Padding,
    ) -> Tensor<'t> {
        let _site = self.trace.called_from(Location::caller());
        check!(self.check_float("average pool"));
        let count: f64 = window.as_ref().iter().map(|&size| size as f64).product();
        let (window, strides) = (window.as_ref(), strides.as_ref());
        self.widened(|x| {
            let sums = x.pool("average pool", Reduction::Sum, window, strides, &padding);
            if sums.is_error() { sums } else { sums / count }
        })
    }

    #[track_caller]
    fn pool(
        self,
        op: &str,
        kind: Reduction,
        window: &[usize],
        strides: &[usize],
        padding: &Padding,
    ) -> Tensor<'t> {
        let ty = self.ty();
        if ty.rank() < 2 {
            return self.mistake(op, || {
                format!("{ty}; expected [batch, spatial.., features]")
            });
        }
        let spatial = ty.rank() - 2;
        check!(self.check_count(op, "window sizes", window.len(), spatial));
        let window = &check!(self.per_dimension("sizes", window, spatial))[..];
        let strides = check!(self.per_dimension(
            "strides",
            if strides.is_empty() { window } else { strides },
            spatial
        ));
        let sizes = &ty.dims()[1..=spatial];
        let padding = match padding.resolve(sizes, window, &strides) {
            Ok(padding) => padding,
            Err(message) => return self.mistake(op, || message),
        };
        let fits = (0..spatial).all(|dim| window[dim] > 0 && window[dim] <= sizes[dim]);
        if kind == Reduction::Sum
            && *strides == *window
            && fits
            && padding.iter().all(|&edges| edges == (0, 0))
        {
            return self.pool_tiles(kind, window);
        }
        if padding.iter().any(|&(low, high)| low < 0 || high < 0) {
            return self.mistake(op, || format!("negative padding {padding:?}"));
        }
        let around = |values: &[usize]| [&[1], values, &[1]].concat();
        if kind == Reduction::Max {
            check!(self.check_seen(op, window, &strides, &padding));
        }
        let window = WindowAttributes {
            sizes: around(window),
            strides: around(&strides),
            base_dilations: vec![1; spatial + 2],
            window_dilations: vec![1; spatial + 2],
            padding: [&[(0, 0)], &padding[..], &[(0, 0)]].concat(),
        };
        self.windowed(op, kind, window)
    }

    /// Checks that each window has an element that is not padding: others have no maximum.
    #[track_caller]
    fn check_seen(
        self,
        op: &str,
        window: &[usize],
        strides: &[usize],
        padding: &[(i64, i64)],
    ) -> Checked<'t> {
        let ty = self.ty();
        let sees_nothing = |&dim: &usize| {
            let (size, (low, high)) = (ty.dims()[1 + dim], padding[dim]);
            let (low, high) = (low as usize, high as usize);
            let padded = size.saturating_add(low).saturating_add(high);
            let last = padded.saturating_sub(window[dim]) / strides[dim] * strides[dim];
            low >= window[dim] || last >= low.saturating_add(size)
        };
        let dim = (0..window.len()).find(sees_nothing);
        let Some(dim) = dim.filter(|_| !ty.dims().contains(&0)) else {
            return Ok(());
        };
        Err(self.mistake(op, || {
            format!(
                "dimension {} of {ty} is padded by {:?}, so that a window of {} there has no \
                 element and no maximum; pad by less than the window",
                dim + 1,
                padding[dim],
                window[dim]
            )
        }))
    }

    /// Pools windows that do not overlap: each spatial dimension is split into (windows, within), and
    /// `within` is reduced. The gradient is then a broadcast.
    #[track_caller]
    fn pool_tiles(self, kind: Reduction, window: &[usize]) -> Tensor<'t> {
        let dims = self.dims();
        let mut whole = self;
        let mut tiled = vec![dims[0]];
        for (dim, &size) in window.iter().enumerate() {
            let count = dims[1 + dim] / size;
            whole = whole.slice_dim(1 + dim, ..count * size);
            tiled.extend([count, size]);
        }
        tiled.extend(dims.last());
        let within: Vec<usize> = (0..window.len()).map(|dim| 2 + 2 * dim).collect();
        whole.reshape(tiled).reduce(kind, within)
    }

    /// Returns `values`, or 1 for each of `count` if there are none.
    #[track_caller]
    fn per_dimension(self, what: &str, values: &[usize], count: usize) -> Checked<'t, Vec<usize>> {
        if values.is_empty() {
            return Ok(vec![1; count]);
        }
        self.check_count("window", what, values.len(), count)?;
        if values.iter().all(|&value| value > 0) {
            Ok(values.to_vec())
        } else {
            Err(self.mistake("window", || {
                format!("{what} {values:?}: each must be at least 1")
            }))
        }
    }
}
