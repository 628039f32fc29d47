//! The report of a run, for people and programs.

mod confusion;
mod device;
mod json;
mod lines;
mod page;
mod predictions;
mod processes;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use halite_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use self::json::{metrics, path};
pub(crate) use self::processes::findings as findings_of_processes;
pub use self::{
    device::DeviceReport,
    predictions::{Prediction, Shown},
    processes::ProcessReport,
};
use super::{CsvLog, Split};
use crate::files;
use crate::metrics::ConfusionTable;

const OP: &str = "report";
/// Most bytes of a report in JSON.
const MOST_BYTES: u64 = 16 << 20;
/// Most classes of a confusion matrix in the text of a report.
const SHOWN_CLASSES: usize = 10;
/// Names of the files in the directory of a run.
pub(crate) const REPORT: &str = "report.json";
pub(crate) const PAGE: &str = "report.html";
pub(crate) const TABLE: &str = "metrics.csv";

/// Results and measurements of a run: `report.json` in its directory, and the table printed at its
/// end.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// Metrics of the last validation of this process, by name. Those of the training, if there was none.
    #[serde(with = "metrics")]
    pub metrics: BTreeMap<String, f64>,
    /// The step after which that validation was; `None` if `metrics` are those of the training.
    #[serde(default)]
    pub metrics_of_step: Option<u64>,
    /// Confusion matrices of the last validation, of [`Confusion`](crate::metrics::Confusion).
    #[serde(default)]
    pub confusion: Vec<ConfusionTable>,
    /// Means of the training metrics by name: over the last epoch, or its steps so far if the run
    /// stopped in it.
    #[serde(with = "metrics")]
    pub train_metrics: BTreeMap<String, f64>,
    /// The first and the last of the steps of `train_metrics`, if the run stopped in an epoch, before
    /// a validation.
    #[serde(default)]
    pub train_metrics_of_steps: Option<[u64; 2]>,
    /// Optimizer steps of the whole run, those before a resume included.
    pub steps: u64,
    /// Epochs done, those before a resume included.
    pub epochs: u64,
    /// Steps of these that changed nothing, since their gradients were not finite
    /// ([`OnNotFinite::Skip`](crate::OnNotFinite)).
    #[serde(default)]
    pub skipped_steps: u64,
    /// Training and validation samples that were skipped because they cannot be read
    /// ([`BadSample::Skip`](halite_data::BadSample)), by all processes since their last start, each
    /// once.
    #[serde(default)]
    pub skipped_samples: u64,
    /// Seconds of training, those of earlier starts of this run included.
    pub seconds: f64,
    /// Training samples per second of training steps, in the process that made the last ones. So
    /// are `training_seconds`, `input_wait_seconds`, `device_busy_seconds` and both
    /// `seconds_to_first_step`: resuming a finished run reports them from its checkpoint.
    pub samples_per_second: f64,
    /// Programs compiled.
    pub compiles: u64,
    /// Compile-cache hits.
    #[serde(default)]
    pub cache_hits: u64,
    /// Seconds saved by those hits: compile time less load time.
    #[serde(default)]
    pub compile_seconds_saved: f64,
    /// Number of times the training step was compiled or loaded from the cache.
    pub step_compiles: u64,
    /// Seconds of training steps, without compiling and validation.
    #[serde(default)]
    pub training_seconds: f64,
    /// Seconds in which the next step waited for its batch.
    pub input_wait_seconds: f64,
    /// Seconds of `training_seconds` in which the device executed training steps, extrapolated from
    /// the steps that were timed.
    #[serde(default)]
    pub device_busy_seconds: Option<f64>,
    /// Seconds from the start of the run until its first step was done: tracing, compiling, and
    /// running it.
    pub seconds_to_first_step: f64,
    /// The same from the start of the process: loading the program, the plugin and the data as
    /// well. `None` where the system does not provide the start time, and in programs of your own
    /// that `cargo run` started: their process is cargo's, which built them first.
    #[serde(default)]
    pub process_seconds_to_first_step: Option<f64>,
    /// Reads that made the host wait for the device. Copies in the background are not counted: they
    /// are waited for only at the end of an epoch and for a checkpoint.
    pub blocking_reads: u64,
    /// Copies to the device.
    pub uploads: u64,
    /// Number of devices; in a job of several processes, those of one.
    pub devices: u64,
    /// Measurements of each process, if there are several.
    #[serde(default)]
    pub processes: Vec<ProcessReport>,
    /// The precision policy of the programs: `f32`, `bf16-mixed`.
    #[serde(default)]
    pub precision: String,
    /// The name of the accelerator's plugin or backend.
    pub plugin: String,
    /// The version of the plugin.
    pub plugin_version: String,
    /// The version of halite.
    pub halite_version: String,
    /// The seed of the run.
    pub seed: u64,
    /// True if it was stopped before its last epoch.
    pub interrupted: bool,
    /// What stopped it then: the name of a callback, a signal, or the stop flag.
    #[serde(default)]
    pub stopped_by: Option<String>,
    /// Suggestions: see [`Activity::findings`](halite_telemetry::Activity::findings).
    #[serde(default)]
    pub findings: Vec<String>,
    /// Largest memory in use on one device so far, in bytes, where the driver counts it.
    #[serde(default)]
    pub device_memory_peak: Option<u64>,
    /// The devices, as one of them is described.
    #[serde(default)]
    pub device: DeviceReport,
    /// Model FLOPs utilization of the training steps at `samples_per_second`: the operations of their
    /// matrix multiplications and convolutions as a fraction of what the devices' published peak for
    /// the precision allows; waits for input count. `None` where no peak is known.
    #[serde(default)]
    pub mfu: Option<f64>,
    /// Loss scale of the last steps that were logged, of a precision that has one (`f16-mixed`).
    #[serde(default)]
    pub loss_scale: Option<f64>,
    /// Samples of what the model does, with their names, for `report.html`: a callback adds them in
    /// [`on_fit_end`](crate::Callback::on_fit_end).
    #[serde(default)]
    pub samples: Vec<(String, String)>,
    /// Samples of data with what the model predicts for them:
    /// [`Trainer::show_predictions`](crate::Trainer::show_predictions) adds them.
    #[serde(default)]
    pub predictions: Vec<Prediction>,
    /// The properties of the run, by name.
    #[serde(default)]
    pub configuration: Vec<(String, String)>,
    /// The step from which this process resumed, if it did.
    pub resumed_from_step: Option<u64>,
    /// The step of the best checkpoint.
    #[serde(default)]
    pub best_step: Option<u64>,
    /// The metrics of the validation after this step, by name, if the run has a table of metrics.
    #[serde(default, with = "metrics")]
    pub best_metrics: BTreeMap<String, f64>,
    /// The best checkpoint. Serialized as a string, or as bytes if the path is not UTF-8.
    #[serde(default, with = "path")]
    pub best_checkpoint: Option<PathBuf>,
    /// The newest checkpoint, serialized likewise.
    #[serde(default, with = "path")]
    pub last_checkpoint: Option<PathBuf>,
}

impl Report {
    /// Writes it as JSON, replacing the file in one step.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| {
            Error::new(ErrorKind::Internal, OP, "it cannot be written as JSON").caused_by(error)
        })?;
        text.push(b'\n');
        files::replace(path, &text).map_err(|error| files::failed(OP, "write", path, &error))
    }

    /// Reads a report that [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a report.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = files::read_plain(path, MOST_BYTES)
            .map_err(|error| files::failed(OP, "read", path, &error))?;
        serde_json::from_slice(&text).map_err(|error| {
            Error::new(
                ErrorKind::Corrupt,
                OP,
                format!("{} is not a report: {error}", path.display()),
            )
        })
    }

    /// Writes `report.json` and `report.html` into the directory of the run, with the curves of its
    /// `metrics.csv`.
    ///
    /// # Errors
    /// If a file cannot be written, or the table cannot be read.
    pub fn write_to(&self, dir: impl AsRef<Path>) -> Result<()> {
        let dir = dir.as_ref();
        self.write(dir.join(REPORT))?;
        self.write_page(dir)
    }

    /// Adds the metrics of the best checkpoint, from the table in the directory of the run. A table
    /// that cannot be read has none; the page says why.
    pub(crate) fn add_best_metrics(&mut self, dir: &Path) {
        let Some(step) = self.best_step else {
            return;
        };
        let rows = CsvLog::read(dir.join(TABLE)).unwrap_or_default();
        let mut rows = rows.into_iter().rev();
        let found = rows.find(|row| row.step == step && row.split == Split::Validation);
        self.best_metrics =
            found.map_or_else(BTreeMap::new, |row| row.metrics.into_iter().collect());
    }

    /// Writes `report.html` into the directory of the run.
    pub(crate) fn write_page(&self, dir: &Path) -> Result<()> {
        let rows = CsvLog::read(dir.join(TABLE))?;
        let title = dir.file_name().unwrap_or_default().to_string_lossy();
        let (path, page) = (dir.join(PAGE), self.to_html(&title, &rows)?);
        files::replace(&path, page.as_bytes())
            .map_err(|error| files::failed(OP, "write", &path, &error))
    }
}

impl fmt::Display for Report {
    /// One line for each fact, without a line end after the last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        let width = lines
            .iter()
            .map(|(name, _)| name.chars().count())
            .max()
            .unwrap_or(0);
        for (index, (name, value)) in lines.iter().enumerate() {
            write!(
                f,
                "{}{name:width$}  {value}",
                if index == 0 { "" } else { "\n" }
            )?;
        }
        for table in self
            .confusion
            .iter()
            .filter(|table| table.counts.len() <= SHOWN_CLASSES)
        {
            write!(f, "\n{table}")?;
        }
        Ok(())
    }
}
