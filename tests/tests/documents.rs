//! Documents that promise to be complete.

use std::{collections::BTreeSet, fs, path::Path};

/// Sections A to L, N and U of the list of the originals' features.
fn rows() -> BTreeSet<u32> {
    (1..=141).chain(149..=158).chain(196..=203).collect()
}

#[test]
fn every_feature_of_pytorch_xla_has_one_answer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/coming-from-pytorch-xla.md");
    let text = fs::read_to_string(path).unwrap();
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("| F")) {
        // A bar inside a cell is written with a backslash.
        let line = line.replace("\\|", "/");
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [id, theirs, ours] = cells[..] else { panic!("{line}") };
        assert!(!theirs.is_empty() && !ours.is_empty(), "{line}");
        assert!(seen.insert(id[1..].parse::<u32>().unwrap()), "{id} is there twice");
    }
    assert_eq!(seen, rows());
}
