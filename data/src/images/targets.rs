//! Labels and classes of the rows of a table.

use std::{collections::HashMap, sync::Arc};

use halite_core::{Error, Result};

use crate::Table;

/// Labels or classes of the images, by rows of a table.
#[derive(Clone, Debug)]
pub(super) enum Targets {
    Nothing,
    Labels {
        names: Vec<String>,
        /// `[rows, labels]`
        values: Arc<[f32]>,
    },
    Classes {
        names: Vec<String>,
        /// `[rows]`
        values: Arc<[u32]>,
    },
}

/// Names of the classes in a column, and the number of that of each row.
pub(super) fn classes(
    context: &'static str,
    table: &Table,
    column: &str,
) -> Result<(Vec<String>, Vec<u32>)> {
    let cells = table.categories(column)?;
    if let Some(row) = cells.iter().position(|cell| cell.is_empty()) {
        return Err(table.error(row, column, "the class is empty"));
    }
    if let Some(row) = cells.iter().position(|cell| cell.contains(['\n', '\r'])) {
        return Err(table.error(row, column, "the class has a line break"));
    }
    let mut names: Vec<&str> = cells.clone();
    names.sort_unstable();
    names.dedup();
    let numbers: Result<Vec<u64>, _> = names.iter().map(|name| name.parse()).collect();
    if let Ok(numbers) = numbers {
        let mut numbered: Vec<(u64, &str)> = numbers.into_iter().zip(names).collect();
        numbered.sort_unstable();
        names = numbered.into_iter().map(|(_, name)| name).collect();
    }
    let refused = |reason: String| {
        let message = format!("{}: column `{column}` {reason}", table.name());
        Err(Error::invalid(context, message))
    };
    if let [name] = names[..] {
        return refused(format!(
            "has one class alone, `{name}`; expected two or more"
        ));
    }
    if names.len() == cells.len() {
        return refused(format!(
            "has another text in each of {} rows, so that it names images, not classes",
            cells.len()
        ));
    }
    let numbers = (0..).zip(&names).map(|(number, &name)| (name, number));
    let numbers: HashMap<&str, u32> = numbers.collect();
    let values = cells.iter().map(|cell| numbers[cell]).collect();
    Ok((names.into_iter().map(str::to_owned).collect(), values))
}
