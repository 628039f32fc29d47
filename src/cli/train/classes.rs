//! The names of the classes in the directory of a run.

use halite::{
    Error, ErrorKind, Result,
    core::files,
    train::{Callback, callback::Run},
};

use crate::cli::trained::CLASSES;

/// Writes the names of the classes, one a line, when the training starts: for `halite predict`, and
/// for `halite classify --labels`.
#[derive(Debug)]
pub(super) struct SaveClasses(pub(super) Vec<String>);

impl Callback for SaveClasses {
    fn name(&self) -> String {
        CLASSES.to_string()
    }

    fn on_fit_start(&mut self, run: &mut Run) -> Result<()> {
        let Some(out) = run.out() else {
            return Ok(());
        };
        let (path, text) = (out.join(CLASSES), self.0.join("\n") + "\n");
        files::replace(&path, text.as_bytes()).map_err(|error| {
            let message = format!("cannot write {}", path.display());
            Error::new(ErrorKind::Io, "train", message).caused_by(error)
        })
    }
}
