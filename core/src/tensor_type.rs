//! The type of a tensor: element type and dimensions.

use std::{fmt, sync::Arc};

use crate::{DType, Error, ErrorKind, Result};

/// Element type and dimensions. Cheap to clone.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct TensorType {
    dtype: DType,
    dims: Arc<[usize]>,
}

impl TensorType {
    /// A tensor of `dims`, outermost first. No dimensions is a scalar.
    pub fn new(dtype: DType, dims: impl AsRef<[usize]>) -> Self {
        TensorType { dtype, dims: Arc::from(dims.as_ref()) }
    }

    /// One element, no dimensions.
    pub fn scalar(dtype: DType) -> Self {
        TensorType::new(dtype, [])
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes of the dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// How many dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// How many elements: the product of the dimensions.
    ///
    /// # Panics
    /// If the product does not fit `usize`; [`checked_bytes`](Self::checked_bytes) is for sizes read from outside.
    pub fn elements(&self) -> usize {
        self.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).expect("a tensor's element count fits usize")
    }

    /// Size in bytes, row-major without padding.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }

    /// Size in bytes, for dimensions that come from a file or a plugin.
    ///
    /// # Errors
    /// If the size does not fit `isize`.
    pub fn checked_bytes(&self) -> Result<usize> {
        self.dims.iter().try_fold(self.dtype.size(), |n, &d| n.checked_mul(d)).filter(|&n| isize::try_from(n).is_ok()).ok_or_else(
            || {
                Error::new(
                    ErrorKind::InvalidArgument,
                    "tensor type",
                    format!("{self} is larger than this machine's address space"),
                )
            },
        )
    }

    /// The same dimensions with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        TensorType { dtype, dims: self.dims.clone() }
    }

    /// The same element type with other dimensions.
    pub fn with_dims(&self, dims: impl AsRef<[usize]>) -> Self {
        TensorType::new(self.dtype, dims)
    }
}

impl fmt::Display for TensorType {
    /// `f32[2, 3]`; a scalar is `f32[]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.dims)
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
