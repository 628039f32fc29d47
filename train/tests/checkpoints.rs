//! Guarantees of a checkpoint store: complete checkpoints or none, and clear errors.

mod keeping;
mod tree;
mod writing;

use std::{
    fs,
    path::{Path, PathBuf},
};

use halite_core::{DType, ErrorKind, HostArray, Result, TensorType};
use halite_train::checkpoint::{CheckpointStore, RunPosition, Saved, Snapshot, StoreOptions};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// A store in a new directory, which keeps the newest `keep` checkpoints.
fn new_store(keep: usize) -> (TempDir, CheckpointStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(dir.path(), keep).unwrap();
    (dir, store)
}

/// Steps of the checkpoints in a store, newest first.
fn steps_in(store: &CheckpointStore) -> Vec<u64> {
    let all = store.list().unwrap().into_iter();
    all.map(|(_, position)| position.step).collect()
}

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
        ..Snapshot::default()
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

/// Arrays of every element type, as scalars, empty, and of several ranks.
fn arrays_of_every_type() -> Vec<(String, HostArray)> {
    let mut arrays = Vec::new();
    for dtype in DType::ALL {
        if dtype.safetensors_name().is_none() {
            continue;
        }
        for dims in [&[][..], &[0], &[3, 0, 2], &[5], &[2, 3, 4]] {
            let name = format!("{dtype}.{dims:?} \"ü\"");
            arrays.push((name, array(dtype, dims, arrays.len() as u64)));
        }
    }
    arrays
}

#[test]
fn every_element_type_round_trips_bit_for_bit() {
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
        let arrays = arrays_of_every_type();
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
                ..Snapshot::default()
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
fn checkpoint_may_have_no_arrays() {
    let (_dir, store) = new_store(1);
    store
        .save(Snapshot {
            arrays: Vec::new(),
            ..snapshot(0)
        })
        .unwrap();
    assert_eq!(store.latest().unwrap().unwrap().take_all(&[]).unwrap(), []);
}

#[test]
fn changed_bit_falls_back_to_the_checkpoint_before() {
    let (_dir, store) = new_store(2);
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
fn folder_named_after_another_step_is_rejected() {
    let (dir, store) = new_store(9);
    for step in [5, 10, 15] {
        store.save(snapshot(step)).unwrap();
    }
    let folder = |name: &str| dir.path().join(name);
    fs::rename(folder("step-00000010"), folder("other")).unwrap();
    fs::rename(folder("step-00000015"), folder("step-00000010")).unwrap();
    fs::rename(folder("other"), folder("step-00000015")).unwrap();

    let error = store.load("step-00000010").unwrap_err().to_string();
    assert!(
        error.contains("its name is of step 10, its manifest.json of step 15")
            && error.contains("rename it to step-00000015"),
        "{error}"
    );
    assert_eq!(step_of(store.latest()), 5, "with two warnings");
    // A name that states no step may be chosen freely.
    fs::rename(folder("step-00000010"), folder("chosen")).unwrap();
    assert_eq!(Saved::read(folder("chosen")).unwrap().position().step, 15);
}

#[test]
fn file_of_wrong_size_or_kind_is_detected() {
    let (_dir, store) = new_store(2);
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
fn truncated_file_is_rejected_with_both_sizes() {
    let (_dir, store) = new_store(2);
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

/// Changes the manifest or the arrays of a checkpoint and updates the digests, so that only the
/// content can be invalid.
fn forge(folder: &Path, change: impl FnOnce(&mut serde_json::Value, &mut Vec<u8>)) {
    let (manifest_path, arrays_path) = (
        folder.join("manifest.json"),
        folder.join("arrays.safetensors"),
    );
    let mut manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(&manifest_path).unwrap()).unwrap();
    let mut arrays = fs::read(&arrays_path).unwrap();
    let hex = |bytes: &[u8]| halite_core::hex(&Sha256::digest(bytes));
    change(&mut manifest, &mut arrays);
    manifest["files"][0]["bytes"] = arrays.len().into();
    let digest = format!("{:032x}", twox_hash::XxHash3_128::oneshot(&arrays));
    manifest["files"][0]["xxh3_128"] = vec![digest].into();
    fs::write(&arrays_path, &arrays).unwrap();
    let text = serde_json::to_vec(&manifest).unwrap();
    fs::write(
        folder.join("COMMIT"),
        format!("halite checkpoint 2\nmanifest.json sha256 {}\n", hex(&text)),
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

/// Checks that a checkpoint with this change is rejected for this reason.
fn assert_rejected(change: impl FnOnce(&mut serde_json::Value, &mut Vec<u8>), reason: &str) {
    let (_dir, store) = new_store(1);
    let folder = store.save(snapshot(1)).unwrap();
    forge(&folder, |_, _| ());
    assert_eq!(step_of(store.latest()), 1, "valid without a change");
    forge(&folder, change);
    let error = store.latest().unwrap_err().to_string();
    assert!(error.contains(reason), "`{reason}` is not in: {error}");
}

#[test]
fn truncated_header_is_rejected() {
    assert_rejected(
        |_, arrays| arrays.truncate(4),
        "4 bytes are too few for a header",
    );
    assert_rejected(
        |_, arrays| arrays[..8].fill(0xff),
        "its header has 18446744073709551615 bytes, more than the file",
    );
}

#[test]
fn invalid_header_is_rejected_with_the_reason() {
    let unreadable = "its header cannot be read";
    let table: [(&str, usize, &str); 7] = [
        ("{", 0, unreadable),
        (&"[".repeat(50_000), 0, unreadable),
        (
            r#"{"steps":{"dtype":"I64","shape":[],"data_offsets":[8,16]}}"#,
            16,
            unreadable,
        ),
        (
            r#"{"steps":{"dtype":"I64","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#,
            8,
            unreadable,
        ),
        (
            r#"{"steps":{"dtype":"I64","shape":[1000],"data_offsets":[0,8000]}}"#,
            8,
            "its arrays have 8000 bytes, the file has 8 for them",
        ),
        (
            r#"{"steps":{"dtype":"F4","shape":[16],"data_offsets":[0,8]}}"#,
            8,
            "elements of type F4, which halite does not support",
        ),
        (
            r#"{"steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}"#,
            8,
            "`hidden.weight` is not in arrays.safetensors, where the manifest has it",
        ),
    ];
    for (header, bytes, reason) in table {
        let file = with_header(header, &vec![0; bytes]);
        assert_rejected(|_, arrays| *arrays = file, reason);
    }
}

#[test]
fn manifest_must_match_the_arrays() {
    assert_rejected(
        |manifest, _| manifest["arrays"].as_array_mut().unwrap().truncate(1),
        "holds 2 arrays, 1 in the manifest",
    );
    assert_rejected(
        |manifest, _| manifest["arrays"][0]["dims"] = vec![3, 4].into(),
        "`hidden.weight` is f32[4, 3] in arrays.safetensors, f32[3, 4] in the manifest",
    );
    assert_rejected(
        |manifest, _| manifest["version"] = 4.into(),
        "is of version 4, this halite reads versions 1 to 3",
    );
}

#[test]
fn other_model_is_rejected_with_every_difference() {
    let (dir, store) = new_store(1);
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
  `hidden.weight` is f32[4, 3] in the checkpoint, the model has f32[4, 256]
  `hidden.bias` is not in the checkpoint, the model has bf16[256]
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
    // Nothing was taken; and arrays that are not wanted may be left.
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
fn invalid_names_are_rejected_before_writing() {
    let (dir, store) = new_store(1);
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
fn unreadable_metadata_is_not_saved() {
    let (dir, store) = new_store(1);
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
