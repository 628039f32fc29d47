//! Products with right matrices of few columns, vectorized over the terms.
//!
//! A convolution to one to four features fills a small part of the vectors of a panel. Here lanes
//! are features of the source. Sums are those of [`LANES`] lanes, which are added in one order at
//! the end, so that they do not depend on the width of the processor's vectors.

use bytemuck::{cast_slice, cast_slice_mut};
use pulp::{Simd, WithSimd};

use crate::{Axis, Operand, gemm::Rows};

/// Most columns.
const MOST_COLUMNS: usize = 4;
/// Lanes of a sum.
const LANES: usize = super::pass::MOST_LANES;

/// Returns whether a product of these terms for each tap, and these columns, is narrow.
pub(super) fn is_narrow(features: usize, columns: usize) -> bool {
    (1..=MOST_COLUMNS).contains(&columns) && features >= LANES
}

/// Number of elements of a packed matrix.
pub(super) fn packed_len(terms: usize, features: usize, columns: usize) -> usize {
    terms / features * features.next_multiple_of(LANES) * columns
}

/// Packs a matrix: for each tap and [`LANES`] features, the lanes of each column.
pub(super) fn pack(right: Operand<'_>, terms: usize, features: usize, packed: &mut [f32]) {
    let columns = right.columns.len();
    let mut packed = packed.chunks_exact_mut(LANES);
    for tap in (0..terms).step_by(features) {
        for first in (0..features).step_by(LANES) {
            for (column, packed) in (0..columns).zip(&mut packed) {
                let at = right.offset + right.columns.at(column);
                packed.fill(0.0);
                let lanes = packed.iter_mut().zip(first..features);
                lanes.for_each(|(lane, feature)| {
                    *lane = right.data[at + right.rows.at(tap + feature)];
                });
            }
        }
    }
}

/// Loads at most a vector.
#[inline(always)]
fn load<S: Simd>(simd: S, from: &[f32]) -> S::f32s {
    if from.len() == S::F32_LANES {
        let vectors: &[S::f32s] = cast_slice(from);
        vectors[0]
    } else {
        simd.partial_load_f32s(from)
    }
}

/// Rows of a product with a packed matrix.
pub(super) struct Product<'a> {
    pub(super) left: Operand<'a>,
    pub(super) packed: &'a [f32],
    pub(super) terms: usize,
    /// Terms of a tap, which are neighbors in the left matrix.
    pub(super) features: usize,
    pub(super) columns: usize,
    pub(super) rows: Rows<'a>,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.columns {
            1 => self.run::<S, 1, 8>(simd),
            2 => self.run::<S, 2, 6>(simd),
            3 => self.run::<S, 3, 4>(simd),
            _ => self.run::<S, 4, 3>(simd),
        }
    }
}

impl Product<'_> {
    /// Computes `N` rows of `C` columns at a time.
    #[inline(always)]
    fn run<S: Simd, const C: usize, const N: usize>(mut self, simd: S) {
        let out = std::mem::take(&mut self.rows.out);
        let length = self.rows.length;
        for (number, out) in out.chunks_mut(N * length).enumerate() {
            // Rows beyond the last repeat it, and are not written.
            let last = out.len() / length - 1;
            let row = |row: usize| self.rows.first + number * N + row.min(last);
            let mut rows = [0; N];
            for (at, position) in rows.iter_mut().enumerate() {
                *position = self.left.offset + self.left.rows.at(row(at));
            }
            let mut sums = [[[0.0; LANES]; C]; N];
            for first_lane in (0..LANES).step_by(S::F32_LANES) {
                let found = self.sums::<S, C, N>(simd, rows, first_lane);
                for (sums, found) in sums.iter_mut().zip(found) {
                    for (lanes, found) in sums.iter_mut().zip(found) {
                        let lanes = &mut lanes[first_lane..][..S::F32_LANES];
                        let lanes: &mut [S::f32s] = cast_slice_mut(lanes);
                        lanes[0] = found;
                    }
                }
            }
            for (out, sums) in out.chunks_exact_mut(length).zip(sums) {
                for (out, lanes) in out.iter_mut().zip(sums) {
                    let sum = total(lanes);
                    *out = if self.rows.accumulate {
                        *out + sum
                    } else {
                        sum
                    };
                }
            }
        }
    }

    /// Sums of the lanes of a vector.
    #[inline(always)]
    fn sums<S: Simd, const C: usize, const N: usize>(
        &self,
        simd: S,
        rows: [usize; N],
        first_lane: usize,
    ) -> [[S::f32s; C]; N] {
        let mut sums = [[simd.splat_f32s(0.0); C]; N];
        let (blocks, _) = self.packed.as_chunks::<LANES>();
        let mut blocks = blocks.chunks_exact(C);
        for tap in (0..self.terms).step_by(self.features) {
            let at = self.left.columns.at(tap);
            for first in (0..self.features).step_by(LANES) {
                let block = blocks.next().expect("all terms are packed");
                let first = first + first_lane;
                if first >= self.features {
                    continue;
                }
                let width = S::F32_LANES.min(self.features - first);
                let mut factors = [simd.splat_f32s(0.0); C];
                for (factor, column) in factors.iter_mut().zip(block) {
                    *factor = load(simd, &column[first_lane..][..S::F32_LANES]);
                }
                for (sums, row) in sums.iter_mut().zip(rows) {
                    let from = &self.left.data[row + at + first..];
                    let value = match width == S::F32_LANES {
                        true => load(simd, &from[..S::F32_LANES]),
                        false => simd.partial_load_f32s(&from[..width]),
                    };
                    for (sum, factor) in sums.iter_mut().zip(factors) {
                        *sum = simd.mul_add_e_f32s(value, factor, *sum);
                    }
                }
            }
        }
        sums
    }
}

/// The sum of all lanes, in an order that does not depend on the processor.
#[inline(always)]
fn total(lanes: [f32; LANES]) -> f32 {
    let mut lanes = lanes;
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
    }
    lanes[0]
}

/// The product of the transpose of patches and of some columns: that of a kernel gradient. Rows are
/// terms, sums run over windows.
pub(super) struct Transposed<'a> {
    /// Rows are terms, columns windows.
    pub(super) patches: Operand<'a>,
    pub(super) windows: usize,
    pub(super) features: usize,
    /// The gradient of the result of each window.
    pub(super) g: &'a [f32],
    pub(super) g_rows: &'a Axis,
    pub(super) columns: usize,
    /// All rows.
    pub(super) rows: Rows<'a>,
}

impl WithSimd for Transposed<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let terms = self.patches.rows.len();
        let out = std::mem::take(&mut self.rows.out);
        let taps = terms / self.features;
        for first in (0..self.features).step_by(S::F32_LANES) {
            let mut tap = 0;
            while tap < taps {
                let most = if self.columns == 1 { 8 } else { 3 };
                let together = if taps - tap >= most { most } else { 1 };
                match (self.columns, together) {
                    (1, 8) => self.add::<S, 1, 8>(simd, tap, first, out),
                    (1, _) => self.add::<S, 1, 1>(simd, tap, first, out),
                    (2, 3) => self.add::<S, 2, 3>(simd, tap, first, out),
                    (2, _) => self.add::<S, 2, 1>(simd, tap, first, out),
                    (3, 3) => self.add::<S, 3, 3>(simd, tap, first, out),
                    (3, _) => self.add::<S, 3, 1>(simd, tap, first, out),
                    (_, 3) => self.add::<S, 4, 3>(simd, tap, first, out),
                    _ => self.add::<S, 4, 1>(simd, tap, first, out),
                }
                tap += together;
            }
        }
    }
}

impl Transposed<'_> {
    /// Computes a vector of features of `R` taps.
    #[inline(always)]
    fn add<S: Simd, const C: usize, const R: usize>(
        &self,
        simd: S,
        tap: usize,
        first: usize,
        out: &mut [f32],
    ) {
        let width = S::F32_LANES.min(self.features - first);
        let term = |row: usize| (tap + row) * self.features + first;
        let mut offsets = [0; R];
        for (row, offset) in offsets.iter_mut().enumerate() {
            *offset = self.patches.offset + self.patches.rows.at(term(row));
        }
        let mut sums = [[simd.splat_f32s(0.0); C]; R];
        for window in 0..self.windows {
            let at = self.patches.columns.at(window);
            let g = &self.g[self.g_rows.at(window)..][..C];
            let mut factors = [simd.splat_f32s(0.0); C];
            for (factor, &g) in factors.iter_mut().zip(g) {
                *factor = simd.splat_f32s(g);
            }
            for (sums, offset) in sums.iter_mut().zip(offsets) {
                let from = &self.patches.data[offset + at..];
                let value = match width == S::F32_LANES {
                    true => load(simd, &from[..S::F32_LANES]),
                    false => simd.partial_load_f32s(&from[..width]),
                };
                for (sum, factor) in sums.iter_mut().zip(factors) {
                    *sum = simd.mul_add_e_f32s(value, factor, *sum);
                }
            }
        }
        for (row, sums) in sums.into_iter().enumerate() {
            let out = &mut out[term(row) * C..][..width * C];
            for (column, sum) in sums.into_iter().enumerate() {
                let lanes: &[f32] = cast_slice(std::slice::from_ref(&sum));
                for (out, &sum) in out.iter_mut().skip(column).step_by(C).zip(lanes) {
                    *out = if self.rows.accumulate {
                        *out + sum
                    } else {
                        sum
                    };
                }
            }
        }
    }
}
