//! Options that name images and the table of them, as of `halite train ct` and `halite predict`.

use std::path::{Path, PathBuf};

use clap::Args;
use halite::{Error, Result, data::Table};

/// Images, and the table that names them.
#[derive(Args, Clone, Debug)]
pub(super) struct ImageArgs {
    /// Folder of the table and the images
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Table of the images: a CSV file with a header
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Folder of the images
    #[arg(long, value_name = "DIR")]
    pub(super) images: Option<PathBuf>,
    /// Columns that name an image: folders, and last a file name, or the end of one
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub(super) ids: Vec<String>,
}

impl ImageArgs {
    /// The folder of the images: `--images`; else as [`root_of`].
    pub(super) fn root(&self, data: &Path, part: &str) -> PathBuf {
        (self.images.clone()).unwrap_or_else(|| root_of(data, part))
    }
}

/// The folder of the images of a table in `data`: `part` in it, or `data` if there is no such folder.
pub(super) fn root_of(data: &Path, part: &str) -> PathBuf {
    let folder = data.join(part);
    if folder.is_dir() {
        folder
    } else {
        data.to_owned()
    }
}

/// Checks that `--ids` has columns of the table.
///
/// # Errors
/// If one of them is a folder in place of a column.
pub(super) fn check_ids(context: &'static str, ids: &[String], table: &Table) -> Result<()> {
    let is_folder = |id: &&String| !table.has_column(id) && Path::new(id).is_dir();
    let Some(id) = ids.iter().find(is_folder) else {
        return Ok(());
    };
    let columns = table.columns().iter();
    let columns: Vec<String> = columns.map(|column| format!("`{column}`")).collect();
    let message = format!(
        "--ids {id} is a folder; expected columns of {}, which has {}; --images is the folder of the \
         images",
        table.name(),
        columns.join(", ")
    );
    Err(Error::invalid(context, message))
}

/// Whether no cell of a column is a number: a column of classes.
///
/// # Errors
/// If the table has no such column.
pub(super) fn is_text(table: &Table, column: &str) -> Result<bool> {
    let cells = table.strings(column)?;
    Ok(!cells.iter().any(|cell| cell.trim().parse::<f64>().is_ok()))
}
