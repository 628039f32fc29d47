//! Right matrices of the products of convolutions.

use pulp::{Arch, Simd, WithSimd};

use crate::{
    Operand, Threads,
    gemm::{Panels, Rows},
};

/// Windows, or taps, that share a vector of the right matrix.
const ROWS: usize = 8;

/// The right matrix of a product: the kernel, or the gradient of the result.
pub(super) enum Right<'r> {
    /// Panels of each group.
    Packed(Vec<Panels>, &'r [f32]),
    /// A matrix that is multiplied column by column: that of a depthwise convolution.
    Depthwise(Operand<'r>, usize),
}

impl<'r> Right<'r> {
    /// Packs `terms` rows of a matrix into the panels of its groups, or takes it as depthwise if there are none.
    /// Returns the rest of `packed` too.
    pub(super) fn pack(
        threads: &Threads,
        right: Operand<'r>,
        terms: usize,
        panels: Vec<Panels>,
        packed: &'r mut [f32],
    ) -> (Self, &'r mut [f32]) {
        if panels.is_empty() {
            return (Right::Depthwise(right, terms), packed);
        }
        let (packed, rest) = packed.split_at_mut(panels.iter().map(Panels::len).sum());
        let mut groups = &mut packed[..];
        for panels in &panels {
            let (group, next) = groups.split_at_mut(panels.len());
            groups = next;
            panels.pack(threads, right, group);
        }
        (Right::Packed(panels, packed), rest)
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
            Right::Packed(groups, packed) => {
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
            &Right::Depthwise(right, terms) => Arch::new().dispatch(Depthwise {
                left,
                right,
                terms,
                rows,
            }),
        }
    }
}

/// Rows `out[i, c] = sum over k of left[i, k + c] * right[k, c]`.
struct Depthwise<'a> {
    left: Operand<'a>,
    right: Operand<'a>,
    terms: usize,
    rows: Rows<'a>,
}

impl WithSimd for Depthwise<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Depthwise {
            left,
            right,
            terms,
            rows,
        } = self;
        let length = rows.length;
        for (group, out) in rows.out.chunks_mut(ROWS * length).enumerate() {
            let count = out.len() / length;
            // Rows beyond the last repeat it, and are not written.
            let position = |row: usize| {
                let row = rows.first + group * ROWS + row.min(count - 1);
                left.offset + left.rows.at(row)
            };
            let positions: [usize; ROWS] = std::array::from_fn(position);
            for first in (0..length).step_by(S::F32_LANES) {
                let width = S::F32_LANES.min(length - first);
                let mut sums = [simd.splat_f32s(0.0); ROWS];
                for term in 0..terms {
                    let at = right.offset + right.rows.at(term) + first;
                    let factor = simd.partial_load_f32s(&right.data[at..][..width]);
                    let term = left.columns.at(term) + first;
                    for (sum, position) in sums.iter_mut().zip(positions) {
                        let value = simd.partial_load_f32s(&left.data[position + term..][..width]);
                        *sum = simd.mul_add_e_f32s(value, factor, *sum);
                    }
                }
                for (out, sum) in out.chunks_exact_mut(length).zip(sums) {
                    let out = &mut out[first..][..width];
                    let sum = if rows.accumulate {
                        simd.add_f32s(simd.partial_load_f32s(out), sum)
                    } else {
                        sum
                    };
                    simd.partial_store_f32s(out, sum);
                }
            }
        }
    }
}
