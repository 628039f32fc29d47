//! The inner loops of products: panels, groups of rows, and the accumulators in registers.

use std::ops::Range;

use bytemuck::{cast_slice, cast_slice_mut};
use pulp::{Simd, WithSimd};

use super::Operand;
use crate::Element;

/// Most rows of the innermost kernel.
pub(super) const MOST_ROWS: usize = 8;
/// Groups of rows that one panel is multiplied with before the next: at most 192 kilobytes of the
/// left matrix.
const GROUPS: usize = 16;

/// Copies columns of a matrix to a panel of `width` columns, the last of which may be unused.
pub(super) fn pack_panel<T: Element>(
    b: Operand<'_, T>,
    depth: Range<usize>,
    columns: Range<usize>,
    width: usize,
    panel: &mut [f32],
) {
    let count = columns.len();
    let first = b.offset + b.columns.at(columns.start);
    let is_run = b.columns.runs(columns.clone()).count() == 1;
    if is_run {
        let starts = depth.map(|row| first + b.rows.at(row));
        return match count {
            32 if width == 32 => copy_rows::<T, 32>(b.data, starts, panel),
            16 if width == 16 => copy_rows::<T, 16>(b.data, starts, panel),
            8 if width == 8 => copy_rows::<T, 8>(b.data, starts, panel),
            _ => {
                for (at, packed) in starts.zip(panel.chunks_exact_mut(width)) {
                    T::widen(&b.data[at..at + count], &mut packed[..count]);
                    packed[count..].fill(0.0);
                }
            }
        };
    }
    if !count.is_multiple_of(TOGETHER) {
        panel.fill(0.0);
    }
    // Each run of rows of some columns, so that the panel is written line by line.
    for number in (0..count).step_by(TOGETHER) {
        let lines = TOGETHER.min(count - number);
        let mut starts = [0; TOGETHER];
        for (line, start) in starts[..lines].iter_mut().enumerate() {
            *start = b.offset + b.columns.at(columns.start + number + line);
        }
        for (start, position, length) in b.rows.runs(depth.clone()) {
            let lines = starts[..lines]
                .iter()
                .map(|at| &b.data[at + position..][..length]);
            transpose(lines, &mut panel[start * width + number..], width);
        }
    }
}

/// Copies rows of a width that the compiler knows.
fn copy_rows<T: Element, const WIDTH: usize>(
    data: &[T],
    starts: impl Iterator<Item = usize>,
    panel: &mut [f32],
) {
    let (panel, _) = panel.as_chunks_mut::<WIDTH>();
    for (at, packed) in starts.zip(panel) {
        for (packed, value) in packed.iter_mut().zip(&data[at..at + WIDTH]) {
            *packed = value.wide();
        }
    }
}

/// Columns that are packed at a time where their elements are not neighbors.
const TOGETHER: usize = 8;

/// Writes lines, at most [`TOGETHER`] of one length, to neighboring columns of rows of `width`.
#[inline(always)]
fn transpose<'l, T: Element>(lines: impl Iterator<Item = &'l [T]>, out: &mut [f32], width: usize) {
    let mut all: [&[T]; TOGETHER] = [&[]; TOGETHER];
    let mut count = 0;
    for line in lines {
        all[count] = line;
        count += 1;
    }
    let length = all[0].len();
    if count < TOGETHER {
        for (number, line) in all[..count].iter().enumerate() {
            for (row, &value) in line.iter().enumerate() {
                out[row * width + number] = value.wide();
            }
        }
        return;
    }
    let all = all.map(|line| &line[..length]);
    for (row, out) in (0..length).zip(out.chunks_mut(width)) {
        let out = &mut out[..TOGETHER];
        for (out, line) in out.iter_mut().zip(all) {
            *out = line[row].wide();
        }
    }
}

/// The number of columns of a panel of a matrix with this number of columns: two vectors, or one
/// where that has all of them.
pub(super) struct PanelWidth(pub(super) usize);

impl WithSimd for PanelWidth {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        let lanes = S::F32_LANES;
        if self.0 > lanes { 2 * lanes } else { lanes }
    }
}

/// Number of elements of the groups that [`Block`] packs for `rows` rows and `depth` terms.
pub(super) fn packed_rows(a: Operand<'_>, rows: usize, depth: usize) -> usize {
    if a.columns.is_dense() {
        return 0;
    }
    (rows + MOST_ROWS).min(GROUPS * MOST_ROWS) * depth
}

/// Some rows of the result, some of its columns, and some terms of their sums.
pub(super) struct Block<'a> {
    pub(super) a: Operand<'a>,
    pub(super) first_row: usize,
    pub(super) columns: Range<usize>,
    pub(super) depth: Range<usize>,
    /// Columns of a panel, and terms that are packed in it: at least those of `depth`.
    pub(super) panel_columns: usize,
    pub(super) packed_depth: usize,
    /// Whether these are the first terms.
    pub(super) is_first: bool,
    pub(super) packed: &'a [f32],
    /// Memory of [`packed_rows`] for groups of rows of the left matrix; empty if it is read where
    /// it is.
    pub(super) groups: &'a mut [f32],
    /// The rows of the result.
    pub(super) out: &'a mut [f32],
    pub(super) row_length: usize,
}

impl WithSimd for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // The accumulators fit the registers, with one for each vector of the panel and one for an
        // element. Six rows of two vectors load less for each product than eight rows of one, and
        // hide more of the latency of sums.
        if self.panel_columns == S::F32_LANES {
            self.run::<S, MOST_ROWS, 1>(simd)
        } else if S::REGISTER_COUNT >= 32 {
            self.run::<S, MOST_ROWS, 2>(simd)
        } else {
            self.run::<S, 6, 2>(simd)
        }
    }
}

/// Sums of the innermost kernel: rows of `VECTORS` vectors.
type Sums<S, const ROWS: usize, const VECTORS: usize> = [[<S as Simd>::f32s; VECTORS]; ROWS];

impl Block<'_> {
    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize>(self, simd: S) {
        let Block {
            a,
            first_row,
            columns,
            depth,
            packed_depth,
            is_first,
            packed,
            out,
            groups,
            row_length,
            ..
        } = self;
        let width = S::F32_LANES * VECTORS;
        let size = ROWS * depth.len();
        let is_direct = groups.is_empty();
        for (number, out) in out.chunks_mut(GROUPS * ROWS * row_length).enumerate() {
            let first = first_row + number * GROUPS * ROWS;
            let mut rows = [[0; ROWS]; GROUPS];
            let rows = &mut rows[..out.len().div_ceil(ROWS * row_length)];
            let lines = out.chunks(ROWS * row_length).enumerate();
            for ((group, out), rows) in lines.zip(&mut *rows) {
                *rows = group_rows(a, first + group * ROWS, out.len() / row_length);
            }
            if !is_direct {
                for (rows, packed) in rows.iter().zip(groups.chunks_exact_mut(size)) {
                    pack_group(a, depth.clone(), rows, packed);
                }
            }
            // All groups of rows pass by a panel, which stays in the nearest caches meanwhile.
            let panels = packed.chunks_exact(width * packed_depth);
            for (panel, column) in panels.zip(columns.clone().step_by(width)) {
                let panel: &[S::f32s] = cast_slice(panel);
                let valid = width.min(columns.end - column);
                let lines = out.chunks_mut(ROWS * row_length).zip(&*rows);
                for (group, (out, rows)) in lines.enumerate() {
                    let sums = if is_direct {
                        sum_lines::<S, ROWS, VECTORS>(simd, a, depth.clone(), rows, panel)
                    } else {
                        let (group, _) = groups[group * size..][..size].as_chunks();
                        sum_group::<S, ROWS, VECTORS>(simd, group, panel)
                    };
                    let lines = out.chunks_exact_mut(row_length);
                    let lines = lines.map(|line| &mut line[column..][..valid]);
                    write::<S, ROWS, VECTORS>(simd, &sums, lines, is_first);
                }
            }
        }
    }
}

/// Positions of a group of rows. Those beyond the last of `count` repeat it, and are not written.
#[inline(always)]
fn group_rows<const ROWS: usize>(a: Operand<'_>, first: usize, count: usize) -> [usize; ROWS] {
    let mut rows = [0; ROWS];
    for (row, at) in rows.iter_mut().enumerate() {
        *at = a.offset + a.rows.at(first + row.min(count - 1));
    }
    rows
}

/// Copies rows, so that the elements of one column are neighbors.
#[inline(always)]
fn pack_group<const ROWS: usize>(
    a: Operand<'_>,
    depth: Range<usize>,
    rows: &[usize; ROWS],
    group: &mut [f32],
) {
    let (group, _) = group.as_chunks_mut::<ROWS>();
    if rows.windows(2).all(|pair| pair[1] == pair[0] + 1) {
        for (column, packed) in depth.zip(group) {
            packed.copy_from_slice(&a.data[rows[0] + a.columns.at(column)..][..ROWS]);
        }
        return;
    }
    for (column, packed) in depth.zip(group) {
        let position = a.columns.at(column);
        for (packed, row) in packed.iter_mut().zip(rows) {
            *packed = a.data[row + position];
        }
    }
}

/// The product of rows, which are read where they are, and a panel.
#[inline(always)]
fn sum_lines<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    a: Operand<'_>,
    depth: Range<usize>,
    rows: &[usize; ROWS],
    panel: &[S::f32s],
) -> Sums<S, ROWS, VECTORS> {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    let (panel, _) = panel.as_chunks::<VECTORS>();
    for (start, position, length) in a.columns.runs(depth) {
        let panel = &panel[start..][..length];
        let mut lines: [&[f32]; ROWS] = [&[]; ROWS];
        for (line, row) in lines.iter_mut().zip(rows) {
            *line = &a.data[row + position..][..panel.len()];
        }
        for (at, vectors) in panel.iter().enumerate() {
            for row in 0..ROWS {
                let value = simd.splat_f32s(lines[row][at]);
                add::<S, VECTORS>(simd, value, vectors, &mut sums[row]);
            }
        }
    }
    sums
}

/// The product of a packed group of rows and a panel.
#[inline(always)]
fn sum_group<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    group: &[[f32; ROWS]],
    panel: &[S::f32s],
) -> Sums<S, ROWS, VECTORS> {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    let (panel, _) = panel.as_chunks::<VECTORS>();
    for (values, vectors) in group.iter().zip(panel) {
        for (&value, sums) in values.iter().zip(&mut sums) {
            add::<S, VECTORS>(simd, simd.splat_f32s(value), vectors, sums);
        }
    }
    sums
}

/// Adds the product of one element, in all lanes, and a row of a panel.
#[inline(always)]
fn add<S: Simd, const VECTORS: usize>(
    simd: S,
    value: S::f32s,
    vectors: &[S::f32s; VECTORS],
    sums: &mut [S::f32s; VECTORS],
) {
    for (sum, &vector) in sums.iter_mut().zip(vectors) {
        *sum = simd.mul_add_e_f32s(value, vector, *sum);
    }
}

/// Adds the sums to rows of the result, or sets these.
#[inline(always)]
fn write<'o, S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    sums: &Sums<S, ROWS, VECTORS>,
    lines: impl Iterator<Item = &'o mut [f32]>,
    is_first: bool,
) {
    for (line, sums) in lines.zip(sums) {
        if line.len() == S::F32_LANES * VECTORS {
            let line: &mut [S::f32s] = cast_slice_mut(line);
            for (out, &sum) in line.iter_mut().zip(sums) {
                *out = if is_first {
                    sum
                } else {
                    simd.add_f32s(*out, sum)
                };
            }
        } else {
            let sums: &[f32] = cast_slice(sums);
            for (out, &sum) in line.iter_mut().zip(sums) {
                *out = if is_first { sum } else { *out + sum };
            }
        }
    }
}
