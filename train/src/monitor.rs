//! Metrics that callbacks watch: their names, and the direction in which they improve.

use std::fmt;

use halite_core::{Error, Result};
use halite_nn::schedule::Mode;

use crate::{format::is_fraction, loggers::Split};

/// The direction in which the metric `name` improves: upward for accuracies and other
/// [fractions](is_fraction).
pub(crate) fn mode_of(name: &str) -> Mode {
    match is_fraction(name) {
        true => Mode::Max,
        false => Mode::Min,
    }
}

/// Whether `value` is better than `other`. NaN is not.
pub(crate) fn is_better(mode: Mode, value: f64, other: f64) -> bool {
    match mode {
        Mode::Min => value < other,
        Mode::Max => value > other,
    }
}

/// A metric of a run, of its training or its validation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Monitor {
    pub(crate) split: Split,
    pub(crate) metric: String,
}

impl Monitor {
    /// Finds the metric with this name among `names`: `validation loss`, `train loss`; `loss` alone
    /// is that of the validation.
    ///
    /// # Errors
    /// If there is none, with those that there are.
    pub(crate) fn resolve(op: &'static str, name: &str, names: &[String]) -> Result<Self> {
        let of = |split: Split, name: &str| {
            let metric = name.strip_prefix(&format!("{split} "))?;
            let metric = metric.to_string();
            names
                .iter()
                .any(|known| known == name)
                .then_some(Monitor { split, metric })
        };
        of(Split::Validation, name)
            .or_else(|| of(Split::Train, name))
            .or_else(|| of(Split::Validation, &format!("{} {name}", Split::Validation)))
            .ok_or_else(|| {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                let message = format!(
                    "the run has no metric `{name}`; it has {}",
                    names.join(", ")
                );
                Error::invalid(op, message)
            })
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
        let names = ["train loss", "train mae", "validation loss"].map(str::to_string);
        match Monitor::resolve("early stopping", name, &names) {
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
    fn unknown_monitor_lists_the_metrics() {
        let expected = "early stopping: the run has no metric `val_loss`; it has `train loss`, \
                        `train mae`, `validation loss`";
        assert_eq!(resolved("val_loss"), expected);
        assert!(resolved("mae").contains("no metric `mae`"));
    }
}
