//! Functions of the rows of a block of scores.

use pulp::{Arch, Simd, WithSimd};

use crate::math::{exp, exp_of_negative, log};

/// Sums in a row that are computed side by side.
const LANES: usize = 16;

/// Largest scores and sums of exponentials of the queries of a block.
pub(super) struct Softmax<'a> {
    pub(super) maxima: &'a mut [f32],
    pub(super) sums: &'a mut [f32],
    /// What the last block multiplied the former sums by.
    pub(super) decays: &'a mut [f32],
}

impl Softmax<'_> {
    pub(super) fn reset(&mut self) {
        self.maxima.fill(f32::NEG_INFINITY);
        self.sums.fill(0.0);
    }

    /// Replaces scores by weights, the exponentials less the largest score so far; 0 from the
    /// number of positions on that `allowed` gives for a row.
    pub(super) fn add(
        &mut self,
        scores: &mut [f32],
        length: usize,
        positions: usize,
        allowed: impl Fn(usize) -> usize,
    ) {
        let arch = Arch::new();
        for (row, scores) in scores.chunks_exact_mut(length).enumerate() {
            let scores = &mut scores[..positions];
            let (scores, masked) = scores.split_at_mut(allowed(row).min(positions));
            masked.fill(0.0);
            let before = self.maxima[row];
            let max = arch.dispatch(Largest(scores)).max(before);
            let shift = finite_or_zero(max);
            let sum = arch.dispatch(Exponentials { scores, shift });
            let decay = exp(before - shift);
            self.maxima[row] = max;
            self.decays[row] = decay;
            self.sums[row] = self.sums[row] * decay + sum;
        }
    }

    /// Divides the rows of the result by the sums.
    pub(super) fn finish(&self, out: &mut [f32], length: usize, log_sums: &mut [f32]) {
        for (row, log_sum) in log_sums.iter_mut().enumerate() {
            let sum = self.sums[row];
            *log_sum = finite_or_zero(self.maxima[row]) + log(sum);
            let factor = if sum == 0.0 { 1.0 } else { sum.recip() };
            let out = &mut out[row * length..][..length];
            out.iter_mut().for_each(|out| *out *= factor);
        }
    }
}

/// Multiplies each row by a factor.
pub(super) fn scale(rows: &mut [f32], length: usize, factors: &[f32]) {
    for (row, &factor) in factors.iter().enumerate() {
        let row = &mut rows[row * length..][..length];
        row.iter_mut().for_each(|x| *x *= factor);
    }
}

fn finite_or_zero(x: f32) -> f32 {
    if x == f32::NEG_INFINITY { 0.0 } else { x }
}

/// The largest element; NaN does not count.
struct Largest<'a>(&'a [f32]);

impl WithSimd for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        let larger = |a: f32, b: f32| if b > a { b } else { a };
        let mut all = [f32::NEG_INFINITY; LANES];
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        for chunk in chunks {
            for (max, &x) in all.iter_mut().zip(chunk) {
                *max = larger(*max, x);
            }
        }
        let all = all.iter().chain(rest);
        all.fold(f32::NEG_INFINITY, |max, &x| larger(max, x))
    }
}

/// Replaces scores by their exponentials less `shift`, and returns the sum.
struct Exponentials<'a> {
    scores: &'a mut [f32],
    shift: f32,
}

impl WithSimd for Exponentials<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f32 {
        let Exponentials { scores, shift } = self;
        let mut sums = [0.0; LANES];
        let (chunks, rest) = scores.as_chunks_mut::<LANES>();
        for chunk in chunks {
            for (x, sum) in chunk.iter_mut().zip(&mut sums) {
                *x = exp_of_negative(*x - shift);
                *sum += *x;
            }
        }
        let mut sum: f32 = sums.iter().sum();
        for x in rest {
            *x = exp_of_negative(*x - shift);
            sum += *x;
        }
        sum
    }
}

/// Weights and gradients of the scores of a block.
pub(super) struct Slopes<'a> {
    /// Scores, which weights replace.
    pub(super) scores: &'a mut [f32],
    /// Gradients of the weights, which those of the scores replace.
    pub(super) slopes: &'a mut [f32],
    pub(super) length: usize,
    pub(super) positions: usize,
    pub(super) log_sums: &'a [f32],
    pub(super) row_sums: &'a [f32],
}

impl Slopes<'_> {
    pub(super) fn compute(self, allowed: impl Fn(usize) -> usize) {
        let arch = Arch::new();
        let scores = self.scores.chunks_exact_mut(self.length);
        let rows = scores.zip(self.slopes.chunks_exact_mut(self.length));
        for (row, (scores, slopes)) in rows.enumerate() {
            // All weights of a query that attends to no position are 0.
            let count = match self.log_sums[row] {
                f32::NEG_INFINITY => 0,
                _ => allowed(row).min(self.positions),
            };
            scores[count..self.positions].fill(0.0);
            slopes[count..self.positions].fill(0.0);
            arch.dispatch(RowSlopes {
                scores: &mut scores[..count],
                slopes: &mut slopes[..count],
                shift: self.log_sums[row],
                sum: self.row_sums[row],
            });
        }
    }
}

struct RowSlopes<'a> {
    scores: &'a mut [f32],
    slopes: &'a mut [f32],
    shift: f32,
    sum: f32,
}

impl WithSimd for RowSlopes<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (score, slope) in self.scores.iter_mut().zip(self.slopes) {
            *score = exp_of_negative(*score - self.shift);
            *slope = *score * (*slope - self.sum);
        }
    }
}
