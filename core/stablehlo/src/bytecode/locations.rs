//! Decoding of source locations.

use std::sync::Arc;

use halite_core::Result;

use super::{cursor::Cursor, sections::Dialect, table::Table};
use crate::SourceLine;

/// Bound on the locations that one location is made of.
const MOST_PARTS: usize = 500;

impl<'a> Table<'a> {
    /// The innermost line of a file in the location that the next index names.
    pub(super) fn next_location(
        &mut self,
        cursor: &mut Cursor<'a>,
    ) -> Result<Option<Arc<SourceLine>>> {
        let index = cursor.index(self.attributes.len(), "location")?;
        if let Some(known) = &self.locations[index] {
            return Ok(known.clone());
        }
        let line = self.line(index)?.map(Arc::new);
        self.locations[index] = Some(line.clone());
        Ok(line)
    }

    /// Searches a location depth first, without recursion: stacks of calls are long.
    fn line(&mut self, index: usize) -> Result<Option<SourceLine>> {
        let mut parts = vec![index];
        let mut left = MOST_PARTS;
        while let Some(part) = parts.pop() {
            let entry = self.attributes[part];
            if entry.dialect != Dialect::Builtin || !entry.encoded {
                continue;
            }
            let mut contents = entry.contents;
            let next =
                |contents: &mut Cursor<'a>| contents.index(self.attributes.len(), "location");
            match contents.varint()? {
                // A call: the callee, then the caller.
                10 => {
                    let callee = next(&mut contents)?;
                    parts.push(next(&mut contents)?);
                    parts.push(callee);
                }
                // A line and column of a file.
                11 => {
                    let file = self.next_text(&mut contents, 0)?;
                    let line = contents.varint()?;
                    return Ok(Some(source_line(file, line, contents.varint()?)));
                }
                // Several locations, without and with an attribute.
                12 | 13 => {
                    let count = contents.count("locations")?.min(left);
                    let first = parts.len();
                    for _ in 0..count {
                        parts.push(next(&mut contents)?);
                    }
                    parts[first..].reverse();
                }
                // A name and a location.
                14 => {
                    next(&mut contents)?;
                    parts.push(next(&mut contents)?);
                }
                // A range of a file: up to two lines and columns.
                22 => {
                    let file = self.next_text(&mut contents, 0)?;
                    let count = contents.count("line numbers")?;
                    let line = if count > 0 { contents.varint()? } else { 0 };
                    let column = if count > 1 { contents.varint()? } else { 0 };
                    return Ok(Some(source_line(file, line, column)));
                }
                // An unknown location, or a kind that has none.
                _ => {}
            }
            left = left.saturating_sub(parts.len());
            if left == 0 {
                break;
            }
        }
        Ok(None)
    }
}

fn source_line(file: String, line: u64, column: u64) -> SourceLine {
    SourceLine {
        file,
        line: u32::try_from(line).unwrap_or(u32::MAX),
        column: u32::try_from(column).unwrap_or(u32::MAX),
    }
}
