//! `metrics.csv` and `metrics.svg` as a callback.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use halite_core::{Error, Result};

use super::{LoggerCallback, accessory::Accessory};
use crate::{
    Report,
    callback::{Callback, MetricsWindow, PendingCheckpoint, Run},
    loggers::{CsvLog, Row, plot_metrics},
};

/// Name of the table's state in a checkpoint.
pub(crate) const NAME: &str = "metrics.csv";

/// The time from one drawing to the next is at least this many times the duration of a drawing,
/// which grows with the number of rows: so drawings take at most 2 % of the time of a run.
const DRAWINGS_APART: u32 = 50;

/// Writes the table of metrics, and draws it after epochs and at the end. A checkpoint has a mark
/// of the rows before it, which are on the disk before the checkpoint counts.
pub(crate) struct MetricsTable {
    csv: LoggerCallback<Box<CsvLog>>,
    plot: PathBuf,
    drawing: Accessory,
    copying: Accessory,
    /// When the last drawing ended, and how long it took; `None` if it failed.
    drawn: Option<(Instant, Duration)>,
    /// The plot lacks the metrics of the last epochs.
    is_behind: bool,
}

impl MetricsTable {
    pub(crate) fn new(csv: CsvLog, plot: PathBuf) -> Self {
        let drawing = plot.file_name().unwrap_or_default().to_string_lossy();
        MetricsTable {
            drawing: Accessory::new(drawing),
            copying: Accessory::new("the copy of metrics.csv"),
            csv: LoggerCallback::new(Box::new(csv), Vec::new()),
            plot,
            drawn: None,
            is_behind: false,
        }
    }

    /// Draws the table, if that has not been done recently.
    fn draw_if_due(&mut self) {
        let is_recent =
            |(ended, took): (Instant, Duration)| ended.elapsed() < took * DRAWINGS_APART;
        self.is_behind = true;
        if !self.drawn.is_some_and(is_recent) {
            self.draw();
        }
    }

    fn draw(&mut self) {
        let started = Instant::now();
        let rows = self.csv.logger.rows();
        let drawn = rows.and_then(|rows| plot_metrics(&self.plot, &title(&self.plot), &rows));
        self.is_behind = drawn.is_err();
        self.drawn = (drawn.is_ok()).then(|| (Instant::now(), started.elapsed()));
        self.drawing.tolerate(drawn);
    }
}

impl Callback for MetricsTable {
    fn name(&self) -> String {
        NAME.to_string()
    }

    fn on_train_metrics(&mut self, run: &mut Run, window: &MetricsWindow) -> Result<()> {
        self.csv.on_train_metrics(run, window)
    }

    fn on_validation_end(&mut self, run: &mut Run, validation: &Row) -> Result<()> {
        self.is_behind = true;
        self.csv.on_validation_end(run, validation)
    }

    fn on_checkpoint(&mut self, run: &mut Run, checkpoint: &mut PendingCheckpoint) -> Result<()> {
        self.csv.on_checkpoint(run, checkpoint)?;
        let copied = self.csv.logger.copy_rows();
        // The weights are worth more than the rows, which are in the table too.
        let copied = copied.map(|files| {
            checkpoint.before_write(move || {
                if let Err(error) = files.iter().try_for_each(File::sync_data) {
                    halite_core::warning!("metrics.csv may not survive a power cut: {error}");
                }
                Ok(())
            });
        });
        self.copying.tolerate(copied);
        Ok(())
    }

    fn on_epoch_end(&mut self, run: &mut Run) -> Result<()> {
        self.csv.on_epoch_end(run)?;
        self.draw_if_due();
        Ok(())
    }

    fn on_fit_end(&mut self, run: &mut Run, report: &mut Report) -> Result<()> {
        self.csv.on_fit_end(run, report)?;
        if self.is_behind {
            self.draw();
        }
        Ok(())
    }

    fn on_error(&mut self, run: &Run, error: &Error) {
        self.csv.on_error(run, error);
        if self.is_behind {
            self.draw();
        }
    }

    fn state(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self.csv.logger.mark()).ok()
    }
}

fn title(plot: &Path) -> String {
    let dir = plot.parent().and_then(Path::file_name);
    dir.map_or_else(
        || "training".to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loggers::Split;

    #[test]
    fn drawings_are_a_part_of_the_time() {
        let dir = tempfile::tempdir().unwrap();
        let plot = dir.path().join("metrics.svg");
        let csv = CsvLog::create(dir.path().join("metrics.csv")).unwrap();
        let mut table = MetricsTable::new(csv, plot.clone());
        let row = |step| Row {
            step,
            epoch: 0,
            seconds: 0.0,
            split: Split::Train,
            metrics: vec![("loss".into(), 1.0)],
        };
        (0..1000).for_each(|step| table.csv.logger.write(&row(step)).unwrap());
        table.draw_if_due();
        assert!(plot.exists() && !table.is_behind);
        std::fs::remove_file(&plot).unwrap();
        // The next epoch ends at once.
        table.draw_if_due();
        assert!(!plot.exists() && table.is_behind);
        // It ends after 50 times the duration of the drawing.
        let (ended, took) = table.drawn.unwrap();
        table.drawn = ended
            .checked_sub(took * DRAWINGS_APART)
            .map(|ended| (ended, took));
        table.draw_if_due();
        assert!(plot.exists() && !table.is_behind);
    }
}
