//! Values of losses, metrics, norms and attention where inputs are masked, out of range, far from 0
//! or not finite. Expected numbers are computed by hand or in `f64`.

mod attention;
mod labels;
mod left_out;
mod norms;

use halite_core::HostArray;
use halite_nn::{Tensor, Trace};
use halite_tests::eval::{Function, eval};

/// Evaluates a function of some tensors, and gives all results as `f32`.
#[track_caller]
fn results(function: impl Function, inputs: &[HostArray]) -> Vec<Vec<f32>> {
    let as_floats = |result: HostArray| result.as_slice::<f32>().unwrap().to_vec();
    eval(function, inputs).into_iter().map(as_floats).collect()
}

/// Checks that `values` are those that are `expected`, and NaN where these are.
#[track_caller]
fn assert_close(values: &[f32], expected: &[f32]) {
    let close = |(&value, &expected): (&f32, &f32)| {
        (value.is_nan() && expected.is_nan())
            || value == expected
            || (value - expected).abs() <= 1e-5 * expected.abs().max(1.0)
    };
    assert!(
        values.len() == expected.len() && values.iter().zip(expected).all(close),
        "{values:?}\nand not\n{expected:?}"
    );
}

/// A constant `f32` vector.
fn row<'t>(cx: &'t Trace, values: &[f64]) -> Tensor<'t> {
    let values: Vec<Tensor<'_>> = (values.iter())
        .map(|&value| cx.scalar(value, halite_core::DType::F32))
        .collect();
    cx.stack(&values, 0)
}
