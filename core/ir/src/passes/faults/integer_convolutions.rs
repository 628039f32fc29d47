//! Convolutions of integers. XLA's GPU compiler has those of cuDNN only: of `s8`, with results that
//! are kept in range instead of wrapping.

use halite_core::{DType, TensorType};

use super::{
    Append,
    reversed_kernels::{in_feature_groups, reversed},
};
use crate::{
    BinaryOp, ConvolutionAttributes, DotAttributes, GatherAttributes, Graph, Literal, Op, Value,
    infer, passes::faults::rewritten,
};

/// Most places of a kernel that have a product each. Along other dimensions, one product sums over
/// all places, of a copy of the input for each.
const MOST_PRODUCTS: usize = 64;

/// Replaces each convolution of integers by a sum of products of matrices, one for each place of
/// the kernel.
pub(super) fn without(graph: Graph) -> Graph {
    rewritten(graph, &|graph, node| {
        let Op::Convolution(conv, ..) = &node.op else {
            return None;
        };
        let [input, kernel] = [node.operands[0], node.operands[1]];
        if !graph.ty(input).dtype().is_integer() {
            return None;
        }
        let types = [graph.ty(input), graph.ty(kernel)];
        let result = infer(&node.op, &types).expect("a valid graph").remove(0);
        let (conv, origin) = (conv.clone(), node.origin);
        let append = &mut Append { graph, origin };
        if result.elements() == 0 || append.ty(kernel).elements() == 0 {
            return Some(append.push(Op::Constant(Literal::zero(&result)), &[]));
        }
        Some(sum_of_products(append, conv, [input, kernel], &result))
    })
}

/// A convolution whose result has this type.
fn sum_of_products(
    append: &mut Append<'_>,
    mut conv: ConvolutionAttributes,
    [input, kernel]: [Value; 2],
    ty: &TensorType,
) -> Value {
    let result = ty.dims();
    let input = in_feature_groups(append, &mut conv, input);
    let kernel = reversed(append, &mut conv, kernel);
    let input = padded(append, &conv, input);
    let places = Places::new(append, &conv, kernel, result);
    let input = input_in_order(append, &conv, input);
    let kernel = kernel_in_order(append, &conv, kernel);
    let input = places.copies(append, input);
    let products: Vec<Value> = (0..places.products())
        .map(|number| places.product(append, ty.dtype(), input, kernel, number))
        .collect();
    let add = |sum, next| append.push(Op::Binary(BinaryOp::Add), &[sum, next]);
    let sum = products
        .into_iter()
        .reduce(add)
        .expect("a kernel has places");

    // `[groups, batch, spatial.., features of a group]`
    let spatial = conv.strides.len();
    let permutation = (1..spatial + 2).chain([0, spatial + 2]).collect();
    let sum = append.transpose(sum, permutation);
    let mut dims: Vec<usize> = vec![result[conv.output.batch]];
    dims.extend(conv.output.spatial.iter().map(|&dim| result[dim]));
    dims.push(result[conv.output.feature]);
    let sum = append.reshape(sum, dims);
    let mut permutation = vec![0; spatial + 2];
    permutation[conv.output.feature] = spatial + 1;
    for (i, &dim) in conv.output.spatial.iter().enumerate() {
        permutation[dim] = 1 + i;
    }
    append.transpose(sum, permutation)
}

/// The input with zeros around and between its elements.
fn padded(append: &mut Append<'_>, conv: &ConvolutionAttributes, input: Value) -> Value {
    let ty = append.ty(input);
    let (mut low, mut high) = (vec![0; ty.rank()], vec![0; ty.rank()]);
    let mut interior = vec![0; ty.rank()];
    for (i, &dim) in conv.input.spatial.iter().enumerate() {
        (low[dim], high[dim]) = conv.padding[i];
        interior[dim] = conv.input_dilation[i] - 1;
    }
    let zero = append.integer(0, &ty.with_dims([]));
    let pad = Op::Pad {
        low,
        high,
        interior,
    };
    append.push(pad, &[input, zero])
}

/// `[batch, spatial.., groups, features of a group]`
fn input_in_order(append: &mut Append<'_>, conv: &ConvolutionAttributes, input: Value) -> Value {
    let dims = &conv.input;
    let order = [&[dims.batch], &dims.spatial[..], &[dims.feature]].concat();
    let input = append.transpose(input, order);
    let mut dims = append.ty(input).dims().to_vec();
    let features = dims.pop().expect("a feature dimension");
    dims.extend([conv.feature_groups, features / conv.feature_groups]);
    append.reshape(input, dims)
}

/// `[spatial.., features of a group, groups, results of a group]`
fn kernel_in_order(append: &mut Append<'_>, conv: &ConvolutionAttributes, kernel: Value) -> Value {
    let dims = &conv.kernel;
    let order = [&dims.spatial[..], &[dims.feature, dims.batch]].concat();
    let kernel = append.transpose(kernel, order);
    let mut dims = append.ty(kernel).dims().to_vec();
    let results = dims.pop().expect("a feature dimension");
    dims.extend([conv.feature_groups, results / conv.feature_groups]);
    append.reshape(kernel, dims)
}

/// The places of a kernel, by spatial dimension.
struct Places {
    each: Vec<Along>,
}

/// Places along one dimension.
struct Along {
    /// Number of places.
    kernel: usize,
    /// Number of elements of the result.
    result: usize,
    /// From one element of the result to the next.
    stride: usize,
    /// From one place to the next.
    dilation: usize,
    /// Whether each place has a product of its own.
    is_single: bool,
}

impl Places {
    fn new(
        append: &Append<'_>,
        conv: &ConvolutionAttributes,
        kernel: Value,
        result: &[usize],
    ) -> Self {
        let kernel = append.ty(kernel);
        let mut products = 1;
        let along = |i: usize| {
            let size = kernel.dims()[conv.kernel.spatial[i]];
            let is_single = products * size <= MOST_PRODUCTS;
            products *= if is_single { size } else { 1 };
            Along {
                kernel: size,
                result: result[conv.output.spatial[i]],
                stride: conv.strides[i],
                dilation: conv.kernel_dilation[i],
                is_single,
            }
        };
        Places {
            each: (0..conv.strides.len()).map(along).collect(),
        }
    }

    fn products(&self) -> usize {
        let single = self.each.iter().filter(|along| along.is_single);
        single.map(|along| along.kernel).product()
    }

    /// The input with one more dimension, the last, for each dimension whose places share a
    /// product: what each place is multiplied with.
    fn copies(&self, append: &mut Append<'_>, input: Value) -> Value {
        let shared = (self.each.iter().enumerate()).filter(|(_, along)| !along.is_single);
        shared.fold(input, |input, (i, along)| {
            let (ty, dim) = (append.ty(input), 1 + i);
            let indices = along.indices(append);
            let mut slice_sizes = ty.dims().to_vec();
            slice_sizes[dim] = 1;
            let gather = GatherAttributes {
                offset_dims: (0..ty.rank()).filter(|&other| other != dim).collect(),
                collapsed_slice_dims: vec![dim],
                operand_batching_dims: vec![],
                start_indices_batching_dims: vec![],
                start_index_map: vec![dim],
                index_vector_dim: 2,
                slice_sizes,
                indices_are_sorted: false,
            };
            append.push(Op::Gather(gather), &[input, indices])
        })
    }

    /// The product at the places of one number.
    fn product(
        &self,
        append: &mut Append<'_>,
        result: DType,
        input: Value,
        kernel: Value,
        number: usize,
    ) -> Value {
        let (spatial, mut rest) = (self.each.len(), number);
        let mut of_input = Part::whole(append.ty(input).dims());
        let mut of_kernel = Part::whole(append.ty(kernel).dims());
        for (i, along) in self
            .each
            .iter()
            .enumerate()
            .filter(|(_, along)| along.is_single)
        {
            let place = rest % along.kernel;
            rest /= along.kernel;
            of_kernel.take(i, place, 1, 1);
            of_input.take(1 + i, place * along.dilation, along.result, along.stride);
        }
        let input = of_input.of(append, input);
        let kernel = of_kernel.of(append, kernel);
        // Dimensions of one place are left out.
        let dims = append.ty(kernel).dims().to_vec();
        let kept = |dim: &usize| self.each.get(*dim).is_none_or(|along| !along.is_single);
        let dims: Vec<usize> = ((0..dims.len()).filter(kept))
            .map(|dim| dims[dim])
            .collect();
        let shared = dims.len() - 3;
        let kernel = append.reshape(kernel, dims);
        let dot = DotAttributes {
            lhs_batching: vec![spatial + 1],
            rhs_batching: vec![shared + 1],
            lhs_contracting: (spatial + 2..spatial + 3 + shared).collect(),
            rhs_contracting: [shared].into_iter().chain(0..shared).collect(),
            ..DotAttributes::default()
        };
        append.push(Op::Dot(dot, result), &[input, kernel])
    }
}

impl Along {
    /// For each element of the result and each place, the index in the padded input.
    fn indices(&self, append: &mut Append<'_>) -> Value {
        let ty = TensorType::new(DType::S64, [self.result, self.kernel]);
        let [of_result, of_place] = [(0, self.stride), (1, self.dilation)].map(|(dim, step)| {
            let counted = append.push(
                Op::Iota {
                    ty: ty.clone(),
                    dim,
                },
                &[],
            );
            let step = append.integer(step as i64, &ty);
            append.push(Op::Binary(BinaryOp::Multiply), &[counted, step])
        });
        append.push(Op::Binary(BinaryOp::Add), &[of_result, of_place])
    }
}

/// A slice of a tensor.
struct Part {
    starts: Vec<usize>,
    limits: Vec<usize>,
    strides: Vec<usize>,
}

impl Part {
    fn whole(dims: &[usize]) -> Self {
        Part {
            starts: vec![0; dims.len()],
            limits: dims.to_vec(),
            strides: vec![1; dims.len()],
        }
    }

    /// Takes `count` elements of a dimension.
    fn take(&mut self, dim: usize, start: usize, count: usize, stride: usize) {
        self.starts[dim] = start;
        self.limits[dim] = start + (count - 1) * stride + 1;
        self.strides[dim] = stride;
    }

    fn of(self, append: &mut Append<'_>, value: Value) -> Value {
        let slice = Op::Slice {
            starts: self.starts,
            limits: self.limits,
            strides: self.strides,
        };
        append.push(slice, &[value])
    }
}
