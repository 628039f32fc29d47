//! Source lines of operations, and their table after the module.

use std::{collections::HashMap, sync::Arc};

use super::{function::Printer, text::Text};
use crate::SourceLine;

/// The distinct source lines, in the order of their first use.
#[derive(Default)]
pub(super) struct Locations<'m> {
    lines: Vec<&'m SourceLine>,
    numbers: HashMap<&'m SourceLine, u32>,
    /// Numbers by address, as operations share their lines, and the last one.
    known: HashMap<*const SourceLine, u32>,
    last: Option<(*const SourceLine, u32)>,
}

impl<'m> Locations<'m> {
    /// The number of a line, from 1.
    fn number(&mut self, line: &'m Arc<SourceLine>) -> u32 {
        let address = Arc::as_ptr(line);
        if let Some((last, number)) = self.last
            && last == address
        {
            return number;
        }
        let number = match self.known.get(&address) {
            Some(&number) => number,
            None => self.add(line),
        };
        self.last = Some((address, number));
        number
    }

    fn add(&mut self, line: &'m Arc<SourceLine>) -> u32 {
        let lines = &mut self.lines;
        let number = *self.numbers.entry(line).or_insert_with(|| {
            lines.push(line);
            lines.len() as u32
        });
        self.known.insert(Arc::as_ptr(line), number);
        number
    }

    /// Writes `#loc1 = loc("file":1:2)` for each line.
    pub(super) fn table(&self, out: &mut Text<'_>) {
        for (number, place) in (1_u64..).zip(self.lines.iter().copied()) {
            let SourceLine { file, line, column } = place;
            out.text("#loc").number(number).text(" = loc(").string(file);
            out.char(':')
                .number(*line)
                .char(':')
                .number(*column)
                .text(")\n");
        }
    }
}

impl<'m> Printer<'m, '_> {
    /// Writes ` loc(#loc3)`.
    pub(super) fn location(&mut self, line: &'m Option<Arc<SourceLine>>) {
        if let (Some(locations), Some(line)) = (&mut self.locations, line) {
            let number = locations.number(line);
            self.out.text(" loc(#loc").number(number).char(')');
        }
    }
}
