//! Real file systems that are full or read-only.
#![cfg(target_os = "linux")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use halite_core::{DType, Error, ErrorKind, HostArray, Pending, TensorType};
use halite_train::{
    checkpoint::{CheckpointStore, RunPosition, Snapshot},
    loggers::{CsvLog, Report, Row, Split},
};

use crate::shared::small_disk::SmallDisk;

fn snapshot(step: u64, kilobytes: usize) -> Snapshot {
    Snapshot {
        position: RunPosition {
            step,
            ..RunPosition::default()
        },
        seed: 0,
        arrays: vec![(
            "w".into(),
            HostArray::zeros(TensorType::new(DType::U8, [kilobytes << 10])),
        )],
        metadata: serde_json::Value::Null,
        ..Snapshot::default()
    }
}

fn folders(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    paths.sort();
    paths
}

/// Converts a snapshot for a save in the background.
fn pending(snapshot: Snapshot) -> Snapshot<Pending<HostArray>> {
    let arrays = snapshot.arrays.into_iter();
    Snapshot {
        position: snapshot.position,
        seed: snapshot.seed,
        arrays: arrays
            .map(|(name, array)| (name, Pending::ready(Ok(array))))
            .collect(),
        metadata: snapshot.metadata,
        best: snapshot.best,
        ..Snapshot::default()
    }
}

/// Checks the error of a checkpoint that has no room, and that only the `good` one is left.
fn assert_disk_full(store: &CheckpointStore, good: &PathBuf, error: Error) {
    assert_eq!(error.kind(), ErrorKind::Io);
    let text = error.to_string();
    for part in [
        "No space left on device",
        "free some space",
        "cannot write the 6144",
        " bytes of ",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let untouched = format!("the last good checkpoint, {}, is untouched", good.display());
    assert!(text.ends_with(&untouched), "{text}");
    assert!(!text.contains('\n'));
    assert_eq!(
        folders(store.dir()),
        std::slice::from_ref(good),
        "no incomplete folder is left"
    );
    assert_eq!(store.latest().unwrap().unwrap().position().step, 1);
}

#[test]
fn full_disk_keeps_the_last_checkpoint() {
    let Some(disk) = SmallDisk::for_test(512, "full_disk::full_disk_keeps_the_last_checkpoint")
    else {
        return;
    };
    let store = CheckpointStore::open(disk.path().join("run/checkpoints"), 2).unwrap();
    let good = store.save(snapshot(1, 100)).unwrap();
    assert_disk_full(&store, &good, store.save(snapshot(2, 600)).unwrap_err());
    store.save_in_background(pending(snapshot(2, 600))).unwrap();
    assert_disk_full(&store, &good, store.finish().unwrap_err());
    // With free space the same store works again.
    store.save(snapshot(3, 100)).unwrap();
    assert_eq!(store.latest().unwrap().unwrap().position().step, 3);
}

#[test]
fn disk_full_at_any_byte_leaves_a_valid_checkpoint() {
    let Some(disk) = SmallDisk::for_test(
        256,
        "full_disk::disk_full_at_any_byte_leaves_a_valid_checkpoint",
    ) else {
        return;
    };
    let store = CheckpointStore::open(disk.path(), 1).unwrap();
    let mut newest = 0;
    // With more and more space, it ends in the arrays, in the manifest, in the marker, and suffices.
    for (step, filler) in (1..).zip((0..=230).rev().step_by(4)) {
        fs::write(disk.path().join("filler"), vec![1; filler << 10]).unwrap();
        let mut snapshot = snapshot(step, 10);
        snapshot.metadata = "m".repeat(20_000).into();
        match store.save(snapshot) {
            Ok(_) => newest = step,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
        }
        let latest = store
            .latest()
            .unwrap()
            .map_or(0, |saved| saved.position().step);
        assert_eq!(latest, newest, "with {filler} KiB taken");
        fs::remove_file(disk.path().join("filler")).unwrap();
    }
    assert!(newest > 1, "the last attempts have room");
}

#[test]
fn full_disk_keeps_the_table_as_it_was() {
    let Some(disk) = SmallDisk::for_test(64, "full_disk::full_disk_keeps_the_table_as_it_was")
    else {
        return;
    };
    let row = |step| Row {
        step,
        epoch: 0,
        seconds: 1.0,
        split: Split::Train,
        metrics: vec![("loss".into(), 0.5)],
    };
    let mut log = CsvLog::create(disk.path().join("metrics.csv")).unwrap();
    let report = Report {
        steps: 1,
        ..Report::default()
    };
    report.write(disk.path().join("report.json")).unwrap();
    log.write(&row(0)).unwrap();
    fs::write(disk.path().join("filler"), vec![1; 1 << 20]).unwrap_err();

    let error = Report {
        steps: 2,
        ..report.clone()
    }
    .write(disk.path().join("report.json"))
    .unwrap_err()
    .to_string();
    assert!(
        error.starts_with("report: cannot write ") && error.contains("free some space"),
        "{error}"
    );
    assert_eq!(
        Report::read(disk.path().join("report.json")).unwrap(),
        report
    );

    // The last page of the table has room for a while.
    let error = (1..10_000)
        .find_map(|step| log.write(&row(step)).err())
        .expect("the disk is full")
        .to_string();
    assert!(
        error.starts_with("metrics log: cannot write ") && error.contains("free some space"),
        "{error}"
    );
    fs::remove_file(disk.path().join("filler")).unwrap();
    let kept = CsvLog::resume(disk.path().join("metrics.csv"), u64::MAX)
        .unwrap()
        .rows()
        .unwrap();
    assert!(!kept.is_empty() && kept.iter().zip(0..).all(|(kept, step)| *kept == row(step)));
}

#[test]
fn table_catches_up_once_there_is_room() {
    let Some(disk) = SmallDisk::for_test(64, "full_disk::table_catches_up_once_there_is_room")
    else {
        return;
    };
    let row = |step: u64| {
        let metrics = vec![("loss".to_string(), 1.0 / step as f64)];
        Row {
            step,
            epoch: 0,
            seconds: 1.0,
            split: Split::Train,
            metrics,
        }
    };
    let mut log = CsvLog::create(disk.path().join("metrics.csv")).unwrap();
    fs::write(disk.path().join("filler"), vec![1; 1 << 20]).unwrap_err();
    let failed = (1..10_000)
        .find(|&step| log.write(&row(step)).is_err())
        .expect("the disk is full");
    for step in failed + 1..failed + 100 {
        log.write(&row(step)).unwrap_err();
    }
    fs::remove_file(disk.path().join("filler")).unwrap();
    // `catch_up` writes the whole table once, instead of `write` for each row.
    let error = log.write(&row(failed + 100)).unwrap_err().to_string();
    assert!(error.contains("101 rows are not written"), "{error}");
    log.catch_up().unwrap();
    let expected: Vec<Row> = (1..=failed + 100).map(row).collect();
    assert!(log.rows().unwrap() == expected, "rows are missing");
    let text = fs::read_to_string(disk.path().join("metrics.csv")).unwrap();
    assert_eq!(text.lines().count() as u64, 1 + failed + 100);
}

#[test]
fn read_only_disk_is_an_error_with_advice() {
    let Some(disk) = SmallDisk::for_test(512, "full_disk::read_only_disk_is_an_error_with_advice")
    else {
        return;
    };
    let dir = disk.path().join("checkpoints");
    let store = CheckpointStore::open(&dir, 1).unwrap();
    store.save(snapshot(1, 10)).unwrap();
    drop(store);
    disk.remount("ro");
    let error = CheckpointStore::open(&dir, 1).unwrap_err().to_string();
    assert!(
        error.contains("it is mounted read-only: give an output directory elsewhere"),
        "{error}"
    );
    let error = CheckpointStore::open(disk.path().join("new"), 1)
        .unwrap_err()
        .to_string();
    assert!(error.contains("cannot create the directory"), "{error}");
    assert_eq!(
        CheckpointStore::open_read_only(&dir)
            .unwrap()
            .latest()
            .unwrap()
            .unwrap()
            .position()
            .step,
        1
    );
    disk.remount("rw");
}
