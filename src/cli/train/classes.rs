//! The names of the classes in the directory of a run.

use halite::{
    Result,
    core::files,
    train::{Callback, callback::Run},
};

use crate::cli::{io_error, trained::CLASSES};

/// Classes that a message names.
const NAMED: usize = 5;

/// Says which classes or labels no image of the training has; `trained` are the numbers of those that
/// one has.
pub(super) fn say_untrained(names: &[String], trained: impl Iterator<Item = usize>) {
    let mut is_trained = vec![false; names.len()];
    trained.for_each(|name| is_trained[name] = true);
    let untrained = names
        .iter()
        .zip(&is_trained)
        .filter(|(_, is_trained)| !**is_trained);
    let untrained: Vec<String> = untrained.map(|(name, _)| format!("`{name}`")).collect();
    if untrained.is_empty() {
        return;
    }
    let more = match untrained.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    remark!(
        "warning: no training image has {}{more}, which the model cannot learn; add images with it, or leave \
         it out",
        untrained[..untrained.len().min(NAMED)].join(", ")
    );
}

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
        files::replace(&path, text.as_bytes()).map_err(io_error("train", "write", &path))
    }
}
