//! `metrics.csv` and `metrics.svg` as a callback.

use std::path::{Path, PathBuf};

use halite_core::{Error, Result};

use super::{LoggerCallback, accessory::Accessory};
use crate::{
    Report,
    callback::{Callback, MetricsWindow, PendingCheckpoint, Run},
    loggers::{CsvLog, Row, plot_metrics},
};

/// Name of the table's state in a checkpoint.
pub(crate) const NAME: &str = "metrics.csv";

/// Writes the table of metrics, and draws it after each epoch. A checkpoint has a mark of the rows
/// before it, which are on the disk before the checkpoint counts.
pub(crate) struct MetricsTable {
    csv: LoggerCallback<Box<CsvLog>>,
    plot: PathBuf,
    drawing: Accessory,
}

impl MetricsTable {
    pub(crate) fn new(csv: CsvLog, plot: PathBuf) -> Self {
        let drawing = plot.file_name().unwrap_or_default().to_string_lossy();
        MetricsTable {
            drawing: Accessory::new(drawing),
            csv: LoggerCallback::new(Box::new(csv), Vec::new()),
            plot,
        }
    }

    fn draw(&mut self) -> Result<()> {
        let rows = self.csv.logger.rows()?;
        plot_metrics(&self.plot, &title(&self.plot), &rows)
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
        self.csv.on_validation_end(run, validation)
    }

    fn on_checkpoint(&mut self, run: &mut Run, checkpoint: &mut PendingCheckpoint) -> Result<()> {
        self.csv.on_checkpoint(run, checkpoint)?;
        if let Ok(file) = self.csv.logger.file() {
            checkpoint.before_commit(move |_| {
                if let Err(error) = file.sync_data() {
                    halite_core::warning!("metrics.csv may not survive a power cut: {error}");
                }
                Ok(())
            });
        }
        Ok(())
    }

    fn on_epoch_end(&mut self, run: &mut Run) -> Result<()> {
        self.csv.on_epoch_end(run)?;
        let drawn = self.draw();
        self.drawing.tolerate(drawn);
        Ok(())
    }

    fn on_fit_end(&mut self, run: &mut Run, report: &mut Report) -> Result<()> {
        self.csv.on_fit_end(run, report)
    }

    fn on_error(&mut self, run: &Run, error: &Error) {
        self.csv.on_error(run, error);
    }

    fn state(&self) -> Option<serde_json::Value> {
        let mark = self.csv.logger.mark();
        let mark = mark.and_then(|mark| {
            serde_json::to_value(mark)
                .map_err(|error| Error::invalid("metrics log", error.to_string()))
        });
        // The weights are worth more than the rows.
        mark.inspect_err(|error| {
            halite_core::warning!("a checkpoint is saved without a mark of the rows: {error}")
        })
        .ok()
    }
}

fn title(plot: &Path) -> String {
    let dir = plot.parent().and_then(Path::file_name);
    dir.map_or_else(
        || "training".to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}
