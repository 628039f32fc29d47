//! Reads portable artifacts and reports for each the operations and the time, or the error.
//!
//! ```text
//! cargo run --release -p halite-stablehlo --example read_artifacts -- FILE..
//! ```

use std::{env, fs, process::ExitCode, time::Instant};

use halite_stablehlo::{Module, Region};

fn main() -> ExitCode {
    let (mut read, mut refused) = (0, 0);
    for path in env::args().skip(1) {
        let result = fs::read(&path)
            .map_err(|error| error.to_string())
            .and_then(|bytes| {
                let began = Instant::now();
                let module = Module::from_bytecode(&bytes).map_err(|error| error.to_string())?;
                Ok((module, bytes.len(), began.elapsed()))
            });
        match result {
            Ok((module, length, elapsed)) => {
                read += 1;
                let bodies = module.functions.iter().map(|function| &function.body);
                let operations: usize = bodies.map(operations).sum();
                println!("{path}: {operations} operations, {length} bytes, {elapsed:?}");
            }
            Err(error) => {
                refused += 1;
                println!("{path}: {error}");
            }
        }
    }
    println!("{read} read, {refused} refused");
    ExitCode::from(u8::from(refused > 0))
}

fn operations(region: &Region) -> usize {
    let nested = region
        .operations
        .iter()
        .flat_map(|operation| &operation.regions);
    region.operations.len() + nested.map(operations).sum::<usize>()
}
