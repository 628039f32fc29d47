//! Fuzzes one parser, or all of them, with any number of inputs.
#![forbid(unsafe_code)]

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use halite_tests::{
    fuzz::{self, Campaign, References, Target},
    process,
};

/// Run parsers on hostile inputs; none may panic, hang, or take much memory, and printed values
/// must parse as the same values
#[derive(Parser)]
struct Arguments {
    /// Targets [default: all]; `list` prints their names
    targets: Vec<String>,
    /// Inputs for each target
    #[arg(long, default_value_t = 100_000)]
    inputs: u64,
    /// Seed; each input is a function of the seed and its number
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Seconds that one input may take
    #[arg(long, default_value_t = 10)]
    deadline: u64,
    /// Only write the valid inputs, into a folder for each target in DIR, for libFuzzer
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Compare with the packages that own the formats, by this Python, which has those that
    /// `tests/published/references.py` names; the targets are formats
    #[arg(long, value_name = "PATH")]
    reference: Option<PathBuf>,
    /// Write the compared files here and keep them [default: a temporary directory]
    #[arg(long, value_name = "DIR", requires = "reference")]
    keep: Option<PathBuf>,
    /// Print the files that only halite reads
    #[arg(long, requires = "reference")]
    verbose: bool,
    /// Write the summary of the comparison to this file too
    #[arg(long, value_name = "PATH", requires = "reference")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.targets == ["list"] {
        let names = fuzz::targets().iter().map(|target| target.name);
        match arguments.reference {
            Some(_) => fuzz::formats().for_each(|name| println!("{name}")),
            None => names.for_each(|name| println!("{name}")),
        }
        return ExitCode::SUCCESS;
    }
    if let Some(python) = &arguments.reference {
        return compare(python, &arguments);
    }
    let named = arguments.targets.iter();
    let mut targets: Vec<&'static Target> =
        match named.map(|name| fuzz::target(name).ok_or(name)).collect() {
            Ok(targets) => targets,
            Err(name) => {
                eprintln!("error: unknown target `{name}`; `list` prints their names");
                return ExitCode::from(2);
            }
        };
    if targets.is_empty() {
        targets = fuzz::targets().iter().collect();
    }
    let Some(directory) = &arguments.corpus else {
        return fuzz_all(&targets, &arguments);
    };
    match write_corpus(directory, &targets) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}

/// Compares files of each format with its reference.
fn compare(python: &Path, arguments: &Arguments) -> ExitCode {
    let done = tempfile::tempdir().map_err(|error| error.to_string());
    let done = done.and_then(|scratch| {
        let keep = arguments.keep.as_deref();
        References {
            python: Some(python.to_owned()),
            formats: arguments.targets.clone(),
            inputs: arguments.inputs,
            seed: arguments.seed,
            deadline: Duration::from_secs(arguments.deadline),
            directory: keep.unwrap_or(scratch.path()).to_owned(),
        }
        .run()
    });
    if let Some(compared) = done.as_ref().ok().filter(|_| arguments.verbose) {
        compared
            .only_here
            .iter()
            .for_each(|file| println!("{file}"));
    }
    process::report(done, arguments.json.as_deref(), |compared| {
        &compared.failures
    })
}

/// Fuzzes each target and prints a table of the results.
fn fuzz_all(targets: &[&'static Target], arguments: &Arguments) -> ExitCode {
    // A panic is reported with its input.
    std::panic::set_hook(Box::new(|_| ()));
    let mut failures = 0;
    println!(
        "{:<20} {:>12} {:>12} {:>12} {:>9}",
        "target", "inputs", "accepted", "rejected", "seconds"
    );
    for &target in targets {
        let campaign = Campaign {
            deadline: Duration::from_secs(arguments.deadline),
            ..Campaign::new(arguments.inputs, arguments.seed)
        };
        match fuzz::run(target, campaign) {
            Ok(passed) => {
                let seconds = passed.elapsed.as_secs_f64();
                let (name, inputs) = (target.name, campaign.inputs);
                println!(
                    "{name:<20} {inputs:>12} {:>12} {:>12} {seconds:>9.1}",
                    passed.accepted, passed.rejected
                );
            }
            Err(failure) => {
                failures += 1;
                println!("{:<20} FAILED\n{failure}", target.name);
            }
        }
    }
    println!("seed {}: {failures} targets failed", arguments.seed);
    match failures {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn write_corpus(directory: &Path, targets: &[&'static Target]) -> io::Result<()> {
    for target in targets {
        let folder = directory.join(target.name);
        fs::create_dir_all(&folder)?;
        for (index, seed) in (target.seeds)().iter().enumerate() {
            fs::write(folder.join(format!("seed-{index}")), seed)?;
        }
    }
    Ok(())
}
