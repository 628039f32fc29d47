//! The pretty form, read and written.

use expect_test::{Expect, expect};
use halite_stablehlo::{Module, Version};

use crate::text::{function, without_positions};

/// Reads a body, prints it, and reads that again.
fn check(body: &str, printed: Expect) {
    check_module(&function(&format!("{body}\nreturn")), printed);
}

fn check_module(text: &str, printed: Expect) {
    let program = Module::parse(text).unwrap();
    let text = program.to_string();
    printed.assert_eq(&text);
    let again = Module::parse(&text).unwrap();
    assert_eq!(without_positions(program), without_positions(again));
}

#[test]
fn elementwise_types_are_short() {
    check(
        "%0 = stablehlo.add %x, %x : tensor<2x3xf32>
         %1 = stablehlo.convert %x : (tensor<2x3xf32>) -> tensor<2x3xf16>
         %2 = stablehlo.compare LT, %x, %0, TOTALORDER : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
         %3 = stablehlo.select %2, %x, %0 : tensor<2x3xi1>, tensor<2x3xf32>
         %4 = stablehlo.complex %x, %0 : tensor<2x3xcomplex<f32>>
         %5:2 = stablehlo.optimization_barrier %x, %2 : tensor<2x3xf32>, tensor<2x3xi1>
         %6 = stablehlo.tuple %x, %5#1 : tuple<tensor<2x3xf32>, tensor<2x3xi1>>
         %7 = stablehlo.get_tuple_element %6[1] : (tuple<tensor<2x3xf32>, tensor<2x3xi1>>) -> tensor<2x3xi1>
         %8 = stablehlo.create_token : !stablehlo.token",
        expect![[r#"
            module {
              func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<i32>) -> () {
                %0 = stablehlo.add %arg0, %arg0 : tensor<2x3xf32>
                %1 = stablehlo.convert %arg0 : (tensor<2x3xf32>) -> tensor<2x3xf16>
                %2 = stablehlo.compare LT, %arg0, %0, TOTALORDER : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
                %3 = stablehlo.select %2, %arg0, %0 : tensor<2x3xi1>, tensor<2x3xf32>
                %4 = stablehlo.complex %arg0, %0 : tensor<2x3xcomplex<f32>>
                %5:2 = stablehlo.optimization_barrier %arg0, %2 : tensor<2x3xf32>, tensor<2x3xi1>
                %6 = stablehlo.tuple %arg0, %5#1 : tuple<tensor<2x3xf32>, tensor<2x3xi1>>
                %7 = stablehlo.get_tuple_element %6[1] : (tuple<tensor<2x3xf32>, tensor<2x3xi1>>) -> tensor<2x3xi1>
                %8 = stablehlo.after_all : !stablehlo.token
                return
              }
            }
        "#]],
    );
}

#[test]
fn attributes_are_keys() {
    check(
        "%0 = stablehlo.iota dim = 1 : tensor<2x3xf32>
         %1 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
         %2 = stablehlo.slice %x [0:2:1, 1:3] : (tensor<2x3xf32>) -> tensor<2x2xf32>
         %3 = stablehlo.dynamic_slice %x, %i, %i, sizes = [1, 1] : (tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x1xf32>
         %4 = stablehlo.reduce_precision %x, format = e5m10 : tensor<2x3xf32>
         %5 = stablehlo.dot_general %x, %1, batching_dims = [] x [], contracting_dims = [1] x [0], precision = [HIGH, DEFAULT], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
         %6 = stablehlo.dot %x, %1 : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
         %7 = stablehlo.tanh %x {result_accuracy = #stablehlo.result_accuracy<ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<2x3xf32>",
        expect![[r#"
            module {
              func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<i32>) -> () {
                %0 = stablehlo.iota dim = 1 : tensor<2x3xf32>
                %1 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
                %2 = stablehlo.slice %arg0 [0:2, 1:3] : (tensor<2x3xf32>) -> tensor<2x2xf32>
                %3 = stablehlo.dynamic_slice %arg0, %arg1, %arg1, sizes = [1, 1] : (tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x1xf32>
                %4 = stablehlo.reduce_precision %arg0, format = e5m10 : tensor<2x3xf32>
                %5 = stablehlo.dot_general %arg0, %1, contracting_dims = [1] x [0], precision = [HIGH, DEFAULT], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
                %6 = stablehlo.dot_general %arg0, %1, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
                %7 = stablehlo.tanh %arg0 {result_accuracy = #stablehlo.result_accuracy<ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<2x3xf32>
                return
              }
            }
        "#]],
    );
}

#[test]
fn regions_see_values_around_them() {
    check(
        "%zero = stablehlo.constant dense<0.0> : tensor<f32>
         %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>
         %1 = stablehlo.reduce(%x init: %zero) across dimensions = [0, 1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<f32>
          reducer(%a: tensor<f32>, %b: tensor<f32>) {
           %2 = stablehlo.subtract %a, %zero : tensor<f32>
           stablehlo.return %2 : tensor<f32>
         }
         %2:2 = stablehlo.while(%j = %i, %y = %1) : tensor<i32>, tensor<f32> cond {
           %3 = stablehlo.compare LT, %j, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
           stablehlo.return %3 : tensor<i1>
         } do {
           %3 = stablehlo.add %y, %zero : tensor<f32>
           stablehlo.return %j, %3 : tensor<i32>, tensor<f32>
         }",
        expect![[r#"
            module {
              func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<i32>) -> () {
                %0 = stablehlo.constant dense<0.0> : tensor<f32>
                %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.add across dimensions = [0] : (tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>
                %2 = stablehlo.reduce(%arg0 init: %0) across dimensions = [0, 1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<f32>
                 reducer(%i3: tensor<f32>, %i4: tensor<f32>) {
                  %5 = stablehlo.subtract %i3, %0 : tensor<f32>
                  stablehlo.return %5 : tensor<f32>
                }
                %8:2 = stablehlo.while(%i6 = %arg1, %i7 = %2) : tensor<i32>, tensor<f32>
                 cond {
                  %9 = stablehlo.compare LT, %i6, %arg1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
                  stablehlo.return %9 : tensor<i1>
                 } do {
                  %10 = stablehlo.add %i7, %0 : tensor<f32>
                  stablehlo.return %i6, %10 : tensor<i32>, tensor<f32>
                 }
                return
              }
            }
        "#]],
    );
}

#[test]
fn check_operations_are_custom_calls() {
    check(
        "check.expect_eq_const %i, dense<3> : tensor<i32>
         check.expect_close %x, %x, max_ulp_difference = 3 : tensor<2x3xf32>, tensor<2x3xf32>
         stablehlo.custom_call @check.expect_eq(%x, %x) {has_side_effect = true} : (tensor<2x3xf32>, tensor<2x3xf32>) -> ()",
        expect![[r#"
            module {
              func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<i32>) -> () {
                stablehlo.custom_call @"check.expect_eq_const"(%arg1) {api_version = 1 : i32, has_side_effect = true, value = dense<3> : tensor<i32>} : (tensor<i32>) -> ()
                stablehlo.custom_call @"check.expect_close"(%arg0, %arg0) {api_version = 1 : i32, has_side_effect = true, max_ulp_difference = 3 : i64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> ()
                stablehlo.custom_call @"check.expect_eq"(%arg0, %arg0) {api_version = 1 : i32, has_side_effect = true} : (tensor<2x3xf32>, tensor<2x3xf32>) -> ()
                return
              }
            }
        "#]],
    );
}

#[test]
fn strings_of_any_bytes_are_kept() {
    let body = r#"stablehlo.custom_call @f() {backend_config = "\00\FF\80a", kernel = "\C3"} : () -> ()
        stablehlo.custom_call @f() {mhlo.backend_config = {blob = "\C3\A9", other = "\E9"}} : () -> ()"#;
    check(
        body,
        expect![[r#"
            module {
              func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<i32>) -> () {
                stablehlo.custom_call @"f"() {api_version = 1 : i32, has_side_effect = false, backend_config = "\00\FF\80a", kernel = "\C3"} : () -> ()
                stablehlo.custom_call @"f"() {api_version = 1 : i32, has_side_effect = false, mhlo.backend_config = {blob = "\C3\A9", other = "\E9"}} : () -> ()
                return
              }
            }
        "#]],
    );
    let program = Module::parse(&function(&format!("{body}\nreturn"))).unwrap();
    let artifact = program.to_bytecode(Version::new(1, 9, 0)).unwrap();
    let again = Module::from_bytecode(&artifact).unwrap();
    assert_eq!(without_positions(program), without_positions(again));
}

#[test]
fn shardings_have_a_grammar_of_their_own() {
    check_module(
        r#"sdy.mesh @mesh = <["x"=4, "y z"=2], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>
        func.func @main(%x: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2, ?}p1, {}], replicated={"y z"}>}) -> tensor<8x8xf32> {
          %0 = sdy.sharding_constraint %x <@mesh, [{?}, {"x"}], unreduced={"y z"}> : tensor<8x8xf32>
          %2 = sdy.propagation_barrier %0 allowed_direction=FORWARD : tensor<8x8xf32>
          %1 = sdy.manual_computation(%2) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%a: tensor<2x8xf32>) {
            sdy.return %a : tensor<2x8xf32>
          } : (tensor<8x8xf32>) -> tensor<8x8xf32>
          return %1 : tensor<8x8xf32>
        }"#,
        expect![[r#"
            module {
              sdy.mesh @mesh = <["x"=4, "y z"=2], device_ids=[7, 6, 5, 4, 3, 2, 1, 0]>
              func.func public @main(%arg0: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2, ?}p1, {}], replicated={"y z"}>}) -> (tensor<8x8xf32>) {
                %0 = sdy.sharding_constraint %arg0 <@mesh, [{?}, {"x"}], unreduced={"y z"}> : tensor<8x8xf32>
                %1 = sdy.propagation_barrier %0 allowed_direction=FORWARD : tensor<8x8xf32>
                %3 = sdy.manual_computation(%1) in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%i2: tensor<2x8xf32>) {
                  sdy.return %i2 : tensor<2x8xf32>
                } : (tensor<8x8xf32>) -> tensor<8x8xf32>
                return %3 : tensor<8x8xf32>
              }
            }
        "#]],
    );
}

#[test]
fn constants_are_normalized() {
    check(
        "%0 = stablehlo.constant dense<[[1, -2], [3, 4]]> : tensor<2x2xi4>
         %1 = stablehlo.constant dense<[7, 7, 7]> : tensor<3xui8>
         %2 = stablehlo.constant dense<[1.0, 0x7FC00000, -1.1]> : tensor<3xf32>
         %3 = stablehlo.constant dense<(1.5, -0.0)> : tensor<99999999999xcomplex<f32>>
         %4 = stablehlo.constant dense<\"0x0100000002000000\"> : tensor<2xi32>
         %5 = stablehlo.constant dense<> : tensor<2x0xi32>
         %6 = stablehlo.constant dense<[true, false]> : tensor<2xi1>
         %7 = stablehlo.constant dense<2.5> : tensor<f4E2M1FN>",
        expect![[r#"
            module {
              func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<i32>) -> () {
                %0 = stablehlo.constant dense<"0x01FE0304"> : tensor<2x2xi4>
                %1 = stablehlo.constant dense<7> : tensor<3xui8>
                %2 = stablehlo.constant dense<[1.0, 0x7FC00000, -1.1]> : tensor<3xf32>
                %3 = stablehlo.constant dense<(1.5, -0.0)> : tensor<99999999999xcomplex<f32>>
                %4 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
                %5 = stablehlo.constant dense<> : tensor<2x0xi32>
                %6 = stablehlo.constant dense<[true, false]> : tensor<2xi1>
                %7 = stablehlo.constant dense<0x4> : tensor<f4E2M1FN>
                return
              }
            }
        "#]],
    );
}
