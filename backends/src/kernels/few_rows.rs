//! Products of a few rows with a matrix that is read where it is.

use half::bf16;
use halite_core::{
    DType, Element, Error, Result,
    custom_call::{Arguments, InputBuffer, OutputBuffer},
};
use halite_kernels::{Axis, Operand, multiply};

use super::{Prepared, threads};

const OP: &str = "few_rows";

/// Sizes of a product.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Sizes {
    rows: usize,
    terms: usize,
    columns: usize,
    /// The matrix is `[columns, terms]`.
    transposed: bool,
}

/// Positions of elements in rows, terms and columns.
struct Axes {
    rows: Axis,
    terms: Axis,
    matrix_terms: Axis,
    columns: Axis,
}

/// Computes `x: [rows, terms]` by a matrix, or by that one of a stack of which a third operand is
/// the index.
pub(super) fn call(call: &mut Arguments<'_>) -> Result<()> {
    static PREPARED: Prepared<Sizes, Axes> = Prepared::new();
    let attributes = call.attributes();
    let size = |name: &str| {
        let value = attributes.int(name)?;
        let fits = usize::try_from(value).ok().filter(|&size| size > 0);
        fits.ok_or_else(|| {
            Error::invalid(
                OP,
                format!("the attribute `{name}` is {value}, out of range"),
            )
        })
    };
    let sizes = Sizes {
        rows: size("rows")?,
        terms: size("terms")?,
        columns: size("columns")?,
        transposed: attributes.bool("transposed")?,
    };
    let axes = PREPARED.get(sizes, Axes::new)?;
    let (inputs, outputs) = call.all_buffers();
    let (x, matrix, index, out) = match (inputs, outputs) {
        ([x, matrix], [out]) => (x, matrix, 0, out),
        ([x, matrix, index], [out]) => {
            let index = index.as_slice::<i32>()?.first().copied();
            (x, matrix, index.unwrap_or(-1), out)
        }
        (inputs, outputs) => {
            let message = format!(
                "called with {} inputs and {} outputs; the function has 2 or 3, and 1",
                inputs.len(),
                outputs.len()
            );
            return Err(Error::invalid(OP, message));
        }
    };
    match matrix.ty().dtype() {
        DType::Bf16 => product::<bf16>(sizes, &axes, x, (matrix, index), out),
        _ => product::<f32>(sizes, &axes, x, (matrix, index), out),
    }
}

fn product<T: Element + halite_kernels::Element>(
    sizes: Sizes,
    axes: &Axes,
    x: &InputBuffer<'_>,
    matrix: (&InputBuffer<'_>, i32),
    out: &mut OutputBuffer<'_>,
) -> Result<()> {
    let (matrix, index) = matrix;
    let matrices = matrix.as_slice::<T>()?;
    let elements = sizes.terms.checked_mul(sizes.columns);
    let offset = usize::try_from(index)
        .ok()
        .and_then(|index| index.checked_mul(elements?))
        .filter(|offset| matrices.len().checked_sub(*offset) >= elements);
    let (found, needed) = (
        [x.ty().elements(), out.ty().elements()],
        [sizes.rows * sizes.terms, sizes.rows * sizes.columns],
    );
    let Some(offset) = offset.filter(|_| found == needed) else {
        let message = format!(
            "rows {}, matrix {} of {}, result {}; {sizes:?} needs others",
            x.ty(),
            index,
            matrix.ty(),
            out.ty()
        );
        return Err(Error::invalid(OP, message));
    };
    let b = Operand {
        data: matrices,
        offset,
        rows: &axes.matrix_terms,
        columns: &axes.columns,
    };
    let threads = threads()?;
    let run = |x: &[f32], out: &mut [f32]| {
        let a = Operand {
            data: x,
            offset: 0,
            rows: &axes.rows,
            columns: &axes.terms,
        };
        multiply(threads, a, b, out);
    };
    let wide: Vec<f32>;
    let x = match x.ty().dtype() {
        DType::Bf16 => {
            wide = (x.as_slice::<bf16>()?.iter()).map(|x| x.to_f32()).collect();
            &wide
        }
        _ => x.as_slice::<f32>()?,
    };
    match out.ty().dtype() {
        DType::Bf16 => {
            let out = out.as_mut_slice::<bf16>()?;
            let mut sums = vec![0.0; out.len()];
            run(x, &mut sums);
            out.iter_mut()
                .zip(&sums)
                .for_each(|(out, &sum)| *out = bf16::from_f32(sum));
        }
        _ => run(x, out.as_mut_slice::<f32>()?),
    }
    Ok(())
}

impl Axes {
    fn new(sizes: Sizes) -> Result<Self> {
        let Sizes {
            rows,
            terms,
            columns,
            transposed,
        } = sizes;
        let axis = |count: usize, stride: usize| -> Result<Axis> {
            let positions = (0..count).map(|at| u32::try_from(at.checked_mul(stride)?).ok());
            let positions: Option<Vec<u32>> = positions.collect();
            let positions = positions.ok_or_else(|| {
                Error::invalid(OP, format!("{sizes:?} is larger than kernels take"))
            })?;
            Ok(Axis::new(positions))
        };
        let strides = if transposed { [1, terms] } else { [columns, 1] };
        Ok(Axes {
            rows: axis(rows, terms)?,
            terms: axis(terms, 1)?,
            matrix_terms: axis(terms, strides[0])?,
            columns: axis(columns, strides[1])?,
        })
    }
}
