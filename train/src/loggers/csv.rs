//! The table of a run's metrics, one row at a time, as RFC 4180 comma-separated values.

mod copy;
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
    copy::TableCopy,
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
    /// A second file with the rows that checkpoints marked.
    copy: Option<TableCopy>,
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

    /// Reads the rows of a table, up to the first that is damaged.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Row>> {
        let path = path.as_ref();
        let text = files::read_plain(path, SIZE_LIMIT)
            .map_err(|error| files::failed(OP, "read", path, &error))?;
        Ok(Table::parse(&text).table.rows)
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
        let line = line_of(row, &self.names);
        if fits && self.append(&line).is_ok() {
            self.digest.push(row);
            if let Some(copy) = &mut self.copy {
                copy.push(&line);
            }
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
        let (lost, copy) = (self.lost, self.copy.take());
        let mut started = Self::start(&self.path, table, repeatable);
        match &mut started {
            Ok(started) => started.copy = copy.map(|copy| TableCopy::of(copy.path)),
            Err(_) => self.copy = copy,
        }
        *self = started?;
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

    /// Keeps a copy of the rows that checkpoints mark at `path`.
    pub(crate) fn copied_to(mut self, path: PathBuf) -> Self {
        self.copy = Some(TableCopy::of(path));
        self
    }

    /// Copies the rows since the last call, and returns handles of the table and of the copy, for
    /// flushing them to the disk.
    ///
    /// # Errors
    /// If the copy cannot be written: the next call tries it again.
    pub(crate) fn copy_rows(&mut self) -> Result<Vec<File>> {
        let failed = |path: &Path, error| files::failed(OP, "write", path, &error);
        let table = self.file.try_clone();
        let mut files = vec![table.map_err(|error| failed(&self.path, error))?];
        if let Some(copy) = &mut self.copy {
            let copied = copy.write(&self.path);
            files.push(copied.map_err(|error| failed(&copy.path, error))?);
        }
        Ok(files)
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
            copy: None,
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
mod tests;
