//! Products of matrices of `f64` and of integers, by a loop that the compiler vectorizes.

use std::ops::Range;

use bytemuck::cast_slice_mut;
use pulp::{Arch, Simd, WithSimd};

use super::{Operand, nanoseconds};
use crate::Threads;

/// Rows and columns of a tile, whose sums are in registers.
const ROWS: usize = 4;
const COLUMNS: usize = 8;
/// Most terms and columns of a block of the right matrix that is packed.
const TERMS: usize = 256;
const BLOCK: usize = 64 * COLUMNS;
/// Least rows for which the right matrix is packed again, by another thread.
const LEAST_ROWS: usize = 64;

/// A type of elements of [`multiply_plain`]: `f64`, or integers, which wrap.
pub trait Number: sealed::Number {}

impl Number for f64 {}
impl Number for u32 {}
impl Number for u64 {}

mod sealed {
    pub trait Number: bytemuck::Pod + Send + Sync {
        fn plus(self, other: Self) -> Self;

        #[inline(always)]
        fn add_product(self, x: Self, y: Self) -> Self {
            self.plus(x.times(y))
        }

        fn times(self, other: Self) -> Self;
    }

    macro_rules! number {
        ($type:ident, $plus:expr, $times:expr) => {
            impl Number for $type {
                #[inline(always)]
                fn plus(self, other: Self) -> Self {
                    $plus(self, other)
                }

                #[inline(always)]
                fn times(self, other: Self) -> Self {
                    $times(self, other)
                }
            }
        };
    }

    number!(f64, |x, y| x + y, |x, y| x * y);
    number!(u32, u32::wrapping_add, u32::wrapping_mul);
    number!(u64, u64::wrapping_add, u64::wrapping_mul);
}

/// Computes products of matrices of one shape, as [`multiply_all`](crate::multiply_all) does.
///
/// # Panics
/// If the sizes do not agree, or an element is beyond the end of its buffer.
pub fn multiply_plain<T: Number>(
    threads: &Threads,
    [a, b]: [Operand<'_, T>; 2],
    batches: &[[usize; 2]],
    out: &mut [T],
) {
    let (m, k, n) = (a.rows.len(), a.columns.len(), b.columns.len());
    assert_eq!(
        b.rows.len(),
        k,
        "the operands have as many columns and rows"
    );
    assert_eq!(
        out.len(),
        batches.len() * m * n,
        "the result has all products"
    );
    if out.is_empty() {
        return;
    }
    let rows = m.div_ceil(2 * threads.count()).max(LEAST_ROWS);
    let cost = nanoseconds(m, k, n).saturating_mul(8 * batches.len());
    let items = batches.iter().zip(out.chunks_exact_mut(m * n));
    let items = items.flat_map(|(&[left, right], out)| {
        let parts = out.chunks_mut(rows * n).enumerate();
        parts.map(move |(number, out)| Part {
            a: Operand {
                offset: a.offset + left,
                ..a
            },
            b: Operand {
                offset: b.offset + right,
                ..b
            },
            first: number * rows,
            out,
        })
    });
    threads.for_each(cost, items, |part| part.run(threads));
}

/// Some rows of a product.
struct Part<'a, T> {
    a: Operand<'a, T>,
    b: Operand<'a, T>,
    first: usize,
    out: &'a mut [T],
}

impl<T: Number> Part<'_, T> {
    fn run(self, threads: &Threads) {
        let Part { a, b, first, out } = self;
        let (k, n) = (a.columns.len(), b.columns.len());
        out.fill(T::zeroed());
        let words = (TERMS * (BLOCK + ROWS) * size_of::<T>()).div_ceil(size_of::<u64>());
        let arch = Arch::new();
        threads.with_words(words, |scratch| {
            let (packed, left) = cast_slice_mut(scratch).split_at_mut(TERMS * BLOCK);
            for columns in ranges(n, BLOCK) {
                for terms in ranges(k, TERMS) {
                    pack(b, terms.clone(), columns.clone(), packed);
                    arch.dispatch(Block {
                        a,
                        first,
                        length: n,
                        terms,
                        columns: columns.clone(),
                        packed,
                        left,
                        out,
                    });
                }
            }
        });
    }
}

fn ranges(count: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count)
        .step_by(step)
        .map(move |start| start..(start + step).min(count))
}

/// Writes panels of columns, each with the elements of a term next to each other.
fn pack<T: Number>(
    b: Operand<'_, T>,
    terms: Range<usize>,
    columns: Range<usize>,
    packed: &mut [T],
) {
    let count = terms.len();
    let panels = packed.chunks_exact_mut(count * COLUMNS);
    for (panel, columns) in panels.zip(
        ranges(columns.len(), COLUMNS).map(|it| columns.start + it.start..columns.start + it.end),
    ) {
        let rows = panel.chunks_exact_mut(COLUMNS).zip(terms.clone());
        for (row, term) in rows {
            let at = b.offset + b.rows.at(term);
            row.fill(T::zeroed());
            for (element, column) in row.iter_mut().zip(columns.clone()) {
                *element = b.data[at + b.columns.at(column)];
            }
        }
    }
}

/// Adds the products of a packed block to some rows of a result.
struct Block<'a, T> {
    a: Operand<'a, T>,
    /// The first row.
    first: usize,
    /// Elements of a row of the result.
    length: usize,
    terms: Range<usize>,
    columns: Range<usize>,
    packed: &'a [T],
    left: &'a mut [T],
    out: &'a mut [T],
}

impl<T: Number> WithSimd for Block<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Block {
            a,
            first,
            length,
            terms,
            columns,
            packed,
            left,
            out,
        } = self;
        let left = &mut left[..terms.len() * ROWS];
        for (number, rows) in out.chunks_mut(ROWS * length).enumerate() {
            let count = rows.len() / length;
            left.fill(T::zeroed());
            for row in 0..count {
                let at = a.offset + a.rows.at(first + number * ROWS + row);
                for (left, term) in left.chunks_exact_mut(ROWS).zip(terms.clone()) {
                    left[row] = a.data[at + a.columns.at(term)];
                }
            }
            let panels = packed.chunks_exact(terms.len() * COLUMNS);
            for (start, panel) in columns.clone().step_by(COLUMNS).zip(panels) {
                let sums = tile(left, panel);
                let width = COLUMNS.min(columns.end - start);
                for (row, sums) in rows.chunks_exact_mut(length).zip(sums) {
                    for (out, sum) in row[start..][..width].iter_mut().zip(sums) {
                        *out = out.plus(sum);
                    }
                }
            }
        }
    }
}

/// The products of [`ROWS`] rows and [`COLUMNS`] columns, with the elements of each term next to
/// each other.
#[inline(always)]
fn tile<T: Number>(left: &[T], panel: &[T]) -> [[T; COLUMNS]; ROWS] {
    let mut sums = [[T::zeroed(); COLUMNS]; ROWS];
    let (left, _) = left.as_chunks::<ROWS>();
    let (right, _) = panel.as_chunks::<COLUMNS>();
    for (left, right) in left.iter().zip(right) {
        for (sums, &x) in sums.iter_mut().zip(left) {
            for (sum, &y) in sums.iter_mut().zip(right) {
                *sum = sum.add_product(x, y);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Axis;

    /// Numbers whose products and sums are exact in all types.
    fn check<T: Number + PartialEq + std::fmt::Debug>(from: fn(u32) -> T, sizes: [usize; 3]) {
        let [m, k, n] = sizes;
        let element = |at: usize| from((at * 7919 % 13) as u32);
        let (x, y): (Vec<T>, Vec<T>) = (
            (0..2 * m * k).map(element).collect(),
            (0..2 * k * n).map(|at| element(at + 5)).collect(),
        );
        let line = |count: usize, stride: usize| {
            Axis::new((0..count).map(|at| (at * stride) as u32).collect())
        };
        // The left matrix is transposed.
        let (rows, left, right, columns) = (line(m, 1), line(k, m), line(k, n), line(n, 1));
        let a = Operand {
            data: &x,
            offset: 0,
            rows: &rows,
            columns: &left,
        };
        let b = Operand {
            data: &y,
            offset: 0,
            rows: &right,
            columns: &columns,
        };
        let mut out = vec![from(9); 2 * m * n];
        let threads = Threads::new(2).expect("threads start");
        multiply_plain(&threads, [a, b], &[[0, 0], [m * k, k * n]], &mut out);
        for (at, &value) in out.iter().enumerate() {
            let (batch, row, column) = (at / (m * n), at / n % m, at % n);
            let sum = (0..k).fold(from(0), |sum, term| {
                sum.add_product(
                    x[batch * m * k + term * m + row],
                    y[(batch * k + term) * n + column],
                )
            });
            assert_eq!(value, sum, "{sizes:?} at {at}");
        }
    }

    #[test]
    fn products_are_those_of_a_naive_loop() {
        for sizes in [[1, 1, 1], [3, 0, 2], [5, 7, 9], [130, 300, 17], [2, 3, 520]] {
            check(f64::from, sizes);
            check(|x| x, sizes);
            check(u64::from, sizes);
        }
    }
}
