//! Decompositions and solvers of matrices, in `f64` or complex numbers of two.

use halite_core::Result;
use halite_kernels::grow;
use halite_stablehlo::{RankedType, Transposition};

use super::{
    complex::Complex,
    tensor::{Tensor, collect},
};

/// A row-major matrix.
pub(super) struct Matrix {
    pub(super) columns: usize,
    pub(super) values: Vec<Complex>,
}

impl Matrix {
    pub(super) fn at(&self, row: usize, column: usize) -> Complex {
        self.values[row * self.columns + column]
    }

    pub(super) fn set(&mut self, row: usize, column: usize, value: Complex) {
        self.values[row * self.columns + column] = value;
    }
}

/// The matrices in the last two dimensions.
pub(super) fn matrices(x: &Tensor) -> Result<Vec<Matrix>> {
    let rank = x.ty.rank();
    let (rows, columns) = (x.ty.dims[rank - 2], x.ty.dims[rank - 1]);
    if rows * columns == 0 {
        return Ok(Vec::new());
    }
    let values = x.complex()?;
    let matrix = |values: &[Complex]| {
        Ok(Matrix {
            columns,
            values: collect(values.len(), values.iter().copied())?,
        })
    };
    values.chunks_exact(rows * columns).map(matrix).collect()
}

fn zeros(count: usize) -> Vec<Complex> {
    let mut zeros = Vec::new();
    grow(&mut zeros, count, Complex::default());
    zeros
}

/// The tensor of these matrices.
fn tensor(matrices: Vec<Matrix>, ty: &RankedType) -> Result<Tensor> {
    let values = matrices.into_iter().flat_map(|matrix| matrix.values);
    Tensor::from_complex(ty, collect(ty.elements(), values)?)
}

/// The triangular factor of positive definite matrices: `L` of `L L^H`, or `U` of `U^H U`. The
/// other triangle is zero; the factor of a matrix that is not positive definite is NaN.
pub(super) fn cholesky(x: &Tensor, lower: bool, ty: &RankedType) -> Result<Tensor> {
    let factors = matrices(x)?
        .iter()
        .map(|matrix| cholesky_of(matrix, lower))
        .collect();
    tensor(factors, ty)
}

fn cholesky_of(x: &Matrix, lower: bool) -> Matrix {
    let size = x.columns;
    let mut factor = Matrix {
        columns: size,
        values: zeros(size * size),
    };
    // The lower factor; the upper one is its adjoint.
    let element = |row, column| {
        if lower {
            x.at(row, column)
        } else {
            x.at(column, row).conj()
        }
    };
    for column in 0..size {
        for row in column..size {
            let mut rest = element(row, column);
            for k in 0..column {
                rest = rest - factor.at(row, k) * factor.at(column, k).conj();
            }
            let value = if row == column {
                // The root of a number that is not positive is NaN, which spreads.
                let root = if rest.re > 0.0 {
                    rest.re.sqrt()
                } else {
                    f64::NAN
                };
                Complex::from(root)
            } else {
                rest / factor.at(column, column)
            };
            factor.set(row, column, value);
        }
    }
    if factor.values.iter().any(|value| value.is_nan()) {
        factor.values.fill(Complex::from(f64::NAN));
    }
    if lower { factor } else { adjoint(&factor) }
}

fn adjoint(x: &Matrix) -> Matrix {
    let size = x.columns;
    let values = (0..size * size)
        .map(|at| x.at(at % size, at / size).conj())
        .collect();
    Matrix {
        columns: size,
        values,
    }
}

/// The attributes of a `triangular_solve`.
#[derive(Clone, Copy)]
pub(super) struct TriangularSolve {
    pub(super) left_side: bool,
    pub(super) lower: bool,
    pub(super) unit_diagonal: bool,
    pub(super) transpose: Transposition,
}

impl TriangularSolve {
    /// `x` of `op(a) x = b`, or of `x op(a) = b` if `a` is not on the left side.
    pub(super) fn solve(self, a: &Tensor, b: &Tensor, ty: &RankedType) -> Result<Tensor> {
        let solve = |(a, b): (Matrix, Matrix)| self.solve_one(&a, b);
        tensor(
            matrices(a)?
                .into_iter()
                .zip(matrices(b)?)
                .map(solve)
                .collect(),
            ty,
        )
    }

    fn solve_one(self, a: &Matrix, mut x: Matrix) -> Matrix {
        let size = a.columns;
        // As `m y = c` for each column of b, or for each row, then with the transposed matrix.
        let transposed = (self.transpose != Transposition::No) == self.left_side;
        let conjugated = self.transpose == Transposition::Adjoint;
        let element = |row: usize, column: usize| {
            let value = if transposed {
                a.at(column, row)
            } else {
                a.at(row, column)
            };
            if conjugated { value.conj() } else { value }
        };
        let forward = self.lower != transposed;
        let lines = x.values.len() / size;
        for line in 0..lines {
            let place = |k| if self.left_side { (k, line) } else { (line, k) };
            for step in 0..size {
                let row = if forward { step } else { size - 1 - step };
                let known = if forward { 0..row } else { row + 1..size };
                let (at_row, at_column) = place(row);
                let mut rest = x.at(at_row, at_column);
                for k in known {
                    let (k_row, k_column) = place(k);
                    rest = rest - element(row, k) * x.at(k_row, k_column);
                }
                if !self.unit_diagonal {
                    rest = rest / element(row, row);
                }
                x.set(at_row, at_column, rest);
            }
        }
        x
    }
}

/// QR decompositions in LAPACK's packed form (`geqrf`): R in the upper triangle, the Householder
/// vectors below it without their first elements, which are 1; and their factors tau.
pub(super) fn qr(x: &Tensor, types: [&RankedType; 2]) -> Result<[Tensor; 2]> {
    let mut packed = matrices(x)?;
    let mut taus = Vec::new();
    for matrix in &mut packed {
        let rows = matrix.values.len() / matrix.columns;
        for k in 0..rows.min(matrix.columns) {
            taus.push(reflect(matrix, rows, k));
        }
    }
    Ok([
        tensor(packed, types[0])?,
        Tensor::from_complex(types[1], taus)?,
    ])
}

/// Zeroes column `k` below the diagonal by a reflection `I - tau v v^H`, and returns tau.
fn reflect(x: &mut Matrix, rows: usize, k: usize) -> Complex {
    let head = x.at(k, k);
    let below: f64 = (k + 1..rows).map(|row| x.at(row, k).abs().powi(2)).sum();
    if below == 0.0 && head.im == 0.0 {
        return Complex::default();
    }
    let norm = (head.abs().powi(2) + below).sqrt();
    let beta = -norm.copysign(head.re);
    let tau = Complex::new((beta - head.re) / beta, -head.im / beta);
    let scale = Complex::ONE / (head - Complex::from(beta));
    for row in k + 1..rows {
        x.set(row, k, x.at(row, k) * scale);
    }
    x.set(k, k, Complex::from(beta));
    for column in k + 1..x.columns {
        let mut product = x.at(k, column);
        for row in k + 1..rows {
            product = product + x.at(row, k).conj() * x.at(row, column);
        }
        let product = tau.conj() * product;
        x.set(k, column, x.at(k, column) - product);
        for row in k + 1..rows {
            x.set(row, column, x.at(row, column) - x.at(row, k) * product);
        }
    }
    tau
}

/// The first columns of the products of Householder reflections that [`qr`] packed (`orgqr`).
pub(super) fn product_of_reflectors(
    packed: &Tensor,
    taus: &Tensor,
    ty: &RankedType,
) -> Result<Tensor> {
    let count = taus.ty.dims[taus.ty.rank() - 1];
    let factors = taus.complex()?;
    let mut products = matrices(packed)?;
    for (number, matrix) in products.iter_mut().enumerate() {
        let factors = &factors[number * count..(number + 1) * count];
        *matrix = product_of(matrix, factors);
    }
    tensor(products, ty)
}

fn product_of(packed: &Matrix, taus: &[Complex]) -> Matrix {
    let columns = packed.columns;
    let rows = packed.values.len() / columns;
    let mut q = Matrix {
        columns,
        values: zeros(rows * columns),
    };
    (0..rows.min(columns)).for_each(|at| q.set(at, at, Complex::ONE));
    for (k, &tau) in taus.iter().enumerate().rev() {
        let vector = |row| {
            if row == k {
                Complex::ONE
            } else {
                packed.at(row, k)
            }
        };
        for column in 0..columns {
            let mut product = Complex::default();
            for row in k..rows {
                product = product + vector(row).conj() * q.at(row, column);
            }
            let product = tau * product;
            for row in k..rows {
                q.set(row, column, q.at(row, column) - vector(row) * product);
            }
        }
    }
    q
}
