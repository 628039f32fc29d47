//! Manifests that are not as they should be.

use halite_core::{DType, TensorType};

use super::*;

fn text(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let manifest = Manifest::new(Contents {
        sequence: 1,
        position: RunPosition {
            step: 3,
            epoch: 0,
            batch: 3,
        },
        seed: u64::MAX,
        best: None,
        arrays: vec![ArrayEntry::new(
            "w",
            &TensorType::new(DType::F32, [2, 3]),
            "arrays.safetensors",
        )],
        files: vec![FileEntry::new("arrays.safetensors", 32, vec!["00".into()])],
        metadata: serde_json::json!({ "any": ["thing"] }),
    });
    let mut value = serde_json::to_value(manifest).unwrap();
    change(&mut value);
    serde_json::to_vec(&value).unwrap()
}

#[test]
fn manifest_round_trips() {
    let manifest = Manifest::parse(&text(|_| ())).unwrap();
    assert_eq!(
        (manifest.sequence, manifest.seed, manifest.position.batch),
        (1, u64::MAX, 3)
    );
    assert_eq!(manifest.arrays[0].ty().unwrap().to_string(), "f32[2, 3]");
    assert_eq!(manifest.metadata["any"][0], "thing");
}

#[test]
fn floats_keep_their_last_bit() {
    // The default parser of serde_json reads another float here.
    let manifest = Manifest::parse(&text(|m| m["metadata"] = 4294967295.2147484.into())).unwrap();
    assert_eq!(manifest.metadata.as_f64(), Some(4294967295.2147484));
}

#[test]
fn invalid_manifest_names_the_field() {
    #[expect(clippy::type_complexity, reason = "a table")]
    let table: [(&dyn Fn(&mut serde_json::Value), &str); 17] = [
        (
            &|m| m["format"] = "zip".into(),
            "has the format `zip`, expected `halite checkpoint`",
        ),
        (
            &|m| m["version"] = 4.into(),
            "is of version 4, this halite reads versions 1 to 3",
        ),
        (&|m| m["version"] = 1.into(), "of version 1 has the writer"),
        (
            &|m| m["writer"]["count"] = 4.into(),
            "part 0 of 4: a checkpoint of several processes",
        ),
        (
            &|m| m["writer"]["index"] = 1.into(),
            "of version 2 has the writer",
        ),
        (
            &|m| m["files"][0]["chunk_bytes"] = 0.into(),
            "lacks the digest of a part of `arrays.safetensors`",
        ),
        (
            &|m| m["files"][0]["bytes"] = (1u64 << 40).into(),
            "lacks the digest of a part of `arrays.safetensors`",
        ),
        (
            &|m| {
                m["files"][0]
                    .as_object_mut()
                    .unwrap()
                    .retain(|name, _| ["name", "bytes"].contains(&&**name));
                m["files"][0]["sha256"] = "00".into();
            },
            "of version 2 has the digests of another version",
        ),
        (
            &|m| m["arrays"][0]["dtype"] = "f33".into(),
            "array `w` of unknown element type `f33`",
        ),
        (
            &|m| m["arrays"][0]["dims"] = vec![u64::MAX, 2].into(),
            "does not fit a signed 64-bit integer",
        ),
        (
            &|m| m["arrays"][0]["dims"] = vec![-1].into(),
            "invalid value: integer `-1`",
        ),
        (
            &|m| m["arrays"][0]["file"] = "other".into(),
            "`w` in `other`, which is not one of its files",
        ),
        (
            &|m| m["files"][0]["name"] = "../../etc/passwd".into(),
            "not a plain file name",
        ),
        (
            &|m| m["files"][0]["name"] = "..".into(),
            "not a plain file name",
        ),
        (
            &|m| m["position"]["step"] = 0.5.into(),
            "invalid type: floating point",
        ),
        (&|m| m["surprise"] = 1.into(), "unknown field `surprise`"),
        (
            &|m| {
                let twice = m["arrays"][0].clone();
                m["arrays"].as_array_mut().unwrap().push(twice);
            },
            "names the array `w` twice",
        ),
    ];
    for (change, want) in table {
        let error = Manifest::parse(&text(change)).unwrap_err().to_string();
        assert!(error.contains(want), "{error:?} does not say {want:?}");
    }
    assert!(
        Manifest::parse(&b"[".repeat(100_000)).is_err(),
        "deep nesting must not overflow the stack"
    );
}

/// A manifest of a job, whose array `w` of 6 elements has these parts.
fn divided(parts: &[(&str, usize, usize)]) -> halite_core::Result<Manifest> {
    let parts = (parts.iter()).map(|&(file, start, end)| PartEntry {
        file: file.into(),
        start,
        end,
    });
    let ty = TensorType::new(DType::F32, [2, 3]);
    let file = |name: &str| FileEntry::new(name, 32, vec!["00".into()]);
    let manifest = Manifest::new(Contents {
        sequence: 1,
        position: RunPosition::default(),
        seed: 0,
        best: None,
        arrays: vec![ArrayEntry::divided("w", &ty, parts.collect())],
        files: vec![file("one"), file("two")],
        metadata: serde_json::Value::Null,
    });
    Manifest::parse(&serde_json::to_vec(&manifest).unwrap())
}

#[test]
fn parts_of_an_array_are_all_of_it() {
    let manifest = divided(&[("two", 4, 6), ("one", 0, 4)]).unwrap();
    assert_eq!(manifest.version(), 3);
    let places = manifest.arrays[0].places().unwrap();
    let places = places.iter().map(|place| (place.file, place.ty.dims()));
    assert_eq!(
        places.collect::<Vec<_>>(),
        [("one", &[4][..]), ("two", &[2])]
    );
    // A whole array keeps its dimensions.
    let whole = divided(&[("two", 0, 6)]).unwrap();
    assert_eq!(whole.arrays[0].places().unwrap()[0].ty.dims(), [2, 3]);

    for (parts, want) in [
        (&[("one", 0, 4)][..], "has 4 of 6 elements of the array `w`"),
        (&[], "has 0 of 6 elements"),
        (
            &[("one", 0, 3), ("two", 4, 6)],
            "elements 4 to 6 of the array `w` of 6 elements in `two`, after element 3",
        ),
        (&[("one", 0, 4), ("two", 3, 6)], "elements 3 to 6"),
        (&[("one", 0, 4), ("two", 4, 7)], "elements 4 to 7"),
        (&[("one", 0, 4), ("two", 4, 4)], "elements 4 to 4"),
        (
            &[("one", 0, 4), ("one", 4, 6)],
            "two parts of the array `w` in `one`",
        ),
        (
            &[("one", 0, 4), ("six", 4, 6)],
            "in `six`, which is not one of its files",
        ),
    ] {
        let error = divided(parts).unwrap_err().to_string();
        assert!(error.contains(want), "{error:?} does not say {want:?}");
    }
}
