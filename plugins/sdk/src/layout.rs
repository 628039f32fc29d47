//! Layouts of host memory: byte strides, and copies between them and row-major order.

use halite_core::{AlignedBytes, TensorType};

use crate::status::{Outcome, Status};

/// The distance in bytes between neighbours in each dimension.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Strides {
    dims: Vec<usize>,
    strides: Vec<isize>,
    /// Number of elements. Strides of no elements may have any value.
    count: usize,
    /// Bytes of an element.
    item: usize,
    /// Offset of the lowest byte, at most 0.
    low: isize,
    /// Bytes from the lowest to the end of the highest.
    length: usize,
}

impl Strides {
    /// Strides given by a caller; none means row-major.
    ///
    /// # Errors
    /// If their number is not the rank, or they reach further than memory.
    pub(crate) fn new(ty: &TensorType, strides: &[i64]) -> Outcome<Self> {
        if strides.is_empty() {
            return Self::of_order(ty, &(0..ty.rank()).rev().collect::<Vec<_>>());
        }
        if strides.len() != ty.rank() {
            return Err(Status::invalid(format!(
                "{} strides given, {ty} has {} dimensions",
                strides.len(),
                ty.rank()
            )));
        }
        let too_far = || Status::invalid(format!("strides {strides:?} of {ty} are too large"));
        let mut low = 0isize;
        let mut high = 0isize;
        for (&dim, &stride) in ty.dims().iter().zip(strides) {
            let last = isize::try_from(dim.saturating_sub(1)).map_err(|_| too_far())?;
            let stride = isize::try_from(stride).map_err(|_| too_far())?;
            let reach = last.checked_mul(stride).ok_or_else(too_far)?;
            let end = if reach < 0 { &mut low } else { &mut high };
            *end = end.checked_add(reach).ok_or_else(too_far)?;
        }
        let item = ty.dtype().size();
        let count = ty.checked_bytes()? / item;
        let length = high
            .checked_sub(low)
            .and_then(|length| length.checked_add_unsigned(item));
        Ok(Strides {
            dims: ty.dims().to_vec(),
            strides: strides.iter().map(|&stride| stride as isize).collect(),
            count,
            item,
            low: if count == 0 { 0 } else { low },
            length: if count == 0 {
                0
            } else {
                length.ok_or_else(too_far)? as usize
            },
        })
    }

    /// Dense strides by the order of dimensions, fastest varying first.
    ///
    /// # Errors
    /// If the order is not a permutation of the dimensions.
    pub(crate) fn of_order(ty: &TensorType, minor_to_major: &[usize]) -> Outcome<Self> {
        let length = ty.checked_bytes()?;
        let mut strides = vec![None; ty.rank()];
        let mut stride = ty.dtype().size();
        for &dim in minor_to_major {
            match strides.get_mut(dim) {
                Some(place @ None) => *place = Some(stride as isize),
                _ => return Err(not_an_order(ty, minor_to_major)),
            }
            // Only the strides of no elements overflow.
            stride = stride.wrapping_mul(ty.dims()[dim].max(1));
        }
        let strides: Option<Vec<isize>> = strides.into_iter().collect();
        Ok(Strides {
            dims: ty.dims().to_vec(),
            strides: strides.ok_or_else(|| not_an_order(ty, minor_to_major))?,
            count: length / ty.dtype().size(),
            item: ty.dtype().size(),
            low: 0,
            length,
        })
    }

    /// Offset of the lowest byte from the first element, and the number of bytes from there.
    pub(crate) fn extent(&self) -> (isize, usize) {
        (self.low, self.length)
    }

    /// Returns whether elements are in row-major order without gaps.
    pub(crate) fn is_row_major(&self) -> bool {
        let mut stride = self.item as isize;
        for (&dim, &given) in self.dims.iter().zip(&self.strides).rev() {
            if dim > 1 && given != stride && self.count > 0 {
                return false;
            }
            stride = stride.wrapping_mul(dim as isize);
        }
        true
    }

    /// Returns whether every byte of the extent belongs to exactly one element.
    pub(crate) fn is_dense(&self) -> bool {
        let mut dims: Vec<_> = self.strides.iter().zip(&self.dims).collect();
        dims.retain(|(_, dim)| **dim > 1);
        dims.sort();
        let mut stride = self.item as isize;
        dims.into_iter().all(|(&given, &dim)| {
            let fits = given == stride || self.count == 0;
            stride = stride.wrapping_mul(dim as isize);
            fits
        })
    }

    /// Copies elements with these strides to row-major order. `bytes` is the extent.
    ///
    /// # Errors
    /// If the host has too little memory: a stride of 0 makes many elements of few bytes.
    pub(crate) fn gather(&self, bytes: &[u8]) -> Outcome<AlignedBytes> {
        let mut dense = AlignedBytes::try_zeroed(self.count * self.item)?;
        let mut items = dense.as_mut().chunks_exact_mut(self.item);
        self.for_each(|at| {
            if let Some(item) = items.next() {
                item.copy_from_slice(&bytes[at..at + self.item]);
            }
        });
        Ok(dense)
    }

    /// Copies row-major elements to these strides. The result is the extent.
    ///
    /// # Errors
    /// If the host has too little memory.
    pub(crate) fn scatter(&self, dense: &[u8]) -> Outcome<AlignedBytes> {
        let mut bytes = AlignedBytes::try_zeroed(self.length)?;
        let mut items = dense.chunks_exact(self.item);
        self.for_each(|at| {
            if let Some(item) = items.next() {
                bytes.as_mut()[at..at + self.item].copy_from_slice(item);
            }
        });
        Ok(bytes)
    }

    /// Calls `visit` with the offset of each element in the extent, in row-major order.
    fn for_each(&self, mut visit: impl FnMut(usize)) {
        let mut index = vec![0; self.dims.len()];
        let mut at = -self.low;
        for _ in 0..self.count {
            visit(at as usize);
            for dim in (0..self.dims.len()).rev() {
                index[dim] += 1;
                // Strides of dimensions of size 1 may have any value.
                at = at.wrapping_add(self.strides[dim]);
                if index[dim] < self.dims[dim] {
                    break;
                }
                at = at.wrapping_sub(self.strides[dim].wrapping_mul(self.dims[dim] as isize));
                index[dim] = 0;
            }
        }
    }
}

fn not_an_order(ty: &TensorType, minor_to_major: &[usize]) -> Status {
    Status::invalid(format!(
        "minor_to_major {minor_to_major:?} is not an order of the dimensions of {ty}"
    ))
}

#[cfg(test)]
mod tests {
    use halite_core::DType;
    use halite_pjrt_sys::error::PJRT_Error_Code;

    use super::*;

    fn matrix() -> TensorType {
        TensorType::new(DType::U8, [2, 3])
    }

    #[test]
    fn column_major_is_transposed() {
        let layout = Strides::of_order(&matrix(), &[0, 1]).unwrap();
        assert_eq!(
            layout.gather(&[1, 4, 2, 5, 3, 6]).unwrap().as_ref(),
            [1, 2, 3, 4, 5, 6]
        );
        assert_eq!(
            layout.scatter(&[1, 2, 3, 4, 5, 6]).unwrap().as_ref(),
            [1, 4, 2, 5, 3, 6]
        );
        assert!(layout.is_dense() && !layout.is_row_major());
    }

    #[test]
    fn negative_strides_start_below() {
        let layout = Strides::new(&matrix(), &[-3, 1]).unwrap();
        assert_eq!(layout.extent(), (-3, 6));
        assert_eq!(
            layout.gather(&[4, 5, 6, 1, 2, 3]).unwrap().as_ref(),
            [1, 2, 3, 4, 5, 6]
        );
    }

    #[test]
    fn stride_zero_repeats() {
        let layout = Strides::new(&matrix(), &[0, 1]).unwrap();
        assert_eq!(
            layout.gather(&[7, 8, 9]).unwrap().as_ref(),
            [7, 8, 9, 7, 8, 9]
        );
        assert!(!layout.is_dense());
    }

    #[test]
    fn impossible_strides_are_refused() {
        for strides in [&[1][..], &[i64::MAX, 1], &[i64::MIN, i64::MIN]] {
            assert!(Strides::new(&matrix(), strides).is_err(), "{strides:?}");
        }
        for order in [&[0][..], &[0, 0], &[0, 2]] {
            assert!(Strides::of_order(&matrix(), order).is_err(), "{order:?}");
        }
        let empty = TensorType::new(DType::U8, [0, 3]);
        assert_eq!(Strides::new(&empty, &[5, 1]).unwrap().extent(), (0, 0));
    }

    #[test]
    fn strides_without_effect_may_be_huge() {
        let row = TensorType::new(DType::U8, [1, 3]);
        let layout = Strides::new(&row, &[i64::MAX, 1]).unwrap();
        assert_eq!(layout.gather(&[1, 2, 3]).unwrap().as_ref(), [1, 2, 3]);
        let empty = TensorType::new(DType::U8, [0, 1 << 62, 1 << 62]);
        let layout = Strides::new(&empty, &[]).unwrap();
        assert!(layout.is_row_major() && layout.is_dense());
        assert!(layout.gather(&[]).unwrap().as_ref().is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends where an allocation fails")]
    fn gather_without_memory_is_an_error() {
        let huge = TensorType::new(DType::U8, [1 << 60]);
        let layout = Strides::new(&huge, &[0]).unwrap();
        let code = layout.gather(&[1]).unwrap_err().code;
        assert_eq!(code, PJRT_Error_Code::RESOURCE_EXHAUSTED);
    }
}
