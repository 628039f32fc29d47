//! Right matrices of the products of convolutions.

use pulp::Arch;

use super::narrow;
use crate::{
    Operand, Threads,
    gemm::{Panels, Rows},
};

/// The right matrix of a product: the kernel, or the gradient of the result.
pub(super) enum Right<'r> {
    /// Panels of each group.
    Panels(Vec<Panels>, &'r [f32]),
    /// A matrix of few columns, and numbers of terms, of terms of a tap, and of columns.
    Narrow([usize; 3], &'r [f32]),
}

/// How a right matrix is packed.
pub(super) enum Packing {
    Panels(Vec<Panels>),
    Narrow([usize; 3]),
}

impl Packing {
    /// Number of packed elements.
    pub(super) fn len(&self) -> usize {
        match self {
            Packing::Panels(groups) => groups.iter().map(Panels::len).sum(),
            &Packing::Narrow([terms, features, columns]) => {
                narrow::packed_len(terms, features, columns)
            }
        }
    }
}

impl<'r> Right<'r> {
    /// Packs a matrix. Returns the rest of `packed` too.
    pub(super) fn pack(
        threads: &Threads,
        right: Operand<'_>,
        packing: Packing,
        packed: &'r mut [f32],
    ) -> (Self, &'r mut [f32]) {
        let (packed, rest) = packed.split_at_mut(packing.len());
        let right = match packing {
            Packing::Panels(groups) => {
                let mut unpacked = &mut packed[..];
                for panels in &groups {
                    let (group, next) = unpacked.split_at_mut(panels.len());
                    unpacked = next;
                    panels.pack(threads, right, group);
                }
                Right::Panels(groups, packed)
            }
            Packing::Narrow(sizes) => {
                narrow::pack(right, sizes[0], sizes[1], packed);
                Right::Narrow(sizes, packed)
            }
        };
        (right, rest)
    }

    /// Computes rows of the product with a left matrix, on the calling thread. The left matrix of
    /// each group is `group_step` elements after that of the last.
    pub(super) fn multiply(
        &self,
        threads: &Threads,
        left: Operand<'_>,
        group_step: usize,
        rows: Rows<'_>,
    ) {
        match self {
            Right::Panels(groups, packed) => {
                let mut rest = *packed;
                for (group, panels) in groups.iter().enumerate() {
                    let (packed, next) = rest.split_at(panels.len());
                    rest = next;
                    let left = Operand {
                        offset: left.offset + group * group_step,
                        ..left
                    };
                    let rows = Rows {
                        out: &mut *rows.out,
                        ..rows
                    };
                    panels.multiply(threads, left, packed, rows);
                }
            }
            &Right::Narrow([terms, features, columns], packed) => {
                Arch::new().dispatch(narrow::Product {
                    left,
                    packed,
                    terms,
                    features,
                    columns,
                    rows,
                });
            }
        }
    }
}
