//! Dot products and convolutions.

use expect_test::expect;
use halite_core::DType::*;
use halite_ir::{ConvolutionAttributes, ConvolutionDims, DotAttributes, Op};

use crate::infer::check;

/// A product of matrices.
fn matrices() -> DotAttributes {
    DotAttributes {
        lhs_contracting: vec![1],
        rhs_contracting: vec![0],
        ..DotAttributes::default()
    }
}

/// A product of matrices, with changes.
fn dot(change: fn(&mut DotAttributes)) -> Op {
    let mut dot = matrices();
    change(&mut dot);
    Op::Dot(dot, F32)
}

/// Operands that fit [`conv`].
const CONV: &str = "f32[2,8,8,6] f32[3,3,6,4]";

/// A convolution of images, with changes.
fn conv(change: fn(&mut ConvolutionAttributes)) -> Op {
    let mut conv = ConvolutionAttributes {
        input: dims(0, 3, [1, 2]),
        kernel: dims(3, 2, [0, 1]),
        output: dims(0, 3, [1, 2]),
        strides: vec![1, 1],
        padding: vec![(0, 0), (0, 0)],
        input_dilation: vec![1, 1],
        kernel_dilation: vec![1, 1],
        reversal: vec![false, false],
        feature_groups: 1,
        batch_groups: 1,
        precision: Vec::new(),
    };
    change(&mut conv);
    Op::Convolution(conv, F32)
}

fn dims(batch: usize, feature: usize, spatial: [usize; 2]) -> ConvolutionDims {
    ConvolutionDims {
        batch,
        feature,
        spatial: spatial.to_vec(),
    }
}

#[test]
fn dot_errors() {
    check(
        [
            (dot(|_| ()), "f32[3,8] f32[7,2]"),
            (dot(|_| ()), "f32[3,8] bf16[8,2]"),
            (dot(|_| ()), "f32[8] f32[8,2]"),
            (dot(|d| d.rhs_contracting = vec![]), "f32[3,8] f32[8,2]"),
            (
                dot(|d| (d.lhs_batching, d.rhs_batching) = (vec![1], vec![1])),
                "f32[3,8] f32[8,8]",
            ),
            (
                dot(|d| (d.lhs_batching, d.rhs_batching) = (vec![0], vec![1])),
                "f32[3,8] f32[8,2]",
            ),
            (Op::Dot(matrices(), Bf16), "f32[3,8] f32[8,2]"),
            (dot(|_| ()), "bool[3,8] bool[8,2]"),
        ],
        expect![[r#"
            dot: contracting dimension 1 of f32[3, 8] is 8, dimension 0 of f32[7, 2] is 7
            dot: f32[3, 8] and bf16[8, 2] must have the same element type (convert one first)
            dot: batch or contracting dimension 1 of f32[8], whose only dimension is 0
            dot: contracting dimensions [1] of f32[3, 8] and [] of f32[8, 2] are paired
            dot: batch or contracting dimension 1 of f32[3, 8] appears twice in [1, 1]
            dot: batch dimension 0 of f32[3, 8] is 3, dimension 1 of f32[8, 2] is 2
            dot: f32[3, 8] and f32[8, 2] to a result of bf16; it must be f32 or a wider type of its family
            dot: takes integers and floats, not bool[3, 8] (convert first)
        "#]],
    );
}

#[test]
fn convolution_errors() {
    check(
        [
            (conv(|c| c.strides = vec![1]), CONV),
            (conv(|c| c.strides = vec![0, 1]), CONV),
            (conv(|c| c.padding = vec![(0, 0), (-9, -9)]), CONV),
            (
                conv(|c| c.padding = vec![(i64::MAX, i64::MAX), (0, 0)]),
                CONV,
            ),
            (
                conv(|c| c.padding = vec![(i64::MIN, i64::MIN), (0, 0)]),
                CONV,
            ),
            (conv(|c| c.feature_groups = 2), CONV),
            (conv(|c| c.feature_groups = 0), CONV),
            (conv(|c| c.batch_groups = 3), CONV),
            (conv(|c| c.batch_groups = 4), CONV),
            (conv(|c| (c.feature_groups, c.batch_groups) = (2, 2)), CONV),
            (conv(|c| c.input = dims(0, 0, [1, 2])), CONV),
            (conv(|c| c.output = dims(0, 1, [2, 7])), CONV),
            (conv(|_| ()), "f32[2,8,8,6] f32[3,3,5,4]"),
            (conv(|_| ()), "f32[2,8,8,6] f32[3,0,6,4]"),
            (conv(|_| ()), "f32[2,8,8,6] f32[3,6,4]"),
            (conv(|c| c.feature_groups = 3), "f32[2,8,8,6] f32[3,3,2,4]"),
        ],
        expect![[r#"
            convolution: 1 strides for f32[2, 8, 8, 6], which has 2 spatial dimensions
            convolution: strides [0, 1]: number 0 is 0, it must be 1 or more
            convolution: dimension 2 of f32[2, 8, 8, 6], padded by -9 and -9, would have size -10
            convolution: spatial dimension 0 of f32[2, 8, 8, 6]: the padding is 9223372036854775807; its magnitude must not exceed 2^60
            convolution: spatial dimension 0 of f32[2, 8, 8, 6]: the padding is -9223372036854775808; its magnitude must not exceed 2^60
            convolution: f32[2, 8, 8, 6] has 6 features (dimension 3) in 2 groups, the kernel f32[3, 3, 6, 4] takes 6 (dimension 2)
            convolution: 0 feature groups and 1 batch groups; both must be 1 or more, one of them 1
            convolution: the kernel f32[3, 3, 6, 4] gives 4 features (dimension 3), not a multiple of 3 groups
            convolution: the batch of f32[2, 8, 8, 6] is 2 (dimension 0), not a multiple of 4 batch groups
            convolution: 2 feature groups and 2 batch groups; both must be 1 or more, one of them 1
            convolution: the input's dimensions: batch 0, feature 0, spatial [1, 2]; each of 0 to 3 must appear once
            convolution: the output's dimensions: batch 0, feature 1, spatial [2, 7]; each of 0 to 3 must appear once
            convolution: f32[2, 8, 8, 6] has 6 features (dimension 3) in 1 group, the kernel f32[3, 3, 5, 4] takes 5 (dimension 2)
            convolution: dimension 1 of the kernel f32[3, 0, 6, 4] is 0
            convolution: f32[2, 8, 8, 6] and the kernel f32[3, 6, 4] must have the same rank, 2 or more
            convolution: the kernel f32[3, 3, 2, 4] gives 4 features (dimension 3), not a multiple of 3 groups
        "#]],
    );
}
