//! Which operations have kernels.

use halite_stablehlo::Module;

use super::plan::{Plan, Unit};

fn plan(text: &str) -> Plan {
    let module = Module::parse(text).expect("the program parses");
    Plan::new(&module)
        .expect("it compiles")
        .expect("it has a plan")
}

/// Names of the operations of a program that the oracle computes.
fn oracle_operations(text: &str) -> Vec<String> {
    let plan = plan(text);
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

/// Whether the condition of a loop is left out.
fn counts(compare: &str, step: i32, bound: &str) -> bool {
    let text = format!(
        "func.func public @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {{
           %zero = stablehlo.constant dense<0> : tensor<i32>
           %step = stablehlo.constant dense<{step}> : tensor<i32>
           %ten = stablehlo.constant dense<10> : tensor<i32>
           %0:3 = stablehlo.while(%i = %zero, %m = %n, %all = %x)
             : tensor<i32>, tensor<i32>, tensor<4xf32>
             cond {{
               %c = stablehlo.compare {compare}, %i, {bound}, SIGNED
                 : (tensor<i32>, tensor<i32>) -> tensor<i1>
               stablehlo.return %c : tensor<i1>
             }} do {{
               %twice = stablehlo.add %all, %all : tensor<4xf32>
               %j = stablehlo.add %i, %step : tensor<i32>
               %k = stablehlo.subtract %m, %step : tensor<i32>
               stablehlo.return %j, %k, %twice : tensor<i32>, tensor<i32>, tensor<4xf32>
             }}
           return %0#2 : tensor<4xf32>
         }}"
    );
    let plan = plan(&text);
    let mut loops = plan.units.iter().filter_map(|unit| match unit {
        Unit::Loop { regions, .. } => Some(regions.counter.is_some()),
        _ => None,
    });
    loops.next().expect("it has a loop")
}

#[test]
fn conditions_that_count_are_left_out() {
    assert!(counts("LT", 1, "%ten"));
    assert!(counts("LT", 1, "%n"));
    assert!(!counts("LE", 1, "%ten"));
    assert!(!counts("LT", 2, "%ten"));
    assert!(!counts("LT", 1, "%m"), "a bound that changes");
}

#[test]
fn several_keys_are_sorted_without_the_comparator() {
    let text = "func.func public @main(%x: tensor<9xi32>, %y: tensor<9xf32>)
             -> (tensor<9xi32>, tensor<9xf32>) {
           %s:2 = \"stablehlo.sort\"(%x, %y) <{dimension = 0 : i64, is_stable = true}> ({
           ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<f32>):
             %1 = stablehlo.compare GT, %c, %d, TOTALORDER : (tensor<f32>, tensor<f32>)
               -> tensor<i1>
             %2 = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
             %3 = stablehlo.compare EQ, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
             %4 = stablehlo.and %3, %1 : tensor<i1>
             %5 = stablehlo.or %2, %4 : tensor<i1>
             stablehlo.return %5 : tensor<i1>
           }) : (tensor<9xi32>, tensor<9xf32>) -> (tensor<9xi32>, tensor<9xf32>)
           return %s#0, %s#1 : tensor<9xi32>, tensor<9xf32>
         }";
    let text = format!("{:?}", plan(text).units);
    assert!(text.contains("comparator: Orders"), "{text}");
    assert_eq!(text.matches("is_descending").count(), 2);
}

/// Elements of the largest value that a program with one operand of 4x6x5 stores.
fn largest(body: &str, result: &str) -> usize {
    let text = format!(
        "func.func public @main(%x: tensor<4x6x5xf32>) -> tensor<{result}xf32> {{
           %zero = stablehlo.constant dense<0.0> : tensor<f32>
           %y = stablehlo.exponential %x : tensor<4x6x5xf32>
           {body}
           return %z : tensor<{result}xf32>
         }}"
    );
    let plan = plan(&text);
    let written = plan.units.iter().flat_map(Unit::writes);
    let sizes = written.map(|base| plan.types[base].elements());
    sizes.max().expect("it computes something")
}

#[test]
fn reductions_of_apart_dimensions_need_no_transposition() {
    let body = "%z = stablehlo.reduce(%y init: %zero) applies stablehlo.add
             across dimensions = [0, 2] : (tensor<4x6x5xf32>, tensor<f32>) -> tensor<6xf32>";
    assert_eq!(largest(body, "6"), 24);
}

#[test]
fn reductions_of_one_element_are_part_of_groups() {
    let body = "%w = stablehlo.reshape %y : (tensor<4x6x5xf32>) -> tensor<120x1xf32>
           %z = stablehlo.reduce(%w init: %zero) applies stablehlo.add
             across dimensions = [1] : (tensor<120x1xf32>, tensor<f32>) -> tensor<120xf32>";
    let text = format!(
        "func.func public @main(%x: tensor<4x6x5xf32>) -> tensor<120xf32> {{
           %zero = stablehlo.constant dense<0.0> : tensor<f32>
           %y = stablehlo.exponential %x : tensor<4x6x5xf32>
           {body}
           return %z : tensor<120xf32>
         }}"
    );
    assert_eq!(plan(&text).units.len(), 1);
}

#[test]
fn products_with_a_vector_are_sums() {
    let kernels = |ty: &str, n: usize| {
        let text = format!(
            "func.func public @main(%x: tensor<7x9x{ty}>, %y: tensor<9x{n}x{ty}>)
                 -> tensor<7x{n}x{ty}> {{
               %z = stablehlo.dot %x, %y : (tensor<7x9x{ty}>, tensor<9x{n}x{ty}>)
                 -> tensor<7x{n}x{ty}>
               return %z : tensor<7x{n}x{ty}>
             }}"
        );
        let is_product = |unit: &&Unit| matches!(unit, Unit::Product { .. });
        plan(&text).units.iter().filter(is_product).count()
    };
    assert_eq!(kernels("f64", 1), 0);
    assert_eq!(kernels("i8", 1), 0);
    assert_eq!(kernels("f32", 1), 1);
    assert_eq!(kernels("f64", 2), 1);
}
