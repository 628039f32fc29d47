//! Finds a loss that is far above where it began, though every number is finite.

use serde::{Deserialize, Serialize};

use crate::{LOSS, checkpoint::Exact, format::format_metric, loggers::Row};

/// Factor by which a loss above its least value is a finding.
const GROWTH: f64 = 1e3;
/// Loss above which a value that is not below the first is a finding: with a learning rate that is
/// orders of magnitude too large, the loss diverges within the first steps.
const LARGE: f64 = 1e6;

/// A loss that is `factor` times as large as the least one. Where that is not above 0, its distance
/// from it is `factor` times its size, or its distance from the first loss if that is larger.
pub(crate) fn grown(factor: f64, first: f64, least: f64) -> f64 {
    let size = (first - least).max(least.abs());
    match () {
        () if least > 0.0 => factor * least,
        () if size > 0.0 => least + factor * size,
        // 0 from the first step on: of no size.
        () => f64::INFINITY,
    }
}

/// The course of the training loss.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossGrowth {
    first: Option<(u64, f64)>,
    least: Option<f64>,
    finding: Option<String>,
    is_warned: bool,
}

/// What is in the checkpoints.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct SavedGrowth {
    first: Option<(u64, Exact)>,
    least: Option<Exact>,
}

impl LossGrowth {
    /// The losses that later ones are compared with.
    pub(crate) fn saved(&self) -> SavedGrowth {
        SavedGrowth {
            first: self.first.map(|(step, loss)| (step, Exact(loss))),
            least: self.least.map(Exact),
        }
    }

    /// Continues after these losses.
    pub(crate) fn restore(&mut self, saved: SavedGrowth) {
        self.first = saved.first.map(|(step, Exact(loss))| (step, loss));
        self.least = saved.least.map(|Exact(loss)| loss);
    }

    /// Takes the metrics of some training steps.
    pub(crate) fn add(&mut self, row: &Row) {
        let Some(loss) = row.get(LOSS).filter(|loss| loss.is_finite()) else {
            return;
        };
        let (steps, first) = *self.first.get_or_insert((row.step, loss));
        let least = self.least.map_or(loss, |least| least.min(loss));
        self.least = Some(least);
        let has_grown = loss > grown(GROWTH, first, least);
        let is_large = row.step > steps && loss >= LARGE && loss >= first;
        self.finding = (has_grown || is_large).then(|| {
            format!(
                "the training loss is {} at step {}, was {} up to step {steps}, and {} at best: the \
                 run has diverged, though every number is finite; a smaller learning rate, a warmup \
                 or clipped gradients often help",
                format_metric(LOSS, loss),
                row.step,
                format_metric(LOSS, first),
                format_metric(LOSS, least),
            )
        });
        if let Some(finding) = self.finding.as_ref().filter(|_| !self.is_warned) {
            halite_core::warning!("{finding}");
            self.is_warned = true;
        }
    }

    /// What is wrong with the last loss, if it is too large.
    pub(crate) fn finding(&self) -> Option<&str> {
        self.finding.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loggers::Split;

    fn finding(losses: &[f64]) -> Option<String> {
        let mut growth = LossGrowth::default();
        for (number, &loss) in losses.iter().enumerate() {
            growth.add(&Row {
                step: 50 * (number as u64 + 1),
                epoch: 0,
                seconds: 0.0,
                split: Split::Train,
                metrics: vec![(LOSS.into(), loss)],
            });
        }
        growth.finding().map(str::to_owned)
    }

    #[test]
    fn loss_that_grows_is_a_finding() {
        let found = finding(&[2.3, 1.5, 9e3]).unwrap();
        assert!(
            found.contains("at step 150") && found.contains("diverged"),
            "{found}"
        );
        // Diverged in the first steps.
        assert!(finding(&[1e8, 7.5e8]).is_some());
        // From below 0.
        assert!(finding(&[3.0, -2.0, 5.1e3]).is_some());
    }

    #[test]
    fn loss_that_falls_is_no_finding() {
        assert_eq!(finding(&[2.3, 1.5, 0.1, 3.0]), None);
        // Targets of large numbers.
        assert_eq!(finding(&[1e9, 9e8, 8.5e8]), None);
        // It has recovered.
        assert_eq!(finding(&[2.3, 9e3, 2.0]), None);
        assert_eq!(finding(&[-1.0, -500.0, f64::NAN]), None);
        // A negative log likelihood that changes its sign.
        assert_eq!(finding(&[3.0, -2.0, 4.0]), None);
        assert_eq!(finding(&[0.0, 0.5]), None);
    }
}
