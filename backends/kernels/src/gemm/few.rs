//! Products of a few rows with a matrix that is read once, where it is: steps of text generation,
//! which are as fast as memory. Packing would write and read the matrix again.
//!
//! Sums have an order that depends neither on the width of vectors nor on the number of threads.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::{Axis, Operand, block_depth, nanoseconds};
use crate::{Element, Threads};

/// Most rows of the left matrix.
pub(super) const FEW: usize = 4;
/// Rows of the right matrix that are read at a time: as many streams from memory.
const STREAMS: usize = 8;
/// Columns of a result in registers.
const LANES: usize = 32;
/// Columns whose sums stay in the first-level cache; a multiple of [`LANES`].
const TILE: usize = 1024;
/// Columns of a transposed matrix that are multiplied at a time.
const LINES: usize = 4;
/// Sums of each of these columns, of every 16th term each.
const PARTIAL: usize = 16;

/// Order of the elements of the right matrix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Order {
    /// The elements of a row are neighbors.
    Rows,
    /// The elements of a column are neighbors.
    Columns,
}

impl Order {
    /// The order of a matrix, if it has one of these.
    pub(super) fn of<T>(b: Operand<'_, T>) -> Option<Self> {
        let is_run = |axis: &Axis| axis.runs.len() == 1;
        if is_run(b.columns) && b.columns.len() > 1 {
            return Some(Order::Rows);
        }
        is_run(b.rows).then_some(Order::Columns)
    }
}

/// Computes the product of `a`, of at most [`FEW`] rows, and `b`, whose elements are in this order.
/// In the order of rows, an element of the result has the bits that it has with more rows.
pub(super) fn multiply<T: Element>(
    threads: &Threads,
    a: Operand<'_>,
    b: Operand<'_, T>,
    order: Order,
    out: &mut [f32],
) {
    let [m, k, n] = [a.rows.len(), a.columns.len(), b.columns.len()];
    // Memory gives 16 bytes in a nanosecond.
    let cost = (k.saturating_mul(n) / 4).max(nanoseconds(m, k, n));
    let columns = n.div_ceil(4 * threads.count()).next_multiple_of(2 * LANES);
    threads.with_scratch(m * k, |left| {
        for (row, left) in left.chunks_exact_mut(k.max(1)).enumerate() {
            let start = a.offset + a.rows.at(row);
            for (first, position, length) in a.columns.runs(0..k) {
                left[first..][..length].copy_from_slice(&a.data[start + position..][..length]);
            }
        }
        let left = &*left;
        // The columns of an item are in every row of the result.
        let starts = (0..n).step_by(columns);
        let mut items: Vec<(Range<usize>, Vec<&mut [f32]>)> = starts
            .map(|first| (first..(first + columns).min(n), Vec::with_capacity(m)))
            .collect();
        for mut row in out.chunks_exact_mut(n) {
            for (range, rows) in &mut items {
                let (part, rest) = row.split_at_mut(range.len());
                rows.push(part);
                row = rest;
            }
        }
        threads.for_each(cost, items.into_iter(), |(columns, mut out)| {
            Arch::new().dispatch(Part {
                left,
                b,
                columns,
                order,
                out: &mut out,
            });
        });
    });
}

/// Some columns of a product.
struct Part<'p, 'o, T> {
    /// `[rows, terms]`
    left: &'p [f32],
    b: Operand<'p, T>,
    columns: Range<usize>,
    order: Order,
    /// Rows of the result.
    out: &'p mut [&'o mut [f32]],
}

impl<T: Element> WithSimd for Part<'_, '_, T> {
    type Output = ();

    // The instructions are those of `S`; loops over arrays become vectors.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match (self.order, self.out.len()) {
            (Order::Rows, 1) => self.by_rows::<1>(),
            (Order::Rows, 2) => self.by_rows::<2>(),
            (Order::Rows, 3) => self.by_rows::<3>(),
            (Order::Rows, _) => self.by_rows::<FEW>(),
            (Order::Columns, 1) => self.by_columns::<1>(),
            (Order::Columns, 2) => self.by_columns::<2>(),
            (Order::Columns, 3) => self.by_columns::<3>(),
            (Order::Columns, _) => self.by_columns::<FEW>(),
        }
    }
}

impl<T: Element> Part<'_, '_, T> {
    /// Adds rows of the right matrix, each times an element of the left one, a few at a time.
    #[inline(always)]
    fn by_rows<const M: usize>(self) {
        let (b, left) = (self.b, self.left);
        let k = b.rows.len();
        let depth = block_depth(k).max(1);
        let mut sums = [[0.0f32; TILE]; M];
        for first in (0..self.columns.len()).step_by(TILE) {
            let count = TILE.min(self.columns.len() - first);
            let start = b.offset + b.columns.at(self.columns.start + first);
            let line = |term: usize| &b.data[start + b.rows.at(term)..][..count];
            // Sums of a block of terms start from 0 and are added to those before, as they are with
            // more rows.
            for block in (0..k).step_by(depth) {
                let end = (block + depth).min(k);
                for sums in &mut sums {
                    sums[..count].fill(0.0);
                }
                let mut term = block;
                while term + STREAMS <= end {
                    let mut lines: [&[T]; STREAMS] = [&[]; STREAMS];
                    let mut values = [[0.0; STREAMS]; M];
                    for number in 0..STREAMS {
                        lines[number] = line(term + number);
                        for row in 0..M {
                            values[row][number] = left[row * k + term + number];
                        }
                    }
                    add::<T, M, STREAMS>(&lines, &values, &mut sums);
                    term += STREAMS;
                }
                for term in term..end {
                    let mut values = [[0.0; 1]; M];
                    for row in 0..M {
                        values[row][0] = left[row * k + term];
                    }
                    add::<T, M, 1>(&[line(term)], &values, &mut sums);
                }
                for row in 0..M {
                    let out = &mut self.out[row][first..][..count];
                    let sums = &sums[row][..count];
                    if block == 0 {
                        out.copy_from_slice(sums);
                    } else {
                        out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
                    }
                }
            }
            if k == 0 {
                self.out.iter_mut().for_each(|out| out.fill(0.0));
            }
        }
    }

    /// Inner products with columns, which are lines of memory.
    #[inline(always)]
    fn by_columns<const M: usize>(self) {
        let (b, left) = (self.b, self.left);
        let k = b.rows.len();
        let first = b.rows.positions.first().map_or(0, |&at| at as usize);
        let count = self.columns.len();
        for start in (0..count).step_by(LINES) {
            let lines = LINES.min(count - start);
            let mut all: [&[T]; LINES] = [&[]; LINES];
            for number in 0..LINES {
                // The last line in place of those beyond it.
                let column = self.columns.start + start + number.min(lines - 1);
                let at = b.offset + b.columns.at(column) + first;
                all[number] = &b.data[at..][..k];
            }
            let mut sums = [[[0.0f32; PARTIAL]; LINES]; M];
            let whole = k - k % PARTIAL;
            for term in (0..whole).step_by(PARTIAL) {
                let mut weights = [[0.0f32; PARTIAL]; LINES];
                for number in 0..LINES {
                    widen(&all[number][term..][..PARTIAL], &mut weights[number]);
                }
                for row in 0..M {
                    let mut values = [0.0f32; PARTIAL];
                    values.copy_from_slice(&left[row * k + term..][..PARTIAL]);
                    for number in 0..LINES {
                        for lane in 0..PARTIAL {
                            let sum = &mut sums[row][number][lane];
                            *sum = values[lane].mul_add(weights[number][lane], *sum);
                        }
                    }
                }
            }
            for term in whole..k {
                for row in 0..M {
                    for number in 0..LINES {
                        let sum = &mut sums[row][number][term - whole];
                        *sum = left[row * k + term].mul_add(all[number][term].wide(), *sum);
                    }
                }
            }
            for row in 0..M {
                for number in 0..lines {
                    self.out[row][start + number] = total(sums[row][number]);
                }
            }
        }
    }
}

/// Adds to each row of sums these lines, each times a value for the row.
#[inline(always)]
fn add<T: Element, const M: usize, const N: usize>(
    lines: &[&[T]; N],
    values: &[[f32; N]; M],
    sums: &mut [[f32; TILE]; M],
) {
    let count = lines[0].len();
    let whole = count - count % LANES;
    for first in (0..whole).step_by(LANES) {
        let mut weights = [[0.0f32; LANES]; N];
        for number in 0..N {
            widen(&lines[number][first..][..LANES], &mut weights[number]);
        }
        for row in 0..M {
            let sums = &mut sums[row][first..][..LANES];
            let mut added = [0.0f32; LANES];
            added.copy_from_slice(sums);
            for number in 0..N {
                for lane in 0..LANES {
                    added[lane] = values[row][number].mul_add(weights[number][lane], added[lane]);
                }
            }
            sums.copy_from_slice(&added);
        }
    }
    for column in whole..count {
        for row in 0..M {
            for number in 0..N {
                let sum = &mut sums[row][column];
                *sum = values[row][number].mul_add(lines[number][column].wide(), *sum);
            }
        }
    }
}

/// Writes values as `f32`, with the instructions of the caller.
#[inline(always)]
fn widen<T: Element, const N: usize>(from: &[T], to: &mut [f32; N]) {
    for lane in 0..N {
        to[lane] = from[lane].wide();
    }
}

/// The sum of partial sums, in pairs.
#[inline(always)]
fn total(mut sums: [f32; PARTIAL]) -> f32 {
    let mut half = PARTIAL / 2;
    while half > 0 {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
        half /= 2;
    }
    sums[0]
}
