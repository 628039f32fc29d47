use half::bf16;
use halite_core::{DType, HostArray};
use halite_ir::{ConvolutionAttributes, ConvolutionDims, DotAttributes, Op};

use crate::ir_ops::support::*;

#[test]
fn dots_sum_over_any_pairs_of_dimensions() {
    let (x, y) = (noise(&[2, 3, 4, 5]), noise(&[4, 6, 2, 5]));
    let dot = DotAttributes {
        lhs_batching: vec![0],
        rhs_batching: vec![2],
        lhs_contracting: vec![3, 2],
        rhs_contracting: vec![3, 0],
        ..DotAttributes::default()
    };
    let expected = by_index(&[2, 3, 6], |index| {
        let (b, i, j) = (index[0], index[1], index[2]);
        indices(&[4, 5])
            .map(|k| at(&x, &[b, i, k[0], k[1]]) * at(&y, &[k[0], j, b, k[1]]))
            .sum()
    });
    gives_about(
        Op::Dot(dot, DType::F32),
        &[&x, &y],
        expected.as_slice().unwrap(),
        1e-5,
    );
    let outer = DotAttributes {
        lhs_batching: vec![],
        rhs_batching: vec![],
        lhs_contracting: vec![],
        rhs_contracting: vec![],
        ..DotAttributes::default()
    };
    let (x, y) = (noise(&[3]), noise(&[2]));
    gives(
        Op::Dot(outer, DType::F32),
        &[&x, &y],
        &[by_index(&[3, 2], |index| {
            at(&x, &index[..1]) * at(&y, &index[1..])
        })],
    );
}

#[test]
fn dots_accumulate_in_the_type_of_their_result() {
    let dot = |result| {
        Op::Dot(
            DotAttributes {
                lhs_batching: vec![],
                rhs_batching: vec![],
                lhs_contracting: vec![0],
                rhs_contracting: vec![0],
                ..DotAttributes::default()
            },
            result,
        )
    };
    let ones = host(&[bf16::ONE; 1000], &[1000]);
    gives(
        dot(DType::F32),
        &[&ones, &ones],
        &[HostArray::scalar(1000.0f32)],
    );
    let sevens = host(&[100i8; 3], &[3]);
    gives(
        dot(DType::S32),
        &[&sevens, &sevens],
        &[HostArray::scalar(30_000i32)],
    );
    gives(
        dot(DType::S8),
        &[&sevens, &sevens],
        &[HostArray::scalar(30_000i32 as i8)],
    );
    let big = host(&[200u8; 3], &[3]);
    gives(
        dot(DType::U32),
        &[&big, &big],
        &[HostArray::scalar(120_000u32)],
    );
    let x = host(&[1e200f64, 3.0], &[2]);
    gives(
        dot(DType::F64),
        &[&x, &host(&[0.0f64, 0.5], &[2])],
        &[HostArray::scalar(1.5f64)],
    );
}

/// A convolution by its definition, one output element at a time.
fn convolve(
    conv: &ConvolutionAttributes,
    x: &HostArray,
    kernel: &HostArray,
    out: &[usize],
) -> HostArray {
    let spatial = conv.strides.len();
    let (x_dims, k_dims) = (x.ty().dims(), kernel.ty().dims());
    let k_features = k_dims[conv.kernel.feature];
    let out_features = k_dims[conv.kernel.batch];
    let window: Vec<usize> = conv.kernel.spatial.iter().map(|&dim| k_dims[dim]).collect();
    by_index(out, |index| {
        let (batch, feature) = (index[conv.output.batch], index[conv.output.feature]);
        let feature_group = feature / (out_features / conv.feature_groups);
        let batch_group = feature / (out_features / conv.batch_groups);
        let batches = x_dims[conv.input.batch] / conv.batch_groups;
        let mut sum = 0.0;
        for at_window in indices(&window) {
            let mut x_index = vec![0; x_dims.len()];
            let mut k_index = vec![0; k_dims.len()];
            let mut inside = true;
            for d in 0..spatial {
                let place = index[conv.output.spatial[d]] * conv.strides[d]
                    + at_window[d] * conv.kernel_dilation[d];
                let place = place as i64 - conv.padding[d].0;
                let dilation = conv.input_dilation[d] as i64;
                inside &= place >= 0
                    && place % dilation == 0
                    && place / dilation < x_dims[conv.input.spatial[d]] as i64;
                x_index[conv.input.spatial[d]] = (place.max(0) / dilation) as usize;
                let w = if conv.reversal[d] {
                    window[d] - 1 - at_window[d]
                } else {
                    at_window[d]
                };
                k_index[conv.kernel.spatial[d]] = w;
            }
            for f in (0..k_features).filter(|_| inside) {
                x_index[conv.input.batch] = batch + batch_group * batches;
                x_index[conv.input.feature] = f + feature_group * k_features;
                k_index[conv.kernel.feature] = f;
                k_index[conv.kernel.batch] = feature;
                sum += at(x, &x_index) * at(kernel, &k_index);
            }
        }
        sum
    })
}

fn dims(batch: usize, feature: usize, spatial: &[usize]) -> ConvolutionDims {
    ConvolutionDims {
        batch,
        feature,
        spatial: spatial.to_vec(),
    }
}

/// Checks a convolution of random arrays of these dimensions.
fn check(what: &str, conv: ConvolutionAttributes, x: &[usize], kernel: &[usize]) {
    let (x, kernel) = (noise(x), noise(kernel));
    let got = run(Op::Convolution(conv.clone(), DType::F32), &[&x, &kernel]).remove(0);
    let expected = convolve(&conv, &x, &kernel, got.ty().dims());
    let expected = expected.as_slice().unwrap();
    close(got.as_slice().unwrap(), expected, 1e-5, what);
}

/// `[batch, height, width, features]`, with a kernel `[height, width, inputs, outputs]`.
fn nhwc() -> ConvolutionAttributes {
    ConvolutionAttributes {
        input: dims(0, 3, &[1, 2]),
        kernel: dims(3, 2, &[0, 1]),
        output: dims(0, 3, &[1, 2]),
        strides: vec![1, 1],
        padding: vec![(1, 1), (0, 2)],
        input_dilation: vec![1, 1],
        kernel_dilation: vec![1, 1],
        reversal: vec![false, false],
        feature_groups: 1,
        batch_groups: 1,
        precision: Vec::new(),
    }
}

#[test]
fn convolutions_have_strides_with_dilations() {
    check("plain", nhwc(), &[2, 5, 6, 3], &[3, 2, 3, 4]);
    let strided = ConvolutionAttributes {
        strides: vec![2, 3],
        padding: vec![(-1, 1), (2, 0)],
        ..nhwc()
    };
    check("strided and cut", strided, &[2, 7, 8, 3], &[3, 2, 3, 4]);
    let dilated = ConvolutionAttributes {
        kernel_dilation: vec![2, 3],
        ..nhwc()
    };
    check("dilated kernel", dilated, &[1, 7, 8, 2], &[2, 3, 2, 2]);
    let transposed = ConvolutionAttributes {
        input_dilation: vec![2, 3],
        reversal: vec![true, false],
        ..nhwc()
    };
    check("transposed", transposed, &[1, 4, 3, 2], &[3, 2, 2, 2]);
}

#[test]
fn convolutions_have_groups() {
    let grouped = |feature_groups| ConvolutionAttributes {
        feature_groups,
        ..nhwc()
    };
    check("grouped", grouped(3), &[2, 5, 5, 6], &[3, 3, 2, 9]);
    check("depthwise", grouped(4), &[2, 5, 5, 4], &[3, 3, 1, 4]);
    let batches = ConvolutionAttributes {
        batch_groups: 2,
        ..nhwc()
    };
    check("batch groups", batches, &[4, 5, 5, 3], &[2, 2, 3, 6]);
}

#[test]
fn convolutions_have_any_order_of_dimensions() {
    let nchw = ConvolutionAttributes {
        input: dims(0, 1, &[2, 3]),
        kernel: dims(0, 1, &[2, 3]),
        output: dims(1, 0, &[3, 2]),
        ..nhwc()
    };
    check("nchw", nchw, &[2, 3, 5, 6], &[4, 3, 2, 2]);
}

#[test]
fn convolutions_have_any_number_of_spatial_dimensions() {
    for spatial in [0, 1, 3] {
        let all: Vec<usize> = (2..2 + spatial).collect();
        let conv = ConvolutionAttributes {
            input: dims(0, 1, &all),
            kernel: dims(0, 1, &all),
            output: dims(0, 1, &all),
            strides: vec![1; spatial],
            padding: vec![(1, 0); spatial],
            input_dilation: vec![1; spatial],
            kernel_dilation: vec![1; spatial],
            reversal: vec![false; spatial],
            ..nhwc()
        };
        let x = [&[2, 3][..], &vec![4; spatial]].concat();
        let kernel = [&[5, 3][..], &vec![2; spatial]].concat();
        let what = format!("{spatial} spatial dimensions");
        check(&what, conv, &x, &kernel);
    }
}
