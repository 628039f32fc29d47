//! Reductions, slices and constants that the fast mode fuses or folds, against the oracle.

use halite_core::ErrorKind;
use halite_embedded::Mode;

use crate::common::{floats, open, program, run};

/// A softmax of the last dimension, a layer norm, and sums of columns.
const ROWS: &str = "
func.func public @main(%x: tensor<6x5x33xf32>, %g: tensor<33xf32>)
    -> (tensor<6x5x33xf32>, tensor<6x5x33xf32>, tensor<33xf32>, tensor<6x5xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %max = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [2]
    : (tensor<6x5x33xf32>, tensor<f32>) -> tensor<6x5xf32>
  %maxes = stablehlo.broadcast_in_dim %max, dims = [0, 1] : (tensor<6x5xf32>) -> tensor<6x5x33xf32>
  %shifted = stablehlo.subtract %x, %maxes : tensor<6x5x33xf32>
  %exp = stablehlo.exponential %shifted : tensor<6x5x33xf32>
  %sum = stablehlo.reduce(%exp init: %zero) applies stablehlo.add across dimensions = [2]
    : (tensor<6x5x33xf32>, tensor<f32>) -> tensor<6x5xf32>
  %column = stablehlo.reshape %sum : (tensor<6x5xf32>) -> tensor<6x5x1xf32>
  %sums = stablehlo.broadcast_in_dim %column, dims = [0, 1, 2]
    : (tensor<6x5x1xf32>) -> tensor<6x5x33xf32>
  %softmax = stablehlo.divide %exp, %sums : tensor<6x5x33xf32>
  %count = stablehlo.constant dense<33.0> : tensor<6x5xf32>
  %total = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [2]
    : (tensor<6x5x33xf32>, tensor<f32>) -> tensor<6x5xf32>
  %mean = stablehlo.divide %total, %count : tensor<6x5xf32>
  %means = stablehlo.broadcast_in_dim %mean, dims = [0, 1] : (tensor<6x5xf32>) -> tensor<6x5x33xf32>
  %centered = stablehlo.subtract %x, %means : tensor<6x5x33xf32>
  %squares = stablehlo.multiply %centered, %centered : tensor<6x5x33xf32>
  %variances = stablehlo.reduce(%squares init: %zero) applies stablehlo.add across dimensions = [2]
    : (tensor<6x5x33xf32>, tensor<f32>) -> tensor<6x5xf32>
  %scale = stablehlo.rsqrt %variances : tensor<6x5xf32>
  %scales = stablehlo.broadcast_in_dim %scale, dims = [0, 1]
    : (tensor<6x5xf32>) -> tensor<6x5x33xf32>
  %gains = stablehlo.broadcast_in_dim %g, dims = [2] : (tensor<33xf32>) -> tensor<6x5x33xf32>
  %normal = stablehlo.multiply %centered, %scales : tensor<6x5x33xf32>
  %scaled = stablehlo.multiply %normal, %gains : tensor<6x5x33xf32>
  %columns = stablehlo.reduce(%scaled init: %zero) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<6x5x33xf32>, tensor<f32>) -> tensor<33xf32>
  %all = stablehlo.reduce(%max init: %zero) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<6x5xf32>, tensor<f32>) -> tensor<f32>
  return %softmax, %scaled, %columns, %mean, %all
    : tensor<6x5x33xf32>, tensor<6x5x33xf32>, tensor<33xf32>, tensor<6x5xf32>, tensor<f32>
}";

/// A slice that is returned, read and then updated in place, and one of an input that is kept.
const SLICES: &str = "
func.func public @main(%x: tensor<4x3xf32>, %y: tensor<4x3xf32>, %i: tensor<i32>)
    -> (tensor<1x3xf32>, tensor<4x3xf32>, tensor<1x3xf32>, tensor<1x3xf32>) {
  %0 = stablehlo.constant dense<0> : tensor<i32>
  %a = stablehlo.dynamic_slice %x, %i, %0, sizes = [1, 3]
    : (tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
  %b = stablehlo.add %a, %a : tensor<1x3xf32>
  %updated = stablehlo.dynamic_update_slice %x, %b, %i, %0
    : (tensor<4x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
  %c = stablehlo.dynamic_slice %y, %i, %0, sizes = [1, 3]
    : (tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
  %d = stablehlo.multiply %c, %a : tensor<1x3xf32>
  return %a, %updated, %c, %d
    : tensor<1x3xf32>, tensor<4x3xf32>, tensor<1x3xf32>, tensor<1x3xf32>
}";

/// A causal mask of 64-bit positions, which have no kernel.
const MASK: &str = "
func.func public @main(%x: tensor<5x5xf32>) -> tensor<5x5xf32> {
  %rows = stablehlo.iota dim = 0 : tensor<5x5xi64>
  %columns = stablehlo.iota dim = 1 : tensor<5x5xi64>
  %mask = stablehlo.compare LE, %columns, %rows, SIGNED
    : (tensor<5x5xi64>, tensor<5x5xi64>) -> tensor<5x5xi1>
  %zero = stablehlo.constant dense<0.0> : tensor<5x5xf32>
  %0 = stablehlo.select %mask, %x, %zero : tensor<5x5xi1>, tensor<5x5xf32>
  return %0 : tensor<5x5xf32>
}";

fn check(text: &str) {
    let program = program(text);
    let inputs = program.signature.inputs.iter().map(|ty| {
        let words = (0..ty.elements()).map(|at| match ty.dims().len() {
            0 => 2u32.to_le_bytes(),
            _ => ((at as f32 * 0.61).sin() * 3.0).to_le_bytes(),
        });
        words.flatten().collect()
    });
    let inputs: Vec<Vec<u8>> = inputs.collect();
    let run = |mode, threads| run(&open(mode, threads), &program, &inputs).expect("it runs");
    let (fast, oracle) = (run(Mode::Fast, 1), run(Mode::Oracle, 1));
    assert_eq!(fast, run(Mode::Fast, 3), "bits depend on threads");
    for (number, (fast, oracle)) in fast.iter().zip(&oracle).enumerate() {
        for (fast, oracle) in floats(fast).iter().zip(&floats(oracle)) {
            let error = (fast - oracle).abs();
            assert!(error <= 1e-5, "result {number}: {fast}, not {oracle}");
        }
    }
}

#[test]
fn reductions_are_part_of_groups() {
    check(ROWS);
}

#[test]
fn slices_of_updated_tensors_are_copies() {
    check(SLICES);
}

#[test]
fn operations_on_constants_are_folded() {
    check(MASK);
}

#[test]
fn windows_of_negative_zeros_add_to_zero() {
    let text = "
func.func public @main(%x: tensor<4xf32>) -> tensor<3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = \"stablehlo.reduce_window\"(%x, %zero) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) {window_dimensions = array<i64: 2>} : (tensor<4xf32>, tensor<f32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}";
    let program = program(text);
    let input = vec![[-0.0f32; 4].map(f32::to_le_bytes).concat()];
    for mode in [Mode::Fast, Mode::Oracle] {
        let results = run(&open(mode, 1), &program, &input).expect("it runs");
        assert_eq!(results[0], [0; 12], "{mode:?}");
    }
}

#[test]
fn partial_sums_beyond_memory_are_an_error() {
    let text = "
        func.func public @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %rows = stablehlo.broadcast_in_dim %x, dims = [1]
            : (tensor<4096xf32>) -> tensor<1099511627776x4096xf32>
          %y = stablehlo.tanh %rows : tensor<1099511627776x4096xf32>
          %0 = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
            : (tensor<1099511627776x4096xf32>, tensor<f32>) -> tensor<4096xf32>
          return %0 : tensor<4096xf32>
        }";
    for threads in [1, 2] {
        let client = open(Mode::Fast, threads);
        let error = run(&client, &program(text), &[vec![0; 4 << 12]]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert!(
            error.to_string().contains("the host cannot allocate"),
            "{error}"
        );
    }
}
