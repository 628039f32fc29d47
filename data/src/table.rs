//! Tables: CSV files with a header, in memory.

use std::{
    collections::{HashMap, HashSet},
    fmt::Display,
    path::Path,
    str::FromStr,
};

use csv::{Position, ReaderBuilder, StringRecord};
use halite_core::{Error, ErrorKind, Result, guard};

use crate::input;

/// A CSV file with a header: rows of text, whose columns have names.
///
/// Cells are separated by commas, and may be in double quotes (RFC 4180). Where the header has no
/// comma, but semicolons or tabs, as spreadsheets write in many countries, cells are separated by
/// these. A byte-order mark of UTF-8 is skipped, and so are empty lines.
///
/// ```
/// use halite_data::Table;
///
/// let table = Table::parse("train.csv", b"id,age,sick\na7,61,1\nb2,48,0\n")?;
/// assert_eq!(table.strings("id")?, ["a7", "b2"]);
/// assert_eq!(table.column::<f32>("sick")?, [1.0, 0.0]);
/// let error = table.column::<u8>("height").unwrap_err().to_string();
/// assert!(error.contains("no column `height`; it has `id`, `age`, `sick`"));
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    name: String,
    columns: Vec<String>,
    /// All cells, one after the other, row by row.
    text: String,
    /// End of each cell in `text`.
    ends: Vec<usize>,
    /// Line of the file on which each row starts, from 1.
    lines: Vec<u64>,
}

const CONTEXT: &str = "table";

/// Number of column names and rows in a message.
const NAMED: usize = 20;

impl Table {
    /// Reads a CSV file, which may be compressed with gzip.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the file cannot be read; [`ErrorKind::Corrupt`] if it has no header,
    /// two columns of one name, a row with another number of cells than the header, an unclosed
    /// quote, or text that is not UTF-8. Errors name the file and the line.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = input::read(path).map_err(|(kind, reason)| {
            let message = format!("{}: {reason}", path.display());
            Error::new(kind, CONTEXT, message)
        })?;
        Self::parse(path.display().to_string(), &bytes)
    }

    /// Parses the content of a CSV file; `name` is its name in errors.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(name: impl Into<String>, bytes: &[u8]) -> Result<Self> {
        let name = name.into();
        guard::call(|| Self::parse_named(&name, bytes)).unwrap_or_else(|panic| {
            Err(Error::new(
                ErrorKind::Corrupt,
                CONTEXT,
                format!("{name}: {panic}"),
            ))
        })
    }

    fn parse_named(name: &str, bytes: &[u8]) -> Result<Self> {
        let failed =
            |reason: String| Error::new(ErrorKind::Corrupt, CONTEXT, format!("{name}: {reason}"));
        if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
            return Err(failed("it is UTF-16; save it as UTF-8".to_owned()));
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let separator = separator(bytes);
        check_quotes(bytes, separator).map_err(&failed)?;
        // Rows are compared with the header below, with a message of our own.
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(separator)
            .from_reader(bytes);
        let mut record = StringRecord::new();
        let mut next = |record: &mut StringRecord| {
            let found = reader.read_record(record);
            found.map_err(|error| failed(describe(&error)))
        };
        if !next(&mut record)? {
            let reason = "it is empty; expected a header with the names of the columns";
            return Err(failed(reason.to_owned()));
        }
        let columns: Vec<String> = record.iter().map(|cell| cell.trim().to_owned()).collect();
        check_names(&columns).map_err(&failed)?;
        let (mut text, mut ends, mut lines) = (String::new(), Vec::new(), Vec::new());
        let mut count = Lines::new(bytes);
        while next(&mut record)? {
            let line = count.of(record.position().map_or(0, Position::byte));
            if record.len() != columns.len() {
                let separated = match separator {
                    b';' => ", separated by semicolons",
                    b'\t' => ", separated by tabs",
                    _ => "",
                };
                return Err(failed(format!(
                    "line {line} has {} cells, the header has {}{separated}",
                    record.len(),
                    columns.len()
                )));
            }
            for cell in &record {
                text.push_str(cell);
                ends.push(text.len());
            }
            lines.push(line);
        }
        Ok(Table {
            name: name.to_owned(),
            columns,
            text,
            ends,
            lines,
        })
    }

    /// Number of rows, without the header.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Names of the columns, in the order of the file.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Path of the file, as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether there is a column of this name.
    pub fn has_column(&self, column: &str) -> bool {
        self.columns.iter().any(|name| name == column)
    }

    /// Line of the file on which a row starts, from 1; the header is on line 1 if nothing precedes
    /// it.
    ///
    /// # Panics
    /// If `row` is not below the number of rows.
    pub fn line(&self, row: usize) -> u64 {
        self.lines[row]
    }

    /// The cells of a column, `[rows]`, as they are in the file, without quotes.
    ///
    /// # Errors
    /// If there is no such column; the error names those that there are.
    pub fn strings(&self, column: &str) -> Result<Vec<&str>> {
        let place = self.place(column)?;
        Ok((0..self.len()).map(|row| self.cell(row, place)).collect())
    }

    /// The cells of a column of classes or groups, `[rows]`, without white space around them.
    ///
    /// # Errors
    /// If there is no such column, or two of its texts differ only by blanks, as `cat` and `cat `:
    /// it is uncertain whether these are one class.
    pub fn categories(&self, column: &str) -> Result<Vec<&str>> {
        let cells = self.strings(column)?;
        let (mut known, mut seen) = (HashSet::new(), HashMap::new());
        for (row, &cell) in cells
            .iter()
            .enumerate()
            .filter(|(_, cell)| known.insert(**cell))
        {
            let &mut (other, first) = seen.entry(without_blanks(cell)).or_insert((cell, row));
            if other != cell {
                let reason = format!(
                    "`{cell}` and `{other}` of line {} differ only by blanks; write one of them for \
                     both, or another name",
                    self.lines[first]
                );
                return Err(self.error(row, column, reason));
            }
        }
        Ok(cells.into_iter().map(str::trim).collect())
    }

    /// The values of a column, `[rows]`. White space around a value is ignored.
    ///
    /// # Errors
    /// If there is no such column, or a cell is not a `T`; the error has file, line and column.
    pub fn column<T>(&self, column: &str) -> Result<Vec<T>>
    where
        T: FromStr,
        T::Err: Display,
    {
        let cells = self.strings(column)?.into_iter().enumerate();
        let parse = |(row, cell): (usize, &str)| {
            cell.trim().parse().map_err(|error: T::Err| {
                let kind = std::any::type_name::<T>();
                self.error(
                    row,
                    column,
                    format!("`{cell}` is not of type {kind}: {error}"),
                )
            })
        };
        cells.map(parse).collect()
    }

    /// An error about a cell: file, line, column, and what is wrong with it.
    ///
    /// # Panics
    /// If `row` is not below the number of rows.
    pub fn error(&self, row: usize, column: &str, reason: impl Display) -> Error {
        let (name, line) = (&self.name, self.lines[row]);
        let message = format!("{name}: line {line}, column `{column}`: {reason}");
        Error::new(ErrorKind::Corrupt, CONTEXT, message)
    }

    /// The rows at these indices, in this order.
    ///
    /// # Errors
    /// If an index is not below the number of rows.
    pub fn select(&self, rows: &[usize]) -> Result<Table> {
        let mut table = Table {
            name: self.name.clone(),
            columns: self.columns.clone(),
            text: String::new(),
            ends: Vec::with_capacity(rows.len() * self.columns.len()),
            lines: Vec::with_capacity(rows.len()),
        };
        for &row in rows {
            if row >= self.len() {
                let message = format!("{}: row {row} of {}", self.name, self.len());
                return Err(Error::invalid(CONTEXT, message));
            }
            for place in 0..self.columns.len() {
                table.text.push_str(self.cell(row, place));
                table.ends.push(table.text.len());
            }
            table.lines.push(self.lines[row]);
        }
        Ok(table)
    }

    fn place(&self, column: &str) -> Result<usize> {
        let place = self.columns.iter().position(|name| name == column);
        place.ok_or_else(|| {
            let names: Vec<String> = self
                .columns
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            let more = match names.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let names = names[..names.len().min(NAMED)].join(", ");
            let message = format!("{}: no column `{column}`; it has {names}{more}", self.name);
            Error::invalid(CONTEXT, message)
        })
    }

    fn cell(&self, row: usize, place: usize) -> &str {
        let index = row * self.columns.len() + place;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[index]]
    }
}

/// A text without its white space: names that differ only by blanks are equal then.
pub(crate) fn without_blanks(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Lines of positions in a file. The parser counts those of `\r\n` twice or not at all, and places
/// a row before the empty lines that precede it.
struct Lines<'a> {
    bytes: &'a [u8],
    /// Bytes that are counted.
    end: usize,
    line: u64,
}

impl<'a> Lines<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let (end, line) = (0, 1);
        Lines { bytes, end, line }
    }

    /// Line of the first row at or after a position, which is not before the last one.
    fn of(&mut self, position: u64) -> u64 {
        let start = usize::try_from(position).map_or(self.end, |position| position.max(self.end));
        let mut end = start.min(self.bytes.len());
        while matches!(self.bytes.get(end), Some(b'\r' | b'\n')) {
            end += 1;
        }
        let passed = self.bytes[self.end..end].iter();
        self.line += passed.filter(|&&byte| byte == b'\n').count() as u64;
        self.end = end;
        self.line
    }
}

/// What separates cells: the comma, or what the header has in place of it, outside of quotes.
fn separator(bytes: &[u8]) -> u8 {
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
    let (mut quoted, mut counts) = (false, [0; 3]);
    for &byte in &bytes[start.unwrap_or(0)..] {
        match byte {
            b'"' => quoted = !quoted,
            b'\r' | b'\n' if !quoted => break,
            b',' if !quoted => counts[0] += 1,
            b';' if !quoted => counts[1] += 1,
            b'\t' if !quoted => counts[2] += 1,
            _ => {}
        }
    }
    match counts {
        [0, semicolons, tabs] if semicolons.max(tabs) == 0 => b',',
        [0, semicolons, tabs] if tabs > semicolons => b'\t',
        [0, ..] => b';',
        _ => b',',
    }
}

/// Checks that a quoted cell ends before the file does: the parser would take the rest of the file
/// as one cell.
fn check_quotes(bytes: &[u8], separator: u8) -> Result<(), String> {
    let (mut quoted, mut line, mut opened, mut starts) = (false, 1_usize, 1, true);
    for &byte in bytes {
        match byte {
            b'"' if quoted => quoted = false,
            // A doubled quote closes and opens again, at the same place.
            b'"' if starts => (quoted, opened) = (true, line),
            _ => {}
        }
        starts = !quoted && (byte == separator || matches!(byte, b'\n' | b'\r' | b'"'));
        line += usize::from(byte == b'\n');
    }
    if quoted {
        Err(format!(
            "the quote that opens on line {opened} is never closed"
        ))
    } else {
        Ok(())
    }
}

fn check_names(columns: &[String]) -> Result<(), String> {
    for (place, name) in columns.iter().enumerate() {
        // An index that pandas wrote has no name; two of them cannot be told apart.
        if columns[..place].contains(name) {
            return Err(format!(
                "columns {} and {} of the header are both named `{name}`",
                1 + columns.iter().position(|other| other == name).unwrap_or(0),
                place + 1
            ));
        }
    }
    Ok(())
}

/// Message of an error of the parser.
fn describe(error: &csv::Error) -> String {
    match (error.kind(), error.position()) {
        (csv::ErrorKind::Utf8 { err, .. }, Some(position)) => {
            format!(
                "line {}: cell {} is not UTF-8",
                position.line(),
                err.field() + 1
            )
        }
        _ => error.to_string(),
    }
}
