//! Values at the edges of the specification: rounding, padding, random numbers, types of custom calls.

use halite_core::ErrorKind;
use halite_embedded::interpret;
use halite_stablehlo::Module;

use crate::common::interpreted::{check_convert, failure, run};

/// Two numbers of an element type.
fn literal(element: &str) -> &str {
    match element {
        "f32" => "[1.5, 2.0]",
        "complex<f32>" => "[(0.0, 1.0), (2.0, 0.0)]",
        _ => "[3, 4]",
    }
}

#[test]
fn contraction_lifts_operands_to_the_result() {
    let dot = |types: [&str; 3], result: &str| {
        let [x, y, z] = types;
        let body = format!(
            "%x = stablehlo.constant dense<{}> : tensor<2x{x}>
             %y = stablehlo.constant dense<{}> : tensor<2x{y}>
             %z = stablehlo.constant dense<{result}> : tensor<{z}>
             %0 = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0]
               : (tensor<2x{x}>, tensor<2x{y}>) -> tensor<{z}>
             stablehlo.custom_call @check.expect_eq(%0, %z) {{has_side_effect = true}}
               : (tensor<{z}>, tensor<{z}>) -> ()
             return",
            literal(x),
            literal(y)
        );
        run("", &body).unwrap_or_else(|error| panic!("{x} {y} {z}: {error}"));
    };
    dot(["i32", "f32", "f32"], "12.5");
    dot(["i8", "i8", "f32"], "25.0");
    dot(["f32", "complex<f32>", "complex<f32>"], "(4.0, 1.5)");
    dot(["i32", "complex<f32>", "complex<f32>"], "(8.0, 3.0)");
}

#[test]
fn complex_numbers_compare_lexicographically() {
    for (direction, expected) in [
        ("LT", "[false, true, false]"),
        ("GE", "[true, false, true]"),
        ("NE", "[true, true, false]"),
    ] {
        let body = format!(
            "%x = stablehlo.constant dense<[(1.0, 0.0), (1.0, 2.0), (1.0, 2.0)]>
               : tensor<3xcomplex<f32>>
             %y = stablehlo.constant dense<[(0.0, 0.0), (1.0, 3.0), (1.0, 2.0)]>
               : tensor<3xcomplex<f32>>
             %z = stablehlo.constant dense<{expected}> : tensor<3xi1>
             %0 = stablehlo.compare {direction}, %x, %y
               : (tensor<3xcomplex<f32>>, tensor<3xcomplex<f32>>) -> tensor<3xi1>
             stablehlo.custom_call @check.expect_eq(%0, %z) {{has_side_effect = true}}
               : (tensor<3xi1>, tensor<3xi1>) -> ()
             return"
        );
        run("", &body).unwrap_or_else(|error| panic!("{direction}: {error}"));
    }
}

#[test]
fn imaginary_part_does_not_convert_to_bool() {
    check_convert(
        "tensor<2xcomplex<f32>>",
        "tensor<2xi1>",
        ["[(0.0, 1.0), (1.0, 0.0)]", "[false, true]"],
    );
}

#[test]
fn exponents_round_up_at_ties() {
    check_convert(
        "tensor<3xf32>",
        "tensor<3xf8E8M0FNU>",
        ["[3.0, 1.5, 0.75]", "[4.0, 2.0, 1.0]"],
    );
}

/// Bits of one number of type `ty` after `reduce_precision` to `format`.
fn reduced(ty: &str, format: &str, bits: &str) -> Vec<u8> {
    let body = format!(
        "%x = stablehlo.constant dense<{bits}> : tensor<{ty}>
         %0 = stablehlo.reduce_precision %x, format = {format} : tensor<{ty}>
         return %0 : tensor<{ty}>"
    );
    run(&format!("tensor<{ty}>"), &body).unwrap()[0]
        .bytes
        .to_vec()
}

#[test]
fn mantissa_is_rounded_before_the_exponent() {
    let f32_bits = |bits| u32::from_le_bytes(reduced("f32", "e5m10", bits).try_into().unwrap());
    assert_eq!(f32_bits("0x387FE800"), 0);
    assert_eq!(f32_bits("0x387FF000"), 0x3880_0000);
    assert_eq!(f32_bits("0xC77FF000"), 0xff80_0000);
    assert_eq!(f32_bits("0x7FC00001"), 0x7fc0_0001);
    let own = reduced("f64", "e11m52", "1.0e-310");
    assert_eq!(own, 1e-310f64.to_le_bytes());
    let narrower = reduced("f64", "e11m51", "0x0000000000000003");
    assert_eq!(narrower, 4u64.to_le_bytes());
    let body = "%x = stablehlo.constant dense<1.0> : tensor<f8E5M2>
      %0 = stablehlo.reduce_precision %x, format = e4m1 : tensor<f8E5M2>
      return %0 : tensor<f8E5M2>";
    let error = failure("tensor<f8E5M2>", body);
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[test]
fn top_k_orders_values() {
    let body = "%x = stablehlo.constant
           dense<[1.0, 0xFFC00000, -0.0, 0.0, 0x7FC00000]> : tensor<5xf32>
         %0:2 = stablehlo.custom_call @mhlo.topk(%x)
           : (tensor<5xf32>) -> (tensor<5xf32>, tensor<5xi32>)
         return %0#1 : tensor<5xi32>";
    let indices = run("tensor<5xi32>", body).unwrap();
    let expected: Vec<u8> = [1i32, 4, 0, 2, 3]
        .iter()
        .flat_map(|it| it.to_le_bytes())
        .collect();
    assert_eq!(indices[0].bytes[..], expected);
}

#[test]
fn nan_has_no_mantissa_to_lose() {
    for (ty, bits) in [
        ("f64", "0x7FFFFFFFFFFFFFFF"),
        ("f64", "0xFFF8000000000000"),
        ("f32", "0x7FC00000"),
        ("f16", "0x7E00"),
    ] {
        let bytes = u64::from_str_radix(&bits[2..], 16).unwrap().to_le_bytes();
        let size = (bits.len() - 2) / 2;
        assert_eq!(reduced(ty, "e5m0", bits), bytes[..size], "{ty} {bits}");
    }
}

#[test]
fn padding_of_infinite_taps_is_nan() {
    let body = "%x = stablehlo.constant dense<1.0> : tensor<1x1x1xf32>
      %k = stablehlo.constant dense<[[[0x7F800000]], [[1.0]], [[0x7F800000]]]> : tensor<3x1x1xf32>
      %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
        window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x1x1xf32>, tensor<3x1x1xf32>) -> tensor<1x1x1xf32>
      return %0 : tensor<1x1x1xf32>";
    let results = run("tensor<1x1x1xf32>", body).unwrap();
    let bytes = results[0].bytes[..].try_into().unwrap();
    assert!(f32::from_le_bytes(bytes).is_nan());
}

#[test]
fn huge_window_visits_its_elements_only() {
    let body = r#"
      %x = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = "stablehlo.reduce_window"(%x, %zero) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }) {window_dimensions = array<i64: 1152921504606846976>,
          padding = dense<[[576460752303423487, 576460752303423487]]> : tensor<1x2xi64>}
        : (tensor<2xf32>, tensor<f32>) -> tensor<1xf32>
      return %0 : tensor<1xf32>"#;
    let results = run("tensor<1xf32>", body).unwrap();
    assert_eq!(*results[0].bytes, 3f32.to_le_bytes());
}

#[test]
fn dilated_windows_skip_gaps() {
    // The operand is 1 _ _ 2 _ _ 3, padded by 1; windows are 2 taps, 2 apart.
    let body = r#"
      %x = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %z = stablehlo.constant dense<[0.0, 1.0, 2.0, 0.0, 2.0, 3.0, 0.0]> : tensor<7xf32>
      %0 = "stablehlo.reduce_window"(%x, %zero) ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }) {window_dimensions = array<i64: 2>, base_dilations = array<i64: 3>,
          window_dilations = array<i64: 2>, padding = dense<1> : tensor<1x2xi64>}
        : (tensor<3xf32>, tensor<f32>) -> tensor<7xf32>
      stablehlo.custom_call @check.expect_eq(%0, %z) {has_side_effect = true}
        : (tensor<7xf32>, tensor<7xf32>) -> ()
      return"#;
    run("", body).unwrap();
}

#[test]
fn huge_random_tensor_is_out_of_memory() {
    for algorithm in ["PHILOX", "THREE_FRY", "DEFAULT"] {
        for element in ["ui8", "ui64"] {
            let ty = format!("tensor<36028797018963968x{element}>");
            let body = format!(
                "%s = stablehlo.constant dense<1> : tensor<2xui64>
                 %next, %0 = stablehlo.rng_bit_generator %s, algorithm = {algorithm}
                   : (tensor<2xui64>) -> (tensor<2xui64>, {ty})
                 return %0 : {ty}"
            );
            let error = failure(&ty, &body);
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        }
    }
}

#[test]
fn narrow_random_integers_fit_their_type() {
    let body = "%s = stablehlo.constant dense<1> : tensor<2xui64>
      %next, %x = stablehlo.rng_bit_generator %s, algorithm = DEFAULT
        : (tensor<2xui64>) -> (tensor<2xui64>, tensor<64xui4>)
      %0 = stablehlo.convert %x : (tensor<64xui4>) -> tensor<64xui8>
      return %0 : tensor<64xui8>";
    let results = run("tensor<64xui8>", body).unwrap();
    let largest = results[0].bytes.iter().max();
    assert_eq!(largest, Some(&15));
}

#[test]
fn uniform_numbers_exclude_the_upper_bound() {
    let body = "%a = stablehlo.constant dense<0.0> : tensor<bf16>
      %b = stablehlo.constant dense<1.0> : tensor<bf16>
      %n = stablehlo.constant dense<10000> : tensor<1xi64>
      %0 = stablehlo.rng %a, %b, %n, distribution = UNIFORM
        : (tensor<bf16>, tensor<bf16>, tensor<1xi64>) -> tensor<10000xbf16>
      return %0 : tensor<10000xbf16>";
    let results = run("tensor<10000xbf16>", body).unwrap();
    let (words, _) = results[0].bytes.as_chunks();
    assert!(words.iter().all(|&word| u16::from_le_bytes(word) < 0x3f80));
}

#[test]
fn random_numbers_differ_between_iterations() {
    let body = "%zero = stablehlo.constant dense<0> : tensor<i32>
      %a = stablehlo.constant dense<0.0> : tensor<f64>
      %b = stablehlo.constant dense<1.0> : tensor<f64>
      %shape = stablehlo.constant dense<> : tensor<0xi64>
      %0:3 = stablehlo.while(%n = %zero, %old = %a, %new = %b)
        : tensor<i32>, tensor<f64>, tensor<f64>
      cond {
        %two = stablehlo.constant dense<2> : tensor<i32>
        %1 = stablehlo.compare LT, %n, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %next = stablehlo.add %n, %one : tensor<i32>
        %1 = stablehlo.rng %a, %b, %shape, distribution = UNIFORM
          : (tensor<f64>, tensor<f64>, tensor<0xi64>) -> tensor<f64>
        stablehlo.return %next, %new, %1 : tensor<i32>, tensor<f64>, tensor<f64>
      }
      return %0#1, %0#2 : tensor<f64>, tensor<f64>";
    let results = run("tensor<f64>, tensor<f64>", body).unwrap();
    assert_ne!(results[0], results[1]);
}

#[test]
fn custom_calls_check_types() {
    for (target, types) in [
        ("TopK", ["tensor<4xf32>", "tensor<2xf64>", "tensor<2xi32>"]),
        ("TopK", ["tensor<4xf32>", "tensor<5xf32>", "tensor<5xi32>"]),
        ("Qr", ["tensor<4xf32>", "tensor<4xf32>", "tensor<1xf32>"]),
        (
            "Qr",
            ["tensor<4x2xf32>", "tensor<4x2xf32>", "tensor<4xf32>"],
        ),
    ] {
        let [x, y, z] = types;
        let body = format!(
            "%x = stablehlo.constant dense<0.0> : {x}
             %0:2 = stablehlo.custom_call @{target}(%x) : ({x}) -> ({y}, {z})
             return"
        );
        let error = failure("", &body);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let expected = format!("`{target}` has types {x} -> {y}, {z}");
        assert!(error.to_string().contains(&expected), "{error}");
    }
    let body = "%x = stablehlo.constant dense<0.0> : tensor<2x2xf32>
      %t = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%x, %t)
        : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
      return";
    let error = failure("", body);
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

#[test]
fn comparators_of_custom_calls_have_types() {
    let error = |functions: &str, dim: i64, arguments: &str, result: &str| {
        let text = format!(
            "func.func @order({arguments}) -> {result} {{
               %0 = stablehlo.constant dense<1> : {result}
               return %0 : {result}
             }}
             func.func public @main() -> (tensor<1xf32>, tensor<1xi32>) {{
               %x = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
               %i = stablehlo.constant dense<[0, 1]> : tensor<2xi32>
               %v = stablehlo.constant dense<0.0> : tensor<f32>
               %j = stablehlo.constant dense<0> : tensor<i32>
               %0:2 = stablehlo.custom_call @ApproxTopK(%x, %i, %v, %j)
                 {{called_computations = [{functions}],
                   mhlo.backend_config = {{reduction_dim = {dim} : i64}}}}
                 : (tensor<2xf32>, tensor<2xi32>, tensor<f32>, tensor<i32>)
                 -> (tensor<1xf32>, tensor<1xi32>)
               return %0#0, %0#1 : tensor<1xf32>, tensor<1xi32>
             }}"
        );
        let error = interpret(&Module::parse(&text).unwrap(), &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        error.to_string()
    };
    let scalars = "%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>";
    let swapped = "%a: tensor<f32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<i32>";
    let expected = "must be a function from tensor<f32>, tensor<f32>, tensor<i32>, tensor<i32> to \
                    tensor<i1>";
    for (arguments, result) in [(swapped, "tensor<i1>"), (scalars, "tensor<i32>")] {
        let error = error("@order", 0, arguments, result);
        assert!(error.contains(expected), "{error}");
    }
    let none = error("", 0, scalars, "tensor<i1>");
    assert!(none.contains("has 0 called computations"), "{none}");
    let outside = error("@order", 1, scalars, "tensor<i1>");
    assert!(
        outside.contains("dimension 1 of tensor<2xf32>"),
        "{outside}"
    );
}

#[test]
fn interpret_refuses_several_devices() {
    let text = "module attributes {mhlo.num_replicas = 2 : i32} {
      func.func public @main() { return }
    }";
    let error = interpret(&Module::parse(text).unwrap(), &[]).unwrap_err();
    assert!(error.to_string().contains("2 replicas"), "{error}");
}
