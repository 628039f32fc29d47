//! A trained model in a program of its own: reads the file that `halite export` wrote, weights
//! included, and runs it. It depends on `halite-exchange` without its default features and on an
//! executor, here the embedded one: `halite-pjrt` loads a plugin instead.
//!
//! `cargo run --release -p halite-exchange --no-default-features --example run_program -- cnn.jax`

use std::{env, path::Path, time::Instant};

use halite_core::{Array, Client, HostArray, Result};
use halite_embedded::{Embedded, Options};
use halite_exchange::Artifact;

fn main() -> Result<()> {
    let Some(path) = env::args().nth(1) else {
        eprintln!("usage: run_program PROGRAM");
        std::process::exit(2);
    };
    for output in run(Path::new(&path))? {
        println!("{output}");
    }
    Ok(())
}

/// Runs the program in a file, and returns its results.
pub fn run(path: &Path) -> Result<Vec<HostArray>> {
    let client = Client::new(Embedded::new(&Options::default())?);
    let program = Artifact::open(path)?.compile(&client)?;
    // Zeros of the types that the program takes: your images, or tokens.
    let inputs = (program.inputs().iter())
        .map(|input| {
            println!("{}: {}", input.name, input.ty);
            let zeros = HostArray::zeros(input.ty.clone());
            Array::upload(&client, &zeros, program.sharding())
        })
        .collect::<Result<Vec<_>>>()?;
    let started = Instant::now();
    let outputs = program.run(&inputs.iter().collect::<Vec<_>>())?;
    let outputs = outputs.iter().map(Array::read).collect();
    println!("in {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    outputs
}
