//! Runs programs without arguments, such as the test data of StableHLO, which check their own
//! results: prints those that fail with the reason, and the counts.
//!
//! ```text
//! cargo run -p halite-embedded --example run_programs -- FILE..
//! ```

use std::{env, fs, process::ExitCode, time::Instant};

use halite_core::Result;
use halite_stablehlo::Module;

fn main() -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    for path in env::args().skip(1) {
        let began = Instant::now();
        match run(&path) {
            Ok(()) => passed += 1,
            Err(error) => {
                failed += 1;
                println!("{path}: {error}");
            }
        }
        if began.elapsed().as_secs() > 5 {
            println!("{path}: took {:?}", began.elapsed());
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run(path: &str) -> Result<()> {
    let code = fs::read(path)?;
    let module = match std::str::from_utf8(&code) {
        Ok(text) => Module::parse(text)?,
        Err(_) => Module::from_bytecode(&code)?,
    };
    halite_embedded::interpret(&module, &[])?;
    Ok(())
}
