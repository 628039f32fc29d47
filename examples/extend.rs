//! A custom callback, logger and schedule. `cargo run --release --example extend`
use std::{fs, path::PathBuf};

use halite::train::{Callback, Logger, callback::Run, loggers::Row};
use halite::{ErrorKind, nn::Schedule, prelude::*};

/// Stops a run at a validation loss.
pub(crate) struct StopBelow {
    pub(crate) target: f64,
    /// The last validation loss, in the checkpoints: a resumed run knows that it is done.
    pub(crate) loss: Option<f64>,
}

impl Callback for StopBelow {
    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        if self.loss.is_some_and(|loss| loss < self.target) {
            run.stop_because(format!("a loss below {}", self.target));
        }
        Ok(())
    }
    fn on_validation_end(&mut self, run: &mut Run, validation: &Row) -> Result<()> {
        self.loss = validation.get("loss");
        self.on_fit_start(run)
    }
    fn state(&self) -> Option<serde_json::Value> {
        Some(self.loss.into())
    }
    fn load_state(&mut self, state: serde_json::Value) -> Result<()> {
        self.loss = state.as_f64();
        Ok(())
    }
}

/// Writes a file for each row of metrics. Rows of steps that a resumed run repeats are replaced.
pub(crate) struct Files(pub(crate) PathBuf);

impl Logger for Files {
    fn log_metrics(&mut self, row: &Row) -> Result<()> {
        let path = self.0.join(format!("{:06}-{}", row.step, row.split));
        let loss = row.get("loss").unwrap_or(f64::NAN);
        fs::write(path, loss.to_string())
            .map_err(|error| Error::new(ErrorKind::Io, "files", error.to_string()))
    }
}

/// Falls from `peak` to half of it, again and again.
pub(crate) fn sawtooth(peak: f64, period: f64) -> Schedule {
    Schedule::custom(format!("sawtooth({peak}, {period})"), move |step| {
        let cycles = (step + 0.5) / period;
        (cycles - cycles.floor()) * (-0.5 * peak) + peak
    })
}

include!("shared/two_classes.rs");

fn main() -> Result<()> {
    let (target, loss) = (0.1, None);
    let (stop, files) = (StopBelow { target, loss }, Files(std::env::temp_dir()));
    fit_two_classes(sawtooth(3e-2, 20.0), |trainer| {
        trainer.callback(stop).logger(files)
    })?;
    Ok(())
}
