//! Metrics that callbacks watch, by name.

use std::fmt;

use halite_core::{Error, Result, edit_distance};

use crate::loggers::Split;

/// A metric of a run, of its training or its validation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Monitor {
    pub(crate) split: Split,
    pub(crate) metric: String,
}

impl Monitor {
    /// Finds the metric with this name among `names`: `validation loss`, `train loss`; `loss` alone
    /// is that of the validation. `val_loss` and `train_loss` are the same.
    ///
    /// # Errors
    /// If there is none, with those that there are.
    pub(crate) fn resolve(op: &'static str, name: &str, names: &[String]) -> Result<Self> {
        Monitor::find(name, names).ok_or_else(|| {
            let most_like = names
                .iter()
                .min_by_key(|known| edit_distance(known, &written_out(name)));
            let most_like =
                most_like.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let message = format!(
                "the run has no metric `{name}`; it has {}{most_like}",
                names.join(", ")
            );
            Error::invalid(op, message)
        })
    }

    /// The metric with this name, if there is one.
    pub(crate) fn find(name: &str, names: &[String]) -> Option<Self> {
        let validation = Split::Validation;
        let given = [name.to_string(), format!("{validation} {name}")];
        let is = |known: &&String| given.contains(*known);
        let is_alias = |known: &&String| written_out(known) == written_out(name);
        let known = names.iter();
        let found = known
            .clone()
            .find(is)
            .or_else(|| known.clone().find(is_alias))?;
        [Split::Validation, Split::Train]
            .into_iter()
            .find_map(|split| {
                let metric = found.strip_prefix(&format!("{split} "))?.to_string();
                Some(Monitor { split, metric })
            })
    }
}

/// A name with spaces for underscores, and `validation` for `val`.
fn written_out(name: &str) -> String {
    let name = name.replace('_', " ");
    match name.strip_prefix("val ") {
        Some(metric) => format!("{} {metric}", Split::Validation),
        None => name,
    }
}

impl fmt::Display for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.split, self.metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(name: &str) -> String {
        let names = [
            "train loss",
            "train mae",
            "validation loss",
            "validation top_5",
        ];
        match Monitor::resolve("early stopping", name, &names.map(str::to_string)) {
            Ok(monitor) => format!("{:?} of {}", monitor.metric, monitor.split),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn monitors_name_split_or_validation() {
        assert_eq!(resolved("validation loss"), "\"loss\" of validation");
        assert_eq!(resolved("loss"), "\"loss\" of validation");
        assert_eq!(resolved("train mae"), "\"mae\" of train");
    }

    #[test]
    fn monitors_have_the_names_of_lightning_too() {
        assert_eq!(resolved("val_loss"), "\"loss\" of validation");
        assert_eq!(resolved("val_top_5"), "\"top_5\" of validation");
        assert_eq!(resolved("train_mae"), "\"mae\" of train");
    }

    #[test]
    fn unknown_monitor_lists_the_metrics() {
        let expected = "early stopping: the run has no metric `val_los`; it has `train loss`, \
                        `train mae`, `validation loss`, `validation top_5`; did you mean \
                        `validation loss`?";
        assert_eq!(resolved("val_los"), expected);
        assert!(resolved("mae").contains("no metric `mae`"));
    }
}
