//! Ranking of the checkpoints of a run by a metric. It is part of each checkpoint, so that a resumed
//! run keeps what the whole one keeps.

use halite_nn::schedule::Mode;
use serde::{Deserialize, Serialize};

use super::{Exact, Keep};

/// Name of the state in a checkpoint that the ranking is.
pub(crate) const RANKING: &str = "checkpointing";

/// The best checkpoints so far.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Ranking {
    /// The best value; before there was a ranking, it was all that there is.
    best: Option<Exact>,
    /// The metric and its direction.
    #[serde(default)]
    by: Option<String>,
    /// The best first, and of equal ones the earliest.
    #[serde(default)]
    top: Vec<Ranked>,
    #[serde(default)]
    weights_only: bool,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Ranked {
    step: u64,
    value: Exact,
}

impl Ranking {
    /// An empty ranking.
    pub(crate) fn new(by: String, weights_only: bool) -> Self {
        Ranking {
            by: Some(by),
            weights_only,
            ..Ranking::default()
        }
    }

    /// What it is by; `None` in the checkpoints before there was a choice.
    pub(crate) fn by(&self) -> Option<&str> {
        self.by.as_deref()
    }

    /// Continues the ranking of a checkpoint.
    pub(crate) fn continued(self, saved: Ranking) -> Self {
        Ranking {
            by: self.by,
            weights_only: self.weights_only,
            ..saved
        }
    }

    /// The ranking with the checkpoint of `step`, of at most `most` checkpoints, and whether that
    /// one is the best so far.
    #[must_use]
    pub(crate) fn with(&self, step: u64, value: f64, mode: Mode, most: usize) -> (Self, bool) {
        let mut next = self.clone();
        let best = self.best.as_ref().map(|best| best.0);
        // An undefined value is worse than any other, and never the best.
        let is_better =
            |other: f64| mode.is_better(value, other) || (other.is_nan() && !value.is_nan());
        let is_best = most > 0 && !value.is_nan() && best.is_none_or(is_better);
        if is_best {
            next.best = Some(Exact(value));
        }
        next.top.retain(|ranked| ranked.step != step);
        let is_behind = |ranked: &Ranked| is_better(ranked.value.0);
        let place = next
            .top
            .iter()
            .position(is_behind)
            .unwrap_or(next.top.len());
        let value = Exact(value);
        next.top.insert(place, Ranked { step, value });
        next.top.truncate(most);
        (next, is_best)
    }

    /// The checkpoints to keep.
    pub(crate) fn keep(&self) -> Keep {
        Keep {
            steps: self.top.iter().map(|ranked| ranked.step).collect(),
            weights_only: self.weights_only,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(mode: Mode, most: usize, values: &[f64]) -> (Vec<u64>, Vec<bool>) {
        let mut ranking = Ranking::default();
        let is_best = (1..).zip(values).map(|(step, value)| {
            let (next, is_best) = ranking.with(step, *value, mode, most);
            ranking = next;
            is_best
        });
        let is_best = is_best.collect();
        (ranking.keep().steps, is_best)
    }

    #[test]
    fn best_checkpoints_come_first() {
        let values = [3.0, 1.0, 2.0, 1.0, 4.0];
        let (top, is_best) = ranked(Mode::Min, 3, &values);
        assert_eq!(top, [2, 4, 3]);
        assert_eq!(is_best, [true, true, false, false, false]);
        assert_eq!(ranked(Mode::Max, 2, &values).0, [5, 1]);
        assert_eq!(ranked(Mode::Min, usize::MAX, &values).0, [2, 4, 3, 1, 5]);
        let none = ranked(Mode::Min, 0, &values);
        assert_eq!(none, (vec![], vec![false; 5]));
    }

    #[test]
    fn undefined_values_are_never_the_best() {
        let values = [f64::NAN, 0.5, f64::NAN, 0.7];
        for (mode, expected) in [(Mode::Max, [4, 2, 1]), (Mode::Min, [2, 4, 1])] {
            let (top, is_best) = ranked(mode, 3, &values);
            assert_eq!(top, expected);
            assert_eq!(is_best, [false, true, false, mode == Mode::Max]);
        }
    }

    #[test]
    fn step_that_is_saved_again_is_ranked_once() {
        let (ranking, _) = Ranking::default().with(7, 1.0, Mode::Min, 3);
        let (ranking, _) = ranking.with(7, 2.0, Mode::Min, 3);
        assert_eq!(ranking.keep().steps, [7]);
    }
}
