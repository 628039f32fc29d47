//! Mark of the table of metrics in a checkpoint, by which a resume detects and restores lost rows.

use std::{io::ErrorKind, path::Path};

use halite_core::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{CsvLog, OP, Row, SIZE_LIMIT, Table};
use crate::files;

/// The rows of a table at one time: their number and their digest.
///
/// Rows are only ever appended after those that a checkpoint marked, so they stay the first rows of
/// the table.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct TableMark {
    rows: u64,
    sha256: String,
    /// The text of a small table, in checkpoints of format 1. Since then it is in a
    /// [file](super::TableCopy).
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    pub(crate) fn mark(&self) -> TableMark {
        TableMark {
            rows: self.digest.rows,
            sha256: self.digest.sha256(),
            copy: None,
        }
    }
}

impl TableMark {
    /// The mark that the state of a callback in a checkpoint is.
    pub(crate) fn of_state(state: serde_json::Value) -> Option<Self> {
        serde_json::from_value(state).ok()
    }

    /// Compares the table at `path` with the one that was marked. One with other rows is moved
    /// aside, and the rows of the `copy` take its place, with a warning.
    ///
    /// # Errors
    /// If a file cannot be read, moved or written.
    pub(crate) fn restore(&self, path: &Path, copy: &Path) -> Result<()> {
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
                if self.marked(&rows).is_some() {
                    return Ok(());
                }
                let problem = if rows.len() as u64 >= self.rows {
                    "has other rows than when the checkpoint was saved".to_string()
                } else {
                    format!(
                        "has {} rows, fewer than the {} when the checkpoint was saved",
                        rows.len(),
                        self.rows
                    )
                };
                format!("{problem}{}", set_aside()?)
            }
        };
        match self.saved_table(copy) {
            Some(table) => {
                files::replace(path, table.to_text().as_bytes())
                    .map_err(|error| files::failed(OP, "write", path, &error))?;
                halite_core::warning!(
                    "{} {what}; its rows are restored from the checkpoint",
                    path.display()
                );
            }
            None => halite_core::warning!(
                "{} {what}; a new table begins, for {} lacks the {} rows, too",
                path.display(),
                copy.display(),
                self.rows
            ),
        }
        Ok(())
    }

    /// The rows that were marked, if these begin with them.
    fn marked<'a>(&self, rows: &'a [Row]) -> Option<&'a [Row]> {
        let marked = rows.get(..usize::try_from(self.rows).ok()?)?;
        (RowDigest::of(marked).sha256() == self.sha256).then_some(marked)
    }

    /// The table that was marked, from the checkpoint or from the copy at `path`.
    fn saved_table(&self, path: &Path) -> Option<Table> {
        let in_file = || files::read_plain(path, SIZE_LIMIT).ok();
        let text = self.copy.as_ref().map(|copy| copy.clone().into_bytes());
        let Table { names, mut rows } = Table::parse(&text.or_else(in_file)?).table;
        let marked = self.marked(&rows)?.len();
        rows.truncate(marked);
        Some(Table { names, rows })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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

    fn copy_of(path: &Path) -> PathBuf {
        path.with_extension("copy")
    }

    /// The mark of a checkpoint.
    fn mark(log: &mut CsvLog) -> TableMark {
        log.copy_rows().unwrap();
        log.mark()
    }

    fn log(path: &Path) -> CsvLog {
        let mut log = CsvLog::create(path).unwrap().copied_to(copy_of(path));
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
        let mark = mark(&mut log);
        assert_eq!(mark.rows, 6);
        // Rows after the checkpoint, and a new column, come before a kill.
        let more = Row {
            metrics: vec![("top5".into(), 1.0)],
            ..row(40, Split::Train, 0.1)
        };
        log.write(&more).unwrap();
        let before = text(&path);
        mark.restore(&path, &copy_of(&path)).unwrap();
        assert_eq!(text(&path), before);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        let json = serde_json::to_string(&mark).unwrap();
        assert_eq!(serde_json::from_str::<TableMark>(&json).unwrap(), mark);
    }

    #[test]
    fn repeated_rows_after_the_mark_are_no_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut log = log(&path);
        log.write(&row(40, Split::Train, 0.5)).unwrap();
        let mark = mark(&mut log);
        // Each attempt is killed after its validation.
        for seconds in [5.0, 6.0, 7.0] {
            let mut log = CsvLog::resume(&path, 40).unwrap();
            log.write(&Row {
                seconds,
                ..row(40, Split::Validation, 9.0)
            })
            .unwrap();
            mark.restore(&path, &copy_of(&path)).unwrap();
            assert_eq!(text(&path).matches(",validation,9,").count(), 1);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn changed_tables_are_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mark = mark(&mut log(&path));
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
            mark.restore(&path, &copy_of(&path)).unwrap();
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
        mark.restore(&path, &copy_of(&path)).unwrap();
        assert_eq!(text(&path), good);
    }

    #[test]
    fn changed_table_without_copy_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mark = mark(&mut log(&path));
        let good = text(&path);
        std::fs::write(copy_of(&path), &good[..90]).unwrap();
        mark.restore(&path, &copy_of(&path)).unwrap();
        assert_eq!(text(&path), good);
        std::fs::write(&path, &good[..90]).unwrap();
        mark.restore(&path, &copy_of(&path)).unwrap();
        assert!(!path.exists());
        assert_eq!(text(&dir.path().join("metrics.csv.aside")), good[..90]);
    }
    #[test]
    fn table_in_a_checkpoint_of_format_1_is_restored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mark = mark(&mut log(&path));
        let good = text(&path);
        let mark = TableMark {
            copy: Some(good.clone()),
            ..mark
        };
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(copy_of(&path)).unwrap();
        mark.restore(&path, &copy_of(&path)).unwrap();
        assert_eq!(text(&path), good);
    }

    #[test]
    fn copy_grows_by_the_new_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut log = log(&path);
        mark(&mut log);
        // Bytes that a copy of the whole table would replace.
        let mut kept = text(&copy_of(&path));
        kept = kept.replacen("10,", "11,", 1);
        std::fs::write(copy_of(&path), &kept).unwrap();
        log.write(&row(40, Split::Train, 0.5)).unwrap();
        let marked = mark(&mut log);
        assert_eq!(
            text(&copy_of(&path)),
            format!("{kept}40,0,40.000,train,0.5,0.5\n")
        );
        // A new column rewrites the table, and the copy.
        let more = Row {
            metrics: vec![("top5".into(), 1.0)],
            ..row(50, Split::Train, 0.1)
        };
        log.write(&more).unwrap();
        mark(&mut log);
        assert_eq!(text(&copy_of(&path)), text(&path));
        // The first rows of the copy are those of the mark before, whatever the columns.
        std::fs::remove_file(&path).unwrap();
        marked.restore(&path, &copy_of(&path)).unwrap();
        assert_eq!(text(&path).lines().count(), 1 + 7);
    }
}
