//! Validation sets of a run, and the names of their metrics.

use std::sync::Arc;

use halite_core::{Error, Result};
use halite_data::{Dataset, Loader};

/// A validation set, with its name if a run has several.
pub(crate) struct NamedSet<D = Loader> {
    pub(crate) name: Option<String>,
    pub(crate) data: D,
}

/// Digested data of a validation set.
pub(crate) type NamedDataset = NamedSet<Arc<dyn Dataset>>;

impl<D> NamedSet<D> {
    /// Name of a metric of this set: `loss`, or `clean/loss`.
    pub(crate) fn metric(&self, metric: &str) -> Arc<str> {
        match &self.name {
            Some(name) => format!("{name}/{metric}").into(),
            None => metric.into(),
        }
    }

    /// What it is in messages.
    pub(crate) fn described(&self) -> String {
        match &self.name {
            Some(name) => format!("validation data `{name}`"),
            None => "validation data".to_string(),
        }
    }
}

/// Checks that each of several sets has a name of its own, which can be a part of a metric's.
pub(crate) fn check_names<D>(sets: &[NamedSet<D>]) -> Result<()> {
    let names: Vec<&str> = sets.iter().filter_map(|set| set.name.as_deref()).collect();
    let is_unusable = |name: &&&str| {
        name.is_empty() || name.contains(|c: char| c == '/' || c == ',' || c.is_whitespace())
    };
    if let Some(name) = names.iter().find(is_unusable) {
        let message = format!(
            "the name {name:?} of a validation set cannot be a part of a metric's name; expected \
             letters, digits, and the like, such as `clean`"
        );
        return Err(Error::invalid("fit", message));
    }
    let is_twice = |(at, name): &(usize, &&str)| names[..*at].contains(name);
    match names.iter().enumerate().find(is_twice) {
        Some((_, name)) => {
            let message = format!("two validation sets have the name `{name}`");
            Err(Error::invalid("fit", message))
        }
        None => Ok(()),
    }
}
