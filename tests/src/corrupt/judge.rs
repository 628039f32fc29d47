//! Reactions of the command to damage: right ones, and losses of undamaged data.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{Place, Right, damage::Damaged};

use crate::{
    process::Ended,
    runs::{self, Outcome},
};

/// Undamaged contents of a run that must not be lost: weights and rows.
pub(super) struct Contents {
    files: BTreeSet<(String, Vec<u8>)>,
    /// Rows of `metrics.csv` without the column of seconds.
    rows: Vec<String>,
    /// The step of the newest checkpoint.
    newest: u64,
}

impl Contents {
    /// Reads the directory of a run before the command runs.
    pub(super) fn of(out: &Path, damaged: &[Damaged]) -> Self {
        let precious =
            |name: &String| name.ends_with("arrays.safetensors") || name == "metrics.csv";
        let whole = |name: &String| !damaged.iter().any(|damaged| damaged.touches(name));
        let read = |name: String| {
            let path = out.join(&name);
            path.symlink_metadata().ok().filter(fs::Metadata::is_file)?;
            Some((name, fs::read(path).ok()?))
        };
        let names = runs::files(out)
            .into_iter()
            .filter(|name| precious(name) && whole(name));
        Contents {
            files: names.filter_map(read).collect(),
            rows: runs::table(&out.join("metrics.csv")),
            newest: runs::newest_step(out),
        }
    }

    /// Returns the files whose content is in no file any more.
    fn lost(&self, out: &Path) -> Vec<&str> {
        let now: BTreeSet<Vec<u8>> = Contents::everywhere(out);
        self.files
            .iter()
            .filter(|(_, content)| !now.contains(content))
            .map(|(name, _)| &**name)
            .collect()
    }

    /// Keeps of `lost` the tables that have a row which no table has any more, and all other files:
    /// a run that continues writes its rows again, with other times.
    fn lost_rows<'a>(&self, lost: Vec<&'a str>, out: &Path) -> Vec<&'a str> {
        let tables = runs::files(out)
            .into_iter()
            .filter(|name| name.starts_with("metrics.csv"));
        let rows: BTreeSet<String> = tables
            .flat_map(|name| runs::table(&out.join(name)))
            .collect();
        let is_lost =
            |name: &&str| *name != "metrics.csv" || !self.rows.iter().all(|row| rows.contains(row));
        lost.into_iter().filter(is_lost).collect()
    }

    fn everywhere(out: &Path) -> BTreeSet<Vec<u8>> {
        let is_file = |path: &PathBuf| {
            path.symlink_metadata()
                .is_ok_and(|metadata| metadata.is_file())
        };
        runs::files(out)
            .into_iter()
            .map(|name| out.join(name))
            .filter(is_file)
            .filter_map(|path| fs::read(path).ok())
            .collect()
    }
}

/// Judges a command that has ended in the directory `out` of its run.
pub(super) fn judge(
    place: Place,
    ended: &Ended,
    out: &Path,
    before: &Contents,
    expected: &Outcome,
) -> Result<Right, String> {
    let wrong = |how: String| Err(format!("{how}: {}", ended.summary()));
    if ended.timed_out {
        return wrong("it hung".to_owned());
    }
    if ended.panicked() {
        return wrong("it panicked".to_owned());
    }
    if ended.signal().is_some() {
        return wrong("a signal ended it".to_owned());
    }
    if !ended.succeeded() {
        let error = ended.stderr.split_once("error: ");
        let has_error = error.is_some_and(|(_, error)| !error.trim().is_empty());
        if !has_error || ended.code() != Some(1) {
            return wrong("it failed without an error".to_owned());
        }
        // A run that made progress before it failed has removed older checkpoints.
        let lost = before.lost_rows(before.lost(out), out);
        if !lost.is_empty() && runs::newest_step(out) <= before.newest {
            return wrong(format!("it failed and destroyed {lost:?}"));
        }
        return Ok(Right::Error);
    }
    let found = Outcome::read(out);
    if found.weights != expected.weights {
        let differences = found.differences(expected);
        return wrong(format!("other weights: {differences:?}"));
    }
    if found.texts != expected.texts {
        return wrong("another text".to_owned());
    }
    check_table(&found.table, &before.rows, &expected.table, &ended.stderr)?;
    if place == Place::Overwritten {
        let lost = before.lost(out);
        if !lost.is_empty() {
            return wrong(format!("it restarted and overwrote {lost:?}"));
        }
    }
    match ended.stderr.contains("WARN") {
        true => Ok(Right::Recovered),
        false => Ok(Right::SameBits),
    }
}

/// Checks the rows of `metrics.csv`. A changed digit cannot be detected in a text, so a row may
/// stay as the damage left it. No row may change otherwise, or be lost without a warning.
fn check_table(
    found: &[String],
    damaged: &[String],
    expected: &[String],
    stderr: &str,
) -> Result<(), String> {
    // A changed digit may be beyond the precision of the number.
    let number = |cell: &str| {
        cell.parse::<f64>()
            .map_or(cell.to_owned(), |number| number.to_string())
    };
    // A damaged header may move a value to another column.
    let values = |rows: &[String]| -> Vec<String> {
        let cells = |row: &String| {
            row.split(',')
                .filter(|cell| !cell.is_empty())
                .map(number)
                .collect::<Vec<_>>()
                .join(",")
        };
        rows.iter().skip(1).map(cells).collect()
    };
    let [found, damaged, expected] = [found, damaged, expected].map(values);
    let changed: Vec<&String> = found.iter().filter(|row| !expected.contains(row)).collect();
    if let Some(row) = changed.iter().find(|row| !damaged.contains(row)) {
        return Err(format!("a row of metrics.csv has changed: {row}"));
    }
    let missing = expected.iter().filter(|row| !found.contains(row)).count();
    if missing > changed.len() && !stderr.contains("metrics.csv") {
        return Err(format!(
            "{missing} rows of metrics.csv were lost without a warning"
        ));
    }
    Ok(())
}
