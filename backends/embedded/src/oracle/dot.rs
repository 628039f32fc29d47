//! Contractions: `dot_general` and `convolution`. Sums are in `f64`, or exact for integers.

use halite_core::Result;
use halite_stablehlo::{ConvolutionAttributes, DotAttributes, ElementClass, RankedType};

use super::{
    complex::Complex,
    index::{for_each_index, strides},
    shape::transpose,
    tensor::{Tensor, Wide, allocate, collect, unexpected},
};

/// A sum of products over elements of two operands, for any class of numbers.
trait Contraction {
    /// The elements of the result, row-major. `add(sum, x, y)` is `sum + x y`.
    fn sums<T: Copy + PartialEq>(
        &self,
        x: &[T],
        y: &[T],
        zero: T,
        add: fn(T, T, T) -> T,
    ) -> Result<Vec<T>>;

    fn run(&self, x: &Tensor, y: &Tensor, ty: &RankedType) -> Result<Tensor> {
        let class = ty.element.class();
        let wide = match (lifted(x.wide()?, class)?, lifted(y.wide()?, class)?) {
            (Wide::Int(x), Wide::Int(y)) => {
                let add = |sum: i128, x: i128, y: i128| sum.wrapping_add(x.wrapping_mul(y));
                Wide::Int(self.sums(&x, &y, 0, add)?)
            }
            (Wide::Float(x), Wide::Float(y)) => {
                Wide::Float(self.sums(&x, &y, 0.0, |sum, x, y| sum + x * y)?)
            }
            (Wide::Complex(x), Wide::Complex(y)) => {
                Wide::Complex(self.sums(&x, &y, Complex::default(), |sum, x, y| sum + x * y)?)
            }
            _ => return Err(unexpected(&x.ty.to_string(), &y.ty.to_string())),
        };
        Tensor::encode(ty, wide)
    }
}

/// The elements as numbers of a class that can hold them.
fn lifted(x: Wide, class: ElementClass) -> Result<Wide> {
    Ok(match (x, class) {
        (Wide::Int(x), ElementClass::Float) => {
            Wide::Float(collect(x.len(), x.into_iter().map(|x| x as f64))?)
        }
        (Wide::Int(x), ElementClass::Complex) => {
            let each = x.into_iter().map(|x| Complex::from(x as f64));
            Wide::Complex(collect(each.len(), each)?)
        }
        (Wide::Float(x), ElementClass::Complex) => {
            Wide::Complex(collect(x.len(), x.into_iter().map(Complex::from))?)
        }
        (x, _) => x,
    })
}

/// The sums of products over the contracting dimensions. The result has the batching dimensions,
/// then the others of `x`, then those of `y`.
pub(super) fn dot_general(
    x: &Tensor,
    y: &Tensor,
    attributes: &DotAttributes,
    ty: &RankedType,
) -> Result<Tensor> {
    let (x_batching, x_contracting) = (&attributes.lhs_batching, &attributes.lhs_contracting);
    let (y_batching, y_contracting) = (&attributes.rhs_batching, &attributes.rhs_contracting);
    let free = |x: &Tensor, batching: &[usize], contracting: &[usize]| -> Vec<usize> {
        let is_free = |dim: &usize| !batching.contains(dim) && !contracting.contains(dim);
        (0..x.ty.rank()).filter(is_free).collect()
    };
    let x_free = free(x, x_batching, x_contracting);
    let y_free = free(y, y_batching, y_contracting);
    let size = |x: &Tensor, dims: &[usize]| dims.iter().map(|&dim| x.ty.dims[dim]).product();
    let product = MatrixProduct {
        rows: size(x, &x_free),
        inner: size(x, x_contracting),
        columns: size(y, &y_free),
        results: ty.elements(),
    };
    let x = transpose(x, &[x_batching.as_slice(), &x_free, x_contracting].concat())?;
    let y = transpose(y, &[y_batching.as_slice(), y_contracting, &y_free].concat())?;
    product.run(&x, &y, ty)
}

/// Products of matrices, `[batch, rows, inner]` by `[batch, inner, columns]`.
struct MatrixProduct {
    rows: usize,
    inner: usize,
    columns: usize,
    /// Number of elements of the result.
    results: usize,
}

impl Contraction for MatrixProduct {
    fn sums<T: Copy + PartialEq>(
        &self,
        x: &[T],
        y: &[T],
        zero: T,
        add: fn(T, T, T) -> T,
    ) -> Result<Vec<T>> {
        let &MatrixProduct {
            rows,
            inner,
            columns,
            results,
        } = self;
        let mut sums = allocate(results)?;
        sums.resize(results, zero);
        if results == 0 || inner == 0 {
            return Ok(sums);
        }
        for (number, sums) in sums.chunks_exact_mut(columns).enumerate() {
            let (batch, x) = (number / rows, &x[number * inner..]);
            for k in 0..inner {
                let y = &y[(batch * inner + k) * columns..];
                for (sum, &y) in sums.iter_mut().zip(y) {
                    *sum = add(*sum, x[k], y);
                }
            }
        }
        Ok(sums)
    }
}

/// The sums of products of a window of the input and the kernel.
pub(super) fn convolution(
    input: &Tensor,
    kernel: &Tensor,
    attributes: &ConvolutionAttributes,
    ty: &RankedType,
) -> Result<Tensor> {
    let convolution = Convolution {
        attributes,
        input: &input.ty.dims,
        kernel: &kernel.ty.dims,
        output: &ty.dims,
    };
    convolution.run(input, kernel, ty)
}

/// A convolution of operands of these dimensions.
struct Convolution<'a> {
    attributes: &'a ConvolutionAttributes,
    input: &'a [usize],
    kernel: &'a [usize],
    output: &'a [usize],
}

impl Contraction for Convolution<'_> {
    fn sums<T: Copy + PartialEq>(
        &self,
        x: &[T],
        y: &[T],
        zero: T,
        add: fn(T, T, T) -> T,
    ) -> Result<Vec<T>> {
        let attributes = self.attributes;
        let (of_input, of_kernel) = (&attributes.input, &attributes.kernel);
        let (x_strides, y_strides) = (strides(self.input), strides(self.kernel));
        let window: Vec<_> = of_kernel
            .spatial
            .iter()
            .map(|&dim| self.kernel[dim])
            .collect();
        let channels = self.kernel[of_kernel.feature];
        let features = self.output[attributes.output.feature];
        let batches = self.input[of_input.batch];
        // Padding and gaps are zeros: their products matter if they are not zero (0 times infinity).
        let skips_zeros = y.iter().all(|&y| add(zero, zero, y) == zero);
        let mut sums = allocate(self.output.iter().product())?;
        for_each_index(self.output, |index| {
            let feature = index[attributes.output.feature];
            // Features are in groups, each of which sees its own channels, or its own batches.
            let channel_group = feature * attributes.feature_groups / features;
            let batch_group = feature * attributes.batch_groups / features;
            let batch =
                batch_group * (batches / attributes.batch_groups) + index[attributes.output.batch];
            let x_start = batch * x_strides[of_input.batch]
                + channel_group * channels * x_strides[of_input.feature];
            let y_start = feature * y_strides[of_kernel.batch];
            let mut sum = zero;
            for_each_index(&window, |tap| {
                let at = self.input_offset(index, tap, &x_strides);
                if at.is_none() && skips_zeros {
                    return Ok(());
                }
                let (mut x_at, mut y_at) = (at.map(|at| x_start + at), y_start);
                for (&dim, &tap) in of_kernel.spatial.iter().zip(tap) {
                    y_at += tap * y_strides[dim];
                }
                for _ in 0..channels {
                    sum = add(sum, x_at.map_or(zero, |at| x[at]), y[y_at]);
                    x_at = x_at.map(|at| at + x_strides[of_input.feature]);
                    y_at += y_strides[of_kernel.feature];
                }
                Ok(())
            })?;
            sums.push(sum);
            Ok(())
        })?;
        Ok(sums)
    }
}

impl Convolution<'_> {
    /// Offset, due to the spatial dimensions, of the element of the input that the element `tap` of
    /// the kernel meets. `None` in the padding and in the gaps of a dilated input.
    fn input_offset(&self, output: &[usize], tap: &[usize], strides: &[usize]) -> Option<usize> {
        let attributes = self.attributes;
        let mut at = 0;
        for (axis, &dim) in attributes.input.spatial.iter().enumerate() {
            let taps = self.kernel[attributes.kernel.spatial[axis]];
            let tap = if attributes.reversal[axis] {
                taps - 1 - tap[axis]
            } else {
                tap[axis]
            };
            let start = output[attributes.output.spatial[axis]] * attributes.strides[axis];
            let dilated = (start + tap * attributes.kernel_dilation[axis]) as i64
                - attributes.padding[axis].0;
            let gap = attributes.input_dilation[axis] as i64;
            if dilated < 0 || dilated % gap != 0 || dilated / gap >= self.input[dim] as i64 {
                return None;
            }
            at += (dilated / gap) as usize * strides[dim];
        }
        Some(at)
    }
}
