//! Differences between two identities, as an error and as warnings.

use halite_core::{Error, ErrorKind, Result};

use super::DATA;

/// Longer values are cut in messages.
const SHOWN: usize = 120;

/// One property whose saved and given values differ.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) name: String,
    pub(super) options: &'static [&'static str],
    pub(super) saved: String,
    pub(super) given: String,
}

/// Differences between the identities of a saved run and the run that resumes.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(super) refused: Vec<Difference>,
    pub(super) accepted: Vec<Difference>,
    pub(super) rounding: Vec<Difference>,
    /// Number of epochs, with the numbers of the schedule that follow from it.
    pub(super) length: Option<(Difference, Difference)>,
    /// True if only the program of the training step differs.
    pub(super) other_program: bool,
    /// True if the optimizer of the saved run is described as an earlier halite did.
    pub(super) earlier_optimizer: bool,
    /// Data without a digest, of the saved run or of this one.
    pub(super) unknown: Vec<&'static str>,
}

impl Comparison {
    /// Checks that no difference is rejected. `others` are mismatches found elsewhere, such as
    /// shapes of arrays.
    ///
    /// # Errors
    /// One error with every difference and the remedies.
    pub(crate) fn check(&self, checkpoint: &str, others: &[String]) -> Result<()> {
        let mut lines: Vec<String> = self.refused.iter().map(Difference::line).collect();
        lines.extend(others.iter().cloned());
        if lines.is_empty() {
            return Ok(());
        }
        let count = if lines.len() == 1 {
            "1 difference".to_string()
        } else {
            format!("{} differences", lines.len())
        };
        let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
        let accept = match &self.refused[..] {
            _ if !others.is_empty() => String::new(),
            refused => {
                let names: Vec<String> = refused
                    .iter()
                    .map(|difference| normalized(&difference.name))
                    .collect();
                format!(
                    ", or resume with the given values (`allow_changes`, --allow-changes {})",
                    names.join(",")
                )
            }
        };
        let message = format!(
            "{checkpoint} belongs to another run, {count}:{lines}\n\
             Give the saved values, or another directory (`out`, --out){accept}"
        );
        Err(Error::new(ErrorKind::InvalidArgument, "resume", message))
    }

    /// Warnings for the user.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let list = |differences: &[Difference]| {
            differences
                .iter()
                .map(Difference::line)
                .collect::<Vec<_>>()
                .join("; ")
        };
        let mut warnings = Vec::new();
        if !self.accepted.is_empty() {
            warnings.push(format!(
                "the run continues with changed values, as allowed: {}",
                list(&self.accepted)
            ));
        }
        if let Some((epochs, schedule)) = &self.length {
            warnings.push(format!(
                "{}; that changes the learning-rate schedule (saved {}, given {}): the weights differ \
                 from those of an uninterrupted run of either length",
                epochs.line(),
                schedule.saved,
                schedule.given
            ));
        }
        if self.other_program {
            warnings.push(
                "the training step is another program than that of the saved run: the task, the code \
                 of the model or a setting in it was changed, so the result may differ from that of \
                 an uninterrupted run"
                    .to_string(),
            );
        }
        if self.earlier_optimizer {
            warnings.push(
                "optimizer: an earlier version of halite wrote the checkpoint and described it in \
                 other words, so it is unknown whether learning rate and other settings are those \
                 of the saved run"
                    .to_string(),
            );
        }
        if !self.unknown.is_empty() {
            warnings.push(format!(
                "{}: without a digest (`Dataset::digest`), so it is unknown whether the samples are \
                 those of the saved run",
                self.unknown.join(", ")
            ));
        }
        if !self.rounding.is_empty() {
            warnings.push(format!(
                "{}; only the rounding differs, so the weights are not bit-identical to those of an \
                 uninterrupted run",
                list(&self.rounding)
            ));
        }
        warnings
    }
}

impl Difference {
    pub(super) fn line(&self) -> String {
        let options = match self.options {
            [] => String::new(),
            options => format!(" ({})", options.join(", ")),
        };
        let cause = if DATA.contains(&&*self.name) {
            " (other samples, another order, or another function in a `map`)"
        } else {
            ""
        };
        format!(
            "{}{options}: saved {}, given {}{cause}",
            self.name,
            shortened(&self.saved),
            shortened(&self.given)
        )
    }
}

pub(super) fn shortened(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        None => value.to_string(),
        Some((end, _)) => format!("{}..", &value[..end]),
    }
}

/// Returns the form of a name in which `--batch-size` and `batch_size` are equal.
pub(super) fn normalized(name: &str) -> String {
    name.trim().trim_start_matches('-').replace(['_', ' '], "-")
}
