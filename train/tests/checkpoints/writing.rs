//! Saving: again, in the background, and in a directory in use.

use std::{fs, time::Duration};

use halite_core::{DType, ErrorKind, HostArray, Pending, Result};
use halite_train::checkpoint::{CheckpointStore, Saved, Snapshot};

use crate::checkpoints::{array, names_in, new_store, snapshot, step_of, steps_in};

#[test]
fn best_is_known_without_the_pointer() {
    let (dir, store) = new_store(3);
    let best = |step: u64| Snapshot {
        best: Some(("accuracy".into(), step as f64)),
        ..snapshot(step)
    };
    store.save(best(1)).unwrap();
    let pointer = fs::read(dir.path().join("best.json")).unwrap();
    store.save(best(2)).unwrap();
    // As if killed after the checkpoint of step 2 and before the pointer to it.
    fs::write(dir.path().join("best.json"), pointer).unwrap();
    assert_eq!(store.best().unwrap().unwrap().step, 2);
    fs::remove_file(dir.path().join("best.json")).unwrap();
    assert_eq!(store.best().unwrap().unwrap().step, 2);
    store.mark_best(1, "accuracy", 9.0).unwrap();
    assert_eq!(
        (
            store.best().unwrap().unwrap().step,
            store.best().unwrap().unwrap().value
        ),
        (1, 9.0)
    );
    store.save(best(3)).unwrap();
    assert_eq!(store.best().unwrap().unwrap().step, 3);
}

#[test]
fn newest_is_the_one_written_last() {
    let (dir, store) = new_store(2);
    store.save(snapshot(10)).unwrap();
    store.save(snapshot(20)).unwrap();
    drop(store);
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
    store.save(snapshot(5)).unwrap();
    assert_eq!(step_of(store.latest()), 5);
    assert_eq!(
        names_in(dir.path()),
        [".lock", "step-00000005", "step-00000020"]
    );
}

#[test]
fn step_saved_again_keeps_the_first_until_commit() {
    let (dir, store) = new_store(2);
    let first = store.save(snapshot(10)).unwrap();
    let second = store
        .save(Snapshot {
            seed: 8,
            ..snapshot(10)
        })
        .unwrap();
    assert_eq!(
        (
            Saved::read(first).unwrap().seed(),
            Saved::read(&second).unwrap().seed()
        ),
        (7, 8)
    );
    assert_eq!(store.latest().unwrap().unwrap().path(), second);
    store.save(snapshot(10)).unwrap();
    assert_eq!(
        names_in(dir.path()),
        [".lock", "step-00000010.2", "step-00000010.3"]
    );
}

#[test]
fn damaged_checkpoint_does_not_count_as_kept() {
    let (_dir, store) = new_store(2);
    store.save(snapshot(10)).unwrap();
    let damaged = store.save(snapshot(20)).unwrap();
    let file = damaged.join("arrays.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_eq!(step_of(store.latest()), 10);
    store.save(snapshot(15)).unwrap();
    assert_eq!(
        steps_in(&store),
        [15, 20, 10],
        "10 is one of two valid checkpoints, and the damaged one is not removed"
    );
    assert_eq!(step_of(store.latest()), 15);
}

#[test]
fn leftovers_of_a_killed_run_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    CheckpointStore::open(dir.path(), 1)
        .unwrap()
        .save(snapshot(1))
        .unwrap();
    for name in [
        ".tmp-step-00000002",
        ".trash-step-00000000",
        "step-notes",
        "step-1.x",
    ] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("file"), "half").unwrap();
    }
    fs::write(dir.path().join(".tmp-notes"), "not ours").unwrap();
    // A folder without a marker does not count as a checkpoint.
    fs::create_dir(dir.path().join("step-00000009")).unwrap();
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
    assert_eq!(
        names_in(dir.path()),
        [
            ".lock",
            ".tmp-notes",
            "step-00000001",
            "step-00000009",
            "step-1.x",
            "step-notes"
        ]
    );
    let saved = store.latest().unwrap().unwrap();
    assert_eq!(saved.position().step, 1);
    assert!(
        saved.skipped()[0].contains("COMMIT"),
        "{:?}",
        saved.skipped()
    );
}

#[test]
fn one_run_writes_while_others_read() {
    let (dir, store) = new_store(1);
    store.save(snapshot(1)).unwrap();
    let error = CheckpointStore::open(dir.path(), 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let want = format!(
        "is in use by another run (process {} on ",
        std::process::id()
    );
    assert!(error.to_string().contains(&want), "{error}");

    let reader = CheckpointStore::open_read_only(dir.path()).unwrap();
    assert_eq!(step_of(reader.latest()), 1);
    assert!(
        reader
            .save(snapshot(2))
            .unwrap_err()
            .to_string()
            .contains("was opened for reading only")
    );
    assert!(reader.mark_best(1, "accuracy", 1.0).is_err());
    store.save(snapshot(2)).unwrap();
    assert_eq!(step_of(reader.latest()), 2);

    drop(store);
    CheckpointStore::open(dir.path(), 1).unwrap();
    assert!(CheckpointStore::open_read_only(dir.path().join("nowhere")).is_err());
    assert!(
        CheckpointStore::open(dir.path(), 0)
            .unwrap_err()
            .to_string()
            .contains("give 1 or more")
    );
}

fn pending(step: u64) -> Snapshot<Pending<HostArray>> {
    let Snapshot {
        position,
        seed,
        arrays,
        metadata,
        best,
        ..
    } = snapshot(step);
    let arrays = arrays
        .into_iter()
        .map(|(name, array)| (name, Pending::ready(Ok(array))))
        .collect();
    Snapshot {
        position,
        seed,
        arrays,
        metadata,
        best,
        ..Snapshot::default()
    }
}

#[test]
fn background_save_does_not_block_the_caller() {
    let (dir, store) = new_store(2);
    let (late, resolve) = Pending::new("weights");
    let mut snapshot = pending(1);
    snapshot.arrays[0].1 = late;
    snapshot.best = Some(("accuracy".into(), 0.5));
    store.save_in_background(snapshot).unwrap();
    assert!(store.is_busy());
    assert!(store.list().unwrap().is_empty());
    resolve(Ok(array(DType::F32, &[4, 3], 1)));
    assert_eq!(
        store.finish().unwrap().unwrap(),
        dir.path().join("step-00000001")
    );
    assert!(!store.is_busy());
    assert_eq!(store.finish().unwrap(), None);
    assert_eq!(
        (step_of(store.latest()), store.best().unwrap().unwrap().step),
        (1, 1)
    );

    store.save_in_background(pending(2)).unwrap();
    store.save_in_background(pending(3)).unwrap();
    assert_eq!(
        step_of(store.latest()),
        3,
        "`latest` waits for what was begun"
    );
    store.save_in_background(pending(4)).unwrap();
    drop(store);
    assert_eq!(
        step_of(CheckpointStore::open(dir.path(), 2).unwrap().latest()),
        4,
        "and so does dropping the store"
    );
}

#[test]
fn background_error_comes_from_the_next_call() {
    let lost = || {
        let (lost, resolve) = Pending::new("weights");
        drop(resolve);
        let mut snapshot = pending(1);
        snapshot.arrays[1].1 = lost;
        snapshot
    };
    type Call = fn(&CheckpointStore) -> Result<()>;
    let calls: [Call; 5] = [
        |store| store.finish().map(drop),
        |store| store.save(snapshot(2)).map(drop),
        |store| store.save_in_background(pending(2)),
        |store| store.latest().map(drop),
        |store| store.best().map(drop),
    ];
    for call in calls {
        let dir = tempfile::tempdir().unwrap();
        let store = CheckpointStore::open(dir.path(), 2).unwrap();
        store.save_in_background(lost()).unwrap();
        let error = call(&store).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert!(
            error
                .to_string()
                .starts_with("checkpoint: step 1: cannot copy `steps` from the device: "),
            "{error}"
        );
        assert_eq!(names_in(dir.path()), [".lock"]);
        store.save(snapshot(2)).unwrap();
        assert_eq!(step_of(store.latest()), 2, "an error is reported once");
    }
}

#[test]
fn arrays_are_asked_for_one_by_one() {
    let (_dir, store) = new_store(2);
    let whole = store.save(snapshot(1)).unwrap();
    let Snapshot {
        position,
        seed,
        arrays,
        metadata,
        best,
        ..
    } = snapshot(1);
    let types = || Snapshot {
        position,
        seed,
        arrays: (arrays.iter())
            .map(|(name, array)| (name.clone(), array.ty().clone()))
            .collect(),
        metadata: metadata.clone(),
        best: best.clone(),
        ..Snapshot::default()
    };
    let mut asked = Vec::new();
    let again = store.save_one_by_one(types(), |index| {
        asked.push(index);
        Ok(arrays[index].1.clone())
    });
    let file = |folder: &std::path::Path| fs::read(folder.join("arrays.safetensors")).unwrap();
    assert_eq!(file(&again.unwrap()), file(&whole));
    // The widest elements are first in a file.
    assert_eq!(asked, [1, 0]);

    let other = store.save_one_by_one(types(), |_| Ok(HostArray::scalar(1u8)));
    let error = other.unwrap_err().to_string();
    assert!(
        error.contains("array 1 is u8[], the snapshot says s64[]") && error.contains("untouched"),
        "{error}"
    );
    assert_eq!(steps_in(&store), [1, 1]);
}

#[test]
fn is_busy_ends_by_itself() {
    let (_dir, store) = new_store(2);
    store.save_in_background(pending(1)).unwrap();
    for _ in 0..1000 {
        if !store.is_busy() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("a small checkpoint takes longer than ten seconds");
}

#[test]
fn invalid_directory_is_an_error_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let error = CheckpointStore::open(file.join("checkpoints"), 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(
        error
            .to_string()
            .starts_with("checkpoint: cannot create the directory "),
        "{error}"
    );
    assert!(
        error.to_string().contains("give another output directory"),
        "{error}"
    );
}
