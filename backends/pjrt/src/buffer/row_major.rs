//! The row-major memory layout, as plugins read it.

use halite_pjrt_sys::buffer::*;

/// The dimensions from the fastest varying to the slowest, of a row-major array.
pub(super) enum RowMajor {
    Short([i64; 8], usize),
    Long(Vec<i64>),
}

impl RowMajor {
    pub(super) fn of(rank: usize) -> Self {
        const DESCENDING: [i64; 8] = [7, 6, 5, 4, 3, 2, 1, 0];
        if rank <= 8 {
            RowMajor::Short(DESCENDING, 8 - rank)
        } else {
            RowMajor::Long((0..rank as i64).rev().collect())
        }
    }

    pub(super) fn as_slice(&self) -> &[i64] {
        match self {
            RowMajor::Short(all, skip) => &all[*skip..],
            RowMajor::Long(all) => all,
        }
    }

    /// Points into `self`, which must outlive the result.
    pub(super) fn layout(&self) -> PJRT_Buffer_MemoryLayout {
        let order = self.as_slice();
        let tiled = PJRT_Buffer_MemoryLayout_Tiled {
            minor_to_major: order.as_ptr(),
            minor_to_major_size: order.len(),
            ..PJRT_Buffer_MemoryLayout_Tiled::new()
        };
        PJRT_Buffer_MemoryLayout {
            r#type: PJRT_Buffer_MemoryLayout_Type::Tiled,
            value: PJRT_Buffer_MemoryLayout_Value { tiled },
            ..PJRT_Buffer_MemoryLayout::new()
        }
    }
}
