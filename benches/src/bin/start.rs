//! Start-up time of `halite train mnist`: seconds from the start of the process to the end of its
//! first step, with an empty compile cache (cold) and with a filled one (warm).
//!
//! `cargo build --release && cargo run --release -p halite-benches --bin start --
//! target/release/halite 10`
#![forbid(unsafe_code)]

use std::{
    error::Error,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use halite::train::loggers::Report;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (halite, runs) = (
        arguments.next(),
        arguments.next().map_or(Ok(10), |runs| runs.parse()),
    );
    let (Some(halite), Ok(runs @ 1..)) = (halite, runs) else {
        eprintln!("usage: start PATH-OF-HALITE [RUNS]");
        return ExitCode::FAILURE;
    };
    match measure(Path::new(&halite), runs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(halite: &Path, runs: usize) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let (programs, out) = (
        directory.path().join("programs"),
        directory.path().join("run"),
    );
    for (name, is_cold) in [("cold", true), ("warm", false)] {
        let mut seconds = Vec::new();
        for _ in 0..runs {
            for old in [Some(&out), is_cold.then_some(&programs)]
                .into_iter()
                .flatten()
                .filter(|old| old.exists())
            {
                std::fs::remove_dir_all(old)?;
            }
            let mut command = Command::new(halite);
            command
                .args([
                    "train", "mnist", "--limit", "64", "--epochs", "1", "--quiet", "--out",
                ])
                .arg(&out);
            let status = command
                .env("HALITE_COMPILE_CACHE", &programs)
                .stdout(Stdio::null())
                .status()?;
            let report = Report::read(out.join("report.json"))?;
            let expected = if is_cold { (3, 0) } else { (0, 3) };
            if !status.success() || (report.compiles, report.cache_hits) != expected {
                return Err(format!(
                    "{status}, {} compiles, {} cache hits",
                    report.compiles, report.cache_hits
                )
                .into());
            }
            seconds.push(
                report
                    .process_seconds_to_first_step
                    .ok_or("this system does not say when a process began")?,
            );
        }
        seconds.sort_by(f64::total_cmp);
        let (least, median, most) = (
            seconds[0],
            seconds[seconds.len() / 2],
            seconds[seconds.len() - 1],
        );
        println!(
            "{name}: first step after {median:.2} s (median of {runs}; {least:.2} to {most:.2})"
        );
    }
    Ok(())
}
