//! Right matrices of the products of convolutions.

use crate::{
    Operand, Threads,
    gemm::{Panels, Rows},
};

/// The right matrix of a product, the kernel or the gradient of the result, as panels of each group.
pub(super) struct Right<'r> {
    groups: Vec<Panels>,
    packed: &'r [f32],
}

impl<'r> Right<'r> {
    /// Packs a matrix into the panels of its groups. Returns the rest of `packed` too.
    pub(super) fn pack(
        threads: &Threads,
        right: Operand<'_>,
        groups: Vec<Panels>,
        packed: &'r mut [f32],
    ) -> (Self, &'r mut [f32]) {
        let (packed, rest) = packed.split_at_mut(groups.iter().map(Panels::len).sum());
        let mut unpacked = &mut packed[..];
        for panels in &groups {
            let (group, next) = unpacked.split_at_mut(panels.len());
            unpacked = next;
            panels.pack(threads, right, group);
        }
        (Right { groups, packed }, rest)
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
        let mut rest = self.packed;
        for (group, panels) in self.groups.iter().enumerate() {
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
}
