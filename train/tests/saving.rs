//! The two modes of saving a state while a run trains, and how many checkpoints are kept.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use halite_backends::Accelerator;
use halite_core::{ErrorKind, Result};
use halite_nn::{Adam, Sgd};
use halite_train::{
    Callback, CheckpointMode, Fitted, Trainer, TrainerBuilder,
    callback::{PendingCheckpoint, Run},
};

use crate::shared::plane::{Model, Plane, samples, saved};

const MODES: [CheckpointMode; 2] = [CheckpointMode::Copy, CheckpointMode::Stream];

fn trainer(out: &Path, mode: CheckpointMode) -> TrainerBuilder {
    let client = "embedded".parse::<Accelerator>().unwrap().open().unwrap();
    Trainer::builder(&client)
        .batch_size(4)
        .epochs(2)
        .checkpoint_every(3)
        .checkpoint_mode(mode)
        .out(out)
        .quiet(true)
}

fn fit(trainer: TrainerBuilder) -> Result<Fitted<Plane>> {
    let trainer = trainer.build()?;
    trainer.fit(Plane, Model::new(), Adam::new(0.1), samples(20), samples(8))
}

/// The arrays of the newest checkpoint, as the bytes of their file.
fn arrays(out: &Path) -> Vec<u8> {
    let folder = format!("checkpoints/step-{:08}", saved(out)[0]);
    fs::read(out.join(folder).join("arrays.safetensors")).unwrap()
}

#[test]
fn modes_write_the_same_bits() {
    let mut files = Vec::new();
    for mode in MODES {
        let dir = tempfile::tempdir().unwrap();
        fit(trainer(dir.path(), mode)).unwrap();
        let whole = arrays(dir.path());
        // The same run, in two parts.
        let dir = tempfile::tempdir().unwrap();
        fit(trainer(dir.path(), mode).epochs(1)).unwrap();
        let rest = fit(trainer(dir.path(), mode).resume(true)).unwrap();
        assert_eq!(rest.report.resumed_from_step, Some(5), "{mode:?}");
        assert_eq!(arrays(dir.path()), whole, "{mode:?}");
        files.push(whole);
    }
    assert_eq!(files[0], files[1]);
}

/// Names of arrays that the checks of a checkpoint saw.
type Seen = Arc<Mutex<Vec<String>>>;

/// Checks arrays one by one, or all together.
struct Checking {
    seen: Seen,
    together: bool,
    fails: bool,
}

impl Callback for Checking {
    fn on_checkpoint(&mut self, _: &mut Run, checkpoint: &mut PendingCheckpoint) -> Result<()> {
        let (seen, fails) = (self.seen.clone(), self.fails);
        let check = move |name: &str| {
            seen.lock().unwrap().push(name.to_string());
            match fails {
                true => Err(halite_core::Error::invalid(
                    "check",
                    format!("`{name}` is bad"),
                )),
                false => Ok(()),
            }
        };
        match self.together {
            true => checkpoint
                .before_commit(move |arrays| arrays.iter().try_for_each(|(name, _)| check(name))),
            false => checkpoint.for_each_array(move |name, _| check(name)),
        }
        Ok(())
    }
}

#[test]
fn checks_see_each_array_once_in_both_modes() {
    let mut all = Vec::new();
    for mode in MODES {
        for together in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let seen = Seen::default();
            let checking = Checking {
                seen: seen.clone(),
                together,
                fails: false,
            };
            let trainer = trainer(dir.path(), mode).epochs(1).checkpoint_every(5);
            fit(trainer.callback(checking)).unwrap();
            let mut seen = seen.lock().unwrap().clone();
            seen.sort();
            all.push(seen);
        }
    }
    assert!(all[0].contains(&"model.out.weight".to_string()), "{all:?}");
    assert!(all.iter().all(|seen| *seen == all[0]), "{all:?}");
}

#[test]
fn failed_check_discards_the_checkpoint() {
    for mode in MODES {
        for together in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let checking = Checking {
                seen: Seen::default(),
                together,
                fails: true,
            };
            let error = fit(trainer(dir.path(), mode).callback(checking)).unwrap_err();
            assert!(error.to_string().contains("is bad"), "{mode:?}: {error}");
            assert!(saved(dir.path()).is_empty(), "{mode:?}");
        }
    }
}

#[test]
fn diverged_state_is_not_streamed_to_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let trainer = trainer(dir.path(), CheckpointMode::Stream).build().unwrap();
    let error = trainer
        .fit(Plane, Model::new(), Sgd::new(1e30), samples(20), samples(8))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
    assert!(saved(dir.path()).is_empty());
}

#[test]
fn number_of_kept_checkpoints_is_an_option() {
    for (keep, expected) in [(1, &[10][..]), (3, &[10, 9, 6])] {
        let dir = tempfile::tempdir().unwrap();
        fit(trainer(dir.path(), CheckpointMode::Auto).keep_last(keep)).unwrap();
        let steps = saved(dir.path());
        assert_eq!(steps[..keep], *expected);
        // The best one, if it is another.
        assert!(steps.len() <= keep + 1, "{steps:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let error = fit(trainer(dir.path(), CheckpointMode::Auto).keep_last(0)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`keep_last` is 0; it must be at least 1"),
        "{error}"
    );
}
