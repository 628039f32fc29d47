//! Sizes of convolutions.

use std::{error, fmt};

/// Most elements of a tensor or of the part of it that a thread reads at a time.
pub(super) const MOST_ELEMENTS: usize = 1 << 40;
/// Most rows, columns or terms of all products of a pass.
pub(super) const MOST_POSITIONS: usize = 1 << 20;
/// Most elements along a dimension.
const MOST_ALONG: usize = 1 << 31;

/// Sizes of a convolution.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ConvGeometry {
    /// Number of images.
    pub batch: usize,
    /// Number of input features.
    pub features: usize,
    /// Number of output features.
    pub outputs: usize,
    /// Number of groups: each convolves its own part of the input features to its own part of the
    /// output features. A depthwise convolution has as many groups as input features.
    pub groups: usize,
    /// Spatial dimensions, outermost first.
    pub spatial: Vec<ConvDim>,
}

/// A spatial dimension of a convolution.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ConvDim {
    /// Size of the input.
    pub input: usize,
    /// Size of the kernel.
    pub kernel: usize,
    /// Distance between neighboring elements of the input, with zeros between them: above 1, the
    /// convolution is a transposed one.
    pub input_dilation: usize,
    /// Distance between neighboring windows.
    pub stride: usize,
    /// Distance between neighboring elements of a window.
    pub dilation: usize,
    /// Zeros before the input; negative values remove elements.
    pub low: isize,
    /// Zeros after the input; negative values remove elements.
    pub high: isize,
}

/// Reason why a [`ConvGeometry`] is not one of a convolution.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GeometryError(String);

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "convolution: {}", self.0)
    }
}

impl error::Error for GeometryError {}

impl GeometryError {
    pub(super) fn too_large(geometry: &ConvGeometry) -> Self {
        GeometryError(format!(
            "{geometry:?} is too large: a tensor has at most 2^40 elements, a dimension 2^31, and \
             a window, a row of windows and the features 2^20"
        ))
    }
}

impl ConvDim {
    /// Size of the result.
    pub fn output(&self) -> usize {
        let extent = spread(self.kernel, self.dilation);
        let padded = self.low + spread(self.input, self.input_dilation) as isize + self.high;
        match usize::try_from(padded) {
            Ok(padded) if padded > 0 && extent <= padded => (padded - extent) / self.stride + 1,
            _ => 0,
        }
    }

    /// Returns whether no size overflows.
    fn is_bounded(&self) -> bool {
        let sizes = [
            spread(self.input, self.input_dilation),
            self.input_dilation,
            self.stride,
            self.dilation,
        ];
        let padding = [self.low, self.high].map(isize::unsigned_abs);
        let mut sizes = sizes.iter().chain(&padding);
        self.kernel <= MOST_POSITIONS && sizes.all(|&size| size <= MOST_ALONG)
    }
}

impl ConvGeometry {
    /// Number of elements of the input, `[batch, spatial.., features]`.
    pub fn input_len(&self) -> usize {
        let sizes = self.spatial.iter().map(|dim| dim.input);
        elements(sizes.chain([self.batch, self.features]))
    }

    /// Number of elements of the kernel, `[spatial.., features / groups, outputs]`.
    pub fn kernel_len(&self) -> usize {
        let sizes = self.spatial.iter().map(|dim| dim.kernel);
        elements(sizes.chain([self.features / self.groups, self.outputs]))
    }

    /// Number of elements of the result, `[batch, spatial.., outputs]`.
    pub fn output_len(&self) -> usize {
        let sizes = self.spatial.iter().map(ConvDim::output);
        elements(sizes.chain([self.batch, self.outputs]))
    }

    pub(super) fn check(&self) -> Result<(), GeometryError> {
        let ConvGeometry {
            features,
            outputs,
            groups,
            ..
        } = *self;
        let is_divisor =
            groups > 0 && features.is_multiple_of(groups) && outputs.is_multiple_of(groups);
        if !is_divisor {
            return Err(GeometryError(format!(
                "{groups} groups do not divide {features} input and {outputs} output features"
            )));
        }
        for (number, dim) in self.spatial.iter().enumerate() {
            let ConvDim {
                input_dilation,
                stride,
                dilation,
                ..
            } = *dim;
            if [input_dilation, stride, dilation].contains(&0) {
                return Err(GeometryError(format!(
                    "spatial dimension {number} has input dilation {input_dilation}, stride \
                     {stride} and dilation {dilation}; all must be at least 1"
                )));
            }
        }
        let is_small = self.spatial.iter().all(ConvDim::is_bounded)
            && self.batch <= MOST_ALONG
            && features.max(outputs) <= MOST_POSITIONS
            && [self.input_len(), self.kernel_len(), self.output_len()]
                .iter()
                .all(|&len| len <= MOST_ELEMENTS);
        is_small
            .then_some(())
            .ok_or_else(|| GeometryError::too_large(self))
    }
}

/// Extent of `size` elements, of which neighbors are `step` apart.
fn spread(size: usize, step: usize) -> usize {
    match size {
        0 => 0,
        size => (size - 1).saturating_mul(step).saturating_add(1),
    }
}

/// The product of sizes; `usize::MAX` if it is larger.
pub(super) fn elements(sizes: impl Iterator<Item = usize> + Clone) -> usize {
    if sizes.clone().any(|size| size == 0) {
        return 0;
    }
    sizes.fold(1, usize::saturating_mul)
}
