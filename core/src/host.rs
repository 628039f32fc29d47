//! Arrays on the host, aligned so that a device of the same machine can use them in place.

mod aligned;
mod storage;

use std::{fmt, panic::Location, sync::Arc};

use half::{bf16, f16};

pub(crate) use self::storage::{LARGE, Pinned, Recycle};
pub use self::{aligned::AlignedBytes, storage::PinnedMemory};
use crate::{DType, Element, Error, Result, TensorType};

/// A dense, row-major tensor on the host.
///
/// ```
/// use halite_core::{DType, HostArray};
///
/// let x = HostArray::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]).unwrap();
/// assert_eq!(x.ty().to_string(), "f32[2, 3]");
/// assert_eq!(x.as_slice::<f32>().unwrap()[4], 5.0);
/// assert!(x.as_slice::<i32>().is_err());
/// ```
#[derive(Clone)]
pub struct HostArray {
    ty: TensorType,
    bytes: AlignedBytes,
}

impl HostArray {
    /// Copies `values`, row-major, into a tensor of `dims`.
    ///
    /// # Errors
    /// If the number of values is not the product of `dims`.
    #[track_caller]
    pub fn from_slice<T: Element>(values: &[T], dims: impl AsRef<[usize]>) -> Result<Self> {
        Self::from_bytes(
            bytemuck::cast_slice(values),
            TensorType::new(T::DTYPE, dims),
        )
    }

    /// Creates an array of one element without dimensions.
    pub fn scalar<T: Element>(value: T) -> Self {
        Self::from_slice(&[value], []).expect("a scalar has one element")
    }

    /// Copies row-major `bytes` of a tensor of type `ty`.
    ///
    /// # Errors
    /// If the number of bytes does not match `ty`, or the host has too little memory.
    #[track_caller]
    pub fn from_bytes(bytes: &[u8], ty: TensorType) -> Result<Self> {
        Self::from_aligned(AlignedBytes::try_copy_of(bytes)?, ty)
    }

    /// Takes row-major `bytes` of a tensor of type `ty`.
    ///
    /// # Errors
    /// If the number of bytes does not match `ty`.
    #[track_caller]
    pub fn from_aligned(bytes: AlignedBytes, ty: TensorType) -> Result<Self> {
        let needed = ty.checked_bytes()?;
        if bytes.len != needed {
            return Err(mistake(format!(
                "{} bytes given, {ty} needs {needed}",
                bytes.len
            )));
        }
        Ok(HostArray { ty, bytes })
    }

    /// Creates an array of zero bits: 0, or `false`. Aborts the process if memory is exhausted; see
    /// [`try_zeros`](Self::try_zeros).
    pub fn zeros(ty: TensorType) -> Self {
        let bytes = AlignedBytes::zeroed(ty.bytes());
        HostArray { ty, bytes }
    }

    /// Creates an array of zero bits: 0, or `false`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if the host has too little memory.
    pub fn try_zeros(ty: TensorType) -> Result<Self> {
        let bytes = AlignedBytes::try_zeroed(ty.checked_bytes()?)?;
        Ok(HostArray { ty, bytes })
    }

    /// Element type and dimensions.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The elements, row-major.
    ///
    /// # Errors
    /// If `T` is not the element type, or bits are invalid for `T` (a `bool` that is neither 0 nor
    /// 1).
    #[track_caller]
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.expect_dtype::<T>()?;
        T::of_bytes(self.bytes.as_ref()).map_err(|e| {
            Error::invalid(
                "host array",
                format!("the bytes of {} are not valid {}: {e}", self.ty, T::DTYPE),
            )
        })
    }

    /// The only element.
    ///
    /// # Errors
    /// If it has another number of elements, or another element type.
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        match self.as_slice::<T>()? {
            [value] => Ok(*value),
            _ => Err(mistake(format!(
                "item() of {}, which has {} elements",
                self.ty,
                self.ty.elements()
            ))),
        }
    }

    /// Converts floats to another float type, rounded to nearest, ties to even.
    ///
    /// # Errors
    /// If either type is not a float, or the host has too little memory.
    pub fn to_float(&self, dtype: DType) -> Result<Self> {
        fn write<T: Element>(
            values: impl Iterator<Item = f64>,
            from: impl Fn(f64) -> T,
            into: &mut [u8],
        ) {
            let each = values.zip(into.chunks_exact_mut(size_of::<T>()));
            each.for_each(|(value, into)| into.copy_from_slice(bytemuck::bytes_of(&from(value))));
        }
        fn into_type(values: impl Iterator<Item = f64>, into: &mut HostArray) -> Option<()> {
            match into.ty.dtype() {
                DType::F16 => write(values, f16::from_f64, into.bytes_mut()),
                DType::Bf16 => write(values, bf16::from_f64, into.bytes_mut()),
                DType::F32 => write(values, |value| value as f32, into.bytes_mut()),
                DType::F64 => write(values, |value| value, into.bytes_mut()),
                _ => return None,
            }
            Some(())
        }
        let mut into = HostArray::try_zeros(self.ty.with_dtype(dtype))?;
        let done = match self.ty.dtype() {
            DType::F16 => into_type(
                self.as_slice::<f16>()?.iter().map(|value| value.to_f64()),
                &mut into,
            ),
            DType::Bf16 => into_type(
                self.as_slice::<bf16>()?.iter().map(|value| value.to_f64()),
                &mut into,
            ),
            DType::F32 => into_type(
                self.as_slice::<f32>()?.iter().map(|&value| value.into()),
                &mut into,
            ),
            DType::F64 => into_type(self.as_slice::<f64>()?.iter().copied(), &mut into),
            _ => None,
        };
        done.map(|()| into).ok_or_else(|| {
            Error::invalid(
                "host array",
                format!("{} as {dtype}: both must be floats", self.ty),
            )
        })
    }

    /// The elements, row-major, as bytes in the machine's byte order.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// The memory of the elements.
    pub fn into_aligned(self) -> AlignedBytes {
        self.bytes
    }

    /// The bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut()
    }

    #[track_caller]
    fn expect_dtype<T: Element>(&self) -> Result<()> {
        if T::DTYPE == self.ty.dtype() {
            return Ok(());
        }
        let message = format!("elements of {} read as {}", self.ty, T::DTYPE);
        Err(mistake(message))
    }
}

/// An error with the line that called a function of [`HostArray`].
#[track_caller]
fn mistake(message: String) -> Error {
    Error::invalid("host array", format!("{message} ({})", Location::caller()))
}

impl AsRef<[u8]> for HostArray {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl PartialEq for HostArray {
    /// Compares type and bits: NaN equals itself, and 0 differs from -0.
    fn eq(&self, other: &Self) -> bool {
        self.ty == other.ty && self.bytes() == other.bytes()
    }
}

impl fmt::Debug for HostArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostArray({})", self.ty)
    }
}

/// Host memory for an upload: row-major elements in the machine's byte order.
#[derive(Clone)]
pub enum HostBytes<'a> {
    /// Memory that is read before the call returns.
    Borrowed(&'a [u8]),
    /// Kept alive until the device no longer needs it; used in place if the device can (64-byte
    /// aligned on CPU).
    Shared(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl AsRef<[u8]> for HostBytes<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            HostBytes::Borrowed(bytes) => bytes,
            HostBytes::Shared(owner) => (**owner).as_ref(),
        }
    }
}

impl fmt::Debug for HostBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBytes({})", self.as_ref().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn mistakes_name_the_line_of_the_caller() {
        let ends = |line: u32, error: Error| {
            let text = error.to_string();
            assert!(
                text.contains(&format!("(core/src/host.rs:{line}:")),
                "{text}"
            );
            text
        };
        let (line, bytes) = (line!(), HostArray::from_slice(&[1.0f32; 12], [4, 4]));
        let text = ends(line, bytes.unwrap_err());
        assert!(text.starts_with("host array: 48 bytes given, f32[4, 4] needs 64"));
        let host = HostArray::from_slice(&[1.0f32; 2], [2]).unwrap();
        let (line, item) = (line!(), host.item::<f32>());
        ends(line, item.unwrap_err());
        let (line, slice) = (line!(), host.as_slice::<i32>());
        ends(line, slice.unwrap_err());
    }

    #[test]
    fn to_float_rounds_to_nearest() {
        let host =
            HostArray::from_slice(&[1.0f32, 1.0 / 3.0, 257.0, -0.0, f32::INFINITY, 1e-40], [6])
                .unwrap();
        let narrow = host.to_float(DType::Bf16).unwrap();
        let bits: Vec<u16> = narrow
            .as_slice::<bf16>()
            .unwrap()
            .iter()
            .map(|value| value.to_bits())
            .collect();
        // 257 is between 256 and 258, and rounds to even.
        assert_eq!(bits, [0x3f80, 0x3eab, 0x4380, 0x8000, 0x7f80, 0x0001]);
        assert_eq!(
            narrow
                .to_float(DType::F32)
                .unwrap()
                .as_slice::<f32>()
                .unwrap()[1],
            0.333_984_38
        );
        assert_eq!(
            host.to_float(DType::F16)
                .unwrap()
                .as_slice::<f16>()
                .unwrap()[5]
                .to_bits(),
            0
        );
        assert_eq!(host.to_float(DType::F32).unwrap(), host);
        let error = HostArray::scalar(1i32)
            .to_float(DType::F32)
            .unwrap_err()
            .to_string();
        assert_eq!(error, "host array: s32[] as f32: both must be floats");
    }

    #[test]
    fn allocation_failure_is_an_error() {
        for bytes in [1 << 60, usize::MAX] {
            assert_eq!(
                AlignedBytes::try_zeroed(bytes).unwrap_err().kind(),
                ErrorKind::OutOfMemory
            );
        }
        let error = HostArray::try_zeros(TensorType::new(DType::U8, [1 << 60]))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "host array: the host cannot allocate 1152921504606846976 bytes"
        );
    }

    #[test]
    fn large_arrays_are_zeroed_memory_too() {
        for len in [LARGE - 1, LARGE, LARGE + 1] {
            for mut bytes in [
                AlignedBytes::zeroed(len),
                AlignedBytes::try_zeroed(len).unwrap(),
            ] {
                let address = bytes.as_ref().as_ptr();
                assert_eq!(address.align_offset(AlignedBytes::ALIGNMENT), 0);
                assert!(bytes.as_ref().len() == len && bytes.as_ref().iter().all(|&b| b == 0));
                bytes.as_mut()[len - 1] = 7;
                let (moved, copy) = (Box::new(bytes), AlignedBytes::copy_of(&[1]));
                assert_eq!((*moved).as_ref().as_ptr(), address);
                assert_eq!(
                    ((*moved).clone().as_ref()[len - 1], copy.as_ref()[0]),
                    (7, 1)
                );
            }
        }
    }

    #[test]
    fn from_vec_aligns_bytes() {
        for len in 0..300 {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let aligned = AlignedBytes::from_vec(bytes.clone()).unwrap();
            assert_eq!(aligned.as_ref(), bytes);
            let misaligned = aligned
                .as_ref()
                .as_ptr()
                .align_offset(AlignedBytes::ALIGNMENT);
            assert_eq!(misaligned, 0, "{len} bytes");
        }
    }

    #[test]
    fn from_vec_takes_an_aligned_vector_without_a_copy() {
        // About every fourth small block is aligned; those before it are kept, so that others are tried.
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        let is_aligned = |block: &Vec<u8>| {
            let start = block.as_ptr();
            start.align_offset(AlignedBytes::ALIGNMENT) == 0
        };
        while !blocks.last().is_some_and(is_aligned) {
            let mut block = Vec::with_capacity(100);
            block.extend([1, 2, 3]);
            blocks.push(block);
        }
        let block = blocks.pop().unwrap();
        let start = block.as_ptr();
        let bytes = AlignedBytes::from_vec(block).unwrap();
        assert_eq!(
            (bytes.as_ref(), bytes.as_ref().as_ptr()),
            (&[1, 2, 3][..], start)
        );
    }
}
