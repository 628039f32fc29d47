//! Discrete Fourier transforms, by the crate `rustfft`.

use std::{fmt, sync::Arc};

use halite_core::Result;
use halite_stablehlo::FftKind;
use rustfft::{Fft, FftNum, FftPlanner, num_complex::Complex};

use super::{
    Call, Direct, Lines,
    complex::{Part, Parts, numbers, push},
};
use crate::oracle::{allocate, collect};

/// Lines that are transformed at a time, where their elements are not neighbors.
const LINES: usize = 16;

/// Transforms the last dimensions of operand 0, of numbers with these parts.
pub(in super::super) struct Transform<T> {
    kind: FftKind,
    /// Plans of the last dimensions, outermost first.
    plans: Vec<Arc<dyn Fft<T>>>,
}

impl<T: FftNum> Transform<T> {
    /// `None` if a length is 0.
    pub(in super::super) fn new(kind: FftKind, lengths: &[usize]) -> Option<Self> {
        let is_inverse = matches!(kind, FftKind::Ifft | FftKind::Irfft);
        let mut planner = FftPlanner::new();
        let plan = |&length: &usize| match is_inverse {
            true => planner.plan_fft_inverse(length),
            false => planner.plan_fft_forward(length),
        };
        let plans = (!lengths.contains(&0)).then(|| lengths.iter().map(plan).collect())?;
        Some(Transform { kind, plans })
    }
}

impl<T> fmt::Debug for Transform<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths: Vec<_> = self.plans.iter().map(|plan| plan.len()).collect();
        write!(f, "{} of {lengths:?}", self.kind.name())
    }
}

impl<T: FftNum + Part> Direct for Transform<T> {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut result = call.take(0)?;
        let mut dims = call.ty(0).dims.to_vec();
        let parts = match self.kind {
            FftKind::Rfft => Parts::Real,
            _ => Parts::Complex,
        };
        let mut values: Vec<Complex<T>> = numbers(call.operand(0)?, parts)?;
        let (last, first) = (dims.len() - 1, dims.len() - self.plans.len());
        if self.kind == FftKind::Irfft {
            // The real transform comes last, after the others are complex.
            for dim in first..last {
                self.along(dim, &mut values, &dims)?;
            }
            let length = self.plans[self.plans.len() - 1].len();
            values = mirrored(&values, dims[last], length)?;
            dims[last] = length;
            self.along(last, &mut values, &dims)?;
        } else {
            self.along(last, &mut values, &dims)?;
            let half = call.result_ty(0).dims[last];
            if half != dims[last] {
                let rows = values.chunks_exact(dims[last].max(1));
                let kept = rows.flat_map(|row| &row[..half]).copied();
                values = collect(values.len(), kept)?;
                dims[last] = half;
            }
            for dim in (first..last).rev() {
                self.along(dim, &mut values, &dims)?;
            }
        }
        if matches!(self.kind, FftKind::Ifft | FftKind::Irfft) {
            let count: usize = self.plans.iter().map(|plan| plan.len()).product();
            let scale = T::from_f64(1.0 / count as f64).unwrap_or_else(T::one);
            values
                .iter_mut()
                .for_each(|value| *value = value.scale(scale));
        }
        let parts = match self.kind {
            FftKind::Irfft => Parts::Real,
            _ => Parts::Complex,
        };
        push(&values, parts, result.bytes_mut());
        call.set(0, result);
        Ok(())
    }
}

impl<T: FftNum> Transform<T> {
    fn along(&self, dim: usize, values: &mut [Complex<T>], dims: &[usize]) -> Result<()> {
        let plan = &self.plans[dim + self.plans.len() - dims.len()];
        if values.is_empty() {
            return Ok(());
        }
        let zero = Complex::new(T::zero(), T::zero());
        let scratch = plan.get_inplace_scratch_len();
        let mut scratch = collect(scratch, std::iter::repeat_n(zero, scratch))?;
        let Lines {
            outer,
            length,
            inner,
        } = Lines::along(dims, dim);
        if inner == 1 {
            plan.process_with_scratch(values, &mut scratch);
            return Ok(());
        }
        let mut lines = allocate(LINES * length)?;
        for block in values.chunks_exact_mut(length * inner).take(outer) {
            for start in (0..inner).step_by(LINES) {
                let columns = start..inner.min(start + LINES);
                lines.clear();
                for column in columns.clone() {
                    lines.extend(block[column..].iter().step_by(inner));
                }
                plan.process_with_scratch(&mut lines, &mut scratch);
                for (column, line) in columns.zip(lines.chunks_exact(length)) {
                    let targets = block[column..].iter_mut().step_by(inner);
                    targets.zip(line).for_each(|(to, &from)| *to = from);
                }
            }
        }
        Ok(())
    }
}

/// The spectra of `length` of real signals, from their first halves.
fn mirrored<T: FftNum>(
    halves: &[Complex<T>],
    half: usize,
    length: usize,
) -> Result<Vec<Complex<T>>> {
    let rows = halves.len() / half.max(1);
    let mut all = allocate(rows * length)?;
    for row in halves.chunks_exact(half.max(1)) {
        let at = |k: usize| match row.get(k) {
            Some(&value) if k <= length / 2 => value,
            _ => row[length - k].conj(),
        };
        all.extend((0..length).map(at));
    }
    Ok(all)
}
