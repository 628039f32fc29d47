//! Products over any dimensions, and convolutions of every attribute.

use halite_core::{DType, TensorType};
use halite_ir::{ConvolutionAttributes, ConvolutionDims, DotAttributes};
use halite_nn::{ConvOptions, Padding, Tensor};

use crate::edge_values::table::rows;

rows! {
    "dots" Cubes NUMBERS [0] ["matmul", "tensordot", "dot_general"] |x| dots(x[0]);
    "dots_wider" Cubes NUMBERS [] ["matmul", "tensordot", "dot_general"]
        |x| wider(x[0].dtype()).map(|result| {
            x[0].dot_general(x[0], dot([[0], [0]], [[2], [2]]), result)
        }).collect::<Vec<_>>();
    "convolutions_of_sequences" Cubes NUMBERS [0] ["conv_general"] |x| convolutions(x[0], 1);
    "convolutions_of_images" Cubes NUMBERS [0] ["conv_general"] |x| convolutions(x[0], 2);
    "convolutions_of_volumes" Cubes NUMBERS [0] ["conv_general"]
        |x| [convolutions(x[0], 3), convolutions(x[0], 0)].concat();
    "convolutions_in_any_order" Cubes NUMBERS [0] ["conv_general"] |x| in_any_order(x[0]);
    "convolutions_of_few_places" Cubes FLOATS [0] ["conv_general"] |x| few_places(x[0]);
    "padded_convolutions" Cubes NUMBERS [0] ["conv"] |x| padded(x[0]);
}

fn dot<const B: usize, const C: usize>(
    batching: [[usize; B]; 2],
    contracting: [[usize; C]; 2],
) -> DotAttributes {
    DotAttributes {
        lhs_batching: batching[0].to_vec(),
        rhs_batching: batching[1].to_vec(),
        lhs_contracting: contracting[0].to_vec(),
        rhs_contracting: contracting[1].to_vec(),
        ..DotAttributes::default()
    }
}

fn dots(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let size = x.dims()[2];
    let (long, rows, columns) = (x.flatten(), x.sum([0, 2]), x.sum([1, 2]));
    let (left, right) = (x.reshape([2, 2, 6, size]), x.reshape([size, 6, 2, 2]));
    let mixed = dot([[0], [2]], [[3, 2], [0, 1]]);
    vec![
        x.matmul(x.transpose([0, 2, 1])),
        x.matmul(x.slice_dim(0, ..1).reshape([size, 6])),
        long.tensordot(long, &[(0, 0)]),
        rows.tensordot(columns, &[]),
        columns.unsqueeze(0).matmul(columns.unsqueeze(1)),
        left.dot_general(right, mixed, x.dtype()),
    ]
}

/// The type, and wider ones of its family.
fn wider(dtype: DType) -> impl Iterator<Item = DType> {
    let family = |dtype: DType| (dtype.is_float(), dtype.is_signed_integer());
    DType::computed().filter(move |&to| {
        to == dtype || to != DType::Bool && family(dtype) == family(to) && dtype.size() < to.size()
    })
}

/// Stride, dilations of the input and of the kernel, and whether none, all or the first of the
/// spatial dimensions are reversed.
const VARIATIONS: [[usize; 4]; 7] = [
    [1, 1, 1, 0],
    [2, 2, 2, 1],
    [2, 1, 1, 0],
    [1, 2, 1, 0],
    [1, 1, 2, 0],
    [1, 1, 1, 1],
    [1, 1, 1, 2],
];

/// Convolutions of the same elements with this number of spatial dimensions: each variation, in
/// groups of the features, of the batch and in none.
fn convolutions(x: Tensor<'_>, spatial: usize) -> Vec<Tensor<'_>> {
    let batch = if x.ty().elements() == 0 { 0 } else { 4 };
    let variations = match spatial {
        0 => &VARIATIONS[..1],
        3 => &VARIATIONS[..2],
        _ => &VARIATIONS,
    };
    let groups = [(1, 1), (2, 1), (1, 2), (4, 1), (1, 4)];
    let each = variations
        .iter()
        .flat_map(|variation| groups.map(|groups| (variation, groups)));
    each.map(|(variation, groups)| {
        let input = filled(x, &[&[batch], &vec![4; spatial][..], &[4]].concat());
        let kernel = filled(x, &[&vec![2; spatial][..], &[4 / groups.0, 4]].concat());
        input.conv_general(kernel, convolution(spatial, *variation, groups), x.dtype())
    })
    .collect()
}

/// Convolutions of dilated inputs by kernels of more places, which XLA's CPU compiler ends the
/// process on (decision 0051).
fn few_places(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let sizes = [1, 2, 3]
        .into_iter()
        .flat_map(|size| [(size, 1), (size, 2), (size, 3)]);
    let each = sizes.map(|(size, kernel)| {
        let mut conv = convolution(2, [1, 1, 1, 0], (1, 1));
        (conv.input_dilation, conv.padding) = (vec![1, 2], vec![(1, 0), (0, kernel as i64)]);
        let input = filled(x, &[1, 1, size, 1]);
        input.conv_general(filled(x, &[2, kernel, 1, 1]), conv, x.dtype())
    });
    each.collect()
}

/// The elements of `x`, repeated.
fn filled<'t>(x: Tensor<'t>, dims: &[usize]) -> Tensor<'t> {
    let (count, given) = (dims.iter().product::<usize>(), x.ty().elements());
    if given == 0 {
        return x.trace().full(1.0, &TensorType::new(x.dtype(), dims));
    }
    let copies = vec![x.flatten(); 1 + count / given];
    let all = x.trace().concat(&copies, 0);
    all.slice_dim(0, ..count).reshape(dims)
}

fn dims(batch: usize, feature: usize, spatial: impl IntoIterator<Item = usize>) -> ConvolutionDims {
    ConvolutionDims {
        batch,
        feature,
        spatial: spatial.into_iter().collect(),
    }
}

fn convolution(
    spatial: usize,
    [stride, of_input, of_kernel, reversal]: [usize; 4],
    (feature_groups, batch_groups): (usize, usize),
) -> ConvolutionAttributes {
    ConvolutionAttributes {
        input: dims(0, spatial + 1, 1..=spatial),
        kernel: dims(spatial + 1, spatial, 0..spatial),
        output: dims(0, spatial + 1, 1..=spatial),
        strides: vec![stride; spatial],
        padding: vec![(1, 0); spatial],
        input_dilation: vec![of_input; spatial],
        kernel_dilation: vec![of_kernel; spatial],
        reversal: (0..spatial)
            .map(|i| reversal == 1 || reversal == 2 && i == 0)
            .collect(),
        feature_groups,
        batch_groups,
        precision: Vec::new(),
    }
}

/// `x: [in 3, width 5, batch 4, height 4]`, kernel `[height 2, out 4, width 2, in 3]`; without
/// groups, and in groups of the batch and of the features.
fn in_any_order(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let groups = [(1, 1, 3), (1, 2, 3), (2, 1, 6)];
    let each = groups.map(|(feature_groups, batch_groups, features)| {
        let conv = ConvolutionAttributes {
            input: dims(2, 0, [3, 1]),
            kernel: dims(1, 3, [0, 2]),
            output: dims(3, 1, [2, 0]),
            strides: vec![1, 2],
            padding: vec![(1, 0), (2, 1)],
            input_dilation: vec![2, 1],
            kernel_dilation: vec![1, 2],
            reversal: vec![true, false],
            feature_groups,
            batch_groups,
            precision: Vec::new(),
        };
        let input = filled(x, &[features, 5, 4, 4]);
        input.conv_general(filled(x, &[2, 4, 2, 3]), conv, x.dtype())
    });
    each.to_vec()
}

/// Images `[2, 5, 6, 2]` by kernels `[3, 2, 2, 3]`, with every form of padding.
fn padded(x: Tensor<'_>) -> Vec<Tensor<'_>> {
    let explicit = |height, width| Padding::Explicit(vec![height, width]);
    let each = [
        (Padding::Valid, [1, 1], [1, 1]),
        (Padding::Same, [1, 1], [1, 1]),
        (Padding::Same, [2, 2], [1, 1]),
        (explicit((2, 0), (-1, 3)), [1, 1], [1, 1]),
        (explicit((-1, 1), (2, 0)), [2, 3], [1, 1]),
        (explicit((1, 2), (0, 1)), [1, 1], [2, 3]),
    ];
    let each = each.map(|(padding, strides, dilation)| {
        let options = ConvOptions {
            strides: strides.to_vec(),
            padding,
            input_dilation: dilation.to_vec(),
            ..ConvOptions::default()
        };
        filled(x, &[2, 5, 6, 2]).conv(filled(x, &[3, 2, 2, 3]), &options)
    });
    each.to_vec()
}
