//! Decompositions and solvers of real matrices, in `f64`.

use halite_core::Result;
use halite_stablehlo::Transposition;

use super::{Call, Direct};
use crate::oracle::collect;

/// The triangular factor of positive definite matrices; NaN for others.
#[derive(Debug)]
pub(in super::super) struct Cholesky {
    pub(in super::super) is_lower: bool,
}

/// The solution of triangular systems: operand 0 is the matrices, operand 1 the right sides.
#[derive(Debug)]
pub(in super::super) struct Solve {
    /// Whether the matrix is on the left of the unknown.
    pub(in super::super) is_left: bool,
    pub(in super::super) is_lower: bool,
    pub(in super::super) has_unit_diagonal: bool,
    pub(in super::super) transpose: Transposition,
}

/// Factors of a packed QR decomposition: the matrices, and those of the reflections.
#[derive(Debug)]
pub(in super::super) struct Qr;

/// A row-major matrix.
#[derive(Clone, Debug)]
struct Matrix {
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.columns + column]
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..][..self.columns]
    }

    fn rows(&self) -> usize {
        self.values.len().checked_div(self.columns).unwrap_or(0)
    }

    fn transposed(&self) -> Matrix {
        let (rows, columns) = (self.rows(), self.columns);
        let each = (0..columns).flat_map(|column| (0..rows).map(move |row| (row, column)));
        Matrix {
            columns: rows,
            values: each.map(|(row, column)| self.at(row, column)).collect(),
        }
    }

    /// Subtracts `by` times a part of row `from` from the same part of row `to`.
    fn subtract(&mut self, from: usize, to: usize, first: usize, by: f64) {
        let columns = self.columns;
        let [from, to] = self
            .values
            .get_disjoint_mut([
                from * columns + first..(from + 1) * columns,
                to * columns + first..(to + 1) * columns,
            ])
            .expect("two rows");
        to.iter_mut()
            .zip(from)
            .for_each(|(to, from)| *to -= by * *from);
    }
}

/// The matrices in the last two dimensions of an operand of `f32` or `f64`.
fn matrices(call: &Call<'_, '_>, operand: usize) -> Result<Vec<Matrix>> {
    let ty = call.ty(operand);
    let &[.., rows, columns] = &ty.dims[..] else {
        return Ok(Vec::new());
    };
    let bytes = call.operand(operand)?;
    if rows * columns == 0 {
        return Ok(Vec::new());
    }
    let values = if ty.element.size() == 4 {
        let floats = bytes.as_chunks::<4>().0.iter();
        collect(
            floats.len(),
            floats.map(|&it| f64::from(f32::from_le_bytes(it))),
        )?
    } else {
        let floats = bytes.as_chunks::<8>().0.iter();
        collect(floats.len(), floats.map(|&it| f64::from_le_bytes(it)))?
    };
    let matrix = |values: &[f64]| {
        let values = collect(values.len(), values.iter().copied())?;
        Ok(Matrix { columns, values })
    };
    values.chunks_exact(rows * columns).map(matrix).collect()
}

fn finish(call: &mut Call<'_, '_>, number: usize, values: impl Iterator<Item = f64>) -> Result<()> {
    let mut result = call.take(number)?;
    let out = result.bytes_mut();
    if call.result_ty(number).element.size() == 4 {
        let each = out.as_chunks_mut::<4>().0.iter_mut().zip(values);
        each.for_each(|(out, value)| *out = (value as f32).to_le_bytes());
    } else {
        let each = out.as_chunks_mut::<8>().0.iter_mut().zip(values);
        each.for_each(|(out, value)| *out = value.to_le_bytes());
    }
    call.set(number, result);
    Ok(())
}

impl Direct for Cholesky {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut all = matrices(call, 0)?;
        for matrix in &mut all {
            if !self.is_lower {
                *matrix = matrix.transposed();
            }
            factor(matrix);
            if !self.is_lower {
                *matrix = matrix.transposed();
            }
        }
        finish(call, 0, all.into_iter().flat_map(|matrix| matrix.values))
    }
}

/// Replaces a matrix, of which the lower triangle counts, by its lower factor.
fn factor(x: &mut Matrix) {
    let size = x.columns;
    let mut column = vec![0.0; size];
    for k in 0..size {
        let rest = x.at(k, k);
        // The root of a number that is not positive is NaN, which spreads.
        let root = if rest > 0.0 { rest.sqrt() } else { f64::NAN };
        x.values[k * size + k] = root;
        for (row, value) in column.iter_mut().enumerate().skip(k + 1) {
            x.values[row * size + k] /= root;
            *value = x.at(row, k);
        }
        for (row, by) in column.iter().enumerate().skip(k + 1) {
            let rest = &mut x.values[row * size + k + 1..=row * size + row];
            let each = rest.iter_mut().zip(&column[k + 1..]);
            each.for_each(|(rest, other)| *rest -= by * other);
        }
        x.values[k * size + k + 1..(k + 1) * size].fill(0.0);
    }
    if x.values.iter().any(|value| value.is_nan()) {
        x.values.fill(f64::NAN);
    }
}

impl Direct for Solve {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let (a, mut b) = (matrices(call, 0)?, matrices(call, 1)?);
        // As `m y = c`: `x m = c` is the same of transposed matrices.
        let is_transposed = (self.transpose != Transposition::No) == self.is_left;
        for (a, b) in a.iter().zip(&mut b) {
            let of_a = if is_transposed {
                a.transposed()
            } else {
                a.clone()
            };
            if !self.is_left {
                *b = b.transposed();
            }
            self.solve(&of_a, b, self.is_lower != is_transposed);
            if !self.is_left {
                *b = b.transposed();
            }
        }
        finish(call, 0, b.into_iter().flat_map(|matrix| matrix.values))
    }
}

impl Solve {
    fn solve(&self, a: &Matrix, x: &mut Matrix, is_forward: bool) {
        let size = a.columns;
        for step in 0..size {
            let row = if is_forward { step } else { size - 1 - step };
            let known = if is_forward { 0..row } else { row + 1..size };
            known.for_each(|other| x.subtract(other, row, 0, a.at(row, other)));
            if !self.has_unit_diagonal {
                let diagonal = a.at(row, row);
                let columns = x.columns;
                let values = &mut x.values[row * columns..(row + 1) * columns];
                values.iter_mut().for_each(|value| *value /= diagonal);
            }
        }
    }
}

impl Direct for Qr {
    fn run(&self, call: &mut Call<'_, '_>) -> Result<()> {
        let mut all = matrices(call, 0)?;
        let mut taus = Vec::new();
        for matrix in &mut all {
            for k in 0..matrix.rows().min(matrix.columns) {
                taus.push(reflect(matrix, k));
            }
        }
        finish(call, 0, all.into_iter().flat_map(|matrix| matrix.values))?;
        finish(call, 1, taus.into_iter())
    }
}

/// Zeroes column `k` below the diagonal by a reflection `I - tau v v^T`, and returns tau.
fn reflect(x: &mut Matrix, k: usize) -> f64 {
    let (rows, columns) = (x.rows(), x.columns);
    let head = x.at(k, k);
    let below: f64 = (k + 1..rows).map(|row| x.at(row, k).powi(2)).sum();
    if below == 0.0 {
        return 0.0;
    }
    let norm = (head.powi(2) + below).sqrt();
    let beta = -norm.copysign(head);
    let tau = (beta - head) / beta;
    let scale = 1.0 / (head - beta);
    (k + 1..rows).for_each(|row| x.values[row * columns + k] *= scale);
    x.values[k * columns + k] = beta;
    // Row by row, so that neighbors are read.
    let mut products = x.row(k)[k + 1..].to_vec();
    for row in k + 1..rows {
        let by = x.at(row, k);
        let each = products.iter_mut().zip(&x.row(row)[k + 1..]);
        each.for_each(|(product, value)| *product += by * value);
    }
    products.iter_mut().for_each(|product| *product *= tau);
    for row in k..rows {
        let by = if row == k { 1.0 } else { x.at(row, k) };
        let values = &mut x.values[row * columns + k + 1..(row + 1) * columns];
        let each = values.iter_mut().zip(&products);
        each.for_each(|(value, product)| *value -= by * product);
    }
    tau
}
