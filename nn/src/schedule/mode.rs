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

/// Words of metrics that are fractions from 0 to 1 of what is right.
const FRACTIONS: [&str; 18] = [
    "accuracy",
    "acc",
    "precision",
    "recall",
    "sensitivity",
    "specificity",
    "f1",
    "fbeta",
    "auc",
    "auroc",
    "auprc",
    "roc",
    "ap",
    "map",
    "iou",
    "jaccard",
    "dice",
    "top",
];

/// Words of other metrics that improve upward.
const UPWARD: [&str; 15] = [
    "score",
    "kappa",
    "mcc",
    "r2",
    "psnr",
    "ssim",
    "bleu",
    "rouge",
    "ndcg",
    "mrr",
    "hits",
    "correlation",
    "pearson",
    "spearman",
    "reward",
];

/// Words of metrics that improve downward, whatever other words are beside them.
const DOWNWARD: [&str; 26] = [
    "loss",
    "losses",
    "error",
    "errors",
    "err",
    "mae",
    "mse",
    "rmse",
    "msle",
    "rmsle",
    "mape",
    "smape",
    "nll",
    "bce",
    "ce",
    "entropy",
    "kl",
    "divergence",
    "perplexity",
    "ppl",
    "bpc",
    "wer",
    "cer",
    "fid",
    "brier",
    "ece",
];

/// What the words of a name say of its metric.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// A fraction of what is right.
    Fraction,
    Upward,
    Downward,
}

impl Kind {
    /// Downward if one of the words says so, else upward if one does.
    fn of(text: &str) -> Option<Kind> {
        let kinds: Vec<Kind> = words(text)
            .filter_map(|word| Kind::of_word(&word))
            .collect();
        let order = [Kind::Downward, Kind::Fraction, Kind::Upward];
        order.into_iter().find(|kind| kinds.contains(kind))
    }

    /// Of a word in lower case. `top5`, `acc1` and `recall10` have a number, `miou` is a mean.
    fn of_word(word: &str) -> Option<Kind> {
        let exact = |word: &str| {
            let lists: [(&[&str], Kind); 3] = [
                (&DOWNWARD, Kind::Downward),
                (&FRACTIONS, Kind::Fraction),
                (&UPWARD, Kind::Upward),
            ];
            let mut lists = lists.into_iter();
            lists.find_map(|(list, kind)| list.contains(&word).then_some(kind))
        };
        let root = word.trim_end_matches(|c: char| c.is_ascii_digit());
        exact(word)
            .or_else(|| exact(root))
            .or_else(|| exact(root.strip_prefix('m')?))
            // `F1Score` in lower case.
            .or_else(|| exact(root.strip_suffix("score")?))
    }
}

/// Words of a name, in lower case: separated by anything but letters and digits.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.map(str::to_ascii_lowercase)
}

impl Mode {
    /// The direction of the metric with this name, if its words say it: upward for accuracies and
    /// other fractions of what is right (`acc1`, `F1Score`, `auroc`, `mean-IoU`, `top5`) and for
    /// scores (`bleu`, `psnr`, `r2`), downward for losses, errors and distances (`mae`,
    /// `perplexity`), also where words of both are in it. `None` if no word is known, as of `gain`:
    /// whoever needs the direction asks for it.
    ///
    /// What stands before the last `/`, such as the name of a validation set, does not count, except
    /// for the values of a metric by label or class, such as `roc_auc/effusion`: these have the
    /// direction of the precision, recall, f1, auc or iou before the `/`, unless the last part is
    /// `loss`.
    ///
    /// ```
    /// use halite_nn::schedule::Mode;
    ///
    /// assert_eq!(Mode::of("validation accuracy"), Some(Mode::Max));
    /// assert_eq!(Mode::of("train loss"), Some(Mode::Min));
    /// assert_eq!(Mode::of("dice_loss"), Some(Mode::Min));
    /// assert_eq!(Mode::of("gain"), None);
    /// ```
    pub fn of(metric: &str) -> Option<Self> {
        kind_of(metric).map(|kind| match kind {
            Kind::Fraction | Kind::Upward => Mode::Max,
            Kind::Downward => Mode::Min,
        })
    }

    /// Whether the words of this name say that the metric is a fraction from 0 to 1 of what is
    /// right, such as an accuracy.
    pub fn is_fraction(metric: &str) -> bool {
        kind_of(metric) == Some(Kind::Fraction)
    }

    /// The direction that is given, or else that of the metric with this name.
    ///
    /// # Errors
    /// If none is given and the name does not say it. `option` sets the direction.
    pub fn given_or_of(given: Option<Mode>, metric: &str, option: &str) -> Result<Self> {
        given.or_else(|| Mode::of(metric)).ok_or_else(|| {
            let message = format!(
                "the name of the metric `{metric}` does not say its direction, whether larger or \
                 smaller values are better; give it by {option}"
            );
            Error::invalid("mode", message)
        })
    }

    /// Whether `value` is better than `other`. A NaN is neither better nor worse.
    pub fn is_better(self, value: f64, other: f64) -> bool {
        match self {
            Mode::Min => value < other,
            Mode::Max => value > other,
        }
    }
}

fn kind_of(metric: &str) -> Option<Kind> {
    let mut parts = metric.rsplit('/');
    let (name, before) = (parts.next().unwrap_or_default(), parts.next());
    let by_label = before.filter(|before| {
        let known = |word: String| ["precision", "recall", "f1", "auc", "iou"].contains(&&*word);
        words(before).any(known) && Kind::of(before) == Some(Kind::Fraction)
    });
    match by_label {
        Some(_) if !name.eq_ignore_ascii_case("loss") => Some(Kind::Fraction),
        _ => Kind::of(name),
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
    fn directions_are_known_by_words() {
        for name in [
            "accuracy",
            "val_accuracy",
            "train/acc",
            "acc1",
            "top5",
            "top-5",
            "Top5_Accuracy",
            "f1",
            "F1Score",
            "auroc",
            "mean-IoU",
            "mIoU",
            "mAP",
            "recall10",
            "validation clean/accuracy",
            "roc_auc/effusion",
            "clean/roc_auc/hearing_loss",
            "report/f1/4",
        ] {
            assert_eq!(Mode::of(name), Some(Mode::Max), "{name}");
            assert!(Mode::is_fraction(name), "{name}");
        }
        for name in [
            "psnr",
            "bleu4",
            "r2",
            "val_score",
            "validation recall/reward",
        ] {
            assert_eq!(Mode::of(name), Some(Mode::Max), "{name}");
        }
        assert!(!Mode::is_fraction("psnr"));
        for name in [
            "loss",
            "val_rmse",
            "perplexity",
            "dice_loss",
            "val_IoU_Loss",
            "top5_error",
            "validation dice/loss",
            "validation recall/loss",
            "top/norm loss",
            "cross entropy",
        ] {
            assert_eq!(Mode::of(name), Some(Mode::Min), "{name}");
        }
        for name in [
            "gain",
            "accumulated",
            "learning_rate",
            "topology",
            "top/norm",
            "",
        ] {
            assert_eq!(Mode::of(name), None, "{name}");
        }
        let error = Mode::given_or_of(None, "gain", "`mode`").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("`gain` does not say its direction")
        );
        let given = Mode::given_or_of(Some(Mode::Min), "accuracy", "`mode`");
        assert_eq!(given.unwrap(), Mode::Min);
    }
}
