//! Products of matrices, in blocks that fit the caches.
//!
//! The algorithm is that of Goto and van de Geijn, "Anatomy of high-performance matrix
//! multiplication" (2008): the right matrix is packed into panels as wide as the accumulators of
//! the innermost kernel. The left one is read where it is if its rows are contiguous, and is packed
//! by groups of rows otherwise.
//!
//! Matrices are given by positions of their rows and columns, so that transposed matrices, and the
//! patches of a convolution, are matrices without a copy.

use std::ops::Range;

use bytemuck::{cast_slice, cast_slice_mut};
use pulp::{Arch, Simd, WithSimd};

use crate::Threads;

/// Rows of the innermost kernel.
const ROWS: usize = 8;
/// Terms of a sum between two updates of the result.
const DEPTH: usize = 256;
/// Columns of a packed block: with [`DEPTH`], half a megabyte.
const COLUMNS: usize = 512;
/// Groups of rows that one panel is multiplied with before the next: 128 kilobytes of the left
/// matrix.
const GROUPS: usize = 16;
/// Parts into which the sums of a small result are cut, for more threads and less rounding.
const PARTS: usize = 8;

/// Positions of the rows or columns of a matrix.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    positions: Vec<u32>,
    /// Runs of neighbors, by their first index.
    runs: Vec<u32>,
}

impl Axis {
    /// An axis with these positions.
    pub fn new(positions: Vec<u32>) -> Self {
        let starts_run =
            |&at: &usize| at == 0 || positions[at] != positions[at - 1].wrapping_add(1);
        let runs = (0..positions.len())
            .filter(starts_run)
            .map(|at| at as u32)
            .collect();
        Axis { positions, runs }
    }

    /// Number of rows or columns.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Returns whether there are no rows or columns.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    fn at(&self, index: usize) -> usize {
        self.positions[index] as usize
    }

    /// Returns whether most indices have their neighbors next to them.
    fn is_dense(&self) -> bool {
        self.positions.len() >= 8 * self.runs.len()
    }

    /// The runs of `range`, as (index from its start, position, length).
    #[inline(always)]
    fn runs(&self, range: Range<usize>) -> impl Iterator<Item = (usize, usize, usize)> {
        let first = self
            .runs
            .partition_point(|&run| run as usize <= range.start)
            .max(1)
            - 1;
        let within = self.runs[first..].iter().enumerate();
        let started = within.take_while({
            let end = range.end;
            move |(_, run)| (**run as usize) < end
        });
        started.map(move |(number, &run)| {
            let next = self
                .runs
                .get(first + number + 1)
                .map_or(self.len(), |&run| run as usize);
            let start = range.start.max(run as usize);
            let end = range.end.min(next);
            (start - range.start, self.at(start), end - start)
        })
    }
}

/// A matrix: element `(i, j)` is `data[offset + rows[i] + columns[j]]`.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// The buffer that has the elements.
    pub data: &'a [f32],
    /// Position of the matrix in it.
    pub offset: usize,
    /// Positions of the rows.
    pub rows: &'a Axis,
    /// Positions of the columns.
    pub columns: &'a Axis,
}

/// Computes the product `a b` into the row-major matrix `out`.
///
/// # Panics
/// If the sizes do not agree, or an element is beyond the end of its buffer.
pub fn multiply(threads: &Threads, a: Operand<'_>, b: Operand<'_>, out: &mut [f32]) {
    let (m, k, n) = (a.rows.len(), a.columns.len(), b.columns.len());
    assert_eq!(
        b.rows.len(),
        k,
        "the operands have as many columns and rows"
    );
    assert_eq!(
        out.len(),
        m * n,
        "the result has the rows of one and the columns of the other"
    );
    if out.is_empty() {
        return;
    }
    // The parts depend on nothing but the sizes: every number of threads adds in the same order.
    if k < 16 * DEPTH || out.len() > 1 << 14 {
        let work = Work { a, b, depth: 0..k };
        return work.run(threads, out);
    }
    let part = k.div_ceil(PARTS).next_multiple_of(DEPTH);
    threads.with_scratch(out.len() * PARTS, |sums| {
        let items = sums.chunks_exact_mut(out.len()).enumerate();
        threads.for_each(nanoseconds(m, k, n), items, |(number, sum)| {
            let depth = (number * part).min(k)..((number + 1) * part).min(k);
            let serial = Threads::serial();
            Work { a, b, depth }.run(&serial, sum);
        });
        let (first, rest) = sums.split_at(out.len());
        out.copy_from_slice(first);
        for sum in rest.chunks_exact(out.len()) {
            out.iter_mut().zip(sum).for_each(|(out, sum)| *out += sum);
        }
    });
}

/// Computes products of matrices of one shape. `batches` are the offsets of both matrices of each,
/// beyond those of the operands; the results are neighbors.
///
/// # Panics
/// As [`multiply`] does.
pub fn multiply_all(
    threads: &Threads,
    [a, b]: [Operand<'_>; 2],
    batches: &[[usize; 2]],
    out: &mut [f32],
) {
    let (m, k, n) = (a.rows.len(), a.columns.len(), b.columns.len());
    assert_eq!(
        out.len(),
        batches.len() * m * n,
        "the result has all products"
    );
    if out.is_empty() {
        return;
    }
    let product = |threads: &Threads, &[left, right]: &[usize; 2], out: &mut [f32]| {
        let a = Operand {
            offset: a.offset + left,
            ..a
        };
        let b = Operand {
            offset: b.offset + right,
            ..b
        };
        multiply(threads, a, b, out);
    };
    let items = batches.iter().zip(out.chunks_exact_mut(m * n));
    if batches.len() < threads.count() {
        return items.for_each(|(offsets, out)| product(threads, offsets, out));
    }
    let cost = nanoseconds(m, k, n).saturating_mul(batches.len());
    threads.for_each(cost, items, |(offsets, out)| {
        product(&Threads::serial(), offsets, out);
    });
}

/// An estimate of the time of a product.
fn nanoseconds(m: usize, k: usize, n: usize) -> usize {
    m.saturating_mul(k).saturating_mul(n) / 64
}

/// The sums over a range of the columns of `a`.
#[derive(Clone)]
struct Work<'a> {
    a: Operand<'a>,
    b: Operand<'a>,
    depth: Range<usize>,
}

impl Work<'_> {
    fn run(self, threads: &Threads, out: &mut [f32]) {
        let Work { a, b, depth: all } = self;
        if all.is_empty() {
            return out.fill(0.0);
        }
        let arch = Arch::new();
        let (m, n) = (a.rows.len(), b.columns.len());
        let width = arch.dispatch(PanelWidth);
        // Any number of rows gives the same bits.
        let rows = m.div_ceil(4 * threads.count()).next_multiple_of(ROWS);
        let most = DEPTH.min(all.len()) * COLUMNS.min(n).next_multiple_of(width);
        threads.with_scratch(most, |packed| {
            for first_column in (0..n).step_by(COLUMNS) {
                let columns = first_column..(first_column + COLUMNS).min(n);
                for start in all.clone().step_by(DEPTH) {
                    let depth = start..(start + DEPTH).min(all.end);
                    let panels = columns.clone().step_by(width);
                    let packed = &mut packed[..panels.len() * width * depth.len()];
                    let cost = packed.len() / 2;
                    let parts = packed.chunks_exact_mut(width * depth.len()).zip(panels);
                    threads.for_each(cost, parts, |(panel, first)| {
                        let columns = first..(first + width).min(columns.end);
                        pack_panel(b, depth.clone(), columns, width, panel);
                    });
                    let cost = nanoseconds(m, depth.len(), columns.len());
                    let blocks = out.chunks_mut(rows * n).enumerate();
                    threads.for_each(cost, blocks, |(number, out)| {
                        arch.dispatch(Block {
                            a,
                            first_row: number * rows,
                            columns: columns.clone(),
                            depth: depth.clone(),
                            is_first: depth.start == all.start,
                            packed,
                            out,
                            row_length: n,
                        });
                    });
                }
            }
        });
    }
}

/// Copies columns of a matrix to a panel of `width` columns, the last of which may be unused.
fn pack_panel(
    b: Operand<'_>,
    depth: Range<usize>,
    columns: Range<usize>,
    width: usize,
    panel: &mut [f32],
) {
    let count = columns.len();
    let first = b.offset + b.columns.at(columns.start);
    let is_run = b.columns.runs(columns.clone()).count() == 1;
    if is_run {
        for (row, packed) in depth.zip(panel.chunks_exact_mut(width)) {
            let at = first + b.rows.at(row);
            packed[..count].copy_from_slice(&b.data[at..at + count]);
            packed[count..].fill(0.0);
        }
        return;
    }
    panel.fill(0.0);
    for (number, column) in columns.enumerate() {
        let at = b.offset + b.columns.at(column);
        for (start, position, length) in b.rows.runs(depth.clone()) {
            let source = &b.data[at + position..][..length];
            for (row, &value) in source.iter().enumerate() {
                panel[(start + row) * width + number] = value;
            }
        }
    }
}

/// The accumulators of one row, in vectors: with eight rows they are half of the registers.
#[inline(always)]
fn has_wide_panels<S: Simd>() -> bool {
    S::REGISTER_COUNT >= 32
}

/// The number of columns of a panel.
struct PanelWidth;

impl WithSimd for PanelWidth {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES * if has_wide_panels::<S>() { 2 } else { 1 }
    }
}

/// Some rows of the result, some of its columns, and some terms of their sums.
struct Block<'a> {
    a: Operand<'a>,
    first_row: usize,
    columns: Range<usize>,
    depth: Range<usize>,
    /// Whether these are the first terms.
    is_first: bool,
    packed: &'a [f32],
    /// The rows of the result.
    out: &'a mut [f32],
    row_length: usize,
}

impl WithSimd for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if has_wide_panels::<S>() {
            self.run::<S, 2>(simd)
        } else {
            self.run::<S, 1>(simd)
        }
    }
}

/// Sums of the innermost kernel: rows of `VECTORS` vectors.
type Sums<S, const VECTORS: usize> = [[<S as Simd>::f32s; VECTORS]; ROWS];

impl Block<'_> {
    #[inline(always)]
    fn run<S: Simd, const VECTORS: usize>(self, simd: S) {
        let Block {
            a,
            first_row,
            columns,
            depth,
            is_first,
            packed,
            out,
            row_length,
        } = self;
        let width = S::F32_LANES * VECTORS;
        let size = ROWS * depth.len();
        let is_direct = a.columns.is_dense();
        let mut groups = if is_direct {
            Vec::new()
        } else {
            vec![0.0; GROUPS * size]
        };
        for (number, out) in out.chunks_mut(GROUPS * ROWS * row_length).enumerate() {
            let first = first_row + number * GROUPS * ROWS;
            let rows = |group: usize, out: &[f32]| {
                group_rows(a, first + group * ROWS, out.len() / row_length)
            };
            if !is_direct {
                let lines = out.chunks(ROWS * row_length).enumerate();
                for ((group, out), packed) in lines.zip(groups.chunks_exact_mut(size)) {
                    pack_group(a, depth.clone(), &rows(group, out), packed);
                }
            }
            // A panel stays in the first-level cache, while all groups of rows pass by.
            let panels = packed.chunks_exact(width * depth.len());
            for (panel, column) in panels.zip(columns.clone().step_by(width)) {
                let panel: &[S::f32s] = cast_slice(panel);
                let valid = width.min(columns.end - column);
                for (group, out) in out.chunks_mut(ROWS * row_length).enumerate() {
                    let sums = if is_direct {
                        let rows = rows(group, out);
                        sum_lines::<S, VECTORS>(simd, a, depth.clone(), &rows, panel)
                    } else {
                        let (group, _) = groups[group * size..][..size].as_chunks();
                        sum_group::<S, VECTORS>(simd, group, panel)
                    };
                    let lines = out.chunks_exact_mut(row_length);
                    let lines = lines.map(|line| &mut line[column..][..valid]);
                    write::<S, VECTORS>(simd, &sums, lines, is_first);
                }
            }
        }
    }
}

/// Positions of a group of rows. Those beyond the last of `count` repeat it, and are not written.
#[inline(always)]
fn group_rows(a: Operand<'_>, first: usize, count: usize) -> [usize; ROWS] {
    let mut rows = [0; ROWS];
    for (row, at) in rows.iter_mut().enumerate() {
        *at = a.offset + a.rows.at(first + row.min(count - 1));
    }
    rows
}

/// Copies rows, so that the elements of one column are neighbors.
#[inline(always)]
fn pack_group(a: Operand<'_>, depth: Range<usize>, rows: &[usize; ROWS], group: &mut [f32]) {
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
fn sum_lines<S: Simd, const VECTORS: usize>(
    simd: S,
    a: Operand<'_>,
    depth: Range<usize>,
    rows: &[usize; ROWS],
    panel: &[S::f32s],
) -> Sums<S, VECTORS> {
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
fn sum_group<S: Simd, const VECTORS: usize>(
    simd: S,
    group: &[[f32; ROWS]],
    panel: &[S::f32s],
) -> Sums<S, VECTORS> {
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
fn write<'o, S: Simd, const VECTORS: usize>(
    simd: S,
    sums: &Sums<S, VECTORS>,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn value(at: usize, seed: usize) -> f32 {
        ((at * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0
    }

    /// Strides of the rows and columns.
    fn axes(rows: usize, columns: usize, is_transposed: bool) -> (Axis, Axis) {
        let axis = |size: usize, stride: usize| {
            Axis::new((0..size).map(|at| (at * stride) as u32).collect())
        };
        if is_transposed {
            (axis(rows, 1), axis(columns, rows))
        } else {
            (axis(rows, columns), axis(columns, 1))
        }
    }

    fn product(threads: usize, [m, k, n]: [usize; 3], transposed: [bool; 2]) -> Vec<f32> {
        let a: Vec<f32> = (0..m * k).map(|at| value(at, 1)).collect();
        let b: Vec<f32> = (0..k * n).map(|at| value(at, 2)).collect();
        let (a_axes, b_axes) = (axes(m, k, transposed[0]), axes(k, n, transposed[1]));
        let a = Operand {
            data: &a,
            offset: 0,
            rows: &a_axes.0,
            columns: &a_axes.1,
        };
        let b = Operand {
            data: &b,
            offset: 0,
            rows: &b_axes.0,
            columns: &b_axes.1,
        };
        let mut out = vec![f32::NAN; m * n];
        multiply(
            &Threads::new(threads).expect("threads start"),
            a,
            b,
            &mut out,
        );
        let exact = |i: usize, j: usize| -> (f64, f64) {
            let of = |x: &Operand<'_>, i, j| f64::from(x.data[x.rows.at(i) + x.columns.at(j)]);
            let terms = (0..k).map(|term| of(&a, i, term) * of(&b, term, j));
            terms.fold((0.0, 0.0), |(sum, size), term| {
                (sum + term, size + term.abs())
            })
        };
        // Every element of small products, some of large ones.
        for at in (0..m * n).step_by(1 + m * n * k / 3_000_000) {
            let (sum, size) = exact(at / n, at % n);
            let error = (f64::from(out[at]) - sum).abs();
            assert!(
                error <= 2e-6 * size,
                "[{m}, {k}, {n}] {transposed:?} at {at}: {error}"
            );
        }
        out
    }

    #[test]
    fn products_are_those_of_a_naive_loop() {
        let sizes = [1, 2, 7, 8, 9, 31, 33, 65];
        for (number, &m) in sizes.iter().enumerate() {
            for (k, n) in [(0, 3), (1, 1), (5, 40), (17, 32), (300, 9), (64, 70)] {
                for transposed in [[false, false], [true, false], [false, true], [true, true]] {
                    product(1 + number % 2, [m, k, n], transposed);
                }
            }
        }
        product(2, [130, 520, 1030], [false, false]);
    }

    #[test]
    fn long_sums_are_cut_into_parts() {
        product(2, [9, 5000, 33], [true, false]);
        product(1, [3, 4096, 1], [false, true]);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        for sizes in [[200, 300, 70], [9, 5000, 33], [1, 700, 600]] {
            let one = product(1, sizes, [false, false]);
            assert_eq!(one, product(3, sizes, [false, false]), "{sizes:?}");
        }
    }

    #[test]
    fn runs_cover_a_range() {
        let axis = Axis::new(vec![4, 5, 6, 10, 11, 3]);
        let runs: Vec<_> = axis.runs(1..6).collect();
        assert_eq!(runs, [(0, 5, 2), (2, 10, 2), (4, 3, 1)]);
        assert_eq!(axis.runs(3..4).collect::<Vec<_>>(), [(0, 10, 1)]);
    }
}
