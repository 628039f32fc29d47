//! Reductions along one axis.

use pulp::{Arch, Simd, WithSimd};

use crate::{Threads, math, memory::grow};

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

impl Accumulate {
    /// The word that changes no other.
    pub(crate) fn identity(self) -> u32 {
        match self {
            Accumulate::AddF => (-0.0f32).to_bits(),
            Accumulate::MultiplyF => 1.0f32.to_bits(),
            Accumulate::MaximumF => f32::NEG_INFINITY.to_bits(),
            Accumulate::MinimumF => f32::INFINITY.to_bits(),
            Accumulate::Multiply => 1,
            Accumulate::MaximumS => i32::MIN as u32,
            Accumulate::MinimumS => i32::MAX as u32,
            Accumulate::MinimumU | Accumulate::And => u32::MAX,
            Accumulate::Add | Accumulate::MaximumU | Accumulate::Or | Accumulate::Xor => 0,
        }
    }
}

/// Combines the elements along the middle axis, and with `initial`.
///
/// Sums of floats are of up to 256 elements in `f32`, in at least 32 lanes or one for each column,
/// and of these in `f64`.
///
/// # Panics
/// If the lengths of `x` and `out` are not those of the sizes.
pub fn reduce(threads: &Threads, sizes: Reduction, initial: u32, x: &[u32], out: &mut [u32]) {
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
    grow(&mut partial, outer * blocks * inner, sizes.op.identity());
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
pub(crate) fn combine_rows(op: Accumulate, initial: u32, partial: &[u32], out: &mut [u32]) {
    let columns = out.len();
    for (number, out) in out.chunks_mut(COLUMNS).enumerate() {
        let count = out.len();
        let rows = partial.chunks_exact(columns);
        let rows = rows.map(|row| &row[number * COLUMNS..][..count]);
        if op == Accumulate::AddF {
            let mut sums = [f64::from(f32::from_bits(initial)); COLUMNS];
            for row in rows {
                for (sum, &word) in sums.iter_mut().zip(row) {
                    *sum += f64::from(f32::from_bits(word));
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = (sum as f32).to_bits();
            }
        } else {
            out.fill(initial);
            rows.for_each(|row| accumulate(op, out, row));
        }
    }
}

/// Combines the elements of a row, and with `initial`.
///
/// Sums of floats are of up to 256 elements in `f32`, in lanes, and of these in `f64`.
#[inline(always)]
pub(crate) fn reduce_row(op: Accumulate, initial: u32, row: &[u32]) -> u32 {
    let mut result = initial;
    for block in row.chunks(BLOCK * LANES) {
        let mut lanes = [op.identity(); LANES];
        let (parts, rest) = block.as_chunks::<LANES>();
        for part in parts {
            accumulate(op, &mut lanes, part);
        }
        accumulate(op, &mut lanes[..rest.len()], rest);
        result = combine_lanes(op, result, lanes);
    }
    result
}

/// Combines lanes pairwise, and with `initial`; sums in `f64`.
#[inline(always)]
fn combine_lanes(op: Accumulate, initial: u32, mut lanes: [u32; LANES]) -> u32 {
    if op == Accumulate::AddF {
        let mut wide = lanes.map(|word| f64::from(f32::from_bits(word)));
        for half in [16, 8, 4, 2, 1] {
            for lane in 0..half {
                wide[lane] += wide[lane + half];
            }
        }
        return ((f64::from(f32::from_bits(initial)) + wide[0]) as f32).to_bits();
    }
    for half in [16, 8, 4, 2, 1] {
        let (low, high) = lanes.split_at_mut(half);
        accumulate(op, low, &high[..half]);
    }
    let mut result = [initial];
    accumulate(op, &mut result, &lanes[..1]);
    result[0]
}

/// Combines each element of `x` with that of `out` at the same position.
#[inline(always)]
pub(crate) fn accumulate(op: Accumulate, out: &mut [u32], x: &[u32]) {
    macro_rules! each {
        ($f:expr) => {
            for (out, x) in out.iter_mut().zip(x) {
                *out = $f(*out, *x);
            }
        };
    }
    #[inline(always)]
    fn float(f: impl Fn(f32, f32) -> f32) -> impl Fn(u32, u32) -> u32 {
        move |x, y| f(f32::from_bits(x), f32::from_bits(y)).to_bits()
    }
    match op {
        Accumulate::AddF => each!(float(|x, y| x + y)),
        Accumulate::MultiplyF => each!(float(|x, y| x * y)),
        Accumulate::MaximumF => each!(float(math::maximum)),
        Accumulate::MinimumF => each!(float(math::minimum)),
        Accumulate::Add => each!(u32::wrapping_add),
        Accumulate::Multiply => each!(u32::wrapping_mul),
        Accumulate::MaximumS => each!(|x: u32, y: u32| (x as i32).max(y as i32) as u32),
        Accumulate::MinimumS => each!(|x: u32, y: u32| (x as i32).min(y as i32) as u32),
        Accumulate::MaximumU => each!(|x: u32, y: u32| x.max(y)),
        Accumulate::MinimumU => each!(|x: u32, y: u32| x.min(y)),
        Accumulate::And => each!(|x: u32, y: u32| x & y),
        Accumulate::Or => each!(|x: u32, y: u32| x | y),
        Accumulate::Xor => each!(|x: u32, y: u32| x ^ y),
    }
}

/// A block of rows that are combined with each other.
struct Columns<'a> {
    op: Accumulate,
    x: &'a [u32],
    partial: &'a mut [u32],
}

impl WithSimd for Columns<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Columns { op, x, partial } = self;
        for row in x.chunks_exact(partial.len()) {
            accumulate(op, partial, row);
        }
    }
}

/// Rows whose elements are combined.
struct Rows<'a> {
    op: Accumulate,
    reduced: usize,
    initial: u32,
    x: &'a [u32],
    out: &'a mut [u32],
}

impl WithSimd for Rows<'_> {
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
