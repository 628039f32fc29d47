//! Reads programs and writes what is printed for them beside: `FILE.printed` for `FILE.mlir`.
//!
//! `cargo run -p halite-stablehlo --example reprint -- FILE.mlir ..`

use std::{env, fs, path::Path};

use halite_core::Result;
use halite_stablehlo::Module;

fn main() -> Result<()> {
    let (mut written, mut refused) = (0, 0);
    for path in env::args().skip(1) {
        match Module::parse(&fs::read_to_string(&path)?) {
            Ok(program) => {
                fs::write(
                    Path::new(&path).with_extension("printed"),
                    program.to_string(),
                )?;
                written += 1;
            }
            Err(error) => {
                eprintln!("{path}: {error}");
                refused += 1;
            }
        }
    }
    println!("{written} programs printed, {refused} refused");
    Ok(())
}
