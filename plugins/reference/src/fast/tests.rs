//! Which operations have kernels.

use halite_stablehlo::Module;

use super::plan::{Plan, Unit};

/// Names of the operations of a program that the oracle computes.
fn oracle_operations(text: &str) -> Vec<String> {
    let module = Module::parse(text).expect("the program parses");
    let plan = Plan::new(&module)
        .expect("it compiles")
        .expect("it has a plan");
    let name = |unit: &Unit| match unit {
        Unit::Oracle { call, .. } => Some(call.operation.kind.to_attributes().0.to_string()),
        _ => None,
    };
    plan.units.iter().filter_map(name).collect()
}

#[test]
fn all_types_of_data_have_kernels() {
    for ty in [
        "i1", "i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64", "bf16", "f16", "f32", "f64",
    ] {
        let text = format!(
            "func.func public @main(%x: tensor<4x6x{ty}>, %y: tensor<4x6x{ty}>)
                 -> (tensor<6x6x{ty}>, tensor<4x{ty}>, tensor<4x5x{ty}>, tensor<4x6xf32>,
                     tensor<4x6x{ty}>) {{
               %0 = stablehlo.add %x, %y : tensor<4x6x{ty}>
               %1 = stablehlo.multiply %0, %y : tensor<4x6x{ty}>
               %mask = stablehlo.compare LT, %1, %y : (tensor<4x6x{ty}>, tensor<4x6x{ty}>)
                 -> tensor<4x6xi1>
               %2 = stablehlo.select %mask, %1, %x : tensor<4x6xi1>, tensor<4x6x{ty}>
               %3 = stablehlo.dot_general %2, %y, contracting_dims = [0] x [0]
                 : (tensor<4x6x{ty}>, tensor<4x6x{ty}>) -> tensor<6x6x{ty}>
               %zero = stablehlo.constant dense<0> : tensor<{ty}>
               %4 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [1]
                 : (tensor<4x6x{ty}>, tensor<{ty}>) -> tensor<4x{ty}>
               %5 = \"stablehlo.reduce_window\"(%x, %zero) ({{
                 ^bb0(%a: tensor<{ty}>, %b: tensor<{ty}>):
                   %s = stablehlo.add %a, %b : tensor<{ty}>
                   stablehlo.return %s : tensor<{ty}>
               }}) {{window_dimensions = array<i64: 1, 2>}}
                 : (tensor<4x6x{ty}>, tensor<{ty}>) -> tensor<4x5x{ty}>
               %6 = stablehlo.convert %x : (tensor<4x6x{ty}>) -> tensor<4x6xf32>
               %7 = stablehlo.iota dim = 1 : tensor<4x6xui8>
               %8 = stablehlo.convert %7 : (tensor<4x6xui8>) -> tensor<4x6x{ty}>
               %9 = stablehlo.maximum %8, %x : tensor<4x6x{ty}>
               return %3, %4, %5, %6, %9 : tensor<6x6x{ty}>, tensor<4x{ty}>, tensor<4x5x{ty}>,
                 tensor<4x6xf32>, tensor<4x6x{ty}>
             }}"
        );
        let text = match ty {
            "i1" => text.replace("dense<0>", "dense<false>"),
            "bf16" | "f16" | "f32" | "f64" => text.replace("dense<0>", "dense<0.0>"),
            _ => text,
        };
        assert_eq!(oracle_operations(&text), [""; 0], "{ty}");
    }
}

#[test]
fn convolutions_in_groups_have_kernels() {
    for ty in ["f32", "bf16", "f16", "f64", "i32"] {
        let text = format!(
            "func.func public @main(%x: tensor<4x9x9x8x{ty}>, %k: tensor<3x3x1x8x{ty}>)
                 -> (tensor<4x9x9x8x{ty}>, tensor<1x9x9x8x{ty}>) {{
               %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]
                   ->[b, 0, 1, f],
                 window = {{stride = [2, 2], pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]}}
                 {{batch_group_count = 1 : i64, feature_group_count = 8 : i64}}
                 : (tensor<4x9x9x8x{ty}>, tensor<3x3x1x8x{ty}>) -> tensor<4x9x9x8x{ty}>
               %k2 = stablehlo.broadcast_in_dim %k, dims = [0, 1, 2, 3]
                 : (tensor<3x3x1x8x{ty}>) -> tensor<3x3x8x8x{ty}>
               %1 = stablehlo.convolution(%x, %k2) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]
                   ->[b, 0, 1, f],
                 window = {{stride = [1, 1], pad = [[1, 1], [1, 1]]}}
                 {{batch_group_count = 4 : i64, feature_group_count = 1 : i64}}
                 : (tensor<4x9x9x8x{ty}>, tensor<3x3x8x8x{ty}>) -> tensor<1x9x9x8x{ty}>
               return %0, %1 : tensor<4x9x9x8x{ty}>, tensor<1x9x9x8x{ty}>
             }}"
        );
        assert_eq!(oracle_operations(&text), [""; 0], "{ty}");
    }
}
