//! Attributes at the limits of 64 bits: both modes compute what the specification defines.

use halite_embedded::Mode;

use crate::common::{floats, open, program, run};

/// Checks the result of a program of `f32` whose inputs count from 1.
#[track_caller]
fn check(text: &str, expected: &[f64]) {
    let program = program(text);
    let inputs = program.signature.inputs.iter().map(|ty| {
        let words = (0..ty.elements()).map(|at| (at as f32 + 1.0).to_le_bytes());
        words.flatten().collect()
    });
    let inputs: Vec<Vec<u8>> = inputs.collect();
    for mode in [Mode::Fast, Mode::Oracle] {
        let results = run(&open(mode, 1), &program, &inputs);
        let results = results.unwrap_or_else(|error| panic!("{mode:?}: {error}"));
        let results: Vec<f64> = floats(&results[0]).into_iter().map(f64::from).collect();
        assert_eq!(results, expected, "{mode:?}");
    }
}

#[test]
fn step_of_one_element_is_any_number() {
    check(
        "func.func @main(%x: tensor<4x4xf32>) -> tensor<1x4xf32> {
           %0 = stablehlo.slice %x [1:2:9223372036854775807, 0:4]
             : (tensor<4x4xf32>) -> tensor<1x4xf32>
           return %0 : tensor<1x4xf32>
         }",
        &[5.0, 6.0, 7.0, 8.0],
    );
    check(
        "func.func @main(%x: tensor<1xf32>, %v: tensor<f32>) -> tensor<3xf32> {
           %0 = stablehlo.pad %x, %v, low = [1], high = [1], interior = [9223372036854775807]
             : (tensor<1xf32>, tensor<f32>) -> tensor<3xf32>
           return %0 : tensor<3xf32>
         }",
        &[1.0, 1.0, 1.0],
    );
    check(
        "func.func @main(%x: tensor<1x1x3xf32>, %k: tensor<1x3x1xf32>) -> tensor<1x1x1xf32> {
           %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
             window = {stride = [9223372036854775807], pad = [[0, 0]],
                       lhs_dilate = [9223372036854775807], rhs_dilate = [9223372036854775807]}
             {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
             : (tensor<1x1x3xf32>, tensor<1x3x1xf32>) -> tensor<1x1x1xf32>
           return %0 : tensor<1x1x1xf32>
         }",
        &[14.0],
    );
    check(
        "func.func @main(%x: tensor<1x3xf32>) -> tensor<1x3xf32> {
           %v = stablehlo.constant dense<0.0> : tensor<f32>
           %0 = \"stablehlo.reduce_window\"(%x, %v) ({
           ^bb0(%a: tensor<f32>, %b: tensor<f32>):
             %1 = stablehlo.add %a, %b : tensor<f32>
             stablehlo.return %1 : tensor<f32>
           }) {window_dimensions = array<i64: 1, 1>,
               base_dilations = array<i64: 9223372036854775807, 1>,
               window_dilations = array<i64: 9223372036854775807, 9223372036854775807>,
               window_strides = array<i64: 9223372036854775807, 1>}
             : (tensor<1x3xf32>, tensor<f32>) -> tensor<1x3xf32>
           return %0 : tensor<1x3xf32>
         }",
        &[1.0, 2.0, 3.0],
    );
}

/// The padded operand exceeds the address space, or the memory of any machine.
#[test]
fn padding_of_windows_takes_no_memory() {
    for far in [1u64 << 40, 1 << 58] {
        check(
            &format!(
                "func.func @main(%x: tensor<1x2x2x1xf32>, %k: tensor<2x2x1x1xf32>)
                     -> tensor<1x2x2x1xf32> {{
                   %0 = stablehlo.convolution(%x, %k)
                     dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
                     window = {{stride = [1, 1], pad = [[0, {far}], [0, {far}]],
                                lhs_dilate = [1, 1], rhs_dilate = [{far}, {far}]}}
                     {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
                     : (tensor<1x2x2x1xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x2x1xf32>
                   return %0 : tensor<1x2x2x1xf32>
                 }}"
            ),
            &[1.0, 2.0, 3.0, 4.0],
        );
        check(
            &format!(
                "func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {{
                   %v = stablehlo.constant dense<0.0> : tensor<f32>
                   %0 = \"stablehlo.reduce_window\"(%x, %v) ({{
                   ^bb0(%a: tensor<f32>, %b: tensor<f32>):
                     %1 = stablehlo.add %a, %b : tensor<f32>
                     stablehlo.return %1 : tensor<f32>
                   }}) {{padding = dense<[[0, {far}], [0, {far}]]> : tensor<2x2xi64>,
                       window_dimensions = array<i64: 2, 2>,
                       window_dilations = array<i64: {far}, {far}>}}
                     : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
                   return %0 : tensor<2x2xf32>
                 }}"
            ),
            &[1.0, 2.0, 3.0, 4.0],
        );
    }
}
