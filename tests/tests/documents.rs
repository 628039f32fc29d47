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
        let [id, theirs, ours] = cells[..] else {
            panic!("{line}")
        };
        assert!(!theirs.is_empty() && !ours.is_empty(), "{line}");
        assert!(
            seen.insert(id[1..].parse::<u32>().unwrap()),
            "{id} is there twice"
        );
    }
    assert_eq!(seen, rows());
}

/// A cell of `docs/what-survives.md` names tests as `` `path/of/file.rs: name_of_the_test` ``.
#[test]
fn every_test_in_what_survives_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/what-survives.md")).unwrap();
    let mut named = 0;
    for line in text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| fault "))
    {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [fault, promise, shown_by] = cells[..] else {
            panic!("not three cells: {line}")
        };
        assert!(!fault.is_empty() && !promise.is_empty(), "{line}");
        for test in shown_by.split(", ") {
            let named_test = test.trim_matches('`').split_once(": ");
            let (file, name) =
                named_test.unwrap_or_else(|| panic!("`{test}` is not `FILE: TEST` in {line}"));
            let code = fs::read_to_string(root.join(file))
                .unwrap_or_else(|error| panic!("{file}: {error}, in {line}"));
            let is_test = code.split("#[test]").skip(1).any(|after| {
                let signature = after.split('{').next().unwrap_or_default();
                signature.contains(&format!("fn {name}("))
            });
            assert!(is_test, "{file} has no test `{name}`");
            named += 1;
        }
    }
    assert!(
        named > 20,
        "only {named} tests were found: has the form of the table changed?"
    );
}
