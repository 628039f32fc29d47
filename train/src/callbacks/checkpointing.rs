//! Checkpoints as a callback: when to save, and which checkpoint is the best.

use std::{
    mem::{replace, take},
    time::Duration,
};

use halite_core::{Error, ErrorKind, HostArray, Result};
use serde::{Deserialize, Serialize};

use super::checks::Checks;
use crate::{
    Report,
    callback::{Callback, PendingCheckpoint, Run, StateArrays},
    checkpoint::{CheckpointStore, Exact, Snapshot, SpareMemory},
    loggers::Row,
    programs::LOSS,
};

/// Name of its state in a checkpoint.
pub(crate) const NAME: &str = "checkpointing";

/// Saves checkpoints in the background: after each epoch, and at a fixed interval of steps.
pub(crate) struct Checkpointing {
    store: CheckpointStore,
    seed: u64,
    every: Option<u64>,
    /// Validation loss of the epoch that just ended.
    score: Option<f64>,
    /// Lowest validation loss of the checkpoints on the disk.
    best: Option<f64>,
    /// Validation loss of the checkpoint that is being written, if it is the best one.
    writing: Option<f64>,
}

#[derive(Deserialize, Serialize)]
struct SavedState {
    best: Option<Exact>,
}

impl Checkpointing {
    pub(crate) fn new(store: CheckpointStore, seed: u64, every: Option<u64>) -> Self {
        Checkpointing {
            store,
            seed,
            every,
            score: None,
            best: None,
            writing: None,
        }
    }

    /// Waits until the checkpoint that is being written is on the disk.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let writing = take(&mut self.writing);
        self.store.finish()?;
        self.best = writing.or(self.best);
        Ok(())
    }

    /// Memory for the copies of the state.
    pub(crate) fn spare(&self) -> &SpareMemory {
        self.store.spare()
    }

    /// Waits for the checkpoint before that of `step`, so that its memory can be used again.
    pub(crate) fn finish_before(&mut self, step: u64) -> Result<()> {
        match self.finish() {
            // The next may find memory. If none follows, this is the error of the run.
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                halite_core::warning!("{error}; the run continues, and saves again at step {step}");
                Ok(())
            }
            finished => finished,
        }
    }

    /// Gives up, after `grace`, a checkpoint whose arrays do not arrive.
    pub(crate) fn give_up_waiting(&self, grace: Duration) {
        self.store.give_up_waiting(grace);
    }

    /// Describes the newest checkpoint on the disk.
    pub(crate) fn newest(&self) -> String {
        let newest = self
            .store
            .list()
            .ok()
            .and_then(|all| all.into_iter().next());
        newest.map_or_else(none, |(path, _)| {
            format!("the checkpoint {} stays", path.display())
        })
    }

    /// Adds the paths of the checkpoints to the report.
    pub(crate) fn complete(&self, report: &mut Report) {
        match self.store.best() {
            Ok(best) => report.best_checkpoint = best.map(|best| best.path),
            Err(error) => {
                halite_core::warning!("{error}; the report does not name the best checkpoint")
            }
        }
        match self.store.list() {
            Ok(all) => report.last_checkpoint = all.into_iter().next().map(|(path, _)| path),
            Err(error) => {
                halite_core::warning!("{error}; the report does not name the last checkpoint")
            }
        }
    }
}

/// Describes that there is no checkpoint.
pub(super) fn none() -> String {
    "there is no checkpoint".to_string()
}

impl Callback for Checkpointing {
    fn name(&self) -> String {
        NAME.to_string()
    }

    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        let is_due = |every| run.step.is_multiple_of(every);
        // The last step of an epoch is saved after the validation.
        if self.every.is_some_and(is_due) && run.batch < run.batches_per_epoch {
            run.save();
        }
        Ok(())
    }

    fn on_validation_end(&mut self, run: &mut Run, validation: &Row) -> Result<()> {
        self.score = validation.get(LOSS).filter(|loss| loss.is_finite());
        run.save();
        Ok(())
    }

    fn on_checkpoint(&mut self, run: &mut Run, checkpoint: &mut PendingCheckpoint) -> Result<()> {
        self.finish_before(run.step)?;
        let is_best = |score: &f64| self.best.is_none_or(|best| *score < best);
        let writing = take(&mut self.score).filter(is_best);
        let state = SavedState {
            best: writing.or(self.best).map(Exact),
        };
        let json = |error: serde_json::Error| {
            let message = "the state of the run cannot be written as JSON";
            Error::new(ErrorKind::Internal, "checkpoint", message).caused_by(error)
        };
        let mut callbacks = take(&mut checkpoint.callbacks);
        callbacks.insert(NAME.to_string(), serde_json::to_value(state).map_err(json)?);
        let mut metadata = take(&mut checkpoint.metadata);
        metadata.insert(
            "callbacks".to_string(),
            serde_json::to_value(callbacks).map_err(json)?,
        );
        let checks = Checks::of(checkpoint);
        let snapshot = Snapshot {
            position: checkpoint.position(),
            seed: self.seed,
            arrays: Vec::<(String, ())>::new(),
            metadata: metadata.into(),
            best: writing.map(|score| (LOSS.to_string(), score)),
        };
        match replace(&mut checkpoint.arrays, StateArrays::Copied(Vec::new())) {
            StateArrays::Copied(arrays) => {
                let check = move |arrays: &[(String, HostArray)]| checks.all(arrays);
                self.store
                    .save_in_background_if(check, snapshot.with(arrays))?;
            }
            StateArrays::Streamed(stream) => {
                let snapshot = snapshot.with(stream.types().to_vec());
                self.store
                    .stream_in_background(snapshot, checks.one_by_one(stream))?;
            }
        }
        self.writing = writing;
        Ok(())
    }

    fn load_state(&mut self, state: serde_json::Value) -> Result<()> {
        let state: SavedState = serde_json::from_value(state)
            .map_err(|error| Error::new(ErrorKind::Corrupt, "resume", error.to_string()))?;
        self.best = state.best.map(|best| best.0);
        Ok(())
    }
}
