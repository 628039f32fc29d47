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
    /// The type of a tensor of `dims`, outermost first; a scalar has none.
    pub fn new(dtype: DType, dims: impl AsRef<[usize]>) -> Self {
        TensorType {
            dtype,
            dims: Arc::from(dims.as_ref()),
        }
    }

    /// The type of a scalar.
    pub fn scalar(dtype: DType) -> Self {
        TensorType::new(dtype, [])
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes of the dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements, the product of the dimensions.
    ///
    /// # Panics
    /// If the product does not fit `usize`; [`checked_bytes`](Self::checked_bytes) is for sizes
    /// read from outside.
    pub fn elements(&self) -> usize {
        self.dims
            .iter()
            .try_fold(1usize, |n, &d| n.checked_mul(d))
            .expect("a tensor's element count fits usize")
    }

    /// Size in bytes, row-major without padding.
    ///
    /// # Panics
    /// If the size does not fit `usize`; [`checked_bytes`](Self::checked_bytes) is for sizes read
    /// from outside.
    pub fn bytes(&self) -> usize {
        self.elements()
            .checked_mul(self.dtype.size())
            .expect("a tensor's size in bytes fits usize")
    }

    /// Size in bytes, for dimensions that come from a file or a plugin.
    ///
    /// # Errors
    /// If the size does not fit `isize`, or a dimension does not fit `i64` (as drivers require),
    /// even where another dimension is 0.
    pub fn checked_bytes(&self) -> Result<usize> {
        let refuse = |why: &str| {
            Error::new(
                ErrorKind::InvalidArgument,
                "tensor type",
                format!("{self} {why}"),
            )
        };
        if self.dims.iter().any(|&dim| i64::try_from(dim).is_err()) {
            return Err(refuse(
                "has a dimension that does not fit a signed 64-bit integer",
            ));
        }
        let bytes = self
            .dims
            .iter()
            .try_fold(self.dtype.size(), |bytes, &dim| bytes.checked_mul(dim));
        bytes
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or_else(|| refuse("is larger than this machine's address space"))
    }

    /// The same dimensions with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        TensorType {
            dtype,
            dims: self.dims.clone(),
        }
    }

    /// The same element type with other dimensions.
    pub fn with_dims(&self, dims: impl AsRef<[usize]>) -> Self {
        TensorType::new(self.dtype, dims)
    }
}

impl fmt::Display for TensorType {
    /// Formats as `f32[2, 3]`; a scalar is `f32[]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.dims)
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_too_large_for_a_driver_are_refused() {
        let refused = |dims: &[usize]| {
            TensorType::new(DType::F32, dims)
                .checked_bytes()
                .unwrap_err()
                .to_string()
        };
        assert!(refused(&[usize::MAX, 2]).contains("does not fit a signed 64-bit integer"));
        // No bytes, but the dimension would become -1.
        assert!(refused(&[0, usize::MAX]).contains("does not fit a signed 64-bit integer"));
        assert!(refused(&[1 << 62, 1 << 62]).contains("address space"));
        assert!(refused(&[1 << 61]).contains("address space"));
        assert_eq!(
            TensorType::new(DType::F32, [0, i64::MAX as usize])
                .checked_bytes()
                .unwrap(),
            0
        );
        assert_eq!(
            TensorType::new(DType::F32, [3, 5]).checked_bytes().unwrap(),
            60
        );
    }
}
