//! How commands end, and the files that they leave. [`halite_tests`] has the parts that the
//! harnesses share; here, anything unexpected fails the test. How a command is run is in `child.rs`,
//! as a process, or `call.rs`, within the test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use halite::fetch::Cache;
use halite_tests::{process, runs};

pub(crate) use halite_tests::{process::Ended, runs::newest_step};

pub(crate) use super::command::*;

/// The cache, with the CPU plugin and the digits in it.
pub(crate) fn cache() -> &'static Cache {
    static CACHE: OnceLock<Cache> = OnceLock::new();
    CACHE.get_or_init(|| process::cache().unwrap_or_else(|error| panic!("{error}")).0)
}

/// As [`run`], for a command that must succeed.
#[track_caller]
pub(crate) fn succeeds(command: &mut Command) -> Ended {
    let ended = run(command);
    assert!(ended.succeeded(), "{ended:?}");
    ended
}

/// As [`run`], for a command that must fail with exit code 1. Returns its [error](Ended::error).
#[track_caller]
pub(crate) fn fails(command: &mut Command) -> String {
    let ended = run(command);
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    ended.error()
}

/// Asserts that `text` contains each of `parts`.
#[track_caller]
pub(crate) fn assert_contains(text: &str, parts: &[&str]) {
    assert!(!parts.is_empty(), "no parts given");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// The numbers in a run's report.
pub(crate) fn report(out: &Path) -> serde_json::Value {
    let path = out.join("report.json");
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap()
}

/// Folders of a run's checkpoints, by step.
pub(crate) fn checkpoints(out: &Path) -> Vec<PathBuf> {
    let checkpoints = runs::checkpoints(out).into_iter();
    checkpoints.map(|(_, path)| path).collect()
}

/// All [arrays](runs::arrays) of a run's newest checkpoint.
pub(crate) fn arrays(out: &Path) -> Vec<u8> {
    let (_, newest) =
        runs::newest(out).unwrap_or_else(|| panic!("no checkpoint in {}", out.display()));
    runs::arrays(&newest).unwrap()
}

/// Rows of `metrics.csv` without the column of seconds.
#[track_caller]
pub(crate) fn table(out: &Path) -> Vec<Vec<String>> {
    let rows = runs::table(&out.join("metrics.csv"));
    assert!(!rows.is_empty(), "no metrics.csv in {}", out.display());
    let cells = |row: &String| row.split(',').map(str::to_owned).collect();
    rows.iter().map(cells).collect()
}

/// The last part of a path.
pub(crate) fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Values at and beyond the limits of numbers, for options.
pub(crate) const EXTREMES: [&str; 6] = [
    "-1",
    "nan",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999999",
];

/// Asserts that a command reported what it does not accept, if anything: without a panic.
#[track_caller]
pub(crate) fn assert_reported(arguments: &str, ended: &Ended) {
    let text = format!("{}{}", ended.stdout, ended.stderr);
    for word in ["panicked", "ended its process", "overflow"] {
        assert!(!text.contains(word), "{arguments}: {ended:?}");
    }
    assert!(
        matches!(ended.status.code(), Some(0..=3)),
        "{arguments}: {ended:?}"
    );
}
