//! Texts that are made to break a reader.

use halite_stablehlo::Module;

use crate::text::{function, jax_programs};

fn error(text: &str) -> String {
    Module::parse(text).unwrap_err().to_string()
}

#[test]
fn nesting_is_bounded() {
    let deep = |open: &str| function(&format!("return {{a = {}", open.repeat(100_000)));
    for open in ["[", "{a = ", "tuple<"] {
        let text = function(&format!(
            "stablehlo.custom_call @f() {{a = {}",
            open.repeat(100_000)
        ));
        let error = error(&text);
        assert!(error.contains("100 levels of nesting"), "{open}: {error}");
    }
    let regions = "\"stablehlo.if\"(%i) ({ ".repeat(10_000);
    assert!(error(&function(&regions)).contains("100 levels of nesting"));
    let types = format!("func.func @main(%x: {}", "tuple<".repeat(100_000));
    assert!(error(&types).contains("100 levels of nesting"));
    let lists = format!(
        "%0 = stablehlo.constant dense<{}> : tensor<f32>",
        "[".repeat(100_000)
    );
    Module::parse(&function(&lists)).unwrap_err();
    Module::parse(&deep("loc(")).unwrap_err();
}

#[test]
fn aliases_do_not_multiply() {
    let mut text = String::from("#a0 = [1, 2, 3, 4, 5, 6, 7, 8]\n");
    for index in 1..30 {
        let before = format!("#a{}", index - 1);
        text += &format!("#a{index} = [{}]\n", vec![before; 10].join(", "));
    }
    text += &function("stablehlo.custom_call @f() {a = #a29} : () -> ()\nreturn");
    assert!(error(&text).contains("aliases expand"), "{}", error(&text));
}

#[test]
fn aliases_of_themselves_end() {
    let attribute = "#a = [#a]\nmodule attributes {x = #a} {}";
    assert!(error(attribute).contains("levels of nesting"));
    let location = "#a = loc(#a)\nmodule {} loc(#a)";
    assert!(error(location).contains("levels of nesting"));
    let ty = "!t = tuple<!t>\nfunc.func @main(%x: !t) { return }";
    assert!(error(ty).contains("levels of nesting"));
}

#[test]
fn sizes_do_not_allocate() {
    let splat = "%0 = stablehlo.constant dense<1.0> : tensor<99999999999xf32>\nreturn";
    Module::parse(&function(splat)).unwrap();
    let beyond = "%0 = stablehlo.constant dense<1.0> : tensor<4294967296x4294967296xf32>\nreturn";
    assert!(error(&function(beyond)).contains("more bytes than memory"));
    let dim = "%0 = stablehlo.iota dim = 0 : tensor<99999999999999999999xf32>\nreturn";
    assert!(error(&function(dim)).contains("not supported"));
    let names = "%0:4294967295 = stablehlo.abs %x : tensor<2x3xf32>\nreturn";
    assert!(error(&function(names)).contains("4294967295 results are named"));
    let list = "%0 = \"stablehlo.reverse\"(%x) {dimensions = dense<0> : tensor<9999999999xi64>} : \
                (tensor<2x3xf32>) -> tensor<2x3xf32>\nreturn";
    assert!(error(&function(list)).contains("at most 256"));
}

#[test]
fn rank_is_bounded() {
    let of_rank = |rank: usize| {
        let ty = format!("tensor<{}f32>", "1x".repeat(rank));
        function(&format!("%0 = stablehlo.iota dim = 0 : {ty}\nreturn"))
    };
    Module::parse(&of_rank(Module::MAX_RANK)).unwrap();
    let error = error(&of_rank(Module::MAX_RANK + 1));
    assert!(error.contains("more than 64 dimensions"), "{error}");
}

/// A program of `levels` functions, each of which calls the next one twice.
fn doubling(levels: usize) -> String {
    let mut text = "func.func @main(%x: tensor<f32>) -> tensor<f32> {
        %0 = call @f0(%x) : (tensor<f32>) -> tensor<f32>
        return %0 : tensor<f32>
      }"
    .to_owned();
    for level in 0..levels {
        let next = level + 1;
        text += &format!(
            "\nfunc.func @f{level}(%x: tensor<f32>) -> tensor<f32> {{
              %0 = call @f{next}(%x) : (tensor<f32>) -> tensor<f32>
              %1 = call @f{next}(%0) : (tensor<f32>) -> tensor<f32>
              return %1 : tensor<f32>
            }}"
        );
    }
    text + &format!(
        "\nfunc.func @f{levels}(%x: tensor<f32>) -> tensor<f32> {{ return %x : tensor<f32> }}"
    )
}

/// Each shape of a function of chlo is a function of StableHLO with hundreds of operations.
#[test]
fn many_shapes_of_chlo_functions_are_refused() {
    let program = |shapes: usize| {
        let lines: String = (1..=shapes)
            .map(|size| {
                format!(
                    "%x{size} = stablehlo.constant dense<1.0> : tensor<{size}xf32>
                     %y{size} = chlo.lgamma %x{size} : tensor<{size}xf32> -> tensor<{size}xf32>\n"
                )
            })
            .collect();
        Module::parse(&format!("func.func @main() {{\n{lines}return\n}}"))
    };
    program(100).unwrap().verify().unwrap();
    let error = program(5000).unwrap_err().to_string();
    for part in [
        "`chlo.lgamma` in addition to ",
        "at most 262144 are supported",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn calls_that_double_are_refused() {
    Module::parse(&doubling(18)).unwrap().verify().unwrap();
    for levels in [20, 60, 200] {
        let error = Module::parse(&doubling(levels))
            .unwrap()
            .verify()
            .unwrap_err();
        let error = error.to_string();
        assert!(error.contains("at most 1048576 are supported"), "{error}");
    }
}

#[test]
fn mutated_programs_are_errors_or_programs() {
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below.max(1) as u64) as usize
    };
    let words = [
        "<", ">", "{", "}", "[", "]", "(", ")", ":", "%0", "#loc", "\"", "-", "x", "0x", "é",
    ];
    let mut accepted = 0;
    for (_, text) in jax_programs() {
        for _ in 0..200 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..=random(3) {
                let (at, length) = (random(bytes.len()), random(40));
                let end = (at + length).min(bytes.len());
                match random(4) {
                    0 => drop(bytes.drain(at..end)),
                    1 => bytes.truncate(at),
                    2 => drop(bytes.splice(at..at, words[random(words.len())].bytes())),
                    _ => {
                        let copy = bytes[at..end].to_vec();
                        let to = random(bytes.len());
                        drop(bytes.splice(to..to, copy));
                    }
                }
            }
            if let Ok(program) = Module::parse(&String::from_utf8_lossy(&bytes)) {
                accepted += 1;
                Module::parse(&program.to_string()).unwrap();
            }
        }
    }
    assert!(accepted > 0);
}
