//! Errors name line and column.

use expect_test::{Expect, expect};
use halite_stablehlo::Module;

use crate::text::function;

fn check(text: &str, expected: Expect) {
    expected.assert_eq(&Module::parse(text).unwrap_err().to_string());
}

fn check_body(body: &str, expected: Expect) {
    check(&function(body), expected);
}

#[test]
fn syntax_errors_have_an_expectation() {
    check(
        "func.func @main(",
        expect![[
            r#"program: line 1, column 17: found the end of the program; expected an argument, `%x: tensor<f32>`"#
        ]],
    );
    check(
        "module {",
        expect![[
            r#"program: line 1, column 9: found the end of the program; expected `func.func` or `sdy.mesh`"#
        ]],
    );
    check_body(
        "%0 = stablehlo.add %x %x : tensor<2x3xf32>",
        expect![[r#"program: line 2, column 23: found `%x`; expected `:`"#]],
    );
    check_body(
        "%0 = stablehlo.transpose %x, perm = [1, 0] : tensor<f32>",
        expect![[
            r#"program: line 2, column 30: found `perm`; expected operands of `transpose` or `:`"#
        ]],
    );
    check_body(
        "%0 = \"stablehlo.abs\"(%x : (tensor<2x3xf32>)",
        expect![[r#"program: line 2, column 25: found `:`; expected `,` or `)`"#]],
    );
    check_body(
        "return loc(\"a",
        expect![[
            r#"program: line 2, column 12: found a string without end; expected a location: `"file":1:2`, `"name"(..)`, `unknown`"#
        ]],
    );
    check_body(
        "stablehlo.custom_call @f(%x) {backend_config = \"\\zz\"} : ()",
        expect![[
            r#"program: line 2, column 48: the string has an unknown escape; expected \n, \t, \\, \" or two hexadecimal digits"#
        ]],
    );
}

#[test]
fn values_are_defined_once() {
    check_body(
        "%0 = stablehlo.abs %y : tensor<2x3xf32>",
        expect![[r#"program: line 2, column 20: `%y` is not defined in this function before"#]],
    );
    check_body(
        "%x = stablehlo.abs %x : tensor<2x3xf32>",
        expect![[r#"program: line 2, column 1: `%x` is defined twice"#]],
    );
    check_body(
        "%0 = stablehlo.abs %x#1 : tensor<2x3xf32>",
        expect![[r#"program: line 2, column 20: `%x#1` is not defined; the last one is `%x#0`"#]],
    );
    check_body(
        "%0:2 = stablehlo.abs %x : tensor<2x3xf32>",
        expect![[r#"program: line 2, column 8: `abs`: 2 results are named; it has 1"#]],
    );
    check(
        "func.func @f(%x: tensor<f32>) { return }
         func.func @main() { %0 = stablehlo.abs %x : tensor<f32> return }",
        expect![[r#"program: line 2, column 49: `%x` is not defined in this function before"#]],
    );
}

#[test]
fn types_agree_with_definitions() {
    check_body(
        "%0 = stablehlo.abs %x : tensor<2x3xi32>",
        expect![[
            r#"program: line 2, column 25: `abs`: operand 0 has the type tensor<2x3xi32> here; it is defined with the type tensor<2x3xf32>"#
        ]],
    );
    check_body(
        "%0 = stablehlo.add %x, %i : tensor<2x3xf32>",
        expect![[
            r#"program: line 2, column 29: `add`: operand 1 has the type tensor<2x3xf32> here; it is defined with the type tensor<i32>"#
        ]],
    );
    check(
        "func.func @main(%x: tensor<f32>) -> tensor<i32> { return %x : tensor<f32> }",
        expect![[
            r#"program: line 1, column 1: the function `@main` has results (tensor<i32>), but returns (tensor<f32>)"#
        ]],
    );
}

#[test]
fn constants_agree_with_their_types() {
    check_body(
        "%0 = stablehlo.constant dense<[1, 2]> : tensor<3xi32>",
        expect![[r#"program: line 2, column 31: a list of 2 is in a constant of tensor<3xi32>"#]],
    );
    check_body(
        "%0 = stablehlo.constant dense<[1, [2]]> : tensor<2xi32>",
        expect![[r#"program: line 2, column 35: found `[`; expected a number of type i32"#]],
    );
    check_body(
        "%0 = stablehlo.constant dense<300> : tensor<i8>",
        expect![[r#"program: line 2, column 31: `300` is not a number of type i8"#]],
    );
    check_body(
        "%0 = stablehlo.constant dense<1.5> : tensor<i32>",
        expect![[r#"program: line 2, column 31: `1.5` is not a number of type i32"#]],
    );
    check_body(
        "%0 = stablehlo.constant dense<\"0x01\"> : tensor<2xi32>",
        expect![[
            r#"program: line 2, column 31: the string has 1 of the 8 bytes of tensor<2xi32>"#
        ]],
    );
    check_body(
        "%0 = stablehlo.constant dense<\"abc\"> : tensor<2xi32>",
        expect![[r#"program: line 2, column 31: the string is not hexadecimal: "0x00ff""#]],
    );
    check_body(
        "%0 = stablehlo.constant dense_resource<a> : tensor<2xi32>",
        expect![[
            r#"program: line 2, column 25: `dense_resource` is not supported; write `dense<..>`"#
        ]],
    );
}

#[test]
fn what_is_not_supported_is_named() {
    check(
        "func.func @main(%x: tensor<?x3xf32>) { return }",
        expect![[r#"program: line 1, column 28: dynamic dimensions `?` are not supported"#]],
    );
    check(
        "func.func @main(%x: tensor<2x!quant.uniform<i8:f32, 2.0:15>>) { return }",
        expect![[r#"program: line 1, column 30: quantized types are not supported"#]],
    );
    check(
        "func.func @main(%x: memref<2xf32>) { return }",
        expect![[r#"program: line 1, column 21: the type `memref` is not supported"#]],
    );
    check(
        "func.func private @f(tensor<f32>)",
        expect![[
            r#"program: line 1, column 22: found `tensor`; expected an argument, `%x: tensor<f32>`"#
        ]],
    );
    check_body(
        "stablehlo.custom_call @f() {output_operand_aliases = \
         [#stablehlo.output_operand_alias<b = \"\\0A\">]} : () -> ()",
        expect![[
            r#"program: line 2, column 1: `custom_call`: attribute `output_operand_aliases` is not a list of `#stablehlo.output_operand_alias` with the fields output_tuple_indices, operand_index and operand_tuple_indices"#
        ]],
    );
    check_body(
        "%0 = chlo.ragged_dot %x : tensor<2x3xf32> -> tensor<2x3xf32>",
        expect![[
            r#"program: line 2, column 6: the operation `chlo.ragged_dot` is not supported; lower the dialect chlo to StableHLO first"#
        ]],
    );
    check_body(
        "%0 = \"stablehlo.einsum\"(%x) {a = #b<c>} : () -> ()",
        expect![[r#"program: line 2, column 6: the operation `einsum` is not supported"#]],
    );
    check_body(
        "cf.br ^bb1",
        expect![[r#"program: line 2, column 1: the operation `cf.br` is not supported"#]],
    );
}

#[test]
fn attribute_errors_have_a_position() {
    check_body(
        "%0 = \"stablehlo.transpose\"(%x) : (tensor<2x3xf32>) -> tensor<3x2xf32>",
        expect![[r#"program: line 2, column 6: `transpose`: attribute `permutation` is missing"#]],
    );
    check_body(
        "%0 = stablehlo.fft %x, type = DCT, length = [3] : tensor<2x3xf32>",
        expect![[
            r#"program: line 2, column 6: `fft`: attribute `fft_type` is `DCT`; expected one of FFT, IFFT, RFFT, IRFFT"#
        ]],
    );
}

#[test]
fn attributes_are_unique() {
    let gather = "\"stablehlo.gather\"(%x, %x) <{dimension_numbers = #stablehlo.gather<a = 1, a = 1>}> \
                   : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>";
    for operation in [
        "stablehlo.abs %x {a = 1 : i32, a = 2 : i32} : tensor<2x3xf32>",
        "\"stablehlo.abs\"(%x) <{a = 1}> {a = 1} : (tensor<2x3xf32>) -> tensor<2x3xf32>",
        gather,
    ] {
        let text = function(&format!("%0 = {operation}"));
        let error = Module::parse(&text).unwrap_err().to_string();
        assert!(error.contains("there are two attributes"), "{error}");
    }
}

#[test]
fn sizes_of_broadcast_match_its_result() {
    let broadcast = |result: &str| {
        let body = format!(
            "%0 = stablehlo.broadcast %x, sizes = [4] : (tensor<2x3xf32>) -> {result}\nreturn"
        );
        Module::parse(&function(&body))
    };
    broadcast("tensor<4x2x3xf32>").unwrap();
    for wrong in ["tensor<7x2x3xf32>", "tensor<4x2x3x1xf32>"] {
        let error = broadcast(wrong).unwrap_err().to_string();
        assert!(error.contains("`broadcast_sizes` [4]"), "{error}");
    }
}
