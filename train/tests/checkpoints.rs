//! What a checkpoint store promises: whole checkpoints or none, and clear words about the rest.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use halite_core::{DType, ErrorKind, HostArray, Pending, Result, TensorType};
use halite_train::checkpoint::{CheckpointStore, RunPosition, Saved, Snapshot, StoreOptions};
use sha2::{Digest, Sha256};

/// Bytes that differ from each other, and are valid for every element type.
fn array(dtype: DType, dims: &[usize], seed: u64) -> HostArray {
    let mut array = HostArray::zeros(TensorType::new(dtype, dims));
    for (index, byte) in array.bytes_mut().iter_mut().enumerate() {
        let mixed = (index as u64 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        *byte = if dtype == DType::Bool {
            (mixed & 1) as u8
        } else {
            mixed as u8
        };
    }
    array
}

fn snapshot(step: u64) -> Snapshot {
    Snapshot {
        position: RunPosition {
            step,
            epoch: step / 10,
            batch: step % 10,
        },
        seed: 7,
        arrays: vec![
            ("hidden.weight".into(), array(DType::F32, &[4, 3], step)),
            ("steps".into(), HostArray::scalar(step as i64)),
        ],
        metadata: serde_json::json!({ "step": step }),
        best: None,
    }
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

fn names_in(dir: &Path) -> Vec<String> {
    files_of(dir)
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect()
}

fn step_of(saved: Result<Option<Saved>>) -> u64 {
    saved
        .unwrap()
        .expect("there is a valid checkpoint")
        .position()
        .step
}

#[test]
fn every_element_type_comes_back_bit_for_bit_from_one_file_and_from_many() {
    for file_bytes in [u64::MAX, 64] {
        let dir = tempfile::tempdir().unwrap();
        let store = CheckpointStore::open_with(
            dir.path(),
            StoreOptions {
                file_bytes,
                ..StoreOptions::default()
            },
        )
        .unwrap();
        let mut arrays: Vec<(String, HostArray)> = Vec::new();
        for dtype in DType::ALL {
            for dims in [&[][..], &[0], &[3, 0, 2], &[5], &[2, 3, 4]] {
                arrays.push((
                    format!("{dtype}.{dims:?} \"ü\""),
                    array(dtype, dims, arrays.len() as u64),
                ));
            }
        }
        let wanted: Vec<(String, TensorType)> = arrays
            .iter()
            .map(|(name, array)| (name.clone(), array.ty().clone()))
            .collect();
        let metadata = serde_json::json!({ "nested": [1, { "x": null }], "big": u64::MAX });
        let position = RunPosition {
            step: u64::MAX,
            epoch: 3,
            batch: 9,
        };
        let path = store
            .save(Snapshot {
                position,
                seed: u64::MAX,
                arrays: arrays.clone(),
                metadata: metadata.clone(),
                best: None,
            })
            .unwrap();
        assert_eq!(
            files_of(&path).len() > 3,
            file_bytes == 64,
            "{:?}",
            names_in(&path)
        );

        let mut saved = store.latest().unwrap().unwrap();
        assert_eq!(
            (saved.position(), saved.seed(), saved.metadata()),
            (position, u64::MAX, &metadata)
        );
        assert_eq!(saved.path(), path);
        let back = saved.take_all(&wanted).unwrap();
        for ((name, array), back) in arrays.iter().zip(&back) {
            assert_eq!(array, back, "{name}");
        }
        assert_eq!(saved.arrays().len(), 0);
    }
}

#[test]
fn other_programs_can_read_the_arrays() {
    let dir = tempfile::tempdir().unwrap();
    let path = CheckpointStore::open(dir.path(), 1)
        .unwrap()
        .save(snapshot(5))
        .unwrap();
    let bytes = fs::read(path.join("arrays.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("hidden.weight").unwrap().shape(), [4, 3]);
    assert_eq!(file.tensor("steps").unwrap().data(), 5i64.to_le_bytes());
}

#[test]
fn a_checkpoint_without_arrays_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
    store
        .save(Snapshot {
            arrays: Vec::new(),
            ..snapshot(0)
        })
        .unwrap();
    assert_eq!(store.latest().unwrap().unwrap().take_all(&[]).unwrap(), []);
}

#[test]
fn a_changed_bit_anywhere_is_found_and_the_checkpoint_before_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
    store.save(snapshot(10)).unwrap();
    let newest = store.save(snapshot(20)).unwrap();
    let mut tried = 0;
    for file in files_of(&newest) {
        let good = fs::read(&file).unwrap();
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 1 << (index % 8);
            fs::write(&file, &bad).unwrap();
            let saved = store.latest().unwrap().unwrap();
            assert_eq!(
                saved.position().step,
                10,
                "byte {index} of {}",
                file.display()
            );
            assert_eq!(saved.skipped().len(), 1);
            assert!(
                saved.skipped()[0].contains("step-00000020 cannot be used: "),
                "{:?}",
                saved.skipped()
            );
            tried += 1;
        }
        fs::write(&file, &good).unwrap();
        assert_eq!(step_of(store.latest()), 20);
    }
    assert!(tried > 500, "{tried}");
}

#[test]
fn a_file_that_is_cut_longer_missing_or_no_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
    store.save(snapshot(10)).unwrap();
    let newest = store.save(snapshot(20)).unwrap();
    for file in files_of(&newest) {
        let good = fs::read(&file).unwrap();
        let cut = |length: usize| fs::write(&file, &good[..length]).unwrap();
        let damages: [&dyn Fn(); 6] = [
            &|| cut(good.len() - 1),
            &|| cut(good.len() / 2),
            &|| cut(0),
            &|| fs::write(&file, [&good[..], b"\0"].concat()).unwrap(),
            &|| fs::remove_file(&file).unwrap(),
            &|| {
                fs::remove_file(&file).unwrap();
                fs::create_dir(&file).unwrap();
            },
        ];
        for damage in damages {
            damage();
            assert_eq!(step_of(store.latest()), 10, "{}", file.display());
            if file.is_dir() {
                fs::remove_dir(&file).unwrap();
            }
            fs::write(&file, &good).unwrap();
        }
    }
    assert_eq!(step_of(store.latest()), 20);
}

#[test]
fn a_truncated_file_is_refused_with_both_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
    let folder = store.save(snapshot(20)).unwrap();
    let file = folder.join("arrays.safetensors");
    let good = fs::read(&file).unwrap();
    fs::write(&file, &good[..good.len() - 4]).unwrap();
    let error = store.latest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let want = format!(
        "arrays.safetensors has {} bytes, the manifest says {}",
        good.len() - 4,
        good.len()
    );
    assert!(error.to_string().contains(&want), "{error}");
    assert!(error.to_string().contains("no checkpoint in "), "{error}");
}

/// Changes the manifest of a checkpoint, or one of its files, and signs it again: only what is said
/// can be wrong.
fn forge(folder: &Path, change: impl FnOnce(&mut serde_json::Value, &mut Vec<u8>)) {
    let (manifest_path, arrays_path) = (
        folder.join("manifest.json"),
        folder.join("arrays.safetensors"),
    );
    let mut manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(&manifest_path).unwrap()).unwrap();
    let mut arrays = fs::read(&arrays_path).unwrap();
    let hex = |bytes: &[u8]| {
        Sha256::digest(bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    change(&mut manifest, &mut arrays);
    manifest["files"][0]["bytes"] = arrays.len().into();
    manifest["files"][0]["sha256"] = hex(&arrays).into();
    fs::write(&arrays_path, &arrays).unwrap();
    let text = serde_json::to_vec(&manifest).unwrap();
    fs::write(
        folder.join("COMMIT"),
        format!("halite checkpoint 1\nmanifest.json sha256 {}\n", hex(&text)),
    )
    .unwrap();
    fs::write(&manifest_path, text).unwrap();
}

/// A safetensors file with this header.
fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        data,
    ]
    .concat()
}

#[test]
fn a_forged_checkpoint_is_refused_with_what_is_wrong() {
    type Change = fn(&mut serde_json::Value, &mut Vec<u8>);
    let table: [(Change, &str); 12] = [
        (
            |_, arrays| arrays.truncate(4),
            "4 bytes are too few for a header",
        ),
        (
            |_, arrays| arrays[..8].fill(0xff),
            "its header has 18446744073709551615 bytes, more than the file",
        ),
        (
            |_, arrays| *arrays = with_header("{", &[]),
            "its header cannot be read",
        ),
        (
            |_, arrays| *arrays = with_header(&"[".repeat(50_000), &[]),
            "its header cannot be read",
        ),
        (
            |_, arrays| {
                *arrays = with_header(
                    r#"{"steps":{"dtype":"I64","shape":[],"data_offsets":[8,16]}}"#,
                    &[0; 16],
                )
            },
            "its header cannot be read",
        ),
        (
            |_, arrays| {
                *arrays = with_header(
                    r#"{"steps":{"dtype":"I64","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#,
                    &[0; 8],
                )
            },
            "its header cannot be read",
        ),
        (
            |_, arrays| {
                *arrays = with_header(
                    r#"{"steps":{"dtype":"I64","shape":[1000],"data_offsets":[0,8000]}}"#,
                    &[0; 8],
                )
            },
            "its arrays have 8000 bytes, the file has 8 for them",
        ),
        (
            |_, arrays| {
                *arrays = with_header(
                    r#"{"steps":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}"#,
                    &[0; 8],
                )
            },
            "elements of type F8_E4M3, which halite has not",
        ),
        (
            |_, arrays| {
                *arrays = with_header(
                    r#"{"steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}"#,
                    &[0; 8],
                )
            },
            "`hidden.weight` is not in arrays.safetensors, where the manifest has it",
        ),
        (
            |manifest, _| manifest["arrays"].as_array_mut().unwrap().truncate(1),
            "holds 2 arrays, 1 in the manifest",
        ),
        (
            |manifest, _| manifest["arrays"][0]["dims"] = vec![3, 4].into(),
            "`hidden.weight` is f32[4, 3] in arrays.safetensors, f32[3, 4] in the manifest",
        ),
        (
            |manifest, _| manifest["version"] = 2.into(),
            "is of version 2, this halite reads version 1",
        ),
    ];
    for (change, want) in table {
        let dir = tempfile::tempdir().unwrap();
        let store = CheckpointStore::open(dir.path(), 1).unwrap();
        let folder = store.save(snapshot(1)).unwrap();
        forge(&folder, |_, _| ());
        assert_eq!(
            step_of(store.latest()),
            1,
            "a forgery that changes nothing is valid"
        );
        forge(&folder, change);
        let error = store.latest().unwrap_err().to_string();
        assert!(error.contains(want), "{error:?} does not say {want:?}");
    }
}

#[test]
fn a_checkpoint_of_another_model_is_refused_with_every_difference_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
    store.save(snapshot(1)).unwrap();
    let mut saved = store.latest().unwrap().unwrap();
    let wanted = [
        (
            "hidden.weight".to_string(),
            TensorType::new(DType::F32, [4, 256]),
        ),
        (
            "hidden.bias".to_string(),
            TensorType::new(DType::Bf16, [256]),
        ),
    ];
    let error = saved.take_all(&wanted).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let want = format!(
        "restore: the checkpoint {} is of another model, 3 differences:
  `hidden.weight` is f32[4, 3] in the checkpoint, the model wants f32[4, 256]
  `hidden.bias` is not in the checkpoint, the model wants bf16[256]
  `steps` is s64[] in the checkpoint, the model has no such array",
        dir.path().join("step-00000001").display()
    );
    assert_eq!(error.to_string(), want);
    let other: Vec<_> = (0..40)
        .map(|i| (format!("layers.{i}"), TensorType::scalar(DType::F32)))
        .collect();
    let error = saved.take_all(&other).unwrap_err().to_string();
    assert!(
        error.contains(" 42 differences:\n") && error.ends_with("\n  and 30 more"),
        "{error}"
    );
    // Nothing was taken; and what is not wanted can be left.
    let weight = saved
        .take("hidden.weight", &TensorType::new(DType::F32, [4, 3]))
        .unwrap();
    assert_eq!(weight, array(DType::F32, &[4, 3], 1));
    assert!(
        saved
            .take("hidden.weight", weight.ty())
            .unwrap_err()
            .to_string()
            .contains("is not in the checkpoint")
    );
    let twice = [
        ("steps".to_string(), TensorType::scalar(DType::S64)),
        ("steps".to_string(), TensorType::scalar(DType::S64)),
    ];
    assert!(
        saved
            .take_some(&twice)
            .unwrap_err()
            .to_string()
            .contains("`steps` is wanted twice")
    );
}

#[test]
fn names_that_cannot_be_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
    for (names, want) in [
        (["", "b"], "cannot have the name ``"),
        (["__metadata__", "b"], "__metadata__"),
        (["b", "b"], "two arrays"),
    ] {
        let arrays = names
            .map(|name| (name.to_string(), HostArray::scalar(1u8)))
            .to_vec();
        let error = store
            .save(Snapshot {
                arrays,
                ..snapshot(1)
            })
            .unwrap_err()
            .to_string();
        assert!(error.contains(want), "{error}");
    }
    assert_eq!(names_in(dir.path()), [".lock"]);
}

#[test]
fn metadata_that_could_not_be_read_again_is_not_saved() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
    let metadata = (0..200).fold(serde_json::Value::Null, |inner, _| vec![inner].into());
    let error = store
        .save(Snapshot {
            metadata,
            ..snapshot(1)
        })
        .unwrap_err()
        .to_string();
    assert!(error.contains("could not be read again"), "{error}");
    assert_eq!(names_in(dir.path()), [".lock"]);
}

#[test]
fn the_newest_and_the_best_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
    assert!(
        store.latest().unwrap().is_none()
            && store.best().unwrap().is_none()
            && store.load_best().unwrap().is_none()
    );
    for step in 1..=6 {
        let best = (step == 2).then(|| ("accuracy".to_string(), 0.1 + 0.2));
        store
            .save(Snapshot {
                best,
                ..snapshot(step)
            })
            .unwrap();
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

    let steps: Vec<u64> = store
        .list()
        .unwrap()
        .iter()
        .map(|(_, position)| position.step)
        .collect();
    assert_eq!(steps, [8, 7, 6]);
}

#[test]
fn a_pointer_to_the_best_that_is_damaged_removes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
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
fn a_damaged_pointer_follows_the_manifests() {
    let dir = tempfile::tempdir().unwrap();
    let pointer = dir.path().join("best.json");
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
    for step in 1..=3 {
        let best = (step < 3).then(|| ("loss".to_string(), 1.0 / step as f64));
        store
            .save(Snapshot {
                best,
                ..snapshot(step)
            })
            .unwrap();
    }
    // While a store is open: the best stays known, and is kept.
    fs::write(&pointer, "{").unwrap();
    assert_eq!(store.best().unwrap().unwrap().step, 2);
    store.save(snapshot(4)).unwrap();
    assert_eq!(
        names_in(dir.path()),
        [".lock", "best.json", "step-00000002", "step-00000004"]
    );
    drop(store);
    // Opening writes it again.
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
    assert!(
        fs::read_to_string(&pointer)
            .unwrap()
            .contains("step-00000002")
    );
    let best = store.best().unwrap().unwrap();
    assert_eq!((best.step, &*best.metric, best.value), (2, "loss", 0.5));

    // Someone removed the best checkpoint: there is none, and no error.
    fs::remove_dir_all(dir.path().join("step-00000002")).unwrap();
    assert!(store.best().unwrap().is_none());
}

#[test]
fn a_damaged_pointer_without_claims_is_set_aside() {
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
fn prune_removes_what_a_killed_save_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 5).unwrap();
    for step in 1..=5 {
        let best = (step == 2).then(|| ("loss".to_string(), 1.0));
        store
            .save(Snapshot {
                best,
                ..snapshot(step)
            })
            .unwrap();
    }
    drop(store);
    fs::write(dir.path().join(".best.json.tmp"), "half").unwrap();
    // A damaged one is left for people to see, and is none of the two.
    let damaged = dir.path().join("step-00000005/arrays.safetensors");
    let mut bytes = fs::read(&damaged).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
    assert_eq!(step_of(store.latest()), 4);
    store.prune().unwrap();
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
            .prune()
            .unwrap_err()
            .to_string()
            .contains("was opened for reading only")
    );
}

#[test]
fn a_named_checkpoint_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 3).unwrap();
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

/// Makes a checkpoint one of a later format, which is whole.
fn make_newer(folder: &Path) {
    forge(folder, |manifest, _| manifest["version"] = 2.into());
    let marker = fs::read_to_string(folder.join("COMMIT")).unwrap().replacen(
        "checkpoint 1",
        "checkpoint 2",
        1,
    );
    fs::write(folder.join("COMMIT"), marker).unwrap();
}

#[test]
fn a_newer_format_is_not_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
    store.save(snapshot(10)).unwrap();
    make_newer(&store.save(snapshot(20)).unwrap());
    let error = store.latest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for part in [
        "step-00000020 cannot be used: ",
        "version 2",
        "`resume_from`, --from step-00000010",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    drop(store);
    // What is saved later is newer, although the sequence number of the other is not known.
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
    assert_eq!(store.load("10").unwrap().position().step, 10);
    store.save(snapshot(15)).unwrap();
    assert_eq!(
        names_in(dir.path()),
        [".lock", "step-00000015", "step-00000020"]
    );
    forge(&dir.path().join("step-00000020"), |manifest, _| {
        manifest["version"] = 1.into()
    });
    assert_eq!(step_of(store.latest()), 15);
}

#[test]
fn folders_lists_unusable_checkpoints_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 3).unwrap();
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
fn an_error_of_reading_is_not_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
    store.save(snapshot(10)).unwrap();
    let newest = store.save(snapshot(20)).unwrap();
    for file in ["COMMIT", "manifest.json"] {
        let (path, kept) = (newest.join(file), newest.join("kept"));
        fs::rename(&path, &kept).unwrap();
        // Reading this at its beginning is EIO for every account.
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
fn the_best_is_known_without_the_pointer_and_a_later_mark_wins() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 3).unwrap();
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
fn newest_is_what_was_written_last_also_when_a_run_went_back_to_an_older_step() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
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
fn a_step_saved_again_does_not_touch_the_first_until_it_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
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
fn a_checkpoint_found_damaged_does_not_count_as_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
    store.save(snapshot(10)).unwrap();
    let damaged = store.save(snapshot(20)).unwrap();
    let file = damaged.join("arrays.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_eq!(step_of(store.latest()), 10);
    store.save(snapshot(15)).unwrap();
    let steps: Vec<u64> = store
        .list()
        .unwrap()
        .iter()
        .map(|(_, position)| position.step)
        .collect();
    assert_eq!(
        steps,
        [15, 20, 10],
        "10 is one of two that are whole, and 20 is left for people to see"
    );
    assert_eq!(step_of(store.latest()), 15);
}

#[test]
fn what_a_killed_run_left_is_removed_and_what_is_not_ours_stays() {
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
    // A folder with the right name and no marker is no checkpoint.
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
fn one_run_writes_and_others_may_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 1).unwrap();
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
    }
}

#[test]
fn a_save_in_the_background_waits_for_its_arrays_and_not_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
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
fn an_error_in_the_background_comes_from_the_next_call() {
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
                .starts_with("checkpoint: step 1: `steps` did not come from the device: "),
            "{error}"
        );
        assert_eq!(names_in(dir.path()), [".lock"]);
        store.save(snapshot(2)).unwrap();
        assert_eq!(step_of(store.latest()), 2, "an error is told once");
    }
}

#[test]
fn is_busy_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), 2).unwrap();
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
fn a_directory_that_cannot_be_is_an_error_with_what_to_do() {
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
