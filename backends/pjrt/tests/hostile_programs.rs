//! Programs that end the process of XLA's compiler are refused before it sees them. On a version
//! that does not, this test's process is ended by a signal.

use halite_core::{Backend, CompileOptions, DType, ErrorKind, FlagValue, Program};

use crate::common::*;

/// Checks that compiling is refused as the caller's mistake, with a message that contains `words`.
fn refused(program: &Program, flags: &[(&str, FlagValue)], words: &str) {
    let flags = flags
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    let options = CompileOptions {
        flags,
        ..CompileOptions::default()
    };
    let error = cpu(1).compile(program, &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains(words), "`{words}` not in: {error}");
}

#[test]
fn type_larger_than_64_bits_count_is_refused() {
    let ty = "tensor<4611686018427387904x4xf32>";
    let code = format!("func.func public @main(%x: {ty}) -> {ty} {{ return %x : {ty} }}");
    let huge = f32s(&[1 << 62, 4]);
    let types = std::slice::from_ref(&huge);
    refused(&program(&code, types, types, &[]), &[], "in its signature");

    let inside = format!(
        "func.func public @main(%x: tensor<f32>) -> tensor<f32> {{
          %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> {ty}
          %1 = stablehlo.slice %0 [0:1, 0:1] : ({ty}) -> tensor<1x1xf32>
          %2 = stablehlo.reshape %1 : (tensor<1x1xf32>) -> tensor<f32>
          return %2 : tensor<f32>
        }}"
    );
    refused(
        &program(&inside, &[f32s(&[])], &[f32s(&[])], &[]),
        &[],
        "does not fit 64 bits",
    );
}

#[test]
fn top_k_of_one_result_is_refused() {
    let code = "func.func public @main(%x: tensor<8xf32>) -> tensor<4xf32> {
      %0 = stablehlo.custom_call @TopK(%x) {mhlo.attributes = {k = 4 : i64, largest = true}} : (tensor<8xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }";
    refused(
        &program(code, &[f32s(&[8])], &[f32s(&[4])], &[]),
        &[],
        "calls `TopK` with one tensor",
    );
}

#[test]
fn split_count_below_one_is_refused() {
    let flag = |value| [("xla_cpu_parallel_codegen_split_count", value)];
    refused(
        &add(4, false),
        &flag(FlagValue::Int(-1)),
        "must be at least 1",
    );
    refused(
        &add(4, false),
        &flag(FlagValue::Int(0)),
        "must be at least 1",
    );
    assert!(
        cpu(1)
            .compile(&add(4, false), &CompileOptions::default())
            .is_ok()
    );
}

#[test]
fn size_of_a_signature_is_checked() {
    let huge = ty(DType::F64, &[1 << 40, 1 << 40]);
    refused(
        &program("module {}", &[], &[huge], &[]),
        &[],
        "in its signature",
    );
}
