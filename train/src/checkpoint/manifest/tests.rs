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
            &|m| m["version"] = 3.into(),
            "is of version 3, this halite reads versions 1 to 2",
        ),
        (&|m| m["version"] = 1.into(), "of version 1 has the writer"),
        (
            &|m| m["writer"]["count"] = 4.into(),
            "part 0 of 4: a checkpoint that 4 processes wrote",
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
