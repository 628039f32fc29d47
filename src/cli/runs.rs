//! `halite runs`: a table of runs, and their curves in one picture.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use halite::{
    Error, Result,
    core::{files, format_count},
    train::{
        BestMetric, RunProgress, RunSummary,
        loggers::{Split, format_metric, format_seconds, render_runs},
    },
};

use crate::cli::io_error;

/// Compare runs: state, length and best metrics
///
/// A run is a directory with a `metrics.csv` (`--out` of `halite train`). If DIR is the directory of a
/// run that has ended, its report is shown, too. A run that is training is not disturbed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  halite runs                          the runs in ./runs
  halite runs runs/mnist               one run, and its report
  halite runs experiments --plot all.svg   and their curves in one picture")]
pub(crate) struct Runs {
    /// Directory of runs, or a run
    #[arg(default_value = "runs")]
    dir: PathBuf,
    /// Write the curves of all runs to FILE, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Runs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runs = RunSummary::find(&self.dir)?;
        if runs.is_empty() {
            let message = format!(
                "no run in {}: no directory there has a metrics.csv that can be read",
                self.dir.display()
            );
            return Err(Error::invalid("runs", message));
        }
        for line in table(&runs) {
            say!("{line}");
        }
        if let [RunSummary { dir, report, .. }] = &runs[..]
            && let Some(report) = report
            && *dir == self.dir
        {
            say!("\n{report}");
        }
        if let Some(path) = &self.plot {
            let named: Vec<_> = runs.into_iter().map(|run| (run.name(), run.rows)).collect();
            let svg = render_runs(&self.dir.to_string_lossy(), &named)?;
            files::write_output(path, svg.as_bytes()).map_err(io_error("runs", "write", path))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Lines of a table, with columns of the same width.
fn table(runs: &[RunSummary]) -> Vec<String> {
    let column = |best: &BestMetric| (best.split, best.name.clone());
    let mut metrics: Vec<(Split, String)> = Vec::new();
    for best in runs.iter().flat_map(|run| &run.best) {
        if !metrics.contains(&column(best)) {
            metrics.push(column(best));
        }
    }
    let head = ["run", "state", "steps", "epochs", "time"].map(str::to_string);
    let best = (metrics.iter()).map(|(split, name)| format!("best {split} {name}"));
    let mut lines = vec![head.into_iter().chain(best).collect::<Vec<_>>()];
    for run in runs {
        let state = match &run.state {
            RunProgress::Stopped(by) if !by.is_empty() => {
                format!("stopped by {}", by.split(':').next().unwrap_or(by))
            }
            state => state.to_string(),
        };
        let fixed = [
            run.name(),
            state,
            format_count(run.steps),
            run.epochs.to_string(),
            format_seconds(run.seconds),
        ];
        let best = metrics.iter().map(|metric| {
            let best = run.best.iter().find(|best| column(best) == *metric);
            best.map_or_else(String::new, |best| {
                let value = format_metric(&best.name, best.value);
                format!("{value} at {}", format_count(best.step))
            })
        });
        lines.push(fixed.into_iter().chain(best).collect());
    }
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let text = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths);
        let cells: String = cells
            .map(|(cell, width)| format!("{cell:width$}  "))
            .collect();
        cells.trim_end().to_string()
    };
    lines.iter().map(text).collect()
}
