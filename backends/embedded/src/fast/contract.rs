//! Contractions as products of matrices over strides.

use halite_kernels::{Axis, View, ViewDim};
use halite_stablehlo::{ConvolutionAttributes, DotAttributes, RankedType};

use super::place::{Place, padded, stepped};

/// Products of matrices of one shape, whose results are neighbors.
#[derive(Debug)]
pub(super) struct Product {
    /// Positions of the matrices of both operands, one pair for each product.
    pub(super) batches: Vec<[usize; 2]>,
    pub(super) rows: Axis,
    /// Positions of the terms in the left operand.
    pub(super) left_terms: Axis,
    /// Positions of the terms in the right operand.
    pub(super) right_terms: Axis,
    pub(super) columns: Axis,
}

/// Positions of all indices of some dimensions, row-major.
fn positions(dims: &[(usize, isize)]) -> Vec<isize> {
    let mut positions = vec![0];
    for &(size, stride) in dims {
        let next = |&at: &isize| (0..size as isize).map(move |index| at + index * stride);
        positions = positions.iter().flat_map(next).collect();
    }
    positions
}

/// Most rows, terms or columns of a product. Programs can describe larger ones by broadcasts; they
/// are left to the oracle, which reports that they do not fit the memory.
const LONGEST_AXIS: usize = 1 << 24;

/// An axis, and the position that its positions are relative to. `None` if there are too many, or
/// one is too large.
fn axis(dims: &[(usize, isize)]) -> Option<(Axis, isize)> {
    let count = dims
        .iter()
        .try_fold(1usize, |count, &(size, _)| count.checked_mul(size))?;
    if count > LONGEST_AXIS {
        return None;
    }
    let positions = positions(dims);
    let first = positions.iter().copied().min().unwrap_or(0);
    let relative = positions.iter().map(|at| u32::try_from(at - first).ok());
    Some((Axis::new(relative.collect::<Option<_>>()?), first))
}

fn sizes_and_strides(view: &View, dims: &[usize]) -> Vec<(usize, isize)> {
    let of = |&dim: &usize| (view.dims[dim].size, view.dims[dim].stride);
    dims.iter().map(of).collect()
}

impl Product {
    /// An estimate of the time of all products.
    pub(super) fn nanoseconds(&self) -> usize {
        let sizes = [&self.rows, &self.left_terms, &self.columns].map(Axis::len);
        let terms = sizes
            .into_iter()
            .fold(self.batches.len(), usize::saturating_mul);
        terms / 64
    }

    /// This product of as many left operands, each of `length` elements, one after another. `None`
    /// if there are too many rows.
    pub(super) fn stacked(&self, count: usize, length: usize) -> Option<Self> {
        Some(Product {
            batches: self.batches.clone(),
            rows: self.rows.repeated(count, length)?,
            left_terms: self.left_terms.clone(),
            right_terms: self.right_terms.clone(),
            columns: self.columns.clone(),
        })
    }

    /// The product of two views. The lists are (size, stride) of dimensions.
    fn new(
        batches: [Vec<(usize, isize)>; 2],
        rows: &[(usize, isize)],
        terms: [Vec<(usize, isize)>; 2],
        columns: &[(usize, isize)],
        offsets: [isize; 2],
    ) -> Option<Self> {
        let (rows, first_row) = axis(rows)?;
        let [(left_terms, first_left), (right_terms, first_right)] =
            [axis(&terms[0])?, axis(&terms[1])?];
        let (columns, first_column) = axis(columns)?;
        let firsts = [
            offsets[0] + first_row + first_left,
            offsets[1] + first_right + first_column,
        ];
        // As many as those of an axis.
        axis(&batches[0])?;
        let pairs = positions(&batches[0])
            .into_iter()
            .zip(positions(&batches[1]));
        let place = |(left, right): (isize, isize)| {
            let left = usize::try_from(left + firsts[0]).ok()?;
            Some([left, usize::try_from(right + firsts[1]).ok()?])
        };
        let batches = pairs.map(place).collect::<Option<_>>()?;
        Some(Product {
            batches,
            rows,
            left_terms,
            right_terms,
            columns,
        })
    }
}

/// `dot_general` of two views without padding.
pub(super) fn dot_general(x: &Place, y: &Place, attributes: &DotAttributes) -> Option<Product> {
    let DotAttributes {
        lhs_batching,
        rhs_batching,
        lhs_contracting,
        rhs_contracting,
        ..
    } = attributes;
    let free = |place: &Place, batching: &[usize], contracting: &[usize]| -> Vec<usize> {
        let dims = 0..place.view.dims.len();
        dims.filter(|dim| !batching.contains(dim) && !contracting.contains(dim))
            .collect()
    };
    let rows = free(x, lhs_batching, lhs_contracting);
    let columns = free(y, rhs_batching, rhs_contracting);
    Product::new(
        [
            sizes_and_strides(&x.view, lhs_batching),
            sizes_and_strides(&y.view, rhs_batching),
        ],
        &sizes_and_strides(&x.view, &rows),
        [
            sizes_and_strides(&x.view, lhs_contracting),
            sizes_and_strides(&y.view, rhs_contracting),
        ],
        &sizes_and_strides(&y.view, &columns),
        [x.view.offset, y.view.offset],
    )
}

/// The input of a convolution with its padding and dilation. `None` if it is too large for a copy.
pub(super) fn padded_input(
    x: &Place,
    attributes: &ConvolutionAttributes,
    results: usize,
) -> Option<Place> {
    let ConvolutionAttributes {
        input,
        padding,
        input_dilation,
        ..
    } = attributes;
    let mut of_dims = vec![(0, 0); x.view.dims.len()];
    let mut interior = vec![0; of_dims.len()];
    for (number, &dim) in input.spatial.iter().enumerate() {
        of_dims[dim] = padding[number];
        interior[dim] = input_dilation[number] - 1;
    }
    padded(x, &of_dims, &interior, 0, results)
}

/// A convolution of a padded input, and the order of dimensions of the product's result: all but
/// the feature as in the result of the convolution, and then the feature. In groups, there is a
/// product for each, with its part of the features.
pub(super) fn convolution(
    x: &Place,
    kernel: &Place,
    attributes: &ConvolutionAttributes,
    ty: &RankedType,
) -> Option<(Product, Vec<usize>)> {
    let ConvolutionAttributes {
        input,
        kernel: of_kernel,
        output,
        strides,
        kernel_dilation,
        ..
    } = attributes;
    let groups = attributes.feature_groups * attributes.batch_groups;
    let mut order: Vec<_> = (0..ty.rank())
        .filter(|&dim| dim != output.feature)
        .collect();
    let rows = order.iter().map(|&dim| {
        if dim == output.batch {
            return Some((ty.dims[dim], x.view.dims[input.batch].stride));
        }
        let number = output.spatial.iter().position(|&spatial| spatial == dim)?;
        let (step, size) = (strides[number], ty.dims[dim]);
        let stride = x.view.dims[input.spatial[number]].stride;
        Some((size, stepped(stride, step, size)))
    });
    let rows = rows.collect::<Option<Vec<_>>>()?;
    order.push(output.feature);

    let mut offset = kernel.view.offset;
    // The terms: size, stride in the input, stride in the kernel.
    let feature = kernel.view.dims[of_kernel.feature];
    let mut terms = vec![(
        feature.size,
        x.view.dims[input.feature].stride,
        feature.stride,
    )];
    for (number, &dim) in of_kernel.spatial.iter().enumerate() {
        let ViewDim {
            size, mut stride, ..
        } = kernel.view.dims[dim];
        if attributes.reversal.get(number).copied().unwrap_or(false) {
            offset += size.saturating_sub(1) as isize * stride;
            stride = -stride;
        }
        let in_input = x.view.dims[input.spatial[number]].stride;
        let in_input = stepped(in_input, kernel_dilation[number], size);
        terms.push((size, in_input, stride));
    }
    // In the order of the input's memory: its runs are read without a copy.
    terms.sort_by_key(|&(_, input, _)| std::cmp::Reverse(input.abs()));
    let in_input = terms
        .iter()
        .map(|&(size, input, _)| (size, input))
        .collect();
    let in_kernel = terms
        .iter()
        .map(|&(size, _, kernel)| (size, kernel))
        .collect();
    let outputs = kernel.view.dims[of_kernel.batch];
    let outputs_of_group = outputs.size / groups;
    let columns = [(outputs_of_group, outputs.stride)];
    let mut batches = [Vec::new(), Vec::new()];
    if groups > 1 {
        // The groups split the features of the input, or else its batch.
        let split = match attributes.feature_groups {
            1 => input.batch,
            _ => input.feature,
        };
        let ViewDim { size, stride, .. } = x.view.dims[split];
        let in_input = stride * (size / groups) as isize;
        batches[0].push((groups, in_input));
        batches[1].push((groups, outputs.stride * outputs_of_group as isize));
    }
    let product = Product::new(
        batches,
        &rows,
        [in_input, in_kernel],
        &columns,
        [x.view.offset, offset],
    )?;
    Some((product, order))
}
