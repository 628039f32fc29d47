//! Products of matrices, in blocks that fit the caches.
//!
//! The algorithm is that of Goto and van de Geijn, "Anatomy of high-performance matrix
//! multiplication" (2008), with the roles of both matrices exchanged: the right matrix is packed
//! into panels as wide as the accumulators of the innermost kernel, which stream through the caches
//! while a block of the left one stays there. The left matrix is read where it is if its rows are
//! contiguous, and is packed by groups of rows otherwise.
//!
//! Matrices are given by positions of their rows and columns, so that transposed matrices, and the
//! patches of a convolution, are matrices without a copy.

mod block;
#[expect(
    clippy::needless_range_loop,
    reason = "loops over the lanes of several arrays become vectors"
)]
mod few;
mod panels;
mod plain;

use std::ops::Range;

pub(crate) use self::panels::{Panels, Rows};
pub use self::plain::{Number, multiply_plain};
use self::{block::MOST_ROWS, panels::block_depth};
use crate::{Element, Threads, element::Elements};

/// Most terms of a sum between two updates of the result.
const DEPTH: usize = 384;
/// Most columns of a packed block.
const COLUMNS: usize = 2048;
/// Most elements of the right matrix that are packed at a time: two megabytes. One thread packs
/// what the second-level cache holds; several share the packed elements, and wait for each other
/// once for each block.
const SERIAL_PACKED: usize = 1 << 17;
const SHARED_PACKED: usize = 1 << 19;
/// Parts into which long sums of a small result are cut, for more threads and less rounding.
const PARTS: usize = 8;
/// Least number of terms of long sums.
const LONG: usize = 4096;
/// Most elements of a small result.
const SMALL: usize = 1 << 16;

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

    /// The axes of `count` buffers as that of one, in which they are `length` elements apart. `None`
    /// if it is too long.
    pub fn repeated(&self, count: usize, length: usize) -> Option<Axis> {
        let mut positions = Vec::with_capacity(count * self.len());
        for number in 0..count {
            let first = u32::try_from(number * length).ok()?;
            for &at in &self.positions {
                positions.push(at.checked_add(first)?);
            }
        }
        Some(Axis::new(positions))
    }

    /// Number of rows or columns.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Returns whether there are no rows or columns.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    pub(crate) fn at(&self, index: usize) -> usize {
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
pub struct Operand<'a, T = f32> {
    /// The buffer that has the elements.
    pub data: &'a [T],
    /// Position of the matrix in it.
    pub offset: usize,
    /// Positions of the rows.
    pub rows: &'a Axis,
    /// Positions of the columns.
    pub columns: &'a Axis,
}

impl<'a, T> Operand<'a, T> {
    /// The same places in another buffer.
    fn of<U>(self, data: &'a [U]) -> Operand<'a, U> {
        Operand {
            data,
            offset: self.offset,
            rows: self.rows,
            columns: self.columns,
        }
    }
}

/// Computes the product `a b` into the row-major matrix `out`. Elements of `b` are widened to `f32`
/// where they are read: the result is that of the same numbers as `f32`.
///
/// # Panics
/// If the sizes do not agree, or an element is beyond the end of its buffer.
pub fn multiply<T: Element>(threads: &Threads, a: Operand<'_>, b: Operand<'_, T>, out: &mut [f32]) {
    multiply_elements(threads, a, b.of(&[()]), T::elements([b.data]), out);
}

fn multiply_elements(
    threads: &Threads,
    a: Operand<'_>,
    b: Operand<'_, ()>,
    data: Elements<'_, 1>,
    out: &mut [f32],
) {
    match data {
        Elements::F32([data]) => product(threads, a, b.of(data), out),
        Elements::Bf16([data]) => product(threads, a, b.of(data), out),
    }
}

/// [`multiply`], which no other crate compiles again.
#[inline(always)]
pub(crate) fn product<T: Element>(
    threads: &Threads,
    a: Operand<'_>,
    b: Operand<'_, T>,
    out: &mut [f32],
) {
    let [m, k, n] = sizes(a, b, 1, out);
    if out.is_empty() {
        return;
    }
    if let Some(order) = few::Order::of(b).filter(|_| m <= few::FEW) {
        return few::multiply(threads, a, b, order, out);
    }
    // The parts depend on nothing but the sizes: every number of threads adds in the same order.
    if k < LONG || out.len() > SMALL {
        let work = Work { a, b, depth: 0..k };
        return work.run(threads, out);
    }
    let part = k.div_ceil(PARTS);
    threads.with_scratch(out.len() * PARTS, |sums| {
        let items = sums.chunks_exact_mut(out.len()).enumerate();
        let serial = threads.serial();
        threads.for_each(nanoseconds(m, k, n), items, |(number, sum)| {
            let depth = (number * part).min(k)..((number + 1) * part).min(k);
            Work { a, b, depth }.run(&serial, sum);
        });
        let (first, rest) = sums.split_at(out.len());
        out.copy_from_slice(first);
        for sum in rest.chunks_exact(out.len()) {
            out.iter_mut().zip(sum).for_each(|(out, sum)| *out += sum);
        }
    });
}

/// The rows, terms and columns of `count` products.
///
/// # Panics
/// If the sizes do not agree.
fn sizes<T, U, O>(a: Operand<'_, T>, b: Operand<'_, U>, count: usize, out: &[O]) -> [usize; 3] {
    let [m, k, n] = [a.rows.len(), a.columns.len(), b.columns.len()];
    assert_eq!(
        b.rows.len(),
        k,
        "the operands have as many columns and rows"
    );
    assert_eq!(
        out.len(),
        count * m * n,
        "the results have the rows of one and the columns of the other"
    );
    [m, k, n]
}

/// Computes products of matrices of one shape. `batches` are the offsets of both matrices of each,
/// beyond those of the operands; the results are neighbors.
///
/// # Panics
/// As [`multiply`] does.
pub fn multiply_all<T: Element>(
    threads: &Threads,
    a: Operand<'_>,
    b: Operand<'_, T>,
    batches: &[[usize; 2]],
    out: &mut [f32],
) {
    let [m, k, n] = sizes(a, b, batches.len(), out);
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
    let serial = threads.serial();
    threads.for_each(cost, items, |(offsets, out)| product(&serial, offsets, out));
}

/// An estimate of the time of a product.
fn nanoseconds(m: usize, k: usize, n: usize) -> usize {
    m.saturating_mul(k).saturating_mul(n) / 64
}

/// Sums over a range of the columns of `a`.
struct Work<'a, T> {
    a: Operand<'a>,
    b: Operand<'a, T>,
    depth: Range<usize>,
}

impl<T: Element> Work<'_, T> {
    fn run(self, threads: &Threads, out: &mut [f32]) {
        if self.depth.is_empty() {
            return out.fill(0.0);
        }
        let Work { a, b, depth } = self;
        let n = b.columns.len();
        // Blocks depend on nothing but the sizes.
        let block = block_depth(depth.len());
        let blocks = depth.len().div_ceil(block);
        let most = if threads.count() > 1 {
            SHARED_PACKED
        } else {
            SERIAL_PACKED
        };
        for first in (0..n).step_by(COLUMNS) {
            let columns = first..(first + COLUMNS).min(n);
            let chunk = (most / (columns.len() * block)).clamp(1, blocks) * block;
            for start in depth.clone().step_by(chunk) {
                let panels = Panels {
                    terms: start..(start + chunk).min(depth.end),
                    columns: columns.clone(),
                    depth: block,
                };
                threads.with_scratch(panels.len(), |packed| {
                    panels.pack(threads, b, packed);
                    let accumulate = start != depth.start;
                    multiply_rows(threads, a, (&panels, packed), accumulate, out);
                });
            }
        }
    }
}

/// Computes columns of a result of `a.rows.len()` rows, or adds to them.
fn multiply_rows(
    threads: &Threads,
    a: Operand<'_>,
    b: (&Panels, &[f32]),
    accumulate: bool,
    out: &mut [f32],
) {
    let (panels, packed) = b;
    let m = a.rows.len();
    let length = out.len() / m;
    // Any number of rows gives the same bits. With few, all panels pass by for little work.
    let parts = if threads.count() > 1 {
        4 * threads.count()
    } else {
        1
    };
    let rows = m
        .div_ceil(parts)
        .max(4 * MOST_ROWS)
        .next_multiple_of(MOST_ROWS);
    let cost = nanoseconds(m, panels.terms.len(), panels.columns.len());
    let blocks = out.chunks_mut(rows * length).enumerate();
    threads.for_each(cost, blocks, |(number, out)| {
        let rows = Rows {
            out,
            length,
            first: number * rows,
            accumulate,
        };
        panels.multiply(threads, a, packed, rows);
    });
}

#[cfg(test)]
mod tests;
