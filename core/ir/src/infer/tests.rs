use halite_core::{DType, TensorType};

use super::infer;
use crate::{Binary, Dot, Op};

fn f32(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

#[test]
fn a_dot_has_batch_then_free_dimensions_and_says_which_numbers_differ() {
    let dot = Op::Dot(Dot {
        left_batch: vec![0],
        right_batch: vec![1],
        left_contract: vec![2],
        right_contract: vec![0],
        result: DType::F32,
    });
    assert_eq!(infer(&dot, &[&f32(&[5, 3, 8]), &f32(&[8, 5, 2])]).unwrap(), [f32(&[5, 3, 2])]);
    let error = infer(&dot, &[&f32(&[5, 3, 8]), &f32(&[7, 5, 2])]).unwrap_err().to_string();
    assert_eq!(error, "dot: contracting dimension 2 of f32[5, 3, 8] is 8, dimension 0 of f32[7, 5, 2] is 7");
}

#[test]
fn a_wrong_count_of_operands_lists_them() {
    let error = infer(&Op::Binary(Binary::Add), &[&f32(&[2])]).unwrap_err().to_string();
    assert_eq!(error, "add: takes 2 operands, got 1 (f32[2])");
}
