//! The direction in which a metric improves.

use std::{fmt, str::FromStr};

use halite_core::{Error, Result};

/// Direction in which a metric improves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Smaller is better, such as a loss.
    Min,
    /// Larger is better, such as an accuracy.
    Max,
}

impl Mode {
    /// The direction of the metric with this name: upward for accuracies and other fractions of
    /// what is right, downward for all others. It is found by words of the name: accuracy, acc,
    /// precision, recall, f1, auc, iou, dice, top5. With loss, error or err among them it is
    /// downward. What stands before the last `/`, such as the name of a validation set, does not
    /// count, except for the values of a metric by label or class, such as `roc_auc/effusion`: these
    /// improve upward if precision, recall, f1, auc or iou is a word of the name before the last `/`,
    /// and the last part is not `loss`.
    ///
    /// ```
    /// use halite_nn::schedule::Mode;
    ///
    /// assert_eq!(Mode::of("validation accuracy"), Mode::Max);
    /// assert_eq!(Mode::of("train loss"), Mode::Min);
    /// assert_eq!(Mode::of("dice_loss"), Mode::Min);
    /// ```
    pub fn of(metric: &str) -> Self {
        const WORDS: [&str; 9] = [
            "accuracy",
            "acc",
            "precision",
            "recall",
            "f1",
            "auc",
            "iou",
            "dice",
            "top",
        ];
        let is_known = |word: &str| {
            let word = word.to_ascii_lowercase();
            // `top5` is `top` with a number.
            let is_top = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit());
            WORDS.contains(&&*word) || word.strip_prefix("top").is_some_and(is_top)
        };
        let is_loss = |word: &str| {
            let words = ["loss", "error", "err"];
            words.iter().any(|loss| word.eq_ignore_ascii_case(loss))
        };
        fn words(text: &str) -> impl Iterator<Item = &str> {
            text.split(|c: char| !c.is_ascii_alphanumeric())
        }
        let mut parts = metric.rsplit('/');
        let (name, before) = (parts.next().unwrap_or_default(), parts.next());
        let by_label = before.filter(|_| !name.eq_ignore_ascii_case("loss"));
        let is_by_label = |metric: &str| {
            let of_labels = |word: &str| {
                let known = ["precision", "recall", "f1", "auc", "iou"];
                known.iter().any(|known| word.eq_ignore_ascii_case(known))
            };
            !words(metric).any(is_loss) && words(metric).any(of_labels)
        };
        let is_upward = !words(name).any(is_loss) && words(name).any(is_known);
        match is_upward || by_label.is_some_and(is_by_label) {
            true => Mode::Max,
            false => Mode::Min,
        }
    }

    /// Whether `value` is better than `other`. A NaN is neither better nor worse.
    pub fn is_better(self, value: f64, other: f64) -> bool {
        match self {
            Mode::Min => value < other,
            Mode::Max => value > other,
        }
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "min" => Ok(Mode::Min),
            "max" => Ok(Mode::Max),
            _ => {
                let message = format!("unknown mode `{text}`; expected min or max");
                Err(Error::invalid("mode", message))
            }
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Min => "min",
            Mode::Max => "max",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_that_improve_upward_are_known_by_their_words() {
        for name in [
            "accuracy",
            "val_accuracy",
            "train/acc",
            "top5",
            "top-5",
            "Top5_Accuracy",
            "f1",
            "mean-IoU",
            "validation clean/accuracy",
            "roc_auc/effusion",
            "clean/roc_auc/hearing_loss",
            "report/f1/4",
        ] {
            assert_eq!(Mode::of(name), Mode::Max, "{name}");
        }
        for name in [
            "loss",
            "accumulated",
            "learning_rate",
            "topology",
            "norm",
            "dice_loss",
            "val_IoU_Loss",
            "top5_error",
            "validation dice/loss",
            "top/norm",
            "validation recall/loss",
            "",
        ] {
            assert_eq!(Mode::of(name), Mode::Min, "{name}");
        }
    }
}
