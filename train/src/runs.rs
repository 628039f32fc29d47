//! Runs by their directories: state, length and best metrics. Nothing here changes a file.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use halite_core::Result;
use halite_nn::schedule::Mode;

use crate::{
    Report, files,
    loggers::{CsvLog, REPORT, Row, Split, TABLE},
};

/// A run, as described by its directory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunSummary {
    /// Its directory.
    pub dir: PathBuf,
    /// Whether it is done.
    pub state: RunProgress,
    /// Optimizer steps: those of the report; while there is none, as far as their metrics are logged.
    pub steps: u64,
    /// Epochs that are done, by the report; else the last one of which metrics are logged, from 1.
    pub epochs: u64,
    /// Seconds of the run, by the report; else until the last row of metrics.
    pub seconds: f64,
    /// The best value of each metric of the task, in the validation, or in the training if nothing
    /// was validated.
    pub best: Vec<BestMetric>,
    /// The rows of `metrics.csv`.
    pub rows: Vec<Row>,
    /// The report of its last steps, if it has ended.
    pub report: Option<Report>,
}

/// How far a run is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RunProgress {
    /// It reached its last epoch.
    Finished,
    /// It ended before, with a report: what stopped it.
    Stopped(String),
    /// There is no report of its last steps: it is still training, or its process was killed or
    /// failed.
    Unfinished,
}

impl fmt::Display for RunProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunProgress::Finished => f.pad("finished"),
            RunProgress::Stopped(_) => f.pad("stopped"),
            RunProgress::Unfinished => f.pad("unfinished"),
        }
    }
}

/// The best value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct BestMetric {
    /// The data that it is of.
    pub split: Split,
    /// The name of the metric.
    pub name: String,
    /// The value: the largest of a fraction such as an accuracy, the smallest of others.
    pub value: f64,
    /// The step after which it was measured.
    pub step: u64,
}

impl RunSummary {
    /// Reads the run in `dir`; `None` if there is no table of metrics.
    ///
    /// # Errors
    /// If a file of the run cannot be read.
    pub fn read(dir: impl AsRef<Path>) -> Result<Option<Self>> {
        let dir = dir.as_ref();
        if !dir.join(TABLE).is_file() {
            return Ok(None);
        }
        let rows = CsvLog::read(dir.join(TABLE))?;
        let report = match dir.join(REPORT) {
            path if path.is_file() => Some(Report::read(path)?),
            _ => None,
        };
        let logged = rows.iter().map(|row| row.step).max().unwrap_or(0);
        // Rows after the report are of a process that continues the run.
        let report = report.filter(|report| report.steps >= logged);
        let state = match &report {
            Some(report) if report.interrupted => {
                RunProgress::Stopped(report.stopped_by.clone().unwrap_or_default())
            }
            Some(_) => RunProgress::Finished,
            None => RunProgress::Unfinished,
        };
        let last = rows.last();
        let (steps, epochs, seconds) = match &report {
            Some(report) => (report.steps, report.epochs, report.seconds),
            None => (
                logged,
                last.map_or(0, |row| row.epoch + 1),
                last.map_or(0.0, |row| row.seconds),
            ),
        };
        Ok(Some(RunSummary {
            dir: dir.to_path_buf(),
            state,
            steps,
            epochs,
            seconds,
            best: best(&rows),
            rows,
            report,
        }))
    }

    /// Reads the runs in the directories in `dir`, and the one in `dir` itself, in the order of their
    /// names. What is not a run is left out, and a run that cannot be read, with a warning.
    ///
    /// # Errors
    /// If `dir` cannot be read.
    pub fn find(dir: impl AsRef<Path>) -> Result<Vec<Self>> {
        let dir = dir.as_ref();
        let entries = fs::read_dir(dir).and_then(|entries| {
            let paths = entries.map(|entry| Ok(entry?.path()));
            paths.collect::<io::Result<Vec<PathBuf>>>()
        });
        let mut dirs = entries.map_err(|error| files::failed("runs", "read", dir, &error))?;
        dirs.push(dir.to_path_buf());
        dirs.sort();
        let read = |dir: &PathBuf| {
            Self::read(dir).unwrap_or_else(|error| {
                halite_core::warning!("{} is left out: {error}", dir.display());
                None
            })
        };
        Ok(dirs.iter().filter_map(read).collect())
    }

    /// The name of its directory.
    pub fn name(&self) -> String {
        let name = self.dir.file_name().unwrap_or(self.dir.as_os_str());
        name.to_string_lossy().into_owned()
    }
}

/// Whether it is a metric of the trainer or its callbacks, which none is better than another of.
fn is_measure(name: &str) -> bool {
    const MEASURES: [&str; 7] = [
        "learning_rate",
        "gradient_norm",
        "loss_scale",
        "samples_per_second",
        "tokens_per_second",
        "mfu",
        "device_memory",
    ];
    MEASURES.contains(&name) || name.starts_with("learning_rate of ")
}

/// The best value of each metric, in the order of their first occurrence; the last value where the
/// direction is not known.
fn best(rows: &[Row]) -> Vec<BestMetric> {
    let is_validated = rows.iter().any(|row| row.split == Split::Validation);
    let split = if is_validated {
        Split::Validation
    } else {
        Split::Train
    };
    let mut best: Vec<BestMetric> = Vec::new();
    for row in rows.iter().filter(|row| row.split == split) {
        let of_task = |(name, value): &&(String, f64)| value.is_finite() && !is_measure(name);
        for (name, value) in row.metrics.iter().filter(of_task) {
            let new = BestMetric {
                split,
                name: name.clone(),
                value: *value,
                step: row.step,
            };
            match best.iter_mut().find(|known| known.name == *name) {
                Some(known) => match Mode::of(name) {
                    Some(mode) if !mode.is_better(*value, known.value) => {}
                    _ => *known = new,
                },
                None => best.push(new),
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, steps: u64, report: Option<Report>) {
        fs::create_dir_all(dir).unwrap();
        let mut log = CsvLog::create(dir.join(TABLE)).unwrap();
        for step in 1..=steps {
            let row = Row {
                step,
                epoch: step - 1,
                seconds: step as f64,
                split: Split::Validation,
                metrics: vec![
                    ("loss".into(), (step as f64 - 2.0).abs()),
                    ("accuracy".into(), 0.1 * step as f64),
                ],
            };
            log.write(&row).unwrap();
        }
        if let Some(report) = report {
            report.write(dir.join(REPORT)).unwrap();
        }
    }

    #[test]
    fn runs_have_states_with_best_metrics() {
        let dir = tempfile::tempdir().unwrap();
        let report = |interrupted| Report {
            steps: 3,
            epochs: 1,
            interrupted,
            stopped_by: interrupted.then(|| "EarlyStopping".to_string()),
            ..Report::default()
        };
        write(&dir.path().join("a"), 3, Some(report(false)));
        write(&dir.path().join("b"), 3, Some(report(true)));
        write(&dir.path().join("c"), 4, Some(report(true)));
        write(&dir.path().join("d"), 2, None);
        fs::create_dir(dir.path().join("no run")).unwrap();
        let runs = RunSummary::find(dir.path()).unwrap();
        let states: Vec<_> = runs
            .iter()
            .map(|run| (run.name(), run.state.clone()))
            .collect();
        let expected = [
            ("a".to_string(), RunProgress::Finished),
            (
                "b".to_string(),
                RunProgress::Stopped("EarlyStopping".into()),
            ),
            ("c".to_string(), RunProgress::Unfinished),
            ("d".to_string(), RunProgress::Unfinished),
        ];
        assert_eq!(states, expected);
        assert_eq!((runs[0].steps, runs[0].epochs), (3, 1));
        let best: Vec<_> = runs[0]
            .best
            .iter()
            .map(|best| (&*best.name, best.step))
            .collect();
        assert_eq!(best, [("loss", 2), ("accuracy", 3)]);
        assert_eq!(
            (runs[2].steps, runs[2].epochs, runs[2].seconds),
            (4, 4, 4.0)
        );
    }

    #[test]
    fn rates_and_speeds_have_no_best() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = CsvLog::create(dir.path().join(TABLE)).unwrap();
        let names = [
            "loss",
            "learning_rate",
            "learning_rate of bias",
            "gradient_norm",
            "samples_per_second",
            "device_memory",
        ];
        let row = Row {
            step: 1,
            epoch: 0,
            seconds: 1.0,
            split: Split::Train,
            metrics: names.map(|name| (name.to_string(), 0.5)).to_vec(),
        };
        log.write(&row).unwrap();
        let best = RunSummary::read(dir.path()).unwrap().unwrap().best;
        let expected = BestMetric {
            split: Split::Train,
            name: "loss".into(),
            value: 0.5,
            step: 1,
        };
        assert_eq!(best, [expected]);
    }

    #[test]
    fn unreadable_run_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("a"), 1, None);
        write(&dir.path().join("b"), 1, None);
        fs::write(dir.path().join("a").join(REPORT), "{").unwrap();
        let runs = RunSummary::find(dir.path()).unwrap();
        let names: Vec<String> = runs.iter().map(RunSummary::name).collect();
        assert_eq!(names, ["b"]);
    }
}
