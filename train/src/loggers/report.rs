//! The report of a run, for people and programs.

mod confusion;
mod device;
mod json;
mod page;
mod predictions;
mod processes;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use halite_core::{Error, ErrorKind, Result, format_bytes, format_count, format_flops};
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
use crate::format::{format_metric, format_seconds};
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
    /// The last metrics by name: of the validation data, or of the training data if the last step
    /// was not validated.
    #[serde(with = "metrics")]
    pub metrics: BTreeMap<String, f64>,
    /// Confusion matrices of the last validation, of [`Confusion`](crate::metrics::Confusion).
    #[serde(default)]
    pub confusion: Vec<ConfusionTable>,
    /// Means of the training metrics by name: over the last epoch, or its steps so far if the run
    /// stopped in it.
    #[serde(with = "metrics")]
    pub train_metrics: BTreeMap<String, f64>,
    /// The first and the last of the steps of `train_metrics`, if the run stopped in an epoch;
    /// `metrics` are the same then.
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

    fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Lines::default();
        self.add_metrics(&mut lines);
        self.add_length(&mut lines);
        self.add_speed(&mut lines);
        self.add_programs(&mut lines);
        lines.add("seed", self.seed.to_string());
        lines.0.extend(processes::lines(&self.processes));
        for finding in &self.findings {
            lines.add("note", finding.clone());
        }
        for (name, path) in [
            ("best checkpoint", &self.best_checkpoint),
            ("last checkpoint", &self.last_checkpoint),
        ] {
            if let Some(path) = path {
                lines.add(name, path.display().to_string());
            }
        }
        if let Some(best) = self.best() {
            lines.add("best metrics", best);
        }
        lines.0
    }
}

/// Lines of the table: names and values.
#[derive(Default)]
struct Lines(Vec<(String, String)>);

impl Lines {
    fn add(&mut self, name: &str, value: String) {
        self.0.push((name.to_string(), value));
    }
}

/// Lines of the table, by subject.
impl Report {
    fn add_metrics(&self, lines: &mut Lines) {
        if let Some([first, last]) = self.train_metrics_of_steps {
            for (name, value) in &self.train_metrics {
                let value = format_metric(name, *value);
                let steps = format!("steps {} to {}", format_count(first), format_count(last));
                lines.add(&format!("{name} in training"), format!("{value} ({steps})"));
            }
            return;
        }
        for (name, value) in &self.metrics {
            lines.add(name, format_metric(name, *value));
        }
        if self.train_metrics != self.metrics {
            for (name, value) in &self.train_metrics {
                lines.add(&format!("{name} in training"), format_metric(name, *value));
            }
        }
    }

    /// The metrics of the best checkpoint, without those of single labels, if it is not the last step.
    fn best(&self) -> Option<String> {
        let step = self.best_step.filter(|step| *step != self.steps)?;
        let metrics = self.best_metrics.iter();
        let metrics = metrics.filter(|(name, _)| !name.contains('/'));
        let metrics =
            metrics.map(|(name, value)| format!("{name} {}", format_metric(name, *value)));
        let metrics: Vec<String> = metrics.collect();
        let step = format_count(step);
        (!metrics.is_empty()).then(|| format!("{} (step {step})", metrics.join(", ")))
    }

    fn add_length(&self, lines: &mut Lines) {
        let mut length = format!("{} in {} epochs", format_count(self.steps), self.epochs);
        if self.skipped_steps > 0 {
            length += &format!(", {} skipped", format_count(self.skipped_steps));
        }
        if let Some(step) = self.resumed_from_step {
            length += &format!(", resumed from {}", format_count(step));
        }
        match &self.stopped_by {
            Some(what) => length += &format!(", stopped by {what}"),
            None if self.interrupted => length += ", interrupted",
            None => {}
        }
        lines.add("steps", length);
        if self.skipped_samples > 0 {
            let count = format_count(self.skipped_samples);
            lines.add("skipped samples", format!("{count}, which cannot be read"));
        }
        lines.add("time", format_seconds(self.seconds));
    }

    fn add_speed(&self, lines: &mut Lines) {
        if self.samples_per_second > 0.0 {
            let speed = format_count(self.samples_per_second.round() as u64);
            lines.add("speed", format!("{speed} samples/s"));
        }
        if self.training_seconds <= 0.0 {
            return;
        }
        let share = |seconds: f64| {
            let share = (seconds / self.training_seconds).min(1.0);
            format!("{:.0} %", 100.0 * share)
        };
        let waited = self.input_wait_seconds;
        let wait = format!("{} ({})", format_seconds(waited), share(waited));
        lines.add("input wait", wait);
        if let Some(busy) = self.device_busy_seconds {
            lines.add("device busy", share(busy));
        }
        if let (Some(mfu), Some(peak)) = (self.mfu, self.device.peak_flops) {
            let value = format!("{:.1} % of {}", 100.0 * mfu, format_flops(peak));
            lines.add("MFU", value);
        }
    }

    fn add_programs(&self, lines: &mut Lines) {
        lines.add("precision", self.precision.clone());
        if let Some(scale) = self.loss_scale {
            lines.add("loss scale", format_count(scale.round() as u64));
        }
        if let Some(device) = self.device.line() {
            lines.add("device", device);
        }
        let (plugin, version) = (&self.plugin, &self.plugin_version);
        let plugin = format!("{plugin} {version}, devices: {}", self.devices);
        lines.add("plugin", plugin.trim().to_string());
        if let Some(bytes) = self.device_memory_peak {
            lines.add("device memory", format!("{} at most", format_bytes(bytes)));
        }
        if let Some(seconds) = self.process_seconds_to_first_step {
            let value = format!("{seconds:.2} s after the start of the process");
            lines.add("first step", value);
        }
        let mut compiles = format_count(self.compiles);
        if self.cache_hits > 0 {
            let hits = format_count(self.cache_hits);
            let saved = format_seconds(self.compile_seconds_saved);
            compiles += &format!(", cache hits {hits}, which saved {saved}");
        }
        lines.add("compiles", compiles);
        lines.add("blocking reads", format_count(self.blocking_reads));
        lines.add("uploads", format_count(self.uploads));
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
            write!(f, "\n{}", confusion::text(table))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            metrics: [
                ("accuracy".to_string(), 0.9893),
                ("loss".to_string(), 0.0312),
            ]
            .into(),
            train_metrics: [("loss".to_string(), f64::NAN)].into(),
            steps: 1876,
            epochs: 2,
            seconds: 184.7,
            samples_per_second: 702.4,
            training_seconds: 200.0,
            input_wait_seconds: 1.4,
            device_busy_seconds: Some(190.1),
            compiles: 2,
            uploads: 3800,
            devices: 1,
            precision: "f32".into(),
            plugin: "cpu".into(),
            plugin_version: "0.115".into(),
            halite_version: "0.1.0".into(),
            seed: 7,
            best_checkpoint: Some("runs/mnist/checkpoints/step-00001876".into()),
            ..Report::default()
        }
    }

    #[test]
    fn report_round_trips_numbers_that_are_not_finite() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        report().write(&path).unwrap();
        let back = Report::read(&path).unwrap();
        assert!(back.train_metrics["loss"].is_nan());
        assert_eq!(
            Report {
                train_metrics: BTreeMap::new(),
                ..back
            },
            Report {
                train_metrics: BTreeMap::new(),
                ..report()
            }
        );
        let value: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(value["metrics"]["accuracy"], 0.9893);
        assert_eq!(value["train_metrics"]["loss"], "NaN");
        std::fs::write(&path, r#"{"metrics":{"loss":"many"}}"#).unwrap();
        assert!(
            Report::read(&path)
                .unwrap_err()
                .to_string()
                .contains("`many` is not a value of `loss`")
        );
    }

    #[cfg(unix)]
    #[test]
    fn paths_of_any_bytes_come_back() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        for checkpoint in [
            None,
            Some(PathBuf::from("runs/\u{e4}")),
            Some(PathBuf::from(OsStr::from_bytes(b"r\xffn/1"))),
        ] {
            let report = Report {
                best_checkpoint: checkpoint.clone(),
                last_checkpoint: checkpoint,
                ..Report::default()
            };
            report.write(&path).unwrap();
            assert_eq!(Report::read(&path).unwrap(), report);
        }
    }

    #[test]
    fn report_names_the_device_with_its_peak() {
        let report = Report {
            device: DeviceReport {
                kind: "NVIDIA H200".into(),
                memory: Some(112_600_000_000),
                bf16_flops: Some(989.5e12),
                peak_flops: Some(67e12),
            },
            mfu: Some(0.4137),
            loss_scale: Some(65_536.0),
            ..report()
        };
        let text = report.to_string();
        for line in [
            "MFU               41.4 % of 67.0 TFLOP/s\n",
            "loss scale        65,536\n",
            "device            NVIDIA H200, 113 GB of memory, 989.5 TFLOP/s in bf16 at most\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn report_prints_as_a_table() {
        let want = "\
accuracy          98.93 %
loss              0.03120
loss in training  NaN
steps             1,876 in 2 epochs
time              3 min 05 s
speed             702 samples/s
input wait        1.4 s (1 %)
device busy       95 %
precision         f32
plugin            cpu 0.115, devices: 1
compiles          2
blocking reads    0
uploads           3,800
seed              7
best checkpoint   runs/mnist/checkpoints/step-00001876";
        assert_eq!(report().to_string(), want);
        let better = Report {
            best_step: Some(938),
            best_metrics: [
                ("accuracy".to_string(), 0.9912),
                ("loss".to_string(), 0.0287),
                ("roc_auc/cat".to_string(), 0.5),
            ]
            .into(),
            ..report()
        };
        let end = "\nbest metrics      accuracy 99.12 %, loss 0.02870 (step 938)";
        assert!(better.to_string().ends_with(end), "{better}");
        let stopped = Report {
            interrupted: true,
            stopped_by: Some("EarlyStopping".into()),
            resumed_from_step: Some(938),
            train_metrics: [("loss".to_string(), 0.5)].into(),
            train_metrics_of_steps: Some([1868, 1876]),
            ..report()
        };
        let start = "\
loss in training  0.5000 (steps 1,868 to 1,876)
steps             1,876 in 2 epochs, resumed from 938, stopped by EarlyStopping
";
        assert!(stopped.to_string().starts_with(start), "{stopped}");
        let warm = Report {
            process_seconds_to_first_step: Some(0.412),
            ..report()
        };
        assert!(
            warm.to_string()
                .contains("first step        0.41 s after the start of the process\n"),
            "{warm}"
        );
        let warm = Report {
            compiles: 0,
            cache_hits: 3,
            compile_seconds_saved: 1.25,
            ..report()
        };
        assert!(
            warm.to_string()
                .contains("compiles          0, cache hits 3, which saved 1.2 s\n"),
            "{warm}"
        );
    }
}
