//! The table of a run's metrics, one row at a time, as RFC 4180 comma-separated values.

pub(crate) mod fuzz;
mod mark;
mod table;

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
    str::FromStr,
};

use halite_core::{Error, ErrorKind, Result};

pub(crate) use self::mark::TableMark;
use self::{
    mark::RowDigest,
    table::{Parsed, Table, line_of},
};
use super::Logger;
use crate::files;

const OP: &str = "metrics log";
/// Largest file that is read as a table of metrics: about ten million rows.
const SIZE_LIMIT: u64 = 2 << 30;

/// The data that a row is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names are clear")]
pub enum Split {
    Train,
    Validation,
    Test,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Split::Train => "train",
            Split::Validation => "validation",
            Split::Test => "test",
        })
    }
}

impl FromStr for Split {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Split::Train, Split::Validation, Split::Test]
            .into_iter()
            .find(|split| split.to_string() == text)
            .ok_or(())
    }
}

/// Metrics at one point of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Completed optimizer steps.
    pub step: u64,
    /// The epoch it belongs to, from 0.
    pub epoch: u64,
    /// Seconds since the run began.
    pub seconds: f64,
    /// The data it is about.
    pub split: Split,
    /// Values by name, in any order.
    pub metrics: Vec<(String, f64)>,
}

impl Row {
    /// The value of a metric.
    pub fn get(&self, name: &str) -> Option<f64> {
        let mut metrics = self.metrics.iter();
        metrics
            .find(|(metric, _)| metric == name)
            .map(|(_, value)| *value)
    }
}

/// `metrics.csv`: a row for every report of metrics, in the file as soon as it is written.
///
/// Columns are `step, epoch, seconds, split`, then metrics in the order of their first occurrence.
/// Rows that cannot be written are kept until [`catch_up`](Self::catch_up) can write them: a disk
/// that was full for a while leaves no gap.
#[derive(Debug)]
pub struct CsvLog {
    path: PathBuf,
    file: File,
    names: Vec<String>,
    /// Rows at the step from which the run resumed: they are repeated if the run was killed after
    /// them.
    repeatable: Vec<(u64, Split)>,
    /// Rows that could not be written, oldest first.
    unwritten: VecDeque<Row>,
    /// Number of rows that were dropped because too many could not be written.
    lost: u64,
    /// Digest of the rows in the file.
    digest: RowDigest,
}

/// Most rows that wait in memory while they cannot be written: about 20 MB.
const UNWRITTEN_LIMIT: usize = 100_000;

impl CsvLog {
    /// Creates a table. An existing table is replaced, and a file of another kind is moved aside.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Table::read(path)?;
        Self::start(path, Table::default(), Vec::new())
    }

    /// Continues the table of a run that resumes at `step`. Rows of later steps are dropped,
    /// because they will be repeated.
    ///
    /// A damaged end, after a kill or a power cut, is dropped too; a file of another kind is moved
    /// aside. Without a file it is [`create`](Self::create).
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn resume(path: impl AsRef<Path>, step: u64) -> Result<Self> {
        let path = path.as_ref();
        let Parsed { mut table, problem } = Table::read(path)?;
        if let Some(problem) = problem {
            halite_core::warning!(
                "{}: {problem}; it and the rows that follow are dropped",
                path.display()
            );
        }
        table.rows.retain(|row| row.step <= step);
        let repeatable = table
            .rows
            .iter()
            .filter(|row| row.step == step)
            .map(|row| (row.step, row.split))
            .collect();
        Self::start(path, table, repeatable)
    }

    /// The path of the table.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a row.
    ///
    /// A metric with a new name adds a column, which rewrites the table once. After a resume, a row
    /// for the step resumed from replaces the one that was there.
    ///
    /// # Errors
    /// If the file cannot be written. This row and those that follow are kept for
    /// [`catch_up`](Self::catch_up): writing the table as a whole for each of them would take time
    /// that grows with the square of their number.
    pub fn write(&mut self, row: &Row) -> Result<()> {
        let is_waiting = !self.unwritten.is_empty();
        let is_new = |(name, _): &(String, f64)| !self.names.contains(name);
        let fits = !is_waiting && self.repeated(row).is_none() && !row.metrics.iter().any(is_new);
        if fits && self.append(&line_of(row, &self.names)).is_ok() {
            self.digest.push(row);
            return Ok(());
        }
        if self.unwritten.len() == UNWRITTEN_LIMIT {
            self.unwritten.pop_front();
            self.lost += 1;
        }
        self.unwritten.push_back(row.clone());
        if is_waiting {
            let message = format!(
                "{} rows are not written to {} yet",
                self.unwritten.len(),
                self.path.display()
            );
            return Err(Error::new(ErrorKind::Io, OP, message));
        }
        self.catch_up()
    }

    /// Writes the rows that could not be written before, if there are any.
    ///
    /// # Errors
    /// If the file still cannot be written.
    pub fn catch_up(&mut self) -> Result<()> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let table = Table {
            names: self.names.clone(),
            rows: self.written()?,
        };
        let mut repeatable = self.repeatable.clone();
        let table = self
            .unwritten
            .iter()
            .fold(table, |table, row| table.with(row.clone(), &mut repeatable));
        let lost = self.lost;
        *self = Self::start(&self.path, table, repeatable)?;
        if lost > 0 {
            halite_core::warning!(
                "{}: {lost} rows could not be kept in memory and are missing",
                self.path.display()
            );
        }
        Ok(())
    }

    /// All rows so far: those in the file, and those that could not be written.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn rows(&self) -> Result<Vec<Row>> {
        let table = Table {
            names: Vec::new(),
            rows: self.written()?,
        };
        let mut repeatable = self.repeatable.clone();
        Ok(self
            .unwritten
            .iter()
            .fold(table, |table, row| table.with(row.clone(), &mut repeatable))
            .rows)
    }

    /// Returns true if the table at `path` has validation metrics of more than one epoch. The
    /// checkpoint of an epoch is on the disk before the next one is saved, so such a run had one.
    pub(crate) fn has_several_epochs(path: &Path) -> bool {
        let rows = files::read_plain(path, SIZE_LIMIT).map(|bytes| Table::parse(&bytes).table.rows);
        rows.is_ok_and(|rows| {
            rows.iter()
                .filter(|row| row.split == Split::Validation)
                .count()
                > 1
        })
    }

    /// A handle of the file, for flushing it to the disk.
    ///
    /// # Errors
    /// If the handle cannot be duplicated.
    pub(crate) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn repeated(&self, row: &Row) -> Option<usize> {
        self.repeatable
            .iter()
            .position(|&key| key == (row.step, row.split))
    }

    fn written(&self) -> Result<Vec<Row>> {
        match files::read_plain(&self.path, SIZE_LIMIT) {
            Ok(text) => Ok(Table::parse(&text).table.rows),
            // The file was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(files::failed(OP, "read", &self.path, &error)),
        }
    }

    fn start(path: &Path, table: Table, repeatable: Vec<(u64, Split)>) -> Result<Self> {
        let failed = |error| files::failed(OP, "write", path, &error);
        files::replace(path, table.to_text().as_bytes()).map_err(failed)?;
        let file = File::options().append(true).open(path).map_err(failed)?;
        let digest = RowDigest::of(&table.rows);
        let (path, names) = (path.to_path_buf(), table.names);
        Ok(CsvLog {
            path,
            file,
            names,
            repeatable,
            unwritten: VecDeque::new(),
            lost: 0,
            digest,
        })
    }

    fn append(&mut self, line: &str) -> Result<()> {
        // One call for the whole line: a killed process leaves all of it or, at worst, a partial
        // line, which `resume` drops.
        self.file
            .write_all(line.as_bytes())
            .map_err(|error| files::failed(OP, "write", &self.path, &error))
    }
}

impl Logger for CsvLog {
    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn log_metrics(&mut self, row: &Row) -> Result<()> {
        self.write(row)
    }

    fn flush(&mut self) -> Result<()> {
        self.catch_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: u64, split: Split, metrics: &[(&str, f64)]) -> Row {
        let metrics = metrics
            .iter()
            .map(|&(name, value)| (name.to_string(), value))
            .collect();
        Row {
            step,
            epoch: step / 100,
            seconds: step as f64 / 8.0,
            split,
            metrics,
        }
    }

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn rows_are_written_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut log = CsvLog::create(&path).unwrap();
        log.write(&row(50, Split::Train, &[("loss", 0.5), ("accuracy", 0.25)]))
            .unwrap();
        log.write(&row(
            100,
            Split::Train,
            &[("accuracy", 0.5), ("loss", 0.1 + 0.2)],
        ))
        .unwrap();
        assert_eq!(
            text(&path),
            "step,epoch,seconds,split,loss,accuracy\n50,0,6.250,train,0.5,0.25\n100,1,12.500,train,0.30000000000000004,0.5\n"
        );
        log.write(&row(100, Split::Validation, &[("top5", 1.0)]))
            .unwrap();
        assert_eq!(
            text(&path),
            "step,epoch,seconds,split,loss,accuracy,top5\n50,0,6.250,train,0.5,0.25,\n\
             100,1,12.500,train,0.30000000000000004,0.5,\n100,1,12.500,validation,,,1\n"
        );
        assert_eq!(
            log.rows().unwrap()[1],
            row(100, Split::Train, &[("loss", 0.1 + 0.2), ("accuracy", 0.5)])
        );
    }

    #[test]
    fn resuming_drops_later_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut log = CsvLog::create(&path).unwrap();
        for step in [50, 100, 150] {
            log.write(&row(step, Split::Train, &[("loss", step as f64)]))
                .unwrap();
            log.write(&row(step, Split::Validation, &[("loss", -(step as f64))]))
                .unwrap();
        }
        drop(log);
        let mut log = CsvLog::resume(&path, 100).unwrap();
        log.write(&row(100, Split::Validation, &[("loss", 7.0)]))
            .unwrap();
        log.write(&row(150, Split::Train, &[("loss", 8.0)]))
            .unwrap();
        log.write(&row(150, Split::Train, &[("loss", 9.0)]))
            .unwrap();
        let seen: Vec<_> = log
            .rows()
            .unwrap()
            .iter()
            .map(|row| (row.step, row.split, row.metrics[0].1))
            .collect();
        use Split::{Train, Validation};
        assert_eq!(
            seen,
            [
                (50, Train, 50.0),
                (50, Validation, -50.0),
                (100, Train, 100.0),
                (100, Validation, 7.0),
                (150, Train, 8.0),
                (150, Train, 9.0)
            ]
        );
    }

    #[test]
    fn truncated_table_keeps_its_complete_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let mut log = CsvLog::create(&path).unwrap();
        for step in 1..4 {
            log.write(&row(
                step,
                Split::Train,
                &[("loss", 0.125), ("a \"b\", c\nd", 2.0)],
            ))
            .unwrap();
        }
        let whole = text(&path);
        let header = whole.find("d\"\n").unwrap() + 3;
        for cut in header..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut log = CsvLog::resume(&path, 10).unwrap();
            let complete = whole[header..cut].matches('\n').count();
            let rows = log.rows().unwrap();
            assert_eq!(rows.len(), complete, "cut at {cut}");
            assert!(
                rows.iter()
                    .all(|row| row.metrics
                        == [("loss".into(), 0.125), ("a \"b\", c\nd".into(), 2.0)])
            );
            log.write(&row(9, Split::Train, &[("loss", 1.0)])).unwrap();
            assert_eq!(log.rows().unwrap().len(), complete + 1);
        }
    }

    #[test]
    fn carriage_return_in_a_name_round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = CsvLog::create(dir.path().join("metrics.csv")).unwrap();
        log.write(&row(1, Split::Train, &[("loss\r", 0.5)]))
            .unwrap();
        assert_eq!(
            log.rows().unwrap(),
            [row(1, Split::Train, &[("loss\r", 0.5)])]
        );
    }

    #[test]
    fn crlf_line_ends_are_read() {
        let text = b"step,epoch,seconds,split,\"loss\"\r\n1,0,0.125,train,0.5\r\n";
        assert_eq!(
            Table::parse(text).table.rows,
            [row(1, Split::Train, &[("loss", 0.5)])]
        );
    }

    #[test]
    fn numbers_that_are_not_finite_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = CsvLog::create(dir.path().join("metrics.csv")).unwrap();
        log.write(&row(
            1,
            Split::Test,
            &[("a", f64::NAN), ("b", f64::NEG_INFINITY)],
        ))
        .unwrap();
        let rows = log.rows().unwrap();
        assert!(rows[0].metrics[0].1.is_nan());
        assert_eq!(rows[0].metrics[1].1, f64::NEG_INFINITY);
    }

    #[test]
    fn file_of_another_kind_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.csv");
        let aside = dir.path().join("metrics.csv.aside");
        for other in [
            &b"time;loss\n1;2\n"[..],
            b"\0\0\0\0",
            b"",
            b"step,epoch,seconds,split,\xff\n",
        ] {
            for open in [CsvLog::create, |path| CsvLog::resume(path, 10)] {
                std::fs::write(&path, other).unwrap();
                assert_eq!(open(&path).unwrap().rows().unwrap(), []);
                assert_eq!(std::fs::read(&aside).unwrap(), other);
                std::fs::remove_file(&aside).unwrap();
            }
        }
        CsvLog::create(&path).unwrap();
        assert!(!aside.exists(), "a table of ours is replaced");
    }
}
