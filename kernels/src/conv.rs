//! Convolutions and their gradients, as products of matrices of positions.
//!
//! Tensors are row-major: the input `[batch, spatial.., features]`, the kernel
//! `[spatial.., features / groups, outputs]`, the result `[batch, spatial.., outputs]`. A patch of
//! the input is a row of a matrix whose elements are read where they are, or from a copy with the
//! padding of the part that fits the second-level cache; no matrix of patches is stored
//! (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014, section 3).
//!
//! The input gradient of a strided convolution is one product for each remainder of input positions
//! by the strides: no term of it is a multiplication by an inserted zero.

mod geometry;
mod kernel_gradient;
mod pass;
mod phase;
mod positions;
mod right;
mod source;

pub use self::geometry::{ConvDim, ConvGeometry, GeometryError};
use self::{
    geometry::elements,
    pass::{ITEM_WINDOWS, KernelPositions, Pass, item_windows},
    phase::Windows,
    positions::{axis, spread},
};
use crate::{Axis, Element, Threads};

/// A convolution of one geometry, with the positions that its products read.
///
/// Elements of the operands, and those of the result, are `f32` or `bf16`; sums are in `f32`, and
/// are rounded once.
///
/// ```
/// use halite_kernels::{ConvDim, ConvGeometry, Convolution, Threads};
///
/// let dim = ConvDim { input: 4, kernel: 3, stride: 1, dilation: 1, low: 1, high: 1 };
/// let convolution = Convolution::new(ConvGeometry {
///     batch: 1,
///     features: 1,
///     outputs: 1,
///     groups: 1,
///     spatial: vec![dim],
/// })?;
/// let (x, kernel, mut out) = ([1.0, 2.0, 3.0, 4.0], [1.0, 10.0, 100.0], [0.0; 4]);
/// convolution.forward(&Threads::new(1)?, &x, &kernel, &mut out);
/// assert_eq!(out, [210.0, 321.0, 432.0, 43.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Convolution {
    geometry: ConvGeometry,
    forward: Pass,
    input_gradient: Pass,
    /// The forward pass in larger items, over which the kernel gradient sums.
    positions: Pass,
    /// Positions of the rows and columns of a part of the result.
    result_rows: Axis,
    result_columns: Axis,
}

impl Convolution {
    /// Prepares a convolution.
    ///
    /// # Errors
    /// If a stride, a dilation or the number of groups is zero, the groups do not divide the
    /// features, or the tensors are too large.
    pub fn new(geometry: ConvGeometry) -> Result<Self, GeometryError> {
        geometry.check()?;
        let ConvGeometry {
            features,
            outputs,
            groups,
            ..
        } = geometry;
        let sizes = simplified(&geometry);
        let (features, outputs_of_group) = (features / groups, outputs / groups);
        let forward = |most_windows: usize| {
            let windows = sizes.spatial.iter().map(Windows::forward).collect();
            let kernel = KernelPositions {
                tap: features * outputs,
                terms: spread(features, outputs),
                columns: spread(outputs, 1),
            };
            Pass::new(&sizes, windows, kernel, most_windows)
        };
        let windows = sizes.spatial.iter().map(Windows::backward);
        let windows: Vec<_> = windows.collect();
        let column =
            |feature: usize| feature % features * outputs + feature / features * outputs_of_group;
        let kernel = KernelPositions {
            tap: features * outputs,
            terms: spread(outputs_of_group, 1),
            columns: (0..geometry.features).map(column).collect(),
        };
        let counts = windows.iter().map(Windows::count);
        let most_windows = item_windows(counts.fold(sizes.batch, usize::saturating_mul));
        let input_gradient = Pass::new(&sizes, windows, kernel, most_windows)?;
        let positions = forward(ITEM_WINDOWS)?;
        let rows = positions.products.first();
        let rows = rows.map_or(0, |product| product.rows.len());
        let too_large = || GeometryError::too_large(&geometry);
        Ok(Convolution {
            forward: forward(item_windows(geometry.output_len() / outputs.max(1)))?,
            input_gradient,
            result_rows: axis(&[spread(rows, outputs)]).ok_or_else(too_large)?,
            result_columns: axis(&[spread(outputs, 1)]).ok_or_else(too_large)?,
            positions,
            geometry,
        })
    }

    /// Sizes of the convolution.
    pub fn geometry(&self) -> &ConvGeometry {
        &self.geometry
    }

    /// Computes the result: `out[b, r, o] = sum of x[b, r * stride + k * dilation - low, f] *
    /// kernel[k, f, o]` over the taps `k` and the features `f` of the group of `o`.
    ///
    /// # Panics
    /// If a slice does not have the length of the geometry's tensor.
    pub fn forward<T: Element, O: Element>(
        &self,
        threads: &Threads,
        x: &[T],
        kernel: &[T],
        out: &mut [O],
    ) {
        self.check_lengths(x.len(), kernel.len(), out.len());
        self.forward.run(threads, x, kernel, out);
    }

    /// Computes the gradient of the input, given that of the result, `g`.
    ///
    /// # Panics
    /// If a slice does not have the length of the geometry's tensor.
    pub fn input_gradient<T: Element, O: Element>(
        &self,
        threads: &Threads,
        kernel: &[T],
        g: &[T],
        out: &mut [O],
    ) {
        self.check_lengths(out.len(), kernel.len(), g.len());
        self.input_gradient.run(threads, g, kernel, out);
    }

    /// Computes the gradient of the kernel, given that of the result, `g`.
    ///
    /// # Panics
    /// If a slice does not have the length of the geometry's tensor.
    pub fn kernel_gradient<T: Element, O: Element>(
        &self,
        threads: &Threads,
        x: &[T],
        g: &[T],
        out: &mut [O],
    ) {
        self.check_lengths(x.len(), out.len(), g.len());
        O::with_f32_mut(threads, out, |out| {
            self.sum_kernel_gradient(threads, x, g, out);
        });
    }

    fn check_lengths(&self, x: usize, kernel: usize, result: usize) {
        let geometry = &self.geometry;
        let lengths = [x, kernel, result];
        let expected = [
            geometry.input_len(),
            geometry.kernel_len(),
            geometry.output_len(),
        ];
        assert_eq!(
            lengths, expected,
            "input, kernel and result have the sizes of the geometry"
        );
    }
}

/// The same convolution with at least one spatial dimension, and with one for all positions of all
/// images if a window is one element.
fn simplified(geometry: &ConvGeometry) -> ConvGeometry {
    let is_pointwise = |dim: &ConvDim| {
        let ConvDim {
            kernel,
            stride,
            low,
            high,
            ..
        } = *dim;
        (kernel, stride, low, high) == (1, 1, 0, 0)
    };
    if !geometry.spatial.iter().all(is_pointwise) {
        return geometry.clone();
    }
    let inputs = geometry.spatial.iter().map(|dim| dim.input);
    let dim = ConvDim {
        input: elements(inputs.chain([geometry.batch])),
        kernel: 1,
        stride: 1,
        dilation: 1,
        low: 0,
        high: 0,
    };
    ConvGeometry {
        batch: 1,
        spatial: vec![dim],
        ..geometry.clone()
    }
}

#[cfg(test)]
mod tests;
