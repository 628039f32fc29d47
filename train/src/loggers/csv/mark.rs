//! Mark of the table of metrics in a checkpoint, by which a resume detects and restores lost rows.

use std::{io::ErrorKind, path::Path};

use halite_core::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{CsvLog, OP, Row, SIZE_LIMIT, Table};
use crate::files;

/// A larger table is not copied into checkpoints: some 16,000 rows.
const COPY_LIMIT: u64 = 1 << 20;

/// The rows of a table at one time: their number, their digest, and a copy of a small table.
///
/// Rows are only ever appended after those that a checkpoint marked, so they stay the first rows of
/// the table.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct TableMark {
    rows: u64,
    sha256: String,
    /// The text of the table.
    copy: Option<String>,
}

/// Digest of rows in their order, whatever the order of the columns.
#[derive(Clone, Debug, Default)]
pub(super) struct RowDigest {
    hasher: Sha256,
    rows: u64,
}

impl RowDigest {
    pub(super) fn of(rows: &[Row]) -> Self {
        let mut digest = RowDigest::default();
        rows.iter().for_each(|row| digest.push(row));
        digest
    }

    pub(super) fn push(&mut self, row: &Row) {
        let mut metrics: Vec<String> = row
            .metrics
            .iter()
            .map(|(name, value)| format!(",{name:?}={value}"))
            .collect();
        metrics.sort();
        let Row {
            step,
            epoch,
            seconds,
            split,
            ..
        } = row;
        self.hasher.update(format!(
            "{step},{epoch},{seconds:.3},{split}{}\n",
            metrics.concat()
        ));
        self.rows += 1;
    }

    fn sha256(&self) -> String {
        halite_core::hex(&self.hasher.clone().finalize())
    }
}

impl CsvLog {
    /// The mark of the current rows.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn mark(&self) -> Result<TableMark> {
        let failed = |error| files::failed(OP, "read", &self.path, &error);
        let length = self.file.metadata().map_err(failed)?.len();
        let copy = match length <= COPY_LIMIT {
            true => {
                String::from_utf8(files::read_plain(&self.path, SIZE_LIMIT).map_err(failed)?).ok()
            }
            false => None,
        };
        Ok(TableMark {
            rows: self.digest.rows,
            sha256: self.digest.sha256(),
            copy,
        })
    }
}

impl TableMark {
    /// The mark that the state of a callback in a checkpoint is.
    pub(crate) fn of_state(state: serde_json::Value) -> Option<Self> {
        serde_json::from_value(state).ok()
    }

    /// Compares the table at `path` with the one that was marked. One with other rows is moved
    /// aside, and the copy of the checkpoint takes its place, with a warning.
    ///
    /// # Errors
    /// If a file cannot be read, moved or written.
    pub(crate) fn restore(&self, path: &Path) -> Result<()> {
        let read = match files::read_plain(path, SIZE_LIMIT) {
            Ok(bytes) => Some(Ok(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) if error.kind() == ErrorKind::InvalidData && path.is_file() => {
                Some(Err(error))
            }
            Err(error) => return Err(files::failed(OP, "read", path, &error)),
        };
        let set_aside = || {
            let aside = files::move_aside(path)
                .map_err(|error| files::failed(OP, "move aside", path, &error))?;
            Ok::<_, Error>(aside.map_or_else(String::new, |aside| {
                format!("; it is moved to {}", aside.display())
            }))
        };
        let what = match &read {
            None if self.rows == 0 => return Ok(()),
            None => "is missing".to_string(),
            Some(Err(error)) => format!("cannot be read ({error}){}", set_aside()?),
            Some(Ok(bytes)) => {
                let rows = Table::parse(bytes).table.rows;
                let marked = usize::try_from(self.rows)
                    .ok()
                    .and_then(|count| rows.get(..count));
                if marked.is_some_and(|rows| RowDigest::of(rows).sha256() == self.sha256) {
                    return Ok(());
                }
                let problem = match marked {
                    Some(_) => "has other rows than when the checkpoint was saved".to_string(),
                    None => format!(
                        "has {} rows, fewer than the {} when the checkpoint was saved",
                        rows.len(),
                        self.rows
                    ),
                };
                format!("{problem}{}", set_aside()?)
            }
        };
        match &self.copy {
            Some(copy) => {
                files::replace(path, copy.as_bytes())
                    .map_err(|error| files::failed(OP, "write", path, &error))?;
                halite_core::warning!(
                    "{} {what}; its rows are restored from the checkpoint",
                    path.display()
                );
            }
            None => halite_core::warning!(
                "{} {what}; a new table begins, for the {} rows were too many for a copy in the \
                 checkpoint",
                path.display(),
                self.rows
            ),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Split, *};

    fn row(step: u64, split: Split, loss: f64) -> Row {
        Row {
            step,
            epoch: 0,
            seconds: step as f64,
            split,
            metrics: vec![("loss".into(), loss), ("acc".into(), 0.5)],
        }
    }

    fn log(path: &Path) -> CsvLog {
        let mut log = CsvLog::create(path).unwrap();
        for step in [10, 20, 30] {
            log.write(&row(step, Split::Train, 1.0 / step as f64))
                .unwrap();
            log.write(&row(step, Split::Validation, 2.0 / step as f64))
                .unwrap();
        }
        log
    }

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn unchanged_table_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut log = log(&path);
        let mark = log.mark().unwrap();
        assert_eq!(mark.rows, 6);
        // Rows after the checkpoint, and a new column, come before a kill.
        let more = Row {
            metrics: vec![("top5".into(), 1.0)],
            ..row(40, Split::Train, 0.1)
        };
        log.write(&more).unwrap();
        let before = text(&path);
        mark.restore(&path).unwrap();
        assert_eq!(text(&path), before);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let json = serde_json::to_string(&mark).unwrap();
        assert_eq!(serde_json::from_str::<TableMark>(&json).unwrap(), mark);
    }

    #[test]
    fn repeated_rows_after_the_mark_are_no_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut log = log(&path);
        log.write(&row(40, Split::Train, 0.5)).unwrap();
        let mark = log.mark().unwrap();
        // Each attempt is killed after its validation.
        for seconds in [5.0, 6.0, 7.0] {
            let mut log = CsvLog::resume(&path, 40).unwrap();
            log.write(&Row {
                seconds,
                ..row(40, Split::Validation, 9.0)
            })
            .unwrap();
            mark.restore(&path).unwrap();
            assert_eq!(text(&path).matches(",validation,9,").count(), 1);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn changed_tables_are_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mark = log(&path).mark().unwrap();
        let good = text(&path);
        let changes = [
            good.replace(",0.1,", ",0.2,"),
            good.lines().next().unwrap().to_string(),
            good[..90].to_string(),
            "?".into(),
        ];
        for (index, change) in changes.iter().enumerate() {
            assert_ne!(*change, good);
            std::fs::write(&path, change).unwrap();
            mark.restore(&path).unwrap();
            assert_eq!(text(&path), good, "{change}");
            let ending = if index == 0 {
                ".aside".to_string()
            } else {
                format!(".aside.{}", index + 1)
            };
            assert_eq!(
                text(&dir.path().join(format!("metrics.csv{ending}"))),
                *change
            );
        }
        std::fs::remove_file(&path).unwrap();
        mark.restore(&path).unwrap();
        assert_eq!(text(&path), good);
    }

    #[test]
    fn changed_table_without_copy_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mark = TableMark {
            copy: None,
            ..log(&path).mark().unwrap()
        };
        let good = text(&path);
        mark.restore(&path).unwrap();
        assert_eq!(text(&path), good);
        std::fs::write(&path, &good[..90]).unwrap();
        mark.restore(&path).unwrap();
        assert!(!path.exists());
        assert_eq!(text(&dir.path().join("metrics.csv.aside")), good[..90]);
    }
}
