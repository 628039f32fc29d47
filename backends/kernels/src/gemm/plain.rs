//! Products of matrices of `f64` and of integers, by a plain loop over blocks.

use std::ops::Range;

use bytemuck::cast_slice_mut;
use pulp::{Arch, Simd, WithSimd};

use super::{Operand, nanoseconds, sizes};
use crate::Threads;

/// Terms and columns of a block of the right matrix, which the first-level cache has: each element
/// of a result is loaded and stored once for all terms of a block.
const TERMS: usize = 8;
const COLUMNS: usize = 256;
/// Rows of a result, of which the second-level cache has those columns, and for which the right
/// matrix is packed.
const ROWS: usize = 64;

/// A type of elements of [`multiply_plain`]: `f64`, or integers, which wrap.
pub trait Number: sealed::Number {}

impl Number for f64 {}
impl Number for u32 {}
impl Number for u64 {}

mod sealed {
    pub trait Number: bytemuck::Pod + Send + Sync {
        fn plus(self, other: Self) -> Self;

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
    operands: [Operand<'_, T>; 2],
    batches: &[[usize; 2]],
    out: &mut [T],
) {
    let [a, b] = operands;
    let [m, k, n] = sizes(a, b, batches.len(), out);
    if out.is_empty() {
        return;
    }
    let cost = nanoseconds(m, k, n).saturating_mul(8 * batches.len());
    let items = batches.iter().zip(out.chunks_exact_mut(m * n));
    let items = items.flat_map(|(&[left, right], out)| {
        let parts = out.chunks_mut(ROWS * n).enumerate();
        parts.map(move |(number, out)| Part {
            a: Operand {
                offset: a.offset + left,
                ..a
            },
            b: Operand {
                offset: b.offset + right,
                ..b
            },
            first: number * ROWS,
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
        self.out.fill(T::zeroed());
        let words = (TERMS * COLUMNS * size_of::<T>()).div_ceil(size_of::<u64>());
        threads.with_words(words, |scratch| {
            let packed = cast_slice_mut(scratch);
            Arch::new().dispatch(Blocks { part: self, packed });
        });
    }
}

/// A part, and memory for a block of the right matrix.
struct Blocks<'a, T> {
    part: Part<'a, T>,
    packed: &'a mut [T],
}

impl<T: Number> WithSimd for Blocks<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Part { a, b, first, out } = self.part;
        let (k, n) = (a.columns.len(), b.columns.len());
        for columns in ranges(n, COLUMNS) {
            let packed = &mut self.packed[..TERMS * columns.len()];
            for terms in ranges(k, TERMS) {
                pack(b, terms.clone(), columns.clone(), packed);
                for (row, out) in out.chunks_exact_mut(n).enumerate() {
                    let at = a.offset + a.rows.at(first + row);
                    let mut left = [T::zeroed(); TERMS];
                    for (left, term) in left.iter_mut().zip(terms.clone()) {
                        *left = a.data[at + a.columns.at(term)];
                    }
                    add_products(&mut out[columns.clone()], left, packed);
                }
            }
        }
    }
}

fn ranges(count: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count)
        .step_by(step)
        .map(move |start| start..(start + step).min(count))
}

/// Copies columns of some terms, one term after the other, and zeros for those that are missing.
#[inline(always)]
fn pack<T: Number>(
    b: Operand<'_, T>,
    terms: Range<usize>,
    columns: Range<usize>,
    packed: &mut [T],
) {
    let mut rows = packed.chunks_exact_mut(columns.len());
    for (term, row) in terms.zip(&mut rows) {
        let at = b.offset + b.rows.at(term);
        for (index, position, length) in b.columns.runs(columns.clone()) {
            row[index..][..length].copy_from_slice(&b.data[at + position..][..length]);
        }
    }
    rows.for_each(|row| row.fill(T::zeroed()));
}

/// Adds to each element the products of all terms, in their order.
#[inline(always)]
fn add_products<T: Number>(out: &mut [T], left: [T; TERMS], packed: &[T]) {
    let count = out.len();
    let rows: [&[T]; TERMS] = std::array::from_fn(|term| &packed[term * count..][..count]);
    for (at, out) in out.iter_mut().enumerate() {
        let mut sum = *out;
        for (x, row) in left.iter().zip(&rows) {
            sum = sum.plus(x.times(row[at]));
        }
        *out = sum;
    }
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
                sum.plus(
                    x[batch * m * k + term * m + row].times(y[(batch * k + term) * n + column]),
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
