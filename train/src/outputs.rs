//! What a run writes: progress on the terminal, and in its directory checkpoints, `metrics.csv`,
//! `metrics.svg`, `report.json`.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use halite_core::{Error, ErrorKind, HostArray, Pending, Result};
use serde::{Deserialize, Serialize};

use crate::{
    Metrics, Report, TrainerOptions,
    checkpoint::{CheckpointStore, Position, Saved, Snapshot, exact_f64},
    identity::Identity,
    loggers::{CsvLog, Progress, Row, TableMark, plot_metrics},
    measured::Measured,
    run_files::{self, Opened, PLOT, REPORT},
};

/// What a checkpoint says besides arrays, position and seed.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Progressed {
    /// What the run is; older checkpoints have the four values at the end instead.
    #[serde(default)]
    pub(crate) identity: Option<Identity>,
    /// What a report says of the steps so far.
    #[serde(default)]
    pub(crate) measured: Measured,
    /// The rows of `metrics.csv` so far.
    #[serde(default)]
    pub(crate) table: Option<TableMark>,
    /// Seconds of training so far.
    #[serde(with = "exact_f64")]
    pub(crate) seconds: f64,
    /// The lowest validation loss so far.
    pub(crate) best: Option<Exact>,
    /// The training metrics, in the order of the sums.
    pub(crate) metrics: Vec<String>,
    /// Sums of the running epoch's metrics: value times weight, and weight.
    pub(crate) sums: Vec<(Exact, Exact)>,
    #[serde(default, skip_serializing)]
    pub(crate) batch_size: Option<u64>,
    #[serde(default, skip_serializing)]
    pub(crate) samples: Option<u64>,
    #[serde(default, skip_serializing)]
    pub(crate) label: Option<String>,
    #[serde(default, skip_serializing)]
    pub(crate) precision: Option<String>,
}

/// A float that comes back from JSON with the same bits.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Exact(#[serde(with = "exact_f64")] pub(crate) f64);

/// Where a run writes; without a directory only the terminal.
pub(crate) struct Outputs {
    progress: Progress,
    files: Option<Files>,
    batch_size: u64,
    resumed_from_step: Option<u64>,
    /// The step whose checkpoint is the newest, so that the same is not written twice.
    saved_at: Option<Position>,
}

struct Files {
    dir: PathBuf,
    store: CheckpointStore,
    csv: CsvLog,
    table: Accessory,
    plotting: Accessory,
}

impl Files {
    fn write_row(&mut self, row: &Row) {
        let written = self.csv.write(row);
        self.table.tolerate(written);
    }

    /// The table on the disk, complete if it can be, for bringing it there before a checkpoint
    /// counts.
    fn rows_to_sync(&mut self) -> Option<File> {
        let complete = self.csv.catch_up();
        self.table.tolerate(complete);
        self.csv.file().ok()
    }
}

/// Something that a run writes and does not need: what keeps it from being written is a warning,
/// once.
#[derive(Debug)]
struct Accessory {
    name: &'static str,
    fails: bool,
}

impl Accessory {
    fn new(name: &'static str) -> Self {
        Accessory { name, fails: false }
    }

    fn tolerate(&mut self, result: Result<()>) {
        let failed_before = std::mem::replace(&mut self.fails, result.is_err());
        match (result, failed_before) {
            (Ok(()), false) => {}
            (Ok(()), true) => {
                halite_core::warning!("{} is written again, with all that was missing", self.name)
            }
            (Err(ref error), false) => {
                halite_core::warning!(
                    "{error}. The run goes on without {}, and tries again each time",
                    self.name
                );
            }
            (Err(ref error), true) => tracing::debug!("{error}"),
        }
    }
}

impl Outputs {
    /// Opens the run's directory, and reads the checkpoint to resume from if there is one, unless
    /// `check` refuses it.
    ///
    /// # Errors
    /// If the directory cannot be written, holds another run and this one does not resume, or has
    /// only damaged checkpoints.
    pub(crate) fn open(
        options: &TrainerOptions,
        batches: usize,
        check: impl FnOnce(&Saved) -> Result<()>,
    ) -> Result<(Self, Option<Saved>)> {
        let progress = Progress::new(options.epochs, batches as u64, options.quiet);
        let mut outputs = Outputs {
            progress,
            files: None,
            batch_size: options.batch_size as u64,
            resumed_from_step: None,
            saved_at: None,
        };
        let Some(dir) = &options.out else {
            return Ok((outputs, None));
        };
        let Opened { store, csv, saved } = run_files::open(dir, options, check)?;
        if saved.is_none() && options.resume {
            outputs.progress.message(&format!(
                "nothing to resume in {}: a new run begins",
                dir.display()
            ));
        }
        let [table, plotting] = ["metrics.csv", PLOT].map(Accessory::new);
        outputs.files = Some(Files {
            dir: dir.clone(),
            store,
            csv,
            table,
            plotting,
        });
        Ok((outputs, saved))
    }

    /// The run goes on from `position`; it is to have `epochs`.
    pub(crate) fn resumed(&mut self, position: Position, epochs: u64) {
        let Position { step, epoch, batch } = position;
        self.progress.message(&match epoch < epochs {
            true => format!("resumed at step {step}, epoch {}, batch {batch}", epoch + 1),
            false => format!(
                "resumed at step {step}: all {epoch} epochs are done; more than that go on from here (`epochs`, --epochs)"
            ),
        });
        self.resumed_from_step = Some(step);
        self.saved_at = Some(position);
    }

    /// Something takes its time before the first epoch.
    pub(crate) fn waiting_for(&self, what: &str) {
        self.progress.waiting_for(what);
    }

    /// What was waited for is there.
    pub(crate) fn done_waiting(&self) {
        self.progress.done_waiting();
    }

    /// The steps of the epoch are done, its scores are not.
    pub(crate) fn validating(&self) {
        self.progress.validating();
    }

    /// Whether there is anywhere to write checkpoints.
    pub(crate) fn saves(&self) -> bool {
        self.files.is_some()
    }

    /// The step of the newest checkpoint, which may still be written.
    pub(crate) fn saved_step(&self) -> Option<u64> {
        self.saved_at.map(|position| position.step)
    }

    /// Begins an epoch, `done` of whose steps were done before.
    pub(crate) fn epoch_begun(&self, epoch: u64, done: usize) {
        self.progress.epoch_begun(epoch, done as u64);
    }

    /// One step was queued.
    pub(crate) fn stepped(&self) {
        self.progress.step(self.batch_size);
    }

    /// Metrics of the last steps arrived.
    pub(crate) fn window(&mut self, row: Row) {
        let metrics: Vec<(&str, f64)> = row
            .metrics
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
            .collect();
        self.progress.metrics(&metrics);
        if let Some(files) = &mut self.files {
            files.write_row(&row);
        }
    }

    /// An epoch is done, with these metrics of the validation data.
    pub(crate) fn epoch_done(&mut self, train: &Metrics, row: Row) {
        let train = train.iter().map(|(name, value)| (name.to_string(), *value));
        let validation = row
            .metrics
            .iter()
            .map(|(name, value)| (format!("validation {name}"), *value));
        let all: Vec<(String, f64)> = train.chain(validation).collect();
        self.progress.epoch_done(
            &all.iter()
                .map(|(name, value)| (name.as_str(), *value))
                .collect::<Vec<_>>(),
        );
        if let Some(files) = &mut self.files {
            files.write_row(&row);
        }
    }

    /// Draws the plot anew.
    pub(crate) fn plot(&mut self) {
        let Some(files) = &mut self.files else { return };
        let rows = files.csv.rows();
        let drawn =
            rows.and_then(|rows| plot_metrics(files.dir.join(PLOT), &title(&files.dir), &rows));
        files.plotting.tolerate(drawn);
    }

    /// Whether a checkpoint of this position was begun already.
    pub(crate) fn is_saved(&self, position: Position) -> bool {
        self.saved_at == Some(position)
    }

    /// Writes a checkpoint in the background, unless `check` refuses its arrays.
    pub(crate) fn save(
        &mut self,
        position: Position,
        seed: u64,
        progressed: Progressed,
        arrays: Vec<(String, Pending<HostArray>)>,
        best: Option<(String, f64)>,
        check: impl FnOnce(&[(String, HostArray)]) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        match files.store.finish() {
            // The next may have more luck. Without it, this error is that of the run.
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                halite_core::warning!(
                    "{error}; the run goes on, and saves again at step {}",
                    position.step
                );
            }
            finished => drop(finished?),
        }
        let mut progressed = progressed;
        // First: it writes the rows that could not be written before.
        let rows = files.rows_to_sync();
        match files.csv.mark() {
            Ok(mark) => progressed.table = Some(mark),
            // The weights are worth more than the rows.
            Err(error) => {
                halite_core::warning!(
                    "the checkpoint of step {} is saved without a mark of the rows: {error}",
                    position.step
                )
            }
        }
        let metadata = serde_json::to_value(&progressed).map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                "checkpoint",
                "its values cannot be written as JSON",
            )
            .caused_by(error)
        })?;
        let check = move |arrays: &[(String, HostArray)]| {
            check(arrays)?;
            // Whoever resumes from the checkpoint finds every row before it, also after a power
            // cut.
            if let Some(error) = rows.and_then(|rows| rows.sync_data().err()) {
                halite_core::warning!("metrics.csv may not survive a power cut: {error}");
            }
            Ok(())
        };
        files.store.save_in_background_if(
            check,
            Snapshot {
                position,
                seed,
                arrays,
                metadata,
                best,
            },
        )?;
        self.saved_at = Some(position);
        Ok(())
    }

    /// Waits until all that was begun is on the disk.
    pub(crate) fn finish(&self) -> Result<()> {
        self.files
            .as_ref()
            .map_or(Ok(()), |files| files.store.finish().map(drop))
    }

    /// Gives up, after `grace`, a save that waits for a device.
    pub(crate) fn give_up_waiting(&self, grace: Duration) {
        if let Some(files) = &self.files {
            files.store.give_up_waiting(grace);
        }
    }

    /// Describes the newest checkpoint on the disk, for error messages.
    pub(crate) fn what_stays(&self) -> String {
        let newest = self
            .files
            .as_ref()
            .and_then(|files| files.store.list().ok()?.into_iter().next());
        match newest {
            Some((path, _)) => format!("the checkpoint {} stays", path.display()),
            None => "there is no checkpoint".to_string(),
        }
    }

    /// Completes the report with what is on the disk, and writes it.
    pub(crate) fn report(&self, mut report: Report) -> Result<Report> {
        report.resumed_from_step = self.resumed_from_step;
        let Some(files) = &self.files else {
            return Ok(report);
        };
        match files.store.best() {
            Ok(best) => report.best_checkpoint = best.map(|best| best.path),
            Err(error) => {
                halite_core::warning!("{error}; the report does not name the best checkpoint")
            }
        }
        match files.store.list() {
            Ok(all) => report.last_checkpoint = all.into_iter().next().map(|(path, _)| path),
            Err(error) => {
                halite_core::warning!("{error}; the report does not name the last checkpoint")
            }
        }
        if let Err(error) = report.write(files.dir.join(REPORT)) {
            halite_core::warning!("{error}. All else of the run is there");
        }
        Ok(report)
    }
}

impl Progressed {
    /// The identity of the run that wrote it.
    pub(crate) fn identity(&self, seed: u64) -> Identity {
        let [batch_size, samples] =
            [self.batch_size, self.samples].map(|count| count.map(|count| count.to_string()));
        self.identity.clone().unwrap_or_else(|| {
            let (label, precision) = (self.label.clone(), self.precision.clone());
            Identity::of_old(
                seed,
                [
                    ("label", label),
                    ("batch_size", batch_size),
                    ("samples", samples),
                    ("precision", precision),
                ],
            )
        })
    }

    /// What `saved` says besides arrays, position and seed.
    pub(crate) fn of(saved: &Saved) -> Result<Self> {
        serde_json::from_value(saved.metadata().clone()).map_err(|error| {
            let message = format!(
                "{} was not written by this trainer: {error}",
                saved.path().display()
            );
            Error::new(ErrorKind::Corrupt, "resume", message)
        })
    }
}

fn title(dir: &Path) -> String {
    dir.file_name().map_or_else(
        || "training".to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_a_directory_with_files_of_these_names_destroys_none() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["metrics.csv", PLOT, REPORT];
        for name in names {
            std::fs::write(dir.path().join(name), "someone's work").unwrap();
        }
        let options = TrainerOptions {
            out: Some(dir.path().to_path_buf()),
            quiet: true,
            ..TrainerOptions::default()
        };
        Outputs::open(&options, 1, |_| Ok(())).unwrap();
        for name in names {
            assert_eq!(
                std::fs::read(dir.path().join(format!("{name}.aside"))).unwrap(),
                b"someone's work"
            );
        }
        assert!(!dir.path().join(PLOT).exists() && !dir.path().join(REPORT).exists());
    }
}
