//! Messages of mistakes: line, operation, values, and what would work; all reported at once.

mod control;
mod gradients;
mod numbers;
mod shapes;

use expect_test::expect;
use halite_core::DType;

use crate::shared::{check, input};

#[test]
fn shape_error_names_line_op_shapes_parameter() {
    check(
        |cx| {
            let x = input(cx, "x", &[8, 784]);
            let weight = input(cx, "hidden.weight", &[512, 784]);
            let _ = x.matmul(weight);
        },
        expect![[r#"
            +4: dot: contracting dimension 1 of f32[8, 784] is 784, dimension 0 of f32[512, 784] is 512 (operand 0 is `x`, operand 1 is `hidden.weight`)
        "#]],
    );
}

#[test]
fn only_root_causes_are_reported() {
    check(
        |cx| {
            let x = input(cx, "x", &[2, 3]);
            let y = input(cx, "y", &[4]);
            let wrong = x + y;
            let follows = (wrong * 2.0).exp().sum([0]).reshape([7]).softmax(0);
            assert!(follows.is_error());
            let _ = x.reshape([5]);
            let _ = x.convert(DType::S32) * 0.5;
            let _ = x.and(x);
            let _ = x + x.convert(DType::F64);
        },
        expect![[r#"
            +4: add: shapes are not broadcastable: f32[2, 3] and f32[4]; aligned at the last dimension, sizes must be equal or 1 (operand 0 is `x`, operand 1 is `y`)
            +7: reshape: f32[2, 3] has 6 elements, f32[5] has 5; a reshape keeps them all (operand 0 is `x`)
            +8: number: s32 cannot represent 0.5; convert the tensor first
            +9: and: takes bool and integers, not f32[2, 3] (operand 0 is `x`, operand 1 is `x`)
            +10: add: f32[2, 3] and f64[2, 3] differ; elementwise operations need equal types (convert one first) (operand 0 is `x`)
        "#]],
    );
}
