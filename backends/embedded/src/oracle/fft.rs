//! Discrete Fourier transforms, by their definition.

use std::f64::consts::TAU;

use halite_core::Result;
use halite_stablehlo::{FftKind, RankedType};

use super::{
    complex::Complex,
    tensor::{Tensor, collect},
};

/// Transforms the last `lengths.len()` dimensions.
pub(super) fn fft(x: &Tensor, kind: FftKind, lengths: &[usize], ty: &RankedType) -> Result<Tensor> {
    let mut values = x.complex()?;
    let mut dims = x.ty.dims.clone();
    let last = dims.len() - 1;
    let first = dims.len() - lengths.len();
    let inverse = matches!(kind, FftKind::Ifft | FftKind::Irfft);
    if kind == FftKind::Irfft {
        // The real transform comes last, after the others are complex.
        for dim in first..last {
            values = along(&values, &dims, dim, |line| transform(line, inverse))?;
        }
        let length = lengths[lengths.len() - 1];
        values = along(&values, &dims, last, |line| {
            transform(&hermitian(line, length), inverse)
        })?;
        dims[last] = length;
    } else {
        let half = |mut line: Vec<Complex>| {
            if kind == FftKind::Rfft {
                line.truncate(line.len() / 2 + 1);
            }
            line
        };
        values = along(&values, &dims, last, |line| half(transform(line, inverse)))?;
        dims[last] = ty.dims[last];
        for dim in (first..last).rev() {
            values = along(&values, &dims, dim, |line| transform(line, inverse))?;
        }
    }
    Tensor::from_complex(ty, values)
}

/// Applies `change` to each line along `dim`; all of its results have one length.
fn along(
    values: &[Complex],
    dims: &[usize],
    dim: usize,
    change: impl Fn(&[Complex]) -> Vec<Complex>,
) -> Result<Vec<Complex>> {
    let (length, inner) = (dims[dim], dims[dim + 1..].iter().product::<usize>());
    if values.is_empty() {
        return Ok(Vec::new());
    }
    let mut results = Vec::new();
    for block in values.chunks_exact(length * inner) {
        let line = |at| collect(length, block.iter().skip(at).step_by(inner).copied());
        let lines: Vec<_> = (0..inner)
            .map(|at| Ok(change(&line(at)?)))
            .collect::<Result<_>>()?;
        for at in 0..lines[0].len() {
            results.extend(lines.iter().map(|line| line[at]));
        }
    }
    Ok(results)
}

/// `X[k] = sum x[n] exp(-2 pi i k n / N)`; the inverse has the other sign, and the factor 1 / N.
fn transform(line: &[Complex], inverse: bool) -> Vec<Complex> {
    let length = line.len();
    let sign = if inverse { TAU } else { -TAU };
    let roots: Vec<_> = (0..length)
        .map(|k| Complex::polar(1.0, sign * k as f64 / length as f64))
        .collect();
    let scale = if inverse { 1.0 / length as f64 } else { 1.0 };
    let component = |k: usize| {
        let mut sum = Complex::default();
        for (n, &value) in line.iter().enumerate() {
            sum = sum + value * roots[(k as u128 * n as u128 % length as u128) as usize];
        }
        sum.scale(scale)
    };
    (0..length).map(component).collect()
}

/// The spectrum of `length` of a real signal, from its first half.
fn hermitian(half: &[Complex], length: usize) -> Vec<Complex> {
    let at = |k: usize| match half.get(k) {
        Some(&value) if k <= length / 2 => value,
        _ => half.get(length - k).copied().unwrap_or_default().conj(),
    };
    (0..length).map(at).collect()
}
