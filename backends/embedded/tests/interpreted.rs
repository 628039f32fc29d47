//! Reports of what a program leaves to the oracle.

use halite_core::{CompileOptions, Result};
use halite_embedded::Mode;

use crate::common::{open, program, run};

/// What the interpreter computes of a program, as `name of type x count`.
fn interpreted(mode: Mode, text: &str) -> Result<Vec<String>> {
    let client = open(mode, 1);
    let loaded = client.compile(&program(text), &CompileOptions::default())?;
    let describe = |it: &halite_core::Interpreted| format!("{it} x {}", it.count);
    Ok(loaded.interpreted().iter().map(describe).collect())
}

const CHECKS: &str = r#"func.func public @main(%x: tensor<ui32>) -> tensor<ui32> {
      stablehlo.custom_call @check.expect_eq(%x, %x) {has_side_effect = true}
        : (tensor<ui32>, tensor<ui32>) -> ()
      %zero = stablehlo.constant dense<0> : tensor<ui32>
      %0 = stablehlo.while(%i = %zero) : tensor<ui32>
      cond {
        %go = stablehlo.compare LT, %i, %x : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
        stablehlo.return %go : tensor<i1>
      } do {
        stablehlo.custom_call @check.expect_eq(%i, %i) {has_side_effect = true}
          : (tensor<ui32>, tensor<ui32>) -> ()
        %one = stablehlo.constant dense<1> : tensor<ui32>
        %next = stablehlo.add %i, %one : tensor<ui32>
        stablehlo.return %next : tensor<ui32>
      }
      return %0 : tensor<ui32>
    }"#;

#[test]
fn operations_are_counted_by_name() {
    let found = interpreted(Mode::Fast, CHECKS).unwrap();
    assert_eq!(found, ["`check.expect_eq` of ui32 x 2"]);
    assert!(interpreted(Mode::Oracle, CHECKS).unwrap().is_empty());
}

#[test]
fn time_of_the_interpreter_is_counted() {
    let client = open(Mode::Fast, 1);
    let loaded = client
        .compile(&program(CHECKS), &CompileOptions::default())
        .unwrap();
    let x = crate::common::upload(&client, &program(CHECKS).signature.inputs[0], &[9, 0, 0, 0])
        .unwrap();
    let outputs = loaded.launch(vec![halite_core::Arg::Borrow(&x)]).unwrap();
    outputs[0].first().ready().unwrap().wait().unwrap();
    let [checks] = &loaded.interpreted()[..] else {
        panic!("{:?}", loaded.interpreted());
    };
    let nanoseconds = checks
        .nanoseconds
        .load(std::sync::atomic::Ordering::Relaxed);
    assert!(nanoseconds > 0);
}

#[test]
fn programs_without_a_plan_say_so() {
    let text = "func.func public @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.after_all : !stablehlo.token
      %1 = stablehlo.negate %x : tensor<f32>
      return %1 : tensor<f32>
    }";
    let found = interpreted(Mode::Fast, text).unwrap();
    assert_eq!(
        found,
        ["`every operation` of a program with tokens or tuples x 1"]
    );
    run(&open(Mode::Fast, 1), &program(text), &[vec![0; 4]]).unwrap();
}

#[test]
fn programs_of_kernels_have_none() {
    let text = "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.exponential %x : tensor<4xf32>
      return %0 : tensor<4xf32>
    }";
    assert!(interpreted(Mode::Fast, text).unwrap().is_empty());
}

/// Compilers move constants out of regions, which are functions of scalars all the same.
#[test]
fn regions_that_capture_constants_have_kernels() {
    let pair = "(tensor<f32>, tensor<f32>) -> tensor<i1>";
    let text = format!(
        "func.func public @main(%x: tensor<8xf32>, %i: tensor<1xi32>) -> (tensor<8xf32>, \
         tensor<f32>, tensor<8xf32>) {{
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %all = stablehlo.constant dense<2.0> : tensor<8xf32>
      %0 = \"stablehlo.sort\"(%x) <{{dimension = 0 : i64, is_stable = true}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %y = stablehlo.minimum %a, %one : tensor<f32>
        %z = stablehlo.minimum %b, %one : tensor<f32>
        %less = stablehlo.compare LT, %y, %z, FLOAT : {pair}
        stablehlo.return %less : tensor<i1>
      }}) : (tensor<8xf32>) -> tensor<8xf32>
      %1 = \"stablehlo.reduce\"(%x, %one) <{{dimensions = array<i64: 0>}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %y = stablehlo.minimum %b, %one : tensor<f32>
        %z = stablehlo.maximum %a, %y : tensor<f32>
        stablehlo.return %z : tensor<f32>
      }}) : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
      %u = stablehlo.slice %all [0:1] : (tensor<8xf32>) -> tensor<1xf32>
      %2 = \"stablehlo.scatter\"(%x, %i, %u) <{{scatter_dimension_numbers = \
         #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], \
         index_vector_dim = 1>}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %y = stablehlo.add %b, %one : tensor<f32>
        %z = stablehlo.multiply %a, %y : tensor<f32>
        stablehlo.return %z : tensor<f32>
      }}) : (tensor<8xf32>, tensor<1xi32>, tensor<1xf32>) -> tensor<8xf32>
      return %0, %1, %2 : tensor<8xf32>, tensor<f32>, tensor<8xf32>
    }}"
    );
    let found = interpreted(Mode::Fast, &text).unwrap();
    assert!(found.is_empty(), "{found:?}");
}
