//! Reductions along one axis.

mod word;

use pulp::{Arch, Simd, WithSimd};

pub use self::word::Word;
use crate::{Threads, memory::grow};

/// Rows that one block of a reduction combines.
const BLOCK: usize = 256;
/// Accumulators of the reduction of a row.
const LANES: usize = 32;

/// The sizes of a reduction: `[outer, reduced, inner]` elements to `[outer, inner]`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reduction {
    /// Product of the dimensions before those that are reduced.
    pub outer: usize,
    /// Product of the dimensions that are reduced.
    pub reduced: usize,
    /// Product of the dimensions behind.
    pub inner: usize,
    /// How elements are combined.
    pub op: Accumulate,
}

/// Operations that combine the elements of a reduction.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(missing_docs, reason = "the names are operation and type")]
pub enum Accumulate {
    AddF,
    MultiplyF,
    MaximumF,
    MinimumF,
    Add,
    Multiply,
    MaximumS,
    MinimumS,
    MaximumU,
    MinimumU,
    And,
    Or,
    Xor,
}

/// Combines the elements along the middle axis, and with `initial`.
///
/// Sums of floats are of up to 256 elements in `f32`, in at least 32 lanes or one for each column,
/// and of these in `f64`.
///
/// # Panics
/// If the lengths of `x` and `out` are not those of the sizes.
pub fn reduce<W: Word>(threads: &Threads, sizes: Reduction, initial: W, x: &[W], out: &mut [W]) {
    let Reduction {
        outer,
        reduced,
        inner,
        ..
    } = sizes;
    assert_eq!(
        x.len(),
        outer * reduced * inner,
        "the operand has the sizes"
    );
    assert_eq!(out.len(), outer * inner, "the result has the sizes");
    if out.is_empty() {
        return;
    }
    if reduced == 0 {
        return out.fill(initial);
    }
    let arch = Arch::new();
    let cost = x.len() / 4;
    if inner == 1 {
        // Rows: each result is one row.
        let rows = (1usize << 14).div_ceil(reduced);
        let items = out.chunks_mut(rows).zip(x.chunks(rows * reduced));
        return threads.for_each(cost, items, |(out, x)| {
            arch.dispatch(Rows {
                op: sizes.op,
                reduced,
                initial,
                x,
                out,
            });
        });
    }
    // Columns: blocks of rows first, and then these.
    let blocks = reduced.div_ceil(BLOCK);
    let mut partial = Vec::new();
    grow(&mut partial, outer * blocks * inner, W::identity(sizes.op));
    let parts = partial
        .chunks_exact_mut(blocks * inner)
        .zip(x.chunks_exact(reduced * inner));
    let items =
        parts.flat_map(|(partial, x)| partial.chunks_exact_mut(inner).zip(x.chunks(BLOCK * inner)));
    threads.for_each(cost, items, |(partial, x)| {
        arch.dispatch(Columns {
            op: sizes.op,
            x,
            partial,
        });
    });
    let partial = partial.chunks_exact(blocks * inner);
    for (out, partial) in out.chunks_exact_mut(inner).zip(partial) {
        combine_rows(sizes.op, initial, partial, out);
    }
}

/// Columns that are combined at a time.
const COLUMNS: usize = 16;

/// Combines partial results of columns, of which `partial` has any number of rows, and `initial`;
/// sums in `f64`.
pub(crate) fn combine_rows<W: Word>(op: Accumulate, initial: W, partial: &[W], out: &mut [W]) {
    let columns = out.len();
    for (number, out) in out.chunks_mut(COLUMNS).enumerate() {
        let count = out.len();
        let rows = partial.chunks_exact(columns);
        let rows = rows.map(|row| &row[number * COLUMNS..][..count]);
        if op == Accumulate::AddF {
            let mut sums = [initial.to_float(); COLUMNS];
            for row in rows {
                for (sum, &word) in sums.iter_mut().zip(row) {
                    *sum += word.to_float();
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = W::from_float(sum);
            }
        } else {
            out.fill(initial);
            rows.for_each(|row| W::accumulate(op, out, row));
        }
    }
}

/// Combines the elements of a row, and with `initial`.
///
/// Sums of floats are of up to 256 elements in `f32`, in lanes, and of these in `f64`.
#[inline(always)]
pub(crate) fn reduce_row<W: Word>(op: Accumulate, initial: W, row: &[W]) -> W {
    let mut result = initial;
    for block in row.chunks(BLOCK * LANES) {
        let (parts, rest) = block.as_chunks::<LANES>();
        if op == Accumulate::AddF {
            let sum = result.to_float() + total(W::add_lanes(parts, rest));
            result = W::from_float(sum);
            continue;
        }
        let mut lanes = [W::identity(op); LANES];
        for part in parts {
            W::accumulate(op, &mut lanes, part);
        }
        W::accumulate(op, &mut lanes[..rest.len()], rest);
        result = combine_lanes(op, result, lanes);
    }
    result
}

/// The sum of all lanes, added pairwise.
#[inline(always)]
fn total(mut lanes: [f64; LANES]) -> f64 {
    for half in [16, 8, 4, 2, 1] {
        let (low, high) = lanes.split_at_mut(half);
        for (low, high) in low.iter_mut().zip(high) {
            *low += *high;
        }
    }
    lanes[0]
}

/// Combines lanes pairwise, and with `initial`.
#[inline(always)]
fn combine_lanes<W: Word>(op: Accumulate, initial: W, mut lanes: [W; LANES]) -> W {
    for half in [16, 8, 4, 2, 1] {
        let (low, high) = lanes.split_at_mut(half);
        W::accumulate(op, low, &high[..half]);
    }
    let mut result = [initial];
    W::accumulate(op, &mut result, &lanes[..1]);
    result[0]
}

/// A block of rows that are combined with each other.
struct Columns<'a, W> {
    op: Accumulate,
    x: &'a [W],
    partial: &'a mut [W],
}

impl<W: Word> WithSimd for Columns<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Columns { op, x, partial } = self;
        for row in x.chunks_exact(partial.len()) {
            W::accumulate(op, partial, row);
        }
    }
}

/// Rows whose elements are combined.
struct Rows<'a, W> {
    op: Accumulate,
    reduced: usize,
    initial: W,
    x: &'a [W],
    out: &'a mut [W],
}

impl<W: Word> WithSimd for Rows<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (out, row) in self.out.iter_mut().zip(self.x.chunks_exact(self.reduced)) {
            *out = reduce_row(self.op, self.initial, row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(threads: usize, outer: usize, reduced: usize, inner: usize) -> Vec<u32> {
        let x: Vec<f32> = (0..outer * reduced * inner)
            .map(|at| ((at * 7919) % 1009) as f32 / 504.5 - 1.0)
            .collect();
        let words: &[u32] = bytemuck::cast_slice(&x);
        let threads = Threads::new(threads).expect("threads start");
        let mut out = vec![0; outer * inner];
        let sizes = |op| Reduction {
            outer,
            reduced,
            inner,
            op,
        };
        reduce(
            &threads,
            sizes(Accumulate::MaximumF),
            f32::MIN.to_bits(),
            words,
            &mut out,
        );
        let column = |at: usize| {
            let first = at / inner * reduced * inner + at % inner;
            (0..reduced).map(move |row| first + row * inner)
        };
        for (at, &word) in out.iter().enumerate() {
            let exact = column(at).map(|at| x[at]).fold(f32::MIN, f32::max);
            assert_eq!(f32::from_bits(word), exact);
        }
        reduce(
            &threads,
            sizes(Accumulate::AddF),
            0.5f32.to_bits(),
            words,
            &mut out,
        );
        for (at, &word) in out.iter().enumerate() {
            let exact = column(at).map(|at| f64::from(x[at])).sum::<f64>() + 0.5;
            let size = column(at).map(|at| f64::from(x[at]).abs()).sum::<f64>() + 0.5;
            let error = (f64::from(f32::from_bits(word)) - exact).abs();
            assert!(
                error <= 1e-6 * size,
                "[{outer}, {reduced}, {inner}] at {at}: {error}"
            );
        }
        out
    }

    #[test]
    fn reductions_are_those_of_a_naive_loop() {
        for sizes in [
            [1, 1, 1],
            [3, 0, 2],
            [0, 4, 1],
            [5, 33, 1],
            [1, 1000, 7],
            [4, 300, 65],
        ] {
            check(1, sizes[0], sizes[1], sizes[2]);
        }
        check(2, 3, 20_000, 1);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        assert_eq!(check(1, 1, 5_000, 64), check(3, 1, 5_000, 64));
        assert_eq!(check(1, 300, 999, 1), check(3, 300, 999, 1));
    }

    #[test]
    fn sums_of_negative_zeros_keep_the_sign() {
        let x = [(-0.0f32).to_bits(); 3];
        let sizes = Reduction {
            outer: 1,
            reduced: 3,
            inner: 1,
            op: Accumulate::AddF,
        };
        let mut out = [0];
        let threads = Threads::new(1).expect("one thread is the caller's");
        reduce(&threads, sizes, (-0.0f32).to_bits(), &x, &mut out);
        assert_eq!(out[0], x[0]);
    }
}
