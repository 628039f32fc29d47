//! Retention, lookup and loading of checkpoints, and the best one.

use std::{fs, path::Path};

use halite_core::{ErrorKind, HostArray};
use halite_train::checkpoint::{CheckpointStore, Keep, Snapshot};

use crate::checkpoints::{forge, names_in, new_store, snapshot, step_of, steps_in};

#[test]
fn newest_checkpoints_are_kept_with_the_best() {
    let (dir, store) = new_store(2);
    assert!(
        store.latest().unwrap().is_none()
            && store.best().unwrap().is_none()
            && store.load_best().unwrap().is_none()
    );
    for step in 1..=6 {
        let best = (step == 2).then(|| ("accuracy".to_string(), 0.1 + 0.2));
        let snapshot = Snapshot {
            best,
            ..snapshot(step)
        };
        store.save(snapshot).unwrap();
    }
    assert_eq!(
        names_in(dir.path()),
        [
            ".lock",
            "best.json",
            "step-00000002",
            "step-00000005",
            "step-00000006"
        ]
    );
    let best = store.best().unwrap().unwrap();
    assert_eq!(
        (best.step, &*best.metric, best.value),
        (2, "accuracy", 0.1 + 0.2)
    );
    assert_eq!(store.load_best().unwrap().unwrap().position().step, 2);
}

#[test]
fn best_mark_moves_to_a_kept_checkpoint() {
    let (dir, store) = new_store(2);
    for step in 1..=6 {
        store.save(snapshot(step)).unwrap();
    }
    store.mark_best(6, "accuracy", f64::NAN).unwrap();
    assert!(store.best().unwrap().unwrap().value.is_nan());
    store.save(snapshot(7)).unwrap();
    store.save(snapshot(8)).unwrap();
    assert_eq!(
        names_in(dir.path()),
        [
            ".lock",
            "best.json",
            "step-00000006",
            "step-00000007",
            "step-00000008"
        ]
    );
    assert!(
        store
            .mark_best(2, "accuracy", 1.0)
            .unwrap_err()
            .to_string()
            .contains("no valid checkpoint of step 2")
    );

    assert_eq!(steps_in(&store), [8, 7, 6]);
}

#[test]
fn damaged_best_pointer_removes_nothing() {
    let (dir, store) = new_store(1);
    store.save(snapshot(1)).unwrap();
    // No manifest names a best one, so the pointer cannot be computed again.
    for text in [
        "",
        "{}",
        r#"{"folder":"../out","step":1,"by":{"metric":"m","value":"1","bits":"3ff0000000000000"},"before":1}"#,
    ] {
        fs::write(dir.path().join("best.json"), text).unwrap();
        assert_eq!(store.best().unwrap_err().kind(), ErrorKind::Corrupt);
    }
    store.save(snapshot(2)).unwrap();
    assert_eq!(store.list().unwrap().len(), 2);
    store.mark_best(1, "accuracy", 0.5).unwrap();
    assert_eq!(store.best().unwrap().unwrap().step, 1);
}

#[test]
fn damaged_best_pointer_follows_the_manifests() {
    let dir = tempfile::tempdir().unwrap();
    let pointer = dir.path().join("best.json");
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
    for step in 1..=3 {
        let best = (step < 3).then(|| ("loss".to_string(), 1.0 / step as f64));
        let snapshot = Snapshot {
            best,
            ..snapshot(step)
        };
        store.save(snapshot).unwrap();
    }
    // While a store is open, the best checkpoint stays known and is not removed.
    fs::write(&pointer, "{").unwrap();
    assert_eq!(store.best().unwrap().unwrap().step, 2);
    store.save(snapshot(4)).unwrap();
    assert_eq!(
        names_in(dir.path()),
        [".lock", "best.json", "step-00000002", "step-00000004"]
    );
    drop(store);
    // Opening the store writes the pointer again.
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
    assert!(
        fs::read_to_string(&pointer)
            .unwrap()
            .contains("step-00000002")
    );
    let best = store.best().unwrap().unwrap();
    assert_eq!((best.step, &*best.metric, best.value), (2, "loss", 0.5));

    // A best checkpoint that was removed is not an error.
    fs::remove_dir_all(dir.path().join("step-00000002")).unwrap();
    assert!(store.best().unwrap().is_none());
}

#[test]
fn damaged_best_pointer_without_claims_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    CheckpointStore::open(dir.path(), 1)
        .unwrap()
        .save(snapshot(1))
        .unwrap();
    fs::write(dir.path().join("best.json"), "{").unwrap();
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
    assert!(store.best().unwrap().is_none());
    store.save(snapshot(2)).unwrap();
    assert_eq!(
        names_in(dir.path()),
        [".lock", "best.json.aside", "step-00000002"]
    );
}

#[test]
fn prune_removes_leftovers_of_a_killed_save() {
    let (dir, store) = new_store(5);
    for step in 1..=5 {
        let best = (step == 2).then(|| ("loss".to_string(), 1.0));
        let snapshot = Snapshot {
            best,
            ..snapshot(step)
        };
        store.save(snapshot).unwrap();
    }
    drop(store);
    fs::write(dir.path().join(".best.json.tmp"), "half").unwrap();
    // The damaged checkpoint is not removed, and does not count among the two.
    let damaged = dir.path().join("step-00000005/arrays.safetensors");
    let mut bytes = fs::read(&damaged).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
    assert_eq!(step_of(store.latest()), 4);
    store.prune(&Keep::default()).unwrap();
    let left = [
        ".lock",
        "best.json",
        "step-00000002",
        "step-00000003",
        "step-00000004",
        "step-00000005",
    ];
    assert_eq!(names_in(dir.path()), left);
    let reader = CheckpointStore::open_read_only(dir.path()).unwrap();
    assert!(
        reader
            .prune(&Keep::default())
            .unwrap_err()
            .to_string()
            .contains("was opened for reading only")
    );
}

#[test]
fn named_checkpoint_is_loaded() {
    let (_dir, store) = new_store(3);
    for step in [10, 20] {
        store.save(snapshot(step)).unwrap();
    }
    let again = store
        .save(Snapshot {
            seed: 8,
            ..snapshot(10)
        })
        .unwrap();
    let seed = |name: &str| store.load(name).unwrap().seed();
    assert_eq!(
        (seed("10"), seed("step-00000010"), seed("step-00000010.2")),
        (8, 7, 8)
    );
    assert_eq!(seed(again.to_str().unwrap()), 8);
    for name in [
        "30",
        "step-10",
        "",
        "/",
        "../step-00000010",
        "elsewhere/step-00000010",
    ] {
        let error = store.load(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let want = format!(
            "has no checkpoint `{name}`; it has step-00000010, step-00000010.2, step-00000020"
        );
        assert!(error.to_string().contains(&want), "{error}");
    }
}

/// Converts a checkpoint to a valid one of a later format.
fn make_newer(folder: &Path) {
    forge(folder, |manifest, _| manifest["version"] = 4.into());
    let marker = fs::read_to_string(folder.join("COMMIT")).unwrap().replacen(
        "checkpoint 2",
        "checkpoint 4",
        1,
    );
    fs::write(folder.join("COMMIT"), marker).unwrap();
}

#[test]
fn newer_format_is_not_skipped() {
    let (dir, store) = new_store(2);
    store.save(snapshot(10)).unwrap();
    make_newer(&store.save(snapshot(20)).unwrap());
    let error = store.latest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for part in [
        "step-00000020 cannot be used: ",
        "version 4",
        "`resume_from`, --from step-00000010",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    drop(store);
    // A later checkpoint is newer, although the sequence number of the other is unknown.
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
    assert_eq!(store.load("10").unwrap().position().step, 10);
    store.save(snapshot(15)).unwrap();
    assert_eq!(
        names_in(dir.path()),
        [".lock", "step-00000015", "step-00000020"]
    );
    forge(&dir.path().join("step-00000020"), |manifest, _| {
        manifest["version"] = 2.into()
    });
    assert_eq!(step_of(store.latest()), 15);
}

#[test]
fn folders_lists_unusable_checkpoints_too() {
    let (_dir, store) = new_store(3);
    store.save(snapshot(10)).unwrap();
    fs::write(
        store.save(snapshot(20)).unwrap().join("manifest.json"),
        "{}",
    )
    .unwrap();
    let folders = store.folders().unwrap();
    assert_eq!(folders.len(), 2);
    let error = folders[0].1.as_ref().unwrap_err().to_string();
    assert!(
        error.contains("step-00000020 cannot be used: COMMIT is not the marker"),
        "{error}"
    );
    assert_eq!(folders[1].1.as_ref().unwrap().step, 10);
}

#[cfg(target_os = "linux")]
#[test]
fn read_error_is_not_skipped() {
    let (_dir, store) = new_store(2);
    store.save(snapshot(10)).unwrap();
    let newest = store.save(snapshot(20)).unwrap();
    for file in ["COMMIT", "manifest.json"] {
        let (path, kept) = (newest.join(file), newest.join("kept"));
        fs::rename(&path, &kept).unwrap();
        // Reading this file at its beginning fails with EIO for every account.
        std::os::unix::fs::symlink("/proc/self/mem", &path).unwrap();
        let error = store.latest().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(
            error.to_string().contains("--from step-00000010"),
            "{error}"
        );
        fs::rename(&kept, &path).unwrap();
    }
    assert_eq!(step_of(store.latest()), 20);
}

#[test]
fn ranked_checkpoints_are_kept_beside_the_newest() {
    let (dir, store) = new_store(1);
    let keep = |steps: &[u64], weights_only| Keep {
        steps: steps.to_vec(),
        weights_only,
    };
    let named = |step: u64, keep: Keep| Snapshot {
        name: Some(format!("loss={step}")),
        keep,
        ..snapshot(step)
    };
    for step in 1..=4 {
        let snapshot = named(step, keep(&[1, 3], false));
        store.save(snapshot).unwrap();
    }
    // A step that is repeated has another folder, and the newest of a step is ranked.
    store.save(named(3, keep(&[1, 3], false))).unwrap();
    store.save(named(5, keep(&[1, 3], false))).unwrap();
    let names = [
        ".lock",
        "step-00000001-loss=1",
        "step-00000003.2-loss=3",
        "step-00000005-loss=5",
    ];
    assert_eq!(names_in(dir.path()), names);
    assert_eq!(store.load("3").unwrap().position().step, 3);
    assert_eq!(store.load(names[2]).unwrap().position().step, 3);

    store.prune(&keep(&[3], false)).unwrap();
    assert_eq!(steps_in(&store), [5, 3]);
    for name in ["no metric", "a=b/c", "a=ü"] {
        let refused = store.save(Snapshot {
            name: Some(name.into()),
            ..snapshot(6)
        });
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("cannot be added to the name"), "{error}");
    }
}

#[test]
fn weights_of_a_damaged_checkpoint_are_not_taken() {
    let (dir, store) = new_store(1);
    let of_run = |step: u64| Snapshot {
        arrays: vec![("model.w".into(), HostArray::scalar(step as f32))],
        keep: Keep {
            steps: vec![1, 2],
            weights_only: true,
        },
        ..snapshot(step)
    };
    fs::write(dir.path().join("mine.safetensors"), "").unwrap();
    store.save(of_run(1)).unwrap();
    let arrays = dir.path().join("step-00000001/arrays.safetensors");
    let mut bytes = fs::read(&arrays).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(arrays, bytes).unwrap();
    store.save(of_run(2)).unwrap();
    store.save(of_run(3)).unwrap();
    store.save(of_run(4)).unwrap();
    let names = [
        ".lock",
        "mine.safetensors",
        "step-00000001",
        "step-00000002.safetensors",
        "step-00000004",
    ];
    assert_eq!(names_in(dir.path()), names);
}
