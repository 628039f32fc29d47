//! What a run writes: progress on the terminal, and in its directory checkpoints, `metrics.csv`, `metrics.svg`, `report.json`.

use std::path::{Path, PathBuf};

use halite_core::{Error, ErrorKind, HostArray, Pending, Result};
use serde::{Deserialize, Serialize};

use crate::{
    Metrics, Report, TrainerOptions,
    checkpoint::{CheckpointStore, Position, Saved, Snapshot, exact_f64},
    files,
    loggers::{CsvLog, Progress, Row, plot_metrics},
};

/// How many of the newest checkpoints are kept, besides the best.
const KEEP: usize = 2;

const PLOT: &str = "metrics.svg";
const REPORT: &str = "report.json";

/// What a checkpoint says besides arrays, position and seed.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Progressed {
    pub(crate) batch_size: u64,
    /// Samples of the training data.
    pub(crate) samples: u64,
    /// Seconds of training so far.
    #[serde(with = "exact_f64")]
    pub(crate) seconds: f64,
    /// The lowest validation loss so far.
    pub(crate) best: Option<Exact>,
    /// What the run trains, in words, if it was said.
    pub(crate) label: Option<String>,
    /// The name of its precision; checkpoints from before there were several do not say.
    #[serde(default)]
    pub(crate) precision: Option<String>,
    /// The training metrics, in the order of the sums.
    pub(crate) metrics: Vec<String>,
    /// Sums of the running epoch's metrics: value times weight, and weight.
    pub(crate) sums: Vec<(Exact, Exact)>,
}

/// A float that comes back from JSON with the same bits.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
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
}

impl Outputs {
    /// Opens the run's directory, and reads the checkpoint to go on from if the run resumes and there is one.
    ///
    /// # Errors
    /// If the directory cannot be written, holds another run and this one does not resume, or has only damaged checkpoints.
    pub(crate) fn open(options: &TrainerOptions, batches: usize) -> Result<(Self, Option<Saved>)> {
        let progress = Progress::new(options.epochs, batches as u64, options.quiet);
        let mut outputs =
            Outputs { progress, files: None, batch_size: options.batch_size as u64, resumed_from_step: None, saved_at: None };
        let Some(dir) = &options.out else { return Ok((outputs, None)) };
        let store = CheckpointStore::open(dir.join("checkpoints"), KEEP)?;
        let saved = if options.resume {
            store.latest()?
        } else {
            refuse_another_run(&store)?;
            None
        };
        let table = dir.join("metrics.csv");
        let csv = match &saved {
            Some(saved) => CsvLog::resume(&table, saved.position().step)?,
            None => {
                // Without a checkpoint beside them they are someone else's: `--out .` destroys nothing.
                for name in [PLOT, REPORT] {
                    set_aside(&dir.join(name))?;
                }
                CsvLog::create(&table)?
            }
        };
        if saved.is_none() && options.resume {
            outputs.progress.message(&format!("nothing to resume in {}: a new run begins", dir.display()));
        }
        outputs.files = Some(Files { dir: dir.clone(), store, csv });
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

    /// Begins an epoch, `done` of whose steps were done before.
    pub(crate) fn epoch_begun(&self, epoch: u64, done: usize) {
        self.progress.epoch_begun(epoch, done as u64);
    }

    /// One step was queued.
    pub(crate) fn stepped(&self) {
        self.progress.step(self.batch_size);
    }

    /// Metrics of the last steps arrived.
    pub(crate) fn window(&mut self, row: Row) -> Result<()> {
        let metrics: Vec<(&str, f64)> = row.metrics.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        self.progress.metrics(&metrics);
        self.files.as_mut().map_or(Ok(()), |files| files.csv.write(&row))
    }

    /// An epoch is done, with these metrics of the validation data.
    pub(crate) fn epoch_done(&mut self, train: &Metrics, row: Row) -> Result<()> {
        let train = train.iter().map(|(name, value)| (name.to_string(), *value));
        let validation = row.metrics.iter().map(|(name, value)| (format!("validation {name}"), *value));
        let all: Vec<(String, f64)> = train.chain(validation).collect();
        self.progress.epoch_done(&all.iter().map(|(name, value)| (name.as_str(), *value)).collect::<Vec<_>>());
        let Some(files) = &mut self.files else { return Ok(()) };
        files.csv.write(&row)?;
        plot_metrics(files.dir.join(PLOT), &title(&files.dir), &files.csv.rows()?)
    }

    /// Writes a checkpoint in the background, unless `check` refuses its arrays. Nothing happens if the newest one is of
    /// the same position.
    pub(crate) fn save(
        &mut self,
        position: Position,
        seed: u64,
        progressed: &Progressed,
        arrays: Vec<(String, Pending<HostArray>)>,
        best: Option<(String, f64)>,
        check: impl FnOnce(&[(String, HostArray)]) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let Some(files) = &self.files else { return Ok(()) };
        if self.saved_at == Some(position) {
            return Ok(());
        }
        let metadata = serde_json::to_value(progressed).map_err(|error| {
            Error::new(ErrorKind::Internal, "checkpoint", "its values cannot be written as JSON").caused_by(error)
        })?;
        files.store.save_in_background_if(check, Snapshot { position, seed, arrays, metadata, best })?;
        self.saved_at = Some(position);
        Ok(())
    }

    /// Waits until all that was begun is on the disk.
    pub(crate) fn finish(&self) -> Result<()> {
        self.files.as_ref().map_or(Ok(()), |files| files.store.finish().map(drop))
    }

    /// Completes the report with what is on the disk, and writes it.
    pub(crate) fn report(&self, mut report: Report) -> Result<Report> {
        report.resumed_from_step = self.resumed_from_step;
        let Some(files) = &self.files else { return Ok(report) };
        report.best_checkpoint = files.store.best()?.map(|best| best.path);
        report.last_checkpoint = files.store.list()?.into_iter().next().map(|(path, _)| path);
        report.write(files.dir.join(REPORT))?;
        Ok(report)
    }
}

impl Progressed {
    /// What `saved` says besides arrays, position and seed.
    pub(crate) fn of(saved: &Saved) -> Result<Self> {
        serde_json::from_value(saved.metadata().clone()).map_err(|error| {
            let message = format!("{} was not written by this trainer: {error}", saved.path().display());
            Error::new(ErrorKind::Corrupt, "resume", message)
        })
    }
}

/// A run that would overwrite another's checkpoints says so before it trains for hours.
fn refuse_another_run(store: &CheckpointStore) -> Result<()> {
    match store.list()?.first() {
        None => Ok(()),
        Some((newest, position)) => {
            let message = format!(
                "{} holds a run already, at step {}; go on with it (`resume`, --resume), or use another directory (`out`, --out)",
                newest.parent().and_then(|checkpoints| checkpoints.parent()).unwrap_or(newest).display(),
                position.step
            );
            Err(Error::invalid("fit", message))
        }
    }
}

/// Moves what is at `path` out of the way, and says so.
fn set_aside(path: &Path) -> Result<()> {
    let moved = files::move_aside(path).map_err(|error| files::failed("fit", "move aside", path, &error))?;
    if let Some(aside) = moved {
        tracing::warn!("{} is not of this run; it is moved to {}", path.display(), aside.display());
    }
    Ok(())
}

fn title(dir: &Path) -> String {
    dir.file_name().map_or_else(|| "training".to_string(), |name| name.to_string_lossy().into_owned())
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
        let options = TrainerOptions { out: Some(dir.path().to_path_buf()), quiet: true, ..TrainerOptions::default() };
        Outputs::open(&options, 1).unwrap();
        for name in names {
            assert_eq!(std::fs::read(dir.path().join(format!("{name}.aside"))).unwrap(), b"someone's work");
        }
        assert!(!dir.path().join(PLOT).exists() && !dir.path().join(REPORT).exists());
    }
}
