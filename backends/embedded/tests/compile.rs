//! Programs whose compilation, cost or memory would be unbounded by their length.

use std::fmt::Write;

use halite_core::CompileOptions;
use halite_embedded::Mode;

use crate::common::{floats, open, program, run};

#[test]
fn nested_loops_compile_within_a_budget() {
    // Each function calls the next one twice, in a loop: more operations than a plan has.
    let mut text = String::new();
    for index in 0..17 {
        let name = match index {
            0 => "public @main".to_owned(),
            _ => format!("private @f{index}"),
        };
        let next = index + 1;
        writeln!(
            text,
            "func.func {name}(%x: tensor<f32>) -> tensor<f32> {{
               %0 = stablehlo.while(%v = %x) : tensor<f32>
               cond {{
                 %no = stablehlo.constant dense<false> : tensor<i1>
                 stablehlo.return %no : tensor<i1>
               }} do {{
                 %1 = func.call @f{next}(%v) : (tensor<f32>) -> tensor<f32>
                 %2 = func.call @f{next}(%1) : (tensor<f32>) -> tensor<f32>
                 stablehlo.return %2 : tensor<f32>
               }}
               return %0 : tensor<f32>
             }}"
        )
        .unwrap();
    }
    text += "func.func private @f17(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }";
    let outputs = run(
        &open(Mode::Fast, 1),
        &program(&text),
        &[2f32.to_le_bytes().to_vec()],
    );
    assert_eq!(floats(&outputs.unwrap()[0]), [2.0]);
}

#[test]
fn cost_counts_each_call() {
    let text = |depth: usize| {
        let mut text = String::new();
        for index in 0..depth {
            let name = match index {
                0 => "public @main".to_owned(),
                _ => format!("private @f{index}"),
            };
            let next = index + 1;
            writeln!(
                text,
                "func.func {name}(%x: tensor<f32>) -> tensor<f32> {{
                   %0 = func.call @f{next}(%x) : (tensor<f32>) -> tensor<f32>
                   %1 = func.call @f{next}(%0) : (tensor<f32>) -> tensor<f32>
                   return %1 : tensor<f32>
                 }}"
            )
            .unwrap();
        }
        text + &format!(
            "func.func private @f{depth}(%x: tensor<f32>) -> tensor<f32> {{
               %0 = stablehlo.add %x, %x : tensor<f32>
               return %0 : tensor<f32>
             }}"
        )
    };
    for depth in [2, 17] {
        let loaded = open(Mode::Oracle, 1)
            .compile(&program(&text(depth)), &CompileOptions::default())
            .unwrap();
        let cost = loaded.cost().unwrap();
        let flops = (1u64 << depth) as f64;
        assert_eq!(cost[0], ("flops".to_owned(), flops));
        assert_eq!(cost[1], ("bytes accessed".to_owned(), 12.0 * flops));
    }
}

#[test]
fn sizes_of_memory_saturate() {
    let mut text = "func.func public @main(%x: tensor<f32>) -> tensor<f32> {\n".to_owned();
    for index in 0..5 {
        let ty = "tensor<4611686018427387904xi8>";
        writeln!(text, "%{index} = stablehlo.constant dense<0> : {ty}").unwrap();
    }
    text += "return %x : tensor<f32> }";
    let client = open(Mode::Oracle, 1);
    let loaded = client
        .compile(&program(&text), &CompileOptions::default())
        .unwrap();
    assert_eq!(loaded.memory().unwrap().temporary, u64::MAX - 8);
}

#[test]
fn launches_draw_other_random_numbers() {
    let text = "func.func public @main(%a: tensor<f32>) -> tensor<f32> {
      %b = stablehlo.constant dense<1.0> : tensor<f32>
      %shape = stablehlo.constant dense<> : tensor<0xi64>
      %0 = stablehlo.rng %a, %b, %shape, distribution = UNIFORM
        : (tensor<f32>, tensor<f32>, tensor<0xi64>) -> tensor<f32>
      return %0 : tensor<f32>
    }";
    for mode in [Mode::Fast, Mode::Oracle] {
        let client = open(mode, 1);
        let numbers = || run(&client, &program(text), &[vec![0; 4]]).unwrap();
        assert_ne!(numbers(), numbers());
    }
}

#[test]
fn unused_constants_are_not_expanded() {
    let mut text = "func.func public @main(%x: tensor<f32>) -> tensor<f32> {\n".to_owned();
    for index in 0..100 {
        let iota = "stablehlo.iota dim = 0 : tensor<1000000000xui8>";
        let splat = "stablehlo.constant dense<1.0> : tensor<1000000000xf64>";
        writeln!(text, "%{index} = {iota}\n%s{index} = {splat}").unwrap();
    }
    text += "return %x : tensor<f32> }";
    let outputs = run(
        &open(Mode::Fast, 1),
        &program(&text),
        &[2f32.to_le_bytes().to_vec()],
    );
    assert_eq!(floats(&outputs.unwrap()[0]), [2.0]);
}
