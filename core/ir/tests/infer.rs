//! Error messages of inference, by family of operations.

mod collective;
mod contract;
mod control;
mod elementwise;
mod index;
mod linalg;
mod reduce;
mod shape;

use expect_test::Expect;
use halite_core::{DType, TensorType};
use halite_ir::{Op, infer};

/// Checks the errors of operations, one line each, on operands such as `"f32[3,4] s32[]"`.
#[track_caller]
fn check<const N: usize>(cases: [(Op, &str); N], expected: Expect) {
    let mut lines = String::new();
    for (op, operands) in cases {
        let operands = types(operands);
        let operands: Vec<&TensorType> = operands.iter().collect();
        match infer(&op, &operands) {
            Ok(results) => panic!("{op:?} of {operands:?} is accepted and gives {results:?}"),
            Err(error) => lines += &format!("{error}\n"),
        }
    }
    expected.assert_eq(&lines);
}

/// Parses types such as `"f32[3,4] s32[]"`.
pub(crate) fn types(text: &str) -> Vec<TensorType> {
    text.split_whitespace().map(ty).collect()
}

fn ty(text: &str) -> TensorType {
    let parts = text.strip_suffix(']').and_then(|text| text.split_once('['));
    let (name, dims) = parts.expect("a type is written as `f32[3,4]`");
    let dims = dims.split(',').filter(|dim| !dim.is_empty());
    let dims: Vec<usize> = dims.map(|dim| dim.parse().unwrap()).collect();
    let dtype = DType::from_name(name).expect("the element type exists");
    TensorType::new(dtype, dims)
}
