//! Elementwise operations and conversions.

use expect_test::expect;
use halite_core::DType::*;
use halite_ir::{BinaryOp, ComparisonDirection, Op, UnaryOp};

use crate::infer::check;

#[test]
fn binary_operand_types() {
    check(
        [
            (Op::Binary(BinaryOp::Add), "f32[3,4] f32[4,3]"),
            (Op::Binary(BinaryOp::Add), "f32[3] bf16[3]"),
            (Op::Binary(BinaryOp::Multiply), "f32[3]"),
            (Op::Binary(BinaryOp::And), "f32[3] f32[3]"),
            (Op::Binary(BinaryOp::Subtract), "bool[3] bool[3]"),
            (Op::Binary(BinaryOp::Atan2), "s32[] s32[]"),
            (Op::Compare(ComparisonDirection::Lt), "f32[2] f32[]"),
        ],
        expect![[r#"
            add: f32[3, 4] and f32[4, 3] differ; elementwise operations need equal types (broadcast first)
            add: f32[3] and bf16[3] differ; elementwise operations need equal types (convert one first)
            multiply: takes 2 operands, got 1 (f32[3])
            and: takes bool and integers, not f32[3]
            subtract: takes integers and floats, not bool[3] (convert first)
            atan2: takes floats, not s32[] (convert first)
            compare: f32[2] and f32[] differ; elementwise operations need equal types (broadcast first)
        "#]],
    );
}

#[test]
fn unary_operand_types() {
    check(
        [
            (Op::Unary(UnaryOp::Exponential), "s32[2]"),
            (Op::Unary(UnaryOp::Abs), "u8[2]"),
            (Op::Unary(UnaryOp::Not), "f32[2]"),
            (Op::Unary(UnaryOp::Popcnt), "f32[2] f32[2]"),
        ],
        expect![[r#"
            exponential: takes floats, not s32[2] (convert first)
            abs: takes signed integers and floats, not u8[2] (convert first)
            not: takes bool and integers, not f32[2]
            popcnt: takes 1 operand, got 2 (f32[2], f32[2])
        "#]],
    );
}

#[test]
fn select_operand_types() {
    check(
        [
            (Op::Select, "s32[2] f32[2] f32[2]"),
            (Op::Select, "bool[3] f32[2] f32[2]"),
            (Op::Select, "bool[2] f32[2] f32[3]"),
            (Op::Clamp, "f32[] f32[2] f32[3]"),
            (Op::Clamp, "s32[] f32[2] f32[]"),
        ],
        expect![[r#"
            select: the predicate is s32[2]; it must be bool (compare first)
            select: the predicate is bool[3], for f32[2] it must be bool[2] or bool[]
            select: f32[2] and f32[3] differ; elementwise operations need equal types (broadcast first)
            clamp: the upper bound is f32[3], for f32[2] it must be f32[2] or f32[]
            clamp: the lower bound is s32[], for f32[2] it must be f32[2] or f32[]
        "#]],
    );
}

#[test]
fn conversion_bits() {
    let reduce_precision = |exponent| Op::ReducePrecision {
        exponent,
        mantissa: 7,
    };
    check(
        [
            (Op::BitcastConvert(S64), "f32[2]"),
            (Op::BitcastConvert(U8), "bool[2]"),
            (reduce_precision(0), "f32[]"),
            (reduce_precision(8), "s8[]"),
        ],
        expect![[r#"
            bitcast_convert: elements of f32[2] have 32 bits, those of s64[2] have 64; the bits are kept: with other widths, the last dimension of the narrower type must be their ratio
            bitcast_convert: elements of bool[2] have 1 bits, those of u8[2] have 8; the bits are kept: with other widths, the last dimension of the narrower type must be their ratio
            reduce_precision: 0 exponent bits; a float has 1 or more
            reduce_precision: takes floats, not s8[] (convert first)
        "#]],
    );
}
