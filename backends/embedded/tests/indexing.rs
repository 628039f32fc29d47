//! Loops and slices at computed starts in the fast mode, against the oracle.

use halite_embedded::Mode;

use crate::common::{open, program, run};

/// Doubles rows of `x` from the first on, `n` times, with starts beyond the end moved back.
const ROWS: &str = "
func.func public @main(%x: tensor<4x3xf32>, %n: tensor<i32>) -> (tensor<4x3xf32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %factor = stablehlo.constant dense<2.0> : tensor<1x3xf32>
  %0:2 = stablehlo.while(%i = %zero, %all = %x) : tensor<i32>, tensor<4x3xf32>
    cond {
      %less = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    } do {
      %row = stablehlo.dynamic_slice %all, %i, %zero, sizes = [1, 3] : \
                    (tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
      %twice = stablehlo.multiply %row, %factor : tensor<1x3xf32>
      %next = stablehlo.dynamic_update_slice %all, %twice, %i, %zero : \
                    (tensor<4x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      %j = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %j, %next : tensor<i32>, tensor<4x3xf32>
    }
  return %0#1, %0#0 : tensor<4x3xf32>, tensor<i32>
}
";

fn rows(mode: Mode, count: i32) -> Vec<Vec<u8>> {
    let x = (0..12).flat_map(|at| (at as f32).to_le_bytes()).collect();
    let inputs = [x, count.to_le_bytes().to_vec()];
    run(&open(mode, 2), &program(ROWS), &inputs).expect("it runs")
}

#[test]
fn loops_agree_with_the_oracle() {
    for count in [-1, 0, 1, 3, 6] {
        assert_eq!(
            rows(Mode::Fast, count),
            rows(Mode::Oracle, count),
            "{count} iterations"
        );
    }
}

#[test]
fn borrowed_inputs_are_not_written() {
    let client = open(Mode::Fast, 1);
    let program = program(ROWS);
    let x: Vec<u8> = (0..12).flat_map(|at| (at as f32).to_le_bytes()).collect();
    let buffers = [(&x[..], 0), (&[4, 0, 0, 0][..], 1)].map(|(bytes, number)| {
        crate::common::upload(&client, &program.signature.inputs[number], bytes)
            .expect("it uploads")
    });
    let loaded = client
        .compile(&program, &Default::default())
        .expect("it compiles");
    let args = buffers.iter().map(halite_core::Arg::Borrow).collect();
    loaded.launch(args).expect("it launches")[0]
        .first()
        .ready()
        .and_then(|event| event.wait())
        .expect("it runs");
    assert_eq!(crate::common::read(&buffers[0]).expect("it reads"), x);
}

/// Rows of `x` at indices, and `x` with these rows added at the same indices.
const LOOKUP: &str = "
func.func public @main(%x: tensor<4x3xf32>, %i: tensor<2x3x1xi32>) -> \
                      (tensor<2x3x3xf32>, tensor<4x3xf32>) {
  %rows = \"stablehlo.gather\"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], \
                      collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, \
                      slice_sizes = array<i64: 1, 3>}> : \
                      (tensor<4x3xf32>, tensor<2x3x1xi32>) -> tensor<2x3x3xf32>
  %sum = \"stablehlo.scatter\"(%x, %i, %rows) <{scatter_dimension_numbers = \
                      #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], \
                      scatter_dims_to_operand_dims = [0], index_vector_dim = 2>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) : (tensor<4x3xf32>, tensor<2x3x1xi32>, tensor<2x3x3xf32>) -> tensor<4x3xf32>
  return %rows, %sum : tensor<2x3x3xf32>, tensor<4x3xf32>
}
";

#[test]
fn lookups_agree_with_the_oracle() {
    let x: Vec<u8> = (0..12).flat_map(|at| (at as f32).to_le_bytes()).collect();
    let indices = [0, 3, 3, 1, 9, -2]
        .into_iter()
        .flat_map(i32::to_le_bytes)
        .collect();
    let inputs = [x, indices];
    let on = |mode| run(&open(mode, 1), &program(LOOKUP), &inputs).expect("it runs");
    assert_eq!(on(Mode::Fast), on(Mode::Oracle));
}
