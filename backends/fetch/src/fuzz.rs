//! Entry points into this crate's private parsers for fuzzing. Not part of the public API, and
//! without stability.
//!
//! Each function takes any bytes, returns whether they were accepted, and panics where a property
//! does not hold.

use crate::{Package, manifest::Manifest};

/// The marker of an installed package, `halite.json`. Accepted are those of `package`.
pub fn marker(data: &[u8], package: &Package) -> bool {
    let Ok(marker) = serde_json::from_slice::<Manifest>(data) else {
        return false;
    };
    let printed =
        serde_json::to_vec_pretty(&marker).expect("a marker has only string keys and plain values");
    let again: Manifest = serde_json::from_slice(&printed).expect("what is printed is parsed");
    assert_eq!(again, marker, "a marker survives printing");
    marker.agrees_with(package)
}

/// A valid input of [`marker`].
pub fn marker_seed(package: &Package) -> Vec<u8> {
    let entries: Vec<_> = package
        .installed_files()
        .map(|file| serde_json::json!({"name": file.name, "size": file.size, "sha256": file.sha256, "modified": 1_700_000_000_u64}))
        .collect();
    let marker = serde_json::json!({"format": 1, "package": package.to_string(), "archive_sha256": "00", "files": entries});
    serde_json::to_vec_pretty(&marker).expect("plain values")
}
