//! Small programs whose results the specification or XLA defines, and programs that must fail.

use halite_core::ErrorKind;
use halite_embedded::interpret;
use halite_stablehlo::Module;

use crate::common::interpreted::{check_binary, check_convert, failure, run};

#[test]
fn integer_division_is_defined_for_all_values() {
    let check = |op, values| check_binary("tensor<4xi32>", op, values);
    check(
        "divide",
        [
            "[7, -7, 5, -2147483648]",
            "[2, 2, 0, -1]",
            "[3, -3, -1, -2147483648]",
        ],
    );
    check(
        "remainder",
        ["[7, -7, 5, -2147483648]", "[2, 2, 0, -1]", "[1, -1, 5, 0]"],
    );
    check_binary(
        "tensor<2xui8>",
        "divide",
        ["[7, 200]", "[0, 3]", "[255, 66]"],
    );
}

#[test]
fn shifts_out_of_range_are_defined() {
    let check = |op, values| check_binary("tensor<3xi8>", op, values);
    check("shift_left", ["[1, 1, -1]", "[7, 8, -1]", "[-128, 0, 0]"]);
    check(
        "shift_right_logical",
        ["[-1, -1, -128]", "[7, 8, 1]", "[1, 0, 64]"],
    );
    check(
        "shift_right_arithmetic",
        ["[-128, -128, 64]", "[7, 100, -1]", "[-1, -1, 0]"],
    );
}

#[test]
fn extremes_propagate_nan() {
    let (x, y) = ("[0x7FC00000, 1.0, -0.0]", "[1.0, 0x7FC00000, 0.0]");
    check_binary(
        "tensor<3xf32>",
        "maximum",
        [x, y, "[0x7FC00000, 0x7FC00000, 0.0]"],
    );
    check_binary(
        "tensor<3xf32>",
        "minimum",
        [x, y, "[0x7FC00000, 0x7FC00000, -0.0]"],
    );
}

#[test]
fn integer_powers_wrap() {
    check_binary(
        "tensor<5xi32>",
        "power",
        [
            "[2, 3, -1, 2, 1]",
            "[31, 2, -3, -1, -5]",
            "[-2147483648, 9, -1, 0, 1]",
        ],
    );
}

#[test]
fn floats_convert_with_saturation() {
    let floats = "[0x7FC00000, 1.0e10, -1.0e10, -1.9]";
    check_convert(
        "tensor<4xf32>",
        "tensor<4xi32>",
        [floats, "[0, 2147483647, -2147483648, -1]"],
    );
    check_convert("tensor<4xf32>", "tensor<4xui8>", [floats, "[0, 255, 0, 0]"]);
    check_convert(
        "tensor<4xf32>",
        "tensor<4xi1>",
        [floats, "[true, true, true, true]"],
    );
}

#[test]
fn integers_round_once_to_narrow_floats() {
    // 2^24 + 1 is halfway in f32; what follows decides.
    let integers = "[16777217, 36028799166447617]";
    check_convert(
        "tensor<2xi64>",
        "tensor<2xf32>",
        [integers, "[16777216.0, 36028801313931264.0]"],
    );
}

#[test]
fn unknown_custom_call_is_named() {
    let body = r#"%0 = stablehlo.custom_call @lapack_sgeqrf() : () -> tensor<f32>
                  return %0 : tensor<f32>"#;
    let error = failure("tensor<f32>", body);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("`lapack_sgeqrf`"), "{error}");
    assert!(error.to_string().contains("line 2"), "{error}");
}

#[test]
fn qr_reconstructs_its_matrix() {
    let body = r#"
      %a = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]> : tensor<3x2xf64>
      %qr:2 = stablehlo.custom_call @Qr(%a) : (tensor<3x2xf64>) -> (tensor<3x2xf64>, tensor<2xf64>)
      %q = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%qr#0, %qr#1)
        : (tensor<3x2xf64>, tensor<2xf64>) -> tensor<3x2xf64>
      %top = stablehlo.slice %qr#0 [0:2, 0:2] : (tensor<3x2xf64>) -> tensor<2x2xf64>
      %i = stablehlo.iota dim = 0 : tensor<2x2xi32>
      %j = stablehlo.iota dim = 1 : tensor<2x2xi32>
      %upper = stablehlo.compare LE, %i, %j : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi1>
      %zero = stablehlo.constant dense<0.0> : tensor<2x2xf64>
      %r = stablehlo.select %upper, %top, %zero : tensor<2x2xi1>, tensor<2x2xf64>
      %product = stablehlo.dot_general %q, %r, contracting_dims = [1] x [0]
        : (tensor<3x2xf64>, tensor<2x2xf64>) -> tensor<3x2xf64>
      stablehlo.custom_call @check.expect_almost_eq(%product, %a) {has_side_effect = true}
        : (tensor<3x2xf64>, tensor<3x2xf64>) -> ()
      return"#;
    run("", body).unwrap();
}

#[test]
fn sum_of_a_region_evaluates_its_operations() {
    // A region of two operations: the sum of squares, from 1.
    let body = r#"
      %x = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %one) across dimensions = [0]
        : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
        reducer(%sum: tensor<f32>, %value: tensor<f32>) {
          %square = stablehlo.multiply %value, %value : tensor<f32>
          %next = stablehlo.add %sum, %square : tensor<f32>
          stablehlo.return %next : tensor<f32>
        }
      return %0 : tensor<f32>"#;
    let results = run("tensor<f32>", body).unwrap();
    assert_eq!(*results[0].bytes, 15f32.to_le_bytes());
}

#[test]
fn inconsistent_comparator_sorts() {
    let body = r#"
      %x = stablehlo.iota dim = 0 : tensor<100xi32>
      %0 = "stablehlo.sort"(%x) ({
        ^bb0(%a: tensor<i32>, %b: tensor<i32>):
          %always = stablehlo.constant dense<true> : tensor<i1>
          stablehlo.return %always : tensor<i1>
      }) {dimension = 0 : i64, is_stable = true} : (tensor<100xi32>) -> tensor<100xi32>
      return %0 : tensor<100xi32>"#;
    let results = run("tensor<100xi32>", body).unwrap();
    let mut values: Vec<_> = results[0]
        .bytes
        .chunks_exact(4)
        .map(|bytes| bytes[0])
        .collect();
    values.sort_unstable();
    assert_eq!(values, (0..100).collect::<Vec<u8>>());
}

#[test]
fn top_k_of_booleans_keeps_the_order_of_equal_ones() {
    let body = "
      %x = stablehlo.constant dense<[[false, true, false], [true, true, false]]> : tensor<2x3xi1>
      %y, %i = chlo.top_k(%x, k = 2) : tensor<2x3xi1> -> (tensor<2x2xi1>, tensor<2x2xi32>)
      %n = stablehlo.convert %y : (tensor<2x2xi1>) -> tensor<2x2xi32>
      %ten = stablehlo.constant dense<10> : tensor<2x2xi32>
      %tens = stablehlo.multiply %i, %ten : tensor<2x2xi32>
      %0 = stablehlo.add %tens, %n : tensor<2x2xi32>
      return %0 : tensor<2x2xi32>";
    let results = run("tensor<2x2xi32>", body).unwrap();
    let wanted = [11i32, 0, 1, 11].map(i32::to_le_bytes).concat();
    assert_eq!(*results[0].bytes, wanted);
}

#[test]
fn sinks_use_values_and_return_nothing() {
    let body = "
      %0 = stablehlo.constant dense<3> : tensor<i32>
      stablehlo.custom_call @dce_sink(%0) {api_version = 4 : i32, has_side_effect = true}
        : (tensor<i32>) -> ()
      return %0 : tensor<i32>";
    let results = run("tensor<i32>", body).unwrap();
    assert_eq!(*results[0].bytes, 3i32.to_le_bytes());
}

#[test]
fn too_large_result_is_out_of_memory() {
    // The second fits the address space, which systems give out without having the memory.
    for size in [1u64 << 46, 1 << 40] {
        let ty = format!("tensor<{size}xf32>");
        let body = format!(
            "%x = stablehlo.constant dense<0.0> : tensor<f32>
             %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> {ty}
             return %0 : {ty}"
        );
        let error = failure(&ty, &body);
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    }
}

#[test]
fn deep_nesting_runs() {
    let depth = 95;
    let open = "%r = \"stablehlo.if\"(%p) ({\n".repeat(depth);
    let close = "stablehlo.return %r : tensor<f32> }, {
        stablehlo.return %x : tensor<f32> }) : (tensor<i1>) -> tensor<f32>\n";
    let body = format!(
        "%p = stablehlo.constant dense<true> : tensor<i1>
         %x = stablehlo.constant dense<2.0> : tensor<f32>
         {open} stablehlo.return %x : tensor<f32> }}, {{
           stablehlo.return %x : tensor<f32> }}) : (tensor<i1>) -> tensor<f32>
         {} return %r : tensor<f32>",
        close.repeat(depth - 1)
    );
    let results = run("tensor<f32>", &body).unwrap();
    assert_eq!(*results[0].bytes, 2f32.to_le_bytes());
}

#[test]
fn wrong_input_is_refused() {
    let module = Module::parse(
        "func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
           return %x : tensor<2xf32>
         }",
    )
    .unwrap();
    let error = interpret(&module, &[]).unwrap_err().to_string();
    assert_eq!(error, "interpret: 0 inputs given, `main` has 1");
}
