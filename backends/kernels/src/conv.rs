//! Convolutions and their gradients, as products of matrices of positions.
//!
//! Tensors are row-major: the input `[batch, spatial.., features]`, the kernel
//! `[spatial.., features / groups, outputs]`, the result `[batch, spatial.., outputs]`. A patch of
//! the input is a row of a matrix whose elements are read where they are, or from a copy with the
//! padding of the part that fits the second-level cache; no matrix of patches is stored
//! (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014, section 3).
//!
//! The input gradient of a strided convolution is one product for each remainder of input positions
//! by the strides, and so is the result of a convolution of a dilated input: no term of them is a
//! multiplication by an inserted zero.
//!
//! Groups of few features have no product each, but vectors of several groups; products with few
//! columns have vectors of terms.

mod geometry;
mod grouped;
mod kernel_gradient;
mod narrow;
mod pass;
mod phase;
mod positions;
mod right;
mod source;

pub use self::geometry::{ConvDim, ConvGeometry, GeometryError};
use pulp::Arch;

use self::{
    geometry::elements,
    grouped::{Group, Grouped, is_grouped},
    pass::{ITEM_WINDOWS, KernelPositions, Pass, item_windows},
    phase::Windows,
    positions::spread,
};
use crate::{
    Element, Threads,
    element::{Elements, ElementsMut},
};

/// A convolution of one geometry, with the positions that its products read.
///
/// Elements of the operands, and those of the result, are `f32` or `bf16`; sums are in `f32`, and
/// are rounded once.
///
/// ```
/// use halite_kernels::{ConvDim, ConvGeometry, Convolution, Threads};
///
/// let dim = ConvDim {
///     input: 4,
///     kernel: 3,
///     input_dilation: 1,
///     stride: 1,
///     dilation: 1,
///     low: 1,
///     high: 1,
/// };
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
    forward: Path,
    input_gradient: Path,
    /// The forward pass in larger items, over which the kernel gradient sums.
    positions: Path,
}

/// Bits of the vectors that kernels use on this processor.
pub fn vector_bits() -> usize {
    8 * size_of::<f32>() * Arch::new().dispatch(grouped::Lanes)
}

/// How a pass is computed.
#[derive(Debug)]
enum Path {
    /// As a product of matrices for each group.
    Products(Pass),
    /// With vectors of several groups.
    Grouped(Grouped),
}

impl Convolution {
    /// Prepares a convolution.
    ///
    /// # Errors
    /// If a stride, a dilation or the number of groups is zero, the groups do not divide the
    /// features, or the tensors are too large.
    pub fn new(geometry: ConvGeometry) -> Result<Self, GeometryError> {
        geometry.check()?;
        let sizes = simplified(&geometry);
        let forward = |most_windows: usize| Path::forward(&sizes, most_windows);
        let positions = forward(ITEM_WINDOWS)?;
        if let Path::Products(pass) = &positions {
            let mut products = pass.products.iter();
            if products.any(|it| it.target_rows.len() != it.targets.len()) {
                return Err(GeometryError::too_large(&geometry));
            }
        }
        Ok(Convolution {
            forward: forward(item_windows(
                geometry.output_len() / geometry.outputs.max(1),
            ))?,
            input_gradient: Path::input_gradient(&sizes)?,
            positions,
            geometry,
        })
    }

    /// Sizes of the convolution.
    pub fn geometry(&self) -> &ConvGeometry {
        &self.geometry
    }

    /// Computes the result: `out[b, r, o] = sum of x[b, i, f] * kernel[k, f, o]` over the taps `k` with
    /// `r * stride + k * dilation = i * input_dilation + low`, and the features `f` of the group of
    /// `o`.
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
        self.pass(Passes::Forward, threads, [x, kernel], out);
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
        self.pass(Passes::InputGradient, threads, [g, kernel], out);
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
        self.pass(Passes::KernelGradient, threads, [x, g], out);
    }

    fn pass<T: Element, O: Element>(
        &self,
        of: Passes,
        threads: &Threads,
        operands: [&[T]; 2],
        out: &mut [O],
    ) {
        self.pass_of_elements(of, threads, T::elements(operands), O::elements_mut(out));
    }

    fn pass_of_elements(
        &self,
        of: Passes,
        threads: &Threads,
        operands: Elements<'_, 2>,
        out: ElementsMut<'_>,
    ) {
        use {Elements as From, ElementsMut as To};
        match (operands, out) {
            (From::F32(operands), To::F32(out)) => self.run(of, threads, operands, out),
            (From::F32(operands), To::Bf16(out)) => self.run(of, threads, operands, out),
            (From::Bf16(operands), To::F32(out)) => self.run(of, threads, operands, out),
            (From::Bf16(operands), To::Bf16(out)) => self.run(of, threads, operands, out),
        }
    }

    fn run<T: Element, O: Element>(
        &self,
        of: Passes,
        threads: &Threads,
        operands: [&[T]; 2],
        out: &mut [O],
    ) {
        let [left, right] = operands;
        match of {
            Passes::Forward => self.forward.run(threads, left, right, out),
            Passes::InputGradient => self.input_gradient.run(threads, left, right, out),
            Passes::KernelGradient => {
                O::with_f32_mut(threads, out, |out| match &self.positions {
                    Path::Products(pass) => pass.kernel_gradient(threads, left, right, out),
                    Path::Grouped(grouped) => grouped.kernel_gradient(threads, left, right, out),
                });
            }
        }
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

/// A convolution, or one of its gradients.
#[derive(Clone, Copy, Debug)]
enum Passes {
    Forward,
    InputGradient,
    KernelGradient,
}

impl Path {
    fn new(
        sizes: &ConvGeometry,
        windows: Vec<Windows>,
        group: Group,
        mut kernel: KernelPositions,
        most_windows: usize,
    ) -> Result<Self, GeometryError> {
        kernel.is_grouped = is_grouped(sizes.groups, group);
        let is_grouped = kernel.is_grouped;
        let pass = Pass::new(sizes, windows, kernel, most_windows)?;
        Ok(match is_grouped {
            true => Path::Grouped(Grouped { pass, group }),
            false => Path::Products(pass),
        })
    }

    fn forward(sizes: &ConvGeometry, most_windows: usize) -> Result<Self, GeometryError> {
        let group = Group {
            source: sizes.features / sizes.groups,
            target: sizes.outputs / sizes.groups,
        };
        let kernel = KernelPositions {
            tap: group.source * sizes.outputs,
            terms: spread(group.source, sizes.outputs),
            columns: spread(sizes.outputs, 1),
            is_grouped: false,
        };
        let windows = sizes.spatial.iter().map(Windows::forward).collect();
        Self::new(sizes, windows, group, kernel, most_windows)
    }

    fn input_gradient(sizes: &ConvGeometry) -> Result<Self, GeometryError> {
        let group = Group {
            source: sizes.outputs / sizes.groups,
            target: sizes.features / sizes.groups,
        };
        let column = |feature: usize| {
            feature % group.target * sizes.outputs + feature / group.target * group.source
        };
        let kernel = KernelPositions {
            tap: group.target * sizes.outputs,
            terms: spread(group.source, 1),
            columns: (0..sizes.features).map(column).collect(),
            is_grouped: false,
        };
        let windows: Vec<_> = sizes.spatial.iter().map(Windows::backward).collect();
        let counts = windows.iter().map(Windows::count);
        let most_windows = item_windows(counts.fold(sizes.batch, usize::saturating_mul));
        Self::new(sizes, windows, group, kernel, most_windows)
    }

    fn run<T: Element, O: Element>(
        &self,
        threads: &Threads,
        source: &[T],
        kernel: &[T],
        out: &mut [O],
    ) {
        match self {
            Path::Products(pass) => pass.run(threads, source, kernel, out),
            Path::Grouped(grouped) => grouped.run(threads, source, kernel, out),
        }
    }
}

/// The same convolution with at least one spatial dimension, and with one for all positions of all
/// images if a window is one element.
fn simplified(geometry: &ConvGeometry) -> ConvGeometry {
    let is_pointwise = |dim: &ConvDim| {
        let steps = [dim.kernel, dim.input_dilation, dim.stride];
        steps == [1; 3] && [dim.low, dim.high] == [0, 0]
    };
    if !geometry.spatial.iter().all(is_pointwise) {
        return geometry.clone();
    }
    let inputs = geometry.spatial.iter().map(|dim| dim.input);
    let dim = ConvDim {
        input: elements(inputs.chain([geometry.batch])),
        kernel: 1,
        input_dilation: 1,
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
