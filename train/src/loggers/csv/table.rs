//! The table in a file: reading and writing comma-separated values.

use std::{fmt::Write as _, io, path::Path};

use halite_core::Result;

use super::{OP, Row, SIZE_LIMIT, Split};
use crate::files;

const COLUMNS: [&str; 4] = ["step", "epoch", "seconds", "split"];

/// Rows of metrics, with the names of their columns.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) names: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// Result of reading a table.
pub(super) struct Parsed {
    pub(super) table: Table,
    /// Reason for which reading stopped before the end.
    pub(super) problem: Option<String>,
}

impl Table {
    /// Adds a row, which replaces one of the same step and split if that is
    /// `repeatable`.
    pub(super) fn with(mut self, row: Row, repeatable: &mut Vec<(u64, Split)>) -> Self {
        let key = (row.step, row.split);
        if let Some(repeated) = repeatable.iter().position(|&known| known == key) {
            repeatable.swap_remove(repeated);
            self.rows.retain(|row| (row.step, row.split) != key);
        }
        for (name, _) in &row.metrics {
            if !self.names.contains(name) {
                self.names.push(name.clone());
            }
        }
        self.rows.push(row);
        self
    }

    pub(super) fn to_text(&self) -> String {
        let mut header = csv::Writer::from_writer(Vec::new());
        let names = self.names.iter().map(String::as_str);
        let written = header.write_record(COLUMNS.into_iter().chain(names));
        written.expect("writing to memory does not fail");
        let header = header
            .into_inner()
            .expect("writing to memory does not fail");
        let mut text = String::from_utf8(header).expect("names are UTF-8");
        self.rows
            .iter()
            .for_each(|row| text.push_str(&line_of(row, &self.names)));
        text
    }

    /// Reads the file, if it exists. A file of another kind is moved aside.
    pub(super) fn read(path: &Path) -> Result<Parsed> {
        let none = Parsed {
            table: Table::default(),
            problem: None,
        };
        let text = match files::read_plain(path, SIZE_LIMIT) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(none),
            Err(error) if error.kind() == io::ErrorKind::InvalidData && path.is_file() => {
                return Self::set_aside(
                    path,
                    &format!("too large for a table of metrics: {error}"),
                );
            }
            Err(error) => return Err(files::failed(OP, "read", path, &error)),
        };
        let parsed = Table::parse(&text);
        if !parsed.table.names.is_empty()
            || !parsed.table.rows.is_empty()
            || parsed.problem.is_none()
        {
            return Ok(parsed);
        }
        Self::set_aside(path, "not a table of metrics")
    }

    fn set_aside(path: &Path, what: &str) -> Result<Parsed> {
        let aside = files::move_aside(path)
            .map_err(|error| files::failed(OP, "move aside", path, &error))?;
        let aside = aside.unwrap_or_else(|| path.to_path_buf());
        halite_core::warning!(
            "{} is {what}; it is moved to {}",
            path.display(),
            aside.display()
        );
        Ok(Parsed {
            table: Table::default(),
            problem: None,
        })
    }

    /// Reads rows up to the first invalid one.
    pub(super) fn parse(bytes: &[u8]) -> Parsed {
        let mut parsed = Parsed {
            table: Table::default(),
            problem: None,
        };
        let mut records = records(bytes);
        match records.next() {
            Some(Ok(header))
                if header.len() >= COLUMNS.len() && header[..COLUMNS.len()] == COLUMNS =>
            {
                parsed.table.names = header[COLUMNS.len()..].to_vec();
            }
            _ => {
                parsed.problem = Some(format!("the first line is not `{},...`", COLUMNS.join(",")));
                return parsed;
            }
        }
        for (index, record) in records.enumerate() {
            match record.and_then(|record| row_of(&record, &parsed.table.names)) {
                Ok(row) => parsed.table.rows.push(row),
                Err(problem) => {
                    parsed.problem = Some(format!("row {}: {problem}", index + 1));
                    break;
                }
            }
        }
        parsed
    }
}

/// Line of a row, with its end.
pub(super) fn line_of(row: &Row, names: &[String]) -> String {
    let mut line = format!(
        "{},{},{:.3},{}",
        row.step, row.epoch, row.seconds, row.split
    );
    for name in names {
        line.push(',');
        if let Some((_, value)) = row.metrics.iter().find(|(metric, _)| metric == name) {
            // The shortest digits that read back as the same number.
            write!(line, "{value}").expect("writing to a `String` does not fail");
        }
    }
    line.push('\n');
    line
}

fn row_of(record: &[String], names: &[String]) -> Result<Row, String> {
    if record.len() != COLUMNS.len() + names.len() {
        return Err(format!(
            "{} fields, the header has {}",
            record.len(),
            COLUMNS.len() + names.len()
        ));
    }
    let bad = |index: usize| format!("`{}` is not a value of `{}`", record[index], COLUMNS[index]);
    let mut metrics = Vec::new();
    for (name, field) in names
        .iter()
        .zip(&record[COLUMNS.len()..])
        .filter(|(_, field)| !field.is_empty())
    {
        let value = field
            .parse()
            .map_err(|_| format!("`{field}` is not a value of `{name}`"))?;
        metrics.push((name.clone(), value));
    }
    Ok(Row {
        step: record[0].parse().map_err(|_| bad(0))?,
        epoch: record[1].parse().map_err(|_| bad(1))?,
        seconds: record[2].parse().map_err(|_| bad(2))?,
        split: record[3].parse().map_err(|()| bad(3))?,
        metrics,
    })
}

/// Records of a comma-separated file; quoted fields may contain line ends. A last record without its
/// line end is an error, because a kill may have truncated it anywhere.
fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Vec<String>, String>> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(bytes);
    std::iter::from_fn(move || {
        let mut record = csv::ByteRecord::new();
        // Reading from memory does not fail.
        if !reader.read_byte_record(&mut record).unwrap_or(false) {
            return None;
        }
        let end = reader.position().byte() as usize;
        if !bytes[..end].ends_with(b"\n") && !bytes[..end].ends_with(b"\r") {
            return Some(Err("the line has no end".into()));
        }
        let text = |field: &[u8]| {
            String::from_utf8(field.to_vec()).map_err(|_| "it is not UTF-8".to_string())
        };
        Some(record.iter().map(text).collect())
    })
}
