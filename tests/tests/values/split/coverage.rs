//! The public operations that are not methods of single tensors are in the programs of this suite. Those
//! that are have a row each in the suite `edge_values`, which runs them on several devices.

use std::{fs, path::Path};

/// Files below `nn/src` whose public functions programs call.
const FILES: [&str; 8] = [
    "collectives.rs",
    "control.rs",
    "control/checkpoint.rs",
    "control/scan.rs",
    "grad.rs",
    "layers/attention/scaled_dot_product.rs",
    "rng.rs",
    "shard_map.rs",
];

/// Functions that no program calls, and why.
const EXEMPT: &[(&[&str], &str)] = &[
    (
        &["custom_call"],
        "its target runs in a plugin that has it: tests/custom_ops",
    ),
    (
        &["partition_id", "replica_id"],
        "the result is another on each device, and its place decides it: tests/shard_map",
    ),
    (
        &["shard_map_tree", "unchecked"],
        "forms of `shard_map`: tests/shard_map",
    ),
    (&["vjp"], "`grad` calls it"),
];

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

#[test]
fn every_public_function_is_in_a_program() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let programs: String = ["by_hand", "control", "operations", "program"]
        .map(|name| read(&tests.join(format!("tests/values/split/{name}.rs"))))
        .concat();
    let functions: Vec<String> = (FILES.iter())
        .flat_map(|file| {
            let text = read(&tests.join("../nn/src").join(file));
            let names = text.lines().filter_map(|line| {
                let rest = line.trim_start().strip_prefix("pub fn ")?;
                rest.split(['(', '<']).next().map(str::to_owned)
            });
            names.collect::<Vec<_>>()
        })
        .collect();
    assert!(functions.len() > 35, "the scan finds {functions:?}");
    let exempt: Vec<&str> = EXEMPT
        .iter()
        .flat_map(|(names, _)| *names)
        .copied()
        .collect();
    let is_called = |name: &str| {
        let call = format!("{name}(");
        let generic = format!("::{name}::<");
        let mut places = programs.match_indices(&call).map(|(at, _)| &programs[..at]);
        programs.contains(&generic)
            || places.any(|before| !before.ends_with(is_word) && !before.ends_with("fn "))
    };
    let without: Vec<&String> = (functions.iter())
        .filter(|name| !is_called(name) && !exempt.contains(&name.as_str()))
        .collect();
    assert!(
        without.is_empty(),
        "public functions in no program of tests/tests/values/split (or a reason in EXEMPT): {without:?}"
    );
    let needless: Vec<&&str> = (exempt.iter())
        .filter(|name| is_called(name) || !functions.iter().any(|function| function == *name))
        .collect();
    assert!(
        needless.is_empty(),
        "reasons that nothing needs: {needless:?}"
    );
}
