//! Checkpoints as a callback: they are written in the background, and ranked.

use std::{
    cell::{Cell, RefCell},
    mem::{replace, take},
    path::PathBuf,
    time::Duration,
};

use halite_core::{Error, ErrorKind, HostArray, Result};

use super::{checks::Checks, saving::Saving};
use crate::{
    Report,
    callback::{Callback, PendingCheckpoint, Run, StateArrays},
    checkpoint::{CheckpointStore, RANKING, Ranking, Snapshot, SpareMemory},
    loggers::Row,
    programs::LOSS,
};

/// Saves checkpoints in the background, by the rules of a [`Saving`].
pub(crate) struct Checkpointing {
    store: CheckpointStore,
    seed: u64,
    saving: Saving,
    /// Ranking of the checkpoints on the disk.
    ranking: Ranking,
    /// The ranking with the checkpoint that is being written.
    writing: Option<Ranking>,
    /// Whether [`newly_saved`](Self::newly_saved) has returned the newest checkpoint, and its path.
    is_told: Cell<bool>,
    told: RefCell<Option<PathBuf>>,
}

impl Checkpointing {
    pub(crate) fn new(store: CheckpointStore, seed: u64, saving: Saving) -> Self {
        let by = format!(
            "{}, {}",
            saving.metric().as_deref().unwrap_or(LOSS),
            saving.mode()
        );
        Checkpointing {
            store,
            seed,
            ranking: Ranking::new(by, saving.weights_only()),
            saving,
            writing: None,
            is_told: Cell::new(false),
            told: RefCell::default(),
        }
    }

    /// Whether the end of the epoch before this position is saved.
    pub(crate) fn is_epoch_due(&self, run: &Run) -> bool {
        self.saving.is_epoch_due(run.epoch()) || self.saving.is_step_due(run)
    }

    /// Waits until the checkpoint that is being written is on the disk.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let writing = take(&mut self.writing);
        self.store.finish()?;
        if let Some(written) = writing {
            self.ranking = written;
        }
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
        self.newest_path().map_or_else(none, |path| {
            format!("the checkpoint {} stays", path.display())
        })
    }

    fn newest_path(&self) -> Option<PathBuf> {
        let all = self.store.list().ok()?;
        all.into_iter().next().map(|(path, _)| path)
    }

    /// The newest checkpoint on the disk, once after each save, and at first.
    pub(crate) fn newly_saved(&self) -> Option<PathBuf> {
        // While one is being written, the one before may have become the newest: with frequent saves
        // one always is.
        let is_busy = self.store.is_busy();
        if self.is_told.replace(!is_busy) {
            return None;
        }
        let newest = self.newest_path();
        let before = self.told.replace(newest.clone());
        newest.filter(|newest| before.as_ref() != Some(newest))
    }

    /// Adds the paths of the checkpoints to the report.
    pub(crate) fn complete(&self, report: &mut Report) {
        match self.store.best() {
            Ok(best) => {
                report.best_step = best.as_ref().map(|best| best.step);
                report.best_checkpoint = best.map(|best| best.path);
            }
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

    /// The ranking with a checkpoint of this step, and whether it is the best one.
    fn ranked(&self, run: &Run, score: Option<f64>) -> (Ranking, bool) {
        let (mode, most) = (self.saving.mode(), self.saving.most());
        match score {
            Some(score) => self.ranking.with(run.step, score, mode, most),
            // All are kept, also those without a value.
            None if most == usize::MAX => self.ranking.with(run.step, f64::NAN, mode, most),
            None => (self.ranking.clone(), false),
        }
    }
}

/// Describes that there is no checkpoint.
pub(super) fn none() -> String {
    "there is no checkpoint".to_string()
}

impl Callback for Checkpointing {
    fn name(&self) -> String {
        RANKING.to_string()
    }

    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        self.saving.saved_now(run);
        Ok(())
    }

    fn on_step_end(&mut self, run: &mut Run) -> Result<()> {
        // The last step of an epoch is saved after the validation.
        if run.batch < run.batches_per_epoch && self.saving.is_step_due(run) {
            run.save();
        }
        Ok(())
    }

    fn on_train_epoch_end(&mut self, run: &mut Run) -> Result<()> {
        self.saving.epoch_ends(run);
        Ok(())
    }

    fn on_validation_end(&mut self, run: &mut Run, validation: &Row) -> Result<()> {
        self.saving.validated(validation);
        if self.saving.is_epoch_due(run.epoch() + 1) {
            run.save();
        }
        Ok(())
    }

    fn on_checkpoint(&mut self, run: &mut Run, checkpoint: &mut PendingCheckpoint) -> Result<()> {
        self.finish_before(run.step)?;
        self.saving.saved_now(run);
        let score = self.saving.score(run);
        let (ranking, is_best) = self.ranked(run, score);
        let json = |error: serde_json::Error| {
            let message = "the state of the run cannot be written as JSON";
            Error::new(ErrorKind::Internal, "checkpoint", message).caused_by(error)
        };
        let mut callbacks = take(&mut checkpoint.callbacks);
        let state = serde_json::to_value(&ranking).map_err(json)?;
        callbacks.insert(RANKING.to_string(), state);
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
            best: score
                .filter(|_| is_best)
                .zip(self.saving.metric())
                .map(|(score, metric)| (metric, score)),
            name: self.saving.name(run),
            keep: ranking.keep(),
        };
        let arrays = replace(&mut checkpoint.arrays, StateArrays::Copied(Vec::new()));
        let store = &self.store;
        match (arrays, checkpoint.share.take()) {
            (StateArrays::Copied(arrays), None) => {
                let check = move |arrays: &[(String, HostArray)]| checks.all(arrays);
                store.save_in_background_if(check, snapshot.with(arrays))?;
            }
            (StateArrays::Streamed(stream), None) => {
                let snapshot = snapshot.with(stream.types().to_vec());
                store.stream_in_background(snapshot, checks.one_by_one(stream))?;
            }
            (StateArrays::Copied(arrays), Some(share)) => {
                let check = move |arrays: &[(String, HostArray)]| checks.all(arrays);
                store.save_together_if(check, snapshot, share, arrays)?;
            }
            (StateArrays::Streamed(stream), Some(share)) => {
                store.stream_together(snapshot, share, checks.one_by_one(stream))?;
            }
        }
        self.writing = Some(ranking);
        self.is_told.set(false);
        Ok(())
    }

    fn on_fit_end(&mut self, _: &mut Run, report: &mut Report) -> Result<()> {
        report.findings.extend(self.saving.finding());
        Ok(())
    }

    fn load_state(&mut self, state: serde_json::Value) -> Result<()> {
        let saved: Ranking = serde_json::from_value(state)
            .map_err(|error| Error::new(ErrorKind::Corrupt, "resume", error.to_string()))?;
        let new = take(&mut self.ranking);
        let before = saved.by().unwrap_or("loss, min");
        self.ranking = match new.by() {
            Some(by) if before != by => {
                halite_core::warning!(
                    "the best checkpoints so far are by {before}, and now by {by}: the ranking \
                     starts again"
                );
                new
            }
            _ => new.continued(saved),
        };
        Ok(())
    }
}
