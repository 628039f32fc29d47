//! Elementwise operations, constants and conversions that break a constraint.

use expect_test::expect;
use halite_stablehlo::{BinaryOp, ComparisonOrder, ElementType, OpKind, UnaryOp};

use crate::programs::{
    program::{Edit, attribute, program, refused},
    valid,
};

#[test]
fn elementwise_operands_must_fit() {
    refused(
        valid::add().operand(1, "3xf32"),
        expect![[r#"
            tensor<2x3xf32> and tensor<3xf32> differ; elementwise operations need equal
            types (broadcast first)"#]],
    );
    refused(
        valid::add().operand(1, "token"),
        expect!["operand 1 is !stablehlo.token; it must be a tensor"],
    );
    refused(
        valid::add().result(0, "2x3xf64"),
        expect!["result 0 is tensor<2x3xf64>; it must be tensor<2x3xf32>"],
    );
    refused(
        valid::add().edit(|op| _ = op.operands.pop()),
        expect!["takes 2 operands, got 1 (tensor<2x3xf32>)"],
    );
    refused(
        valid::add().edit(|op| _ = op.results.pop()),
        expect!["result count is 0; it must be 1"],
    );
    refused(
        valid::unary(UnaryOp::Tanh, "2xi32", "2xi32"),
        expect!["takes floats and complex numbers, not tensor<2xi32> (convert first)"],
    );
    refused(
        valid::unary(UnaryOp::Abs, "2xcomplex<f32>", "2xcomplex<f32>"),
        expect!["result 0 is tensor<2xcomplex<f32>>; it must be tensor<2xf32>"],
    );
    let and = OpKind::Binary(BinaryOp::And);
    refused(
        program(and, "2xf32 2xf32", "2xf32"),
        expect!["takes bool and integers, not tensor<2xf32>"],
    );
    let complex = OpKind::Binary(BinaryOp::Complex);
    refused(
        program(complex, "bf16 bf16", "complex<f32>"),
        expect!["the element type is bf16; it must be f32 or f64"],
    );
}

#[test]
fn comparisons_must_fit() {
    refused(
        valid::compare().result(0, "2x3xi8"),
        expect!["result 0 is tensor<2x3xi8>; it must be tensor<2x3xi1>"],
    );
    let signed = Some(ComparisonOrder::Signed);
    refused(
        attribute!(valid::compare(), OpKind::Compare { order, .. } => *order = signed),
        expect!["`compare_type` is SIGNED, which elements of tensor<2x3xf32> do not have"],
    );
    refused(
        valid::select().operand(0, "2xi1"),
        expect![[r#"
            the predicate is tensor<2xi1>, for tensor<2x3xf32> it must be tensor<2x3xi1> or
            tensor<i1>"#]],
    );
    refused(
        valid::select().operand(0, "f32"),
        expect!["the predicate is tensor<f32>; it must be bool (compare first)"],
    );
    refused(
        valid::clamp().operand(2, "2xf32"),
        expect![[r#"
            the upper bound is tensor<2xf32>, for tensor<2x3xf32> it must be
            tensor<2x3xf32> or tensor<f32>"#]],
    );
    refused(
        valid::clamp().operand(0, "f64"),
        expect![[r#"
            the lower bound is tensor<f64>, for tensor<2x3xf32> it must be tensor<2x3xf32>
            or tensor<f32>"#]],
    );
}

#[test]
fn conversions_must_fit() {
    refused(
        program(OpKind::Convert, "2xf32", "3xi32"),
        expect!["result 0 is tensor<3xi32>; it must be tensor<2xi32>"],
    );
    refused(
        valid::bitcast_convert().operand(0, "2x3xi8"),
        expect![[r#"
            elements of tensor<2x3xi8> have 8 bits, those of tensor<2xf32> have 32; the
            bits are kept: with other widths, the last dimension of the narrower type must
            be their ratio"#]],
    );
    refused(
        valid::bitcast_convert().result(0, "4xf32"),
        expect![[r#"
            elements of tensor<2x4xi8> have 8 bits, those of tensor<4xf32> have 32; the
            bits are kept: with other widths, the last dimension of the narrower type must
            be their ratio"#]],
    );
    refused(
        valid::bitcast_convert().result(0, "2xcomplex<f32>"),
        expect![[r#"
            it is from tensor<2x4xi8> to tensor<2xcomplex<f32>>; both or none must be
            complex"#]],
    );
    refused(
        attribute!(
            valid::reduce_precision(),
            OpKind::ReducePrecision { exponent, .. } => *exponent = 0
        ),
        expect!["0 exponent bits; a float has 1 or more"],
    );
}

#[test]
fn constants_have_their_bytes() {
    let set = |bytes: Vec<u8>| {
        let program = valid::constant();
        attribute!(program, OpKind::Constant(value) => value.bytes = bytes.into())
    };
    set(vec![0; 24]).verify().unwrap();
    refused(
        set(vec![0; 23]),
        expect!["tensor<2x3xf32> has 23 bytes; it must have 24, or those of one element"],
    );
    refused(
        set(Vec::new()),
        expect!["tensor<2x3xf32> has 0 bytes; it must have 24, or those of one element"],
    );
    refused(
        valid::constant().result(0, "2x4xf32"),
        expect!["result 0 is tensor<2x4xf32>; it must be tensor<2x3xf32>"],
    );
    let with = |element, byte: u8| {
        let edited = attribute!(valid::constant(), OpKind::Constant(value) => {
            value.ty.element = element;
            value.bytes = [byte].into();
        });
        edited.result(0, &format!("2x3x{element}"))
    };
    with(ElementType::S4, 0xf8).verify().unwrap();
    refused(
        with(ElementType::Bool, 2),
        expect!["an element of tensor<2x3xi1> has the byte 0x02"],
    );
    refused(
        with(ElementType::S4, 8),
        expect!["an element of tensor<2x3xi4> has the byte 0x08"],
    );
    refused(
        with(ElementType::F6E2M3Fn, 64),
        expect!["an element of tensor<2x3xf6E2M3FN> has the byte 0x40"],
    );
}
