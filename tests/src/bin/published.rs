//! Compares small models of random settings with what other programs compute.
#![forbid(unsafe_code)]

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use halite_tests::{
    process,
    published::{self, Options},
};

/// Load random small models that transformers, peft, sentence-transformers and gguf wrote; the
/// results are theirs, or an error names the key that is not supported
#[derive(Parser)]
struct Arguments {
    /// Families of models [default: all]
    families: Vec<String>,
    /// Python with the packages that `tests/published/make.py` names
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,
    /// Models of each family
    #[arg(long, default_value_t = 100)]
    cases: u64,
    /// Seed; each model is a function of the seed and its number
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write the models here and keep them [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Write the summary to this file too
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Arguments {
        families,
        python,
        cases,
        seed,
        keep,
        json,
    } = Arguments::parse();
    let done = tempfile::tempdir().map_err(|error| error.to_string());
    let done = done.and_then(|scratch| {
        published::run(&Options {
            python,
            families,
            cases,
            seed,
            directory: keep.unwrap_or_else(|| scratch.path().to_owned()),
        })
    });
    process::report(done, json.as_deref(), |summary| &summary.failures)
}
