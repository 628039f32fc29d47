//! How much of a long test runs: a part in `.ci/run`, all of it in `.ci/full`.

use std::{fs, path::Path};

use serde::Serialize;

/// `true` where `HALITE_TEST_LONG` is set, as `.ci/full` does.
pub fn is_long() -> bool {
    std::env::var_os("HALITE_TEST_LONG").is_some()
}

/// All of these in a long test, else those at `few`.
pub fn part<'a, T>(all: &'a [T], few: &'a [usize]) -> impl Iterator<Item = &'a T> + Clone {
    let is_long = is_long();
    (all.iter().enumerate())
        .filter(move |(index, _)| is_long || few.contains(index))
        .map(|(_, one)| one)
}

/// The number of cases of a campaign.
pub fn count(few: u64, many: u64) -> u64 {
    if is_long() { many } else { few }
}

/// Writes the summary of a long campaign to `tests/campaigns/NAME.json` where `HALITE_TEST_RECORD` is
/// set.
///
/// # Panics
/// If it cannot be written.
pub fn record(name: &str, summary: &impl Serialize) {
    if !is_long() || std::env::var_os("HALITE_TEST_RECORD").is_none() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("campaigns");
    let text = serde_json::to_string_pretty(summary).expect("a summary is JSON");
    fs::write(folder.join(name).with_extension("json"), text + "\n").unwrap();
}
