//! Operators between tensors, references and Rust numbers.

use halite_core::{DType, TensorType};
use halite_nn::Trace;

#[test]
fn number_literals_need_no_annotation() {
    let cx = &Trace::new();
    let p = cx.input(TensorType::new(DType::F32, [3]), "p");
    let entropy = -(p * p.log() + (1.0 - p) * (1.0 - p).log()).sum_all();
    let scaled = (2 * p).exp() / (1 + p).sqrt();
    assert_eq!(entropy.ty(), TensorType::scalar(DType::F32));
    assert_eq!(scaled.ty(), p.ty());
    assert!(cx.mistakes().is_empty());
}

#[test]
fn every_integer_type_is_an_operand() {
    let cx = &Trace::new();
    let x = cx.input(TensorType::new(DType::S64, [2]), "x");
    let (count, offset) = (3usize, -(1i64 << 53));
    let _ = x * count + offset - 1u64 + 1isize + 2i16 - 2u16 + 1i8 - 1u8;
    let _ = offset - x;
    assert!(cx.mistakes().is_empty(), "{:?}", cx.mistakes());
}

#[test]
fn integers_beyond_f64_are_mistakes_for_integer_tensors() {
    let cx = &Trace::new();
    let x = cx.input(TensorType::new(DType::S64, [2]), "x");
    let _ = x + ((1i64 << 53) + 1);
    assert_eq!(
        cx.mistakes()[0].message,
        "9007199254740993 is beyond 2^53; pass it as an input array"
    );
    let _ = x.convert(DType::F32) + ((1i64 << 53) + 1); // floats round
    assert_eq!(cx.mistakes().len(), 1);
}

#[test]
fn references_are_operands_on_both_sides() {
    let cx = &Trace::new();
    let x = cx.input(TensorType::new(DType::F32, [2]), "x");
    let y = &x;
    for sum in [
        y + y,
        y + x,
        x + y,
        y + 1.0,
        1.0 + y,
        -y,
        y % 2,
        y.maximum(y),
    ] {
        assert_eq!(sum.ty(), x.ty());
    }
    assert!(cx.mistakes().is_empty());
}

#[test]
fn tensor_displays_type_with_origin() {
    let cx = &Trace::new();
    let x = cx.input(TensorType::new(DType::F32, [8, 10]), "x");
    assert_eq!(x.to_string(), "f32[8, 10], input `x`");
    let line = line!() + 1;
    let y = x.exp();
    let text = y.to_string();
    let origin = format!("tests/operators.rs:{line}:15");
    assert!(text.starts_with("f32[8, 10], computed at "), "{text}");
    assert!(text.ends_with(&origin), "{text}");
    let broken = y.reshape([7]);
    assert_eq!(broken.to_string(), "f32[8, 10], after a mistake");
}
