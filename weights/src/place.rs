//! Where tensors are in files.

use halite_core::TensorType;

use crate::{input::Input, quantized::Quantization};

/// Where a tensor is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) input: Input,
    /// Position of its first byte, in the file or in what is inflated.
    pub(crate) offset: u64,
    pub(crate) order: Order,
    /// The entry of an archive that contains it, if it is compressed.
    pub(crate) deflated: Option<Deflated>,
}

/// Order of the elements of a tensor in a file.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    RowMajor,
    /// Distance between neighbors in each dimension, in elements.
    Strided(Vec<usize>),
    Quantized(Quantization),
}

impl Place {
    /// Bytes that are read for a tensor that cannot be read in parts; 0 for others.
    pub(crate) fn whole_bytes(&self, ty: &TensorType) -> u64 {
        let held = match &self.order {
            Order::Strided(strides) => extent(ty.dims(), strides) * ty.dtype().size(),
            _ if self.deflated.is_some() => ty.bytes(),
            _ => 0,
        };
        // An entry is inflated from its start.
        held as u64 + self.deflated.map_or(0, |_| self.offset)
    }
}

/// A compressed entry of an archive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deflated {
    pub(crate) start: u64,
    pub(crate) compressed: u64,
}

/// Elements from the first to the last of a tensor with these strides. Its caller has compared them
/// with what the file has.
pub(crate) fn extent(dims: &[usize], strides: &[usize]) -> usize {
    if dims.contains(&0) {
        return 0;
    }
    let last = dims
        .iter()
        .zip(strides)
        .map(|(dim, stride)| (dim - 1) * stride);
    last.sum::<usize>() + 1
}
