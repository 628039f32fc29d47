use halite_core::DType;
use halite_ir::{ConvolutionAttributes, ConvolutionDims, DotAttributes};
use halite_nn::{ConvOptions, Padding};

use crate::gradients::Case;

#[test]
fn products_of_matrices() {
    Case::noise(&[&[3, 4], &[4, 2]]).check("matrix by matrix", |_, x| vec![x[0].matmul(x[1])]);
    Case::noise(&[&[2, 3, 4], &[4, 2]]).check("dense layer", |_, x| vec![x[0].matmul(x[1])]);
    Case::noise(&[&[2, 2, 3, 4], &[2, 2, 4, 2]]).check("batches", |_, x| vec![x[0].matmul(x[1])]);
    Case::noise(&[&[4], &[4, 2]]).check("vector by matrix", |_, x| vec![x[0].matmul(x[1])]);
    Case::noise(&[&[4], &[4]]).check("inner product", |_, x| {
        vec![x[0].tensordot(x[1], &[(0, 0)])]
    });
    Case::noise(&[&[3], &[4]]).check("outer product", |_, x| vec![x[0].tensordot(x[1], &[])]);
    Case::noise(&[&[3, 3]]).check("a matrix by itself", |_, x| vec![x[0].matmul(x[0])]);
}

#[test]
fn products_over_dimensions_in_any_order() {
    let dot = DotAttributes {
        lhs_batching: vec![2, 0],
        rhs_batching: vec![0, 3],
        lhs_contracting: vec![4, 1],
        rhs_contracting: vec![1, 2],
        ..DotAttributes::default()
    };
    // left: [b1, c2, b0, free, c1], right: [b0, c1, c2, b1, free]
    Case::noise(&[&[2, 3, 4, 5, 2], &[4, 2, 3, 2, 3]]).check("mixed dimensions", move |_, x| {
        vec![x[0].dot_general(x[1], dot.clone(), DType::F64)]
    });
}

#[test]
fn narrow_products_go_back_narrow() {
    Case::noise(&[&[3, 4], &[4, 2]])
        .coarse()
        .check("f32 to f64", |_, x| {
            let dot = DotAttributes {
                lhs_batching: vec![],
                rhs_batching: vec![],
                lhs_contracting: vec![1],
                rhs_contracting: vec![0],
                ..DotAttributes::default()
            };
            vec![
                x[0].convert(DType::F32)
                    .dot_general(x[1].convert(DType::F32), dot, DType::F64),
            ]
        });
}

/// Checks a convolution of random arrays of these dimensions: images, then kernel.
#[track_caller]
fn check_conv(name: &str, options: ConvOptions, x: [usize; 4], kernel: [usize; 4]) {
    Case::noise(&[&x, &kernel]).check(name, move |_, x| vec![x[0].conv(x[1], &options)]);
}

#[test]
fn convolutions_with_strides_or_padding() {
    check_conv("plain", ConvOptions::default(), [2, 5, 4, 3], [3, 2, 3, 2]);
    let same = ConvOptions {
        padding: Padding::Same,
        ..ConvOptions::default()
    };
    check_conv("same", same.clone(), [2, 5, 4, 3], [3, 2, 3, 2]);
    let strided = ConvOptions {
        strides: vec![2, 3],
        ..ConvOptions::default()
    };
    check_conv("strides", strided, [2, 7, 6, 2], [3, 2, 2, 3]);
    let both = ConvOptions {
        strides: vec![2, 2],
        ..same
    };
    check_conv("strides and padding", both, [1, 7, 6, 2], [3, 3, 2, 3]);
    let uneven = ConvOptions {
        padding: Padding::Explicit(vec![(2, 0), (-1, 3)]),
        ..ConvOptions::default()
    };
    check_conv(
        "uneven and negative padding",
        uneven,
        [1, 6, 6, 2],
        [2, 3, 2, 2],
    );
}

#[test]
fn convolutions_with_dilations_or_groups() {
    let dilated = ConvOptions {
        kernel_dilation: vec![3, 2],
        ..ConvOptions::default()
    };
    check_conv("kernel dilation", dilated, [1, 7, 7, 2], [2, 3, 2, 2]);
    let transposed = ConvOptions {
        input_dilation: vec![2, 3],
        padding: Padding::Explicit(vec![(1, 2), (0, 1)]),
        ..ConvOptions::default()
    };
    check_conv("transposed", transposed, [1, 3, 4, 2], [3, 2, 2, 2]);
    let grouped = ConvOptions {
        groups: 3,
        ..ConvOptions::default()
    };
    check_conv("groups", grouped.clone(), [2, 4, 4, 6], [2, 2, 2, 9]);
    let depthwise = ConvOptions {
        strides: vec![2, 1],
        kernel_dilation: vec![1, 2],
        padding: Padding::Explicit(vec![(1, 0), (0, 2)]),
        ..grouped
    };
    let name = "depthwise, strides, dilations";
    check_conv(name, depthwise, [2, 6, 7, 3], [2, 2, 1, 6]);
}

#[test]
fn convolutions_with_one_spatial_dimension() {
    Case::noise(&[&[2, 6, 3], &[3, 3, 2]]).check("one dimension", |_, x| {
        vec![x[0].conv(x[1], &ConvOptions::default())]
    });
}

#[test]
fn convolution_gradients_with_permuted_dimensions() {
    let general = ConvolutionAttributes {
        input: ConvolutionDims {
            batch: 2,
            feature: 0,
            spatial: vec![3, 1],
        },
        kernel: ConvolutionDims {
            batch: 1,
            feature: 3,
            spatial: vec![0, 2],
        },
        output: ConvolutionDims {
            batch: 3,
            feature: 1,
            spatial: vec![2, 0],
        },
        strides: vec![1, 2],
        padding: vec![(1, 0), (2, 1)],
        input_dilation: vec![2, 1],
        kernel_dilation: vec![1, 2],
        reversal: vec![true, false],
        feature_groups: 1,
        batch_groups: 1,
        precision: Vec::new(),
    };
    let conv = general.clone();
    // x: [in 3, w 5, batch 2, h 4], kernel: [h 2, out 4, w 2, in 3]
    Case::noise(&[&[3, 5, 2, 4], &[2, 4, 2, 3]]).check("general", move |_, x| {
        vec![x[0].conv_general(x[1], conv.clone(), DType::F64)]
    });
    let conv = ConvolutionAttributes {
        batch_groups: 2,
        ..general.clone()
    };
    Case::noise(&[&[3, 5, 4, 4], &[2, 4, 2, 3]]).check("batch groups", move |_, x| {
        vec![x[0].conv_general(x[1], conv.clone(), DType::F64)]
    });
    let conv = ConvolutionAttributes {
        feature_groups: 2,
        ..general
    };
    Case::noise(&[&[6, 5, 2, 4], &[2, 4, 2, 3]]).check("feature groups", move |_, x| {
        vec![x[0].conv_general(x[1], conv.clone(), DType::F64)]
    });
}
