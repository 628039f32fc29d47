//! Reading and printing programs as text.

mod errors;
mod hostile;
mod programs;
mod syntax;

use halite_stablehlo::{Module, Position, Region};

/// The texts of the folder `tests/data`, which JAX printed, with their names.
fn jax_programs() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().unwrap() == "mlir")
        .collect();
    files.sort();
    let name = |path: &std::path::Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    files
        .iter()
        .map(|path| (name(path), std::fs::read_to_string(path).unwrap()))
        .collect()
}

/// The program without the places where its operations were read.
pub(crate) fn without_positions(mut program: Module) -> Module {
    fn erase(region: &mut Region) {
        for operation in &mut region.operations {
            operation.position = Position::Unknown;
            operation.regions.iter_mut().for_each(erase);
        }
    }
    for function in &mut program.functions {
        erase(&mut function.body);
    }
    program
}

/// A function `@main(%x: tensor<2x3xf32>, %i: tensor<i32>)` with this body.
fn function(body: &str) -> String {
    format!("func.func @main(%x: tensor<2x3xf32>, %i: tensor<i32>) {{\n{body}\n}}")
}
