//! A callback: stops a run at a validation loss. `cargo run --release --example callback`
use halite::prelude::*;
use halite::train::{Callback, callback::Run, loggers::Row};

pub(crate) struct StopBelow {
    pub(crate) target: f64,
    /// The last validation loss: state, so that a resumed run knows that it is done.
    pub(crate) loss: Option<f64>,
}

impl Callback for StopBelow {
    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        if self.loss.is_some_and(|loss| loss < self.target) {
            run.stop();
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

include!("shared/two_classes.rs");

fn main() -> Result<()> {
    let (target, loss) = (0.1, None);
    fit_two_classes(|trainer| trainer.callback(StopBelow { target, loss }))?;
    Ok(())
}
