//! Programs that measure two things in turns, and the ratio of each pair.

use std::{fmt, process::ExitCode};

use halite::{Result, backends::Accelerator};

use crate::exit_code;

/// Runs a program with the arguments `[PAIRS] [ACCELERATOR]`, by default `pairs` on `cpu`.
pub fn measure_pairs(
    name: &str,
    pairs: usize,
    run: impl FnOnce(usize, &Accelerator) -> Result<()>,
) -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let pairs = arguments.next().map_or(Ok(pairs), |pairs| pairs.parse());
    let accelerator = arguments
        .next()
        .map_or(Ok(Accelerator::cpu()), |name| name.parse());
    let (Ok(pairs @ 1..), Ok(accelerator)) = (pairs, accelerator) else {
        eprintln!("usage: {name} [PAIRS] [ACCELERATOR]");
        return ExitCode::FAILURE;
    };
    exit_code(run(pairs, &accelerator))
}

/// Ratios of pairs of measurements, at least one. They are printed as median, least and largest.
#[derive(Debug, Default)]
pub struct Ratios(pub Vec<f64>);

impl fmt::Display for Ratios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let (least, largest) = (sorted[0], sorted[sorted.len() - 1]);
        let median = sorted[sorted.len() / 2];
        write!(f, "{median:.3} ({least:.3} to {largest:.3})")
    }
}
