//! The conformance suite on the backend, directly and over the library, and the limits of programs.

use std::path::PathBuf;

use halite_conformance::{Outcome, Subject};
use halite_core::{Client, CompileOptions, Error, ErrorKind, Result};
use halite_pjrt::Plugin;
use halite_plugin::Options;
use halite_stablehlo::Module;

/// The shared library, which cargo builds beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    test.with_file_name(format!("{prefix}toy_plugin{suffix}"))
}

fn direct() -> Result<Client> {
    let mut options = Options::new([("devices".to_owned(), 2i64.into())]);
    Ok(Client::new(toy_plugin::open(&mut options)?))
}

fn exported() -> Result<Client> {
    let options = vec![("devices".into(), 2i64.into())];
    Ok(Client::new(Plugin::load(library())?.client(options)?))
}

/// The C API passes a program without the types of its arguments.
const OF_THE_C_API: &str = "a signature with an argument too few is accepted, want an error";

fn check(open: fn() -> Result<Client>) {
    let outcome: Outcome = halite_conformance::run(&Subject::opened_by(open).unwrap(), "");
    println!("{outcome}");
    let failed = outcome
        .failed
        .iter()
        .filter(|(_, message)| *message != OF_THE_C_API);
    assert_eq!(failed.count(), 0, "{outcome}");
    assert!(outcome.passed.len() > 40, "{outcome}");
}

#[test]
fn backend_conforms() {
    check(direct);
}

#[test]
fn library_conforms() {
    check(exported);
}

/// Compiles a program of one argument, and returns the error.
fn refused(body: &str) -> Error {
    refused_program(format!(
        "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{ {body} }}"
    ))
}

fn refused_program(code: String) -> Error {
    let module = Module::read(code.as_bytes()).unwrap();
    let program = module.interface().unwrap().program(code);
    let compiled = direct()
        .unwrap()
        .compile(&program, &CompileOptions::default());
    compiled.unwrap_err()
}

#[test]
fn unknown_operation_is_named() {
    let error = refused("%0 = stablehlo.cosine %a : tensor<4xf32>\n return %0 : tensor<4xf32>");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("stablehlo.cosine at line 1"),
        "{error}"
    );
}

#[test]
fn unknown_type_is_named() {
    let error = refused(
        "%0 = stablehlo.convert %a : (tensor<4xf32>) -> tensor<4xf64>
         return %a : tensor<4xf32>",
    );
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("tensor<4xf64>"), "{error}");
}

#[test]
fn values_larger_than_the_memory_are_refused() {
    let error = refused(
        "%0 = stablehlo.iota dim = 0 : tensor<1000000x1000000xf32>
         return %a : tensor<4xf32>",
    );
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
}

/// 17 functions, each of which calls the next one twice: more operations than this plugin supports,
/// and fewer than a program may have.
#[test]
fn repeated_calls_are_refused() {
    let ty = "tensor<f32>";
    let mut code = format!("func.func @f17(%a: {ty}) -> {ty} {{ return %a : {ty} }}\n");
    for number in 0..17 {
        let name = if number == 0 {
            "main"
        } else {
            &format!("f{number}")
        };
        let next = format!("func.call @f{}", number + 1);
        code += &format!(
            "func.func @{name}(%a: {ty}) -> {ty} {{
                %0 = {next}(%a) : ({ty}) -> {ty}
                %1 = {next}(%0) : ({ty}) -> {ty}
                return %1 : {ty}
            }}\n"
        );
    }
    let error = refused_program(code);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("calls expanded"), "{error}");
}
