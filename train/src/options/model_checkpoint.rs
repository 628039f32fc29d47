//! Which checkpoints a run saves, and which of them it keeps.

use std::{fmt, str::FromStr, time::Duration};

use halite_core::{Error, Result};
use halite_nn::schedule::Mode;

#[cfg(feature = "clap")]
use super::amount::time;
#[cfg(feature = "clap")]
use crate::flags::{positive, top_k};

/// Which checkpoints a run with a directory saves and keeps, by the names of Lightning's
/// `ModelCheckpoint`.
///
/// A run saves after each validation and each epoch. Its newest checkpoints, with which a run
/// resumes, are always kept ([`keep_last`](crate::TrainerOptions::keep_last), Lightning's
/// `save_last`), and besides them the best ones by a metric. The end of a run is always saved.
///
/// ```
/// use halite_train::ModelCheckpoint;
///
/// # fn trainer(client: &halite_core::Client) -> halite_core::Result<halite_train::Trainer> {
/// let best = ModelCheckpoint::new("validation accuracy").save_top_k(3);
/// halite_train::Trainer::builder(client).out("runs/first").checkpoint(best).build()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct ModelCheckpoint {
    /// Metric by which checkpoints are the best: `validation loss`, `train loss`
    /// [default: validation loss]
    #[cfg_attr(feature = "clap", arg(long, value_name = "METRIC"))]
    pub monitor: Option<String>,
    /// Whether a smaller or a larger value of --monitor is better, `min` or `max` [default: max for
    /// accuracies and other fractions]
    #[cfg_attr(feature = "clap", arg(long = "monitor-mode", value_name = "min|max"))]
    pub mode: Option<Mode>,
    /// Best checkpoints to keep, in addition to the newest: a number, or `all`
    // -1 is Lightning's name of all.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value = "1", value_parser = top_k,
            allow_negative_numbers = true)
    )]
    pub save_top_k: usize,
    /// Steps between two checkpoints, in addition to the one after each epoch
    #[cfg_attr(
        feature = "clap",
        arg(long = "checkpoint-every", visible_alias = "every-n-train-steps", value_name = "N",
            value_parser = positive::<u64>, allow_negative_numbers = true)
    )]
    pub every_n_train_steps: Option<u64>,
    /// Time between two checkpoints, in addition to the one after each epoch: `30m`, `2h`
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "TIME", value_parser = time, allow_negative_numbers = true)
    )]
    pub train_time_interval: Option<Duration>,
    /// Save after each Nth epoch, and after the validations within it; 0 for none but the last
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "N",
            default_value_t = 1,
            allow_negative_numbers = true
        )
    )]
    pub every_n_epochs: u64,
    /// Keep the best checkpoints as files with the weights alone; the newest stay complete, since a
    /// run resumes from them
    #[cfg_attr(feature = "clap", arg(long))]
    pub save_weights_only: bool,
    /// Metrics in the names of the checkpoints, such as `{epoch}-{val_loss:.3}`
    #[cfg_attr(feature = "clap", arg(long, value_name = "TEMPLATE"))]
    pub filename: Option<CheckpointName>,
}

impl ModelCheckpoint {
    pub(crate) const DEFAULT: Self = ModelCheckpoint {
        monitor: None,
        mode: None,
        save_top_k: 1,
        every_n_train_steps: None,
        train_time_interval: None,
        every_n_epochs: 1,
        save_weights_only: false,
        filename: None,
    };

    /// Keeps the best checkpoint by this metric.
    pub fn new(monitor: impl Into<String>) -> Self {
        ModelCheckpoint {
            monitor: Some(monitor.into()),
            ..Self::DEFAULT
        }
    }

    /// Sets the direction in which the metric improves. Default: by its name, as [`Mode::of`] says.
    pub fn mode(self, mode: Mode) -> Self {
        ModelCheckpoint {
            mode: Some(mode),
            ..self
        }
    }

    /// Sets the number of best checkpoints to keep; 0 for none, `usize::MAX` for all.
    pub fn save_top_k(self, save_top_k: usize) -> Self {
        ModelCheckpoint { save_top_k, ..self }
    }

    /// Also saves every `steps` optimizer steps.
    pub fn every_n_train_steps(self, steps: u64) -> Self {
        ModelCheckpoint {
            every_n_train_steps: Some(steps),
            ..self
        }
    }

    /// Saves when this time has passed since the last checkpoint, too.
    pub fn train_time_interval(self, time: Duration) -> Self {
        ModelCheckpoint {
            train_time_interval: Some(time),
            ..self
        }
    }

    /// Saves every `every_n_epochs` epochs, and after the validations within these; with 0 only after
    /// the last epoch.
    pub fn every_n_epochs(self, every_n_epochs: u64) -> Self {
        ModelCheckpoint {
            every_n_epochs,
            ..self
        }
    }

    /// Keeps the best checkpoints as files with the weights alone, and with their averages if the
    /// run has some. Such a file is named as its checkpoint, with `.safetensors` at the end. What
    /// reads the parameters of a checkpoint reads it, by its path:
    /// [`Trainer::load`](crate::Trainer::load), [`Checkpoint::load`](crate::Checkpoint::load), and
    /// `halite checkpoint export`, which writes it with the names of the model alone.
    pub fn save_weights_only(self) -> Self {
        ModelCheckpoint {
            save_weights_only: true,
            ..self
        }
    }

    /// Adds metrics to the names of the checkpoints.
    ///
    /// # Errors
    /// If the template is not that of a [`CheckpointName`].
    pub fn filename(self, template: &str) -> Result<Self> {
        Ok(ModelCheckpoint {
            filename: Some(template.parse()?),
            ..self
        })
    }
}

impl Default for ModelCheckpoint {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Metrics in the name of a checkpoint: `{epoch}-{val_loss:.3}` makes
/// `step-00000938-epoch=2-val_loss=0.081` of `step-00000938`.
///
/// `{epoch}` is the number of epochs that are done, `{step}` that of the steps, and any other name
/// is a metric. `.3` is a number of decimals, also as `.3f`, and `02d` a width that zeros fill. A
/// checkpoint at whose step one of the metrics is not known, as between two validations, has the
/// plain name.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointName(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Field { name: String, format: Format },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Plain,
    /// Digits after the point.
    Decimals(u8),
    /// Digits that zeros fill.
    Width(u8),
}

/// Longest template, and longest text that is added to a name, in bytes. File systems allow 255.
const MOST: usize = 150;

impl CheckpointName {
    /// The names in it.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Field { name, .. } => Some(&**name),
            Part::Text(_) => None,
        })
    }

    /// The text with these values; `None` if one is not known.
    pub(crate) fn text(&self, value: impl Fn(&str) -> Option<f64>) -> Option<String> {
        let text = self.0.iter().map(|part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Field { name, format } => {
                let plain = |c: char| if is_plain(c) { c } else { '_' };
                let (value, name) = (value(name)?, name.chars().map(plain).collect::<String>());
                Some(match *format {
                    Format::Plain => format!("{name}={value}"),
                    Format::Decimals(digits) => format!("{name}={value:.*}", digits.into()),
                    Format::Width(width) => format!("{name}={value:0width$}", width = width.into()),
                })
            }
        });
        let text = text.collect::<Option<String>>()?;
        (text.len() <= MOST).then_some(text)
    }
}

/// Whether a name of a file can have it on every system.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_=+.".contains(character)
}

impl FromStr for CheckpointName {
    type Err = Error;

    fn from_str(template: &str) -> Result<Self> {
        let refused = |what: &str| {
            let message = format!(
                "`{template}` {what}; expected a template such as `{{epoch}}-{{val_loss:.3}}`"
            );
            Error::invalid("filename", message)
        };
        if template.len() > MOST {
            return Err(refused(&format!("is longer than {MOST} bytes")));
        }
        let (mut parts, mut rest) = (Vec::new(), template);
        while !rest.is_empty() {
            let (text, from) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
            if let Some(other) = text.chars().find(|c| !is_plain(*c)) {
                return Err(refused(&format!("has the character {other:?}")));
            }
            if !text.is_empty() {
                parts.push(Part::Text(text.into()));
            }
            let Some(from) = from.strip_prefix('{') else {
                break;
            };
            let (field, after) = from
                .split_once('}')
                .ok_or_else(|| refused("has a `{` without a `}`"))?;
            let (name, format) = field.split_once(':').unwrap_or((field, ""));
            if name.is_empty() {
                return Err(refused("has braces without the name of a metric"));
            }
            let format = Format::parse(format).ok_or_else(|| {
                refused(&format!("has the format `{format}`, not as `.3` or `02d`"))
            })?;
            let name = name.into();
            parts.push(Part::Field { name, format });
            rest = after;
        }
        if template.ends_with(".safetensors") {
            return Err(refused(
                "ends in `.safetensors`, which a file of weights gets by itself",
            ));
        }
        match parts.iter().any(|part| matches!(part, Part::Field { .. })) {
            true => Ok(CheckpointName(parts)),
            false => Err(refused("names no metric")),
        }
    }
}

impl Format {
    fn parse(text: &str) -> Option<Self> {
        let digits = |text: &str| text.parse::<u8>().ok().filter(|digits| *digits <= 20);
        match (text, text.strip_prefix('.'), text.strip_suffix('d')) {
            ("", ..) => Some(Format::Plain),
            (_, Some(decimals), _) => {
                digits(decimals.strip_suffix('f').unwrap_or(decimals)).map(Format::Decimals)
            }
            (_, _, Some(width)) => digits(width).map(Format::Width),
            _ => None,
        }
    }
}

impl fmt::Display for CheckpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Field { name, format } => match format {
                Format::Plain => write!(f, "{{{name}}}"),
                Format::Decimals(digits) => write!(f, "{{{name}:.{digits}}}"),
                Format::Width(width) => write!(f, "{{{name}:0{width}d}}"),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(template: &str) -> String {
        let values = [("epoch", 2.0), ("val_loss", 0.12345), ("mean iou", 0.5)];
        let value = |name: &str| {
            let found = values.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| *value)
        };
        match template.parse::<CheckpointName>() {
            Ok(name) => name.text(value).unwrap_or("unknown".into()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn names_have_the_values_of_metrics() {
        assert_eq!(text("{epoch}-{val_loss:.3}"), "epoch=2-val_loss=0.123");
        assert_eq!(
            text("best-{epoch:02d}-{val_loss:.2f}"),
            "best-epoch=02-val_loss=0.12"
        );
        assert_eq!(text("{mean iou}"), "mean_iou=0.5");
        assert_eq!(text("{accuracy}"), "unknown");
    }

    #[test]
    fn templates_that_are_no_names_are_refused() {
        for (template, expected) in [
            ("../{epoch}", "has the character '/'"),
            ("{epoch", "has a `{` without a `}`"),
            ("{:.3}", "has braces without the name of a metric"),
            ("{epoch:x}", "has the format `x`"),
            (
                "{epoch}-{val_loss:.3}.safetensors",
                "ends in `.safetensors`",
            ),
            ("best", "names no metric"),
            ("", "names no metric"),
        ] {
            let error = text(template);
            assert!(error.contains(expected), "{template}: {error}");
        }
        assert!(text(&"{epoch}".repeat(50)).contains("is longer than 150 bytes"));
    }

    #[test]
    fn template_is_its_text() {
        let template = "best-{epoch:02d}-{val_loss:.2}-{mean iou}";
        let name: CheckpointName = template.parse().unwrap();
        assert_eq!(name.to_string(), template);
    }
}
