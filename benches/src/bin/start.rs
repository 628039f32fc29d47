//! Start-up time of `halite train mnist`: seconds from the start of the process to the end of its
//! first step, with an empty compile cache (cold) and with a filled one (warm).
//!
//! `cargo build --release && cargo run --release -p halite-benches --bin start --
//! target/release/halite --runs 10`
#![forbid(unsafe_code)]

use std::{
    io,
    num::NonZero,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use halite::{Error, ErrorKind, Result, train::loggers::Report};
use halite_benches::{Arguments, exit_code};

const OP: &str = "start";

fn main() -> ExitCode {
    exit_code(run())
}

fn run() -> Result<()> {
    let arguments = Arguments::read(OP, &["--runs"])?;
    let runs = arguments
        .option("--runs")?
        .map_or(10, NonZero::<usize>::get);
    let [halite] = &arguments.words(&[])[..] else {
        let message = "expected one path, that of the command: start PATH-OF-HALITE [--runs N]";
        return Err(Error::invalid(OP, message));
    };
    measure(Path::new(halite), runs)
}

fn measure(halite: &Path, runs: usize) -> Result<()> {
    let directory = tempfile::tempdir().map_err(failed)?;
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
                std::fs::remove_dir_all(old).map_err(failed)?;
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
                .status()
                .map_err(failed)?;
            let report = Report::read(out.join("report.json"))?;
            let expected = if is_cold { (3, 0) } else { (0, 3) };
            if !status.success() || (report.compiles, report.cache_hits) != expected {
                let message = format!(
                    "{} {status}, {} compiles, {} cache hits; expected {} and {}",
                    halite.display(),
                    report.compiles,
                    report.cache_hits,
                    expected.0,
                    expected.1
                );
                return Err(Error::new(ErrorKind::Internal, OP, message));
            }
            seconds.push(report.process_seconds_to_first_step.ok_or_else(|| {
                let message = "this system does not report when a process began";
                Error::new(ErrorKind::Unsupported, OP, message)
            })?);
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

fn failed(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, OP, error.to_string())
}
