//! Reads portable artifacts and reports for each the operations and the time, or the error.
//!
//! ```text
//! cargo run --release -p halite-stablehlo --example read_artifacts -- FILE..
//! cargo run --release -p halite-stablehlo --example read_artifacts -- --to DIR VERSION FILE..
//! ```
//!
//! The second form also writes each program as an artifact of another version, and checks that it
//! reads as the same program.

use std::{env, error::Error, fs, path::Path, process::ExitCode, time::Instant};

use halite_stablehlo::{Module, Region, Version};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (to, paths) = match &arguments[..] {
        [to, directory, version, paths @ ..] if to == "--to" => {
            (Some((directory.as_str(), version.parse()?)), paths)
        }
        paths => (None, paths),
    };
    let mut refused = 0;
    for path in paths {
        if let Err(error) = read(path, to) {
            refused += 1;
            println!("{path}: {error}");
        }
    }
    println!("{} read, {refused} refused", paths.len() - refused);
    Ok(ExitCode::from(u8::from(refused > 0)))
}

fn read(path: &str, to: Option<(&str, Version)>) -> Result<(), Box<dyn Error>> {
    let bytes = fs::read(path)?;
    let began = Instant::now();
    let module = Module::from_bytecode(&bytes)?;
    let elapsed = began.elapsed();
    let bodies = module.functions.iter().map(|function| &function.body);
    let operations: usize = bodies.map(operations).sum();
    println!(
        "{path}: {operations} operations, {} bytes, {elapsed:?}",
        bytes.len()
    );
    if let Some((directory, version)) = to {
        let written = module.to_bytecode(version)?;
        if Module::from_bytecode(&written)?.to_bytecode(version)? != written {
            return Err("reads as another program after it was written".into());
        }
        let name = Path::new(path)
            .file_name()
            .ok_or("the path has no file name")?;
        fs::write(Path::new(directory).join(name), written)?;
    }
    Ok(())
}

/// Number of operations, nested ones included.
fn operations(region: &Region) -> usize {
    let nested = region
        .operations
        .iter()
        .flat_map(|operation| &operation.regions);
    region.operations.len() + nested.map(operations).sum::<usize>()
}
