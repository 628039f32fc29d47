//! The options of a trainer: the one place with their names, defaults and descriptions.

use std::{path::PathBuf, time::Duration};

use halite_core::{DTypePolicy, Error, Result};

/// Options of a [`Trainer`](crate::Trainer). Each has a default that works.
///
/// With the feature `clap` they are `clap::Args` too: the descriptions here are the help of the
/// flags, and the defaults are theirs. Properties and the label have no flags; a command that
/// trains one model sets them.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct TrainerOptions {
    /// Passes over the training data
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = DEFAULT.epochs))]
    pub epochs: u64,
    /// Samples of one step, over all devices
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = DEFAULT.batch_size))]
    pub batch_size: usize,
    /// Seed of all random numbers: initialization, order of samples, dropout
    #[cfg_attr(feature = "clap", arg(long, value_name = "SEED", default_value_t = DEFAULT.seed))]
    pub seed: u64,
    /// Directory of the run: checkpoints, metrics, plot, report. Without it nothing is written
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIR"))]
    pub out: Option<PathBuf>,
    /// Continue from the latest checkpoint in the directory of the run, if there is one
    #[cfg_attr(feature = "clap", arg(long))]
    pub resume: bool,
    /// Continue from this checkpoint instead of the latest: `step-00000040`, or `40`
    #[cfg_attr(feature = "clap", arg(long = "from", value_name = "CHECKPOINT"))]
    pub resume_from: Option<String>,
    /// Resume although these properties differ from those of the saved run, by the names in the
    /// error; `all` allows any
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NAMES", value_delimiter = ',')
    )]
    pub allow_changes: Vec<String>,
    /// Further properties of the run, by name: it does not resume from a checkpoint with other
    /// values, unless the change is allowed.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub properties: Vec<(String, String)>,
    /// Steps between two copies of the metrics to the host. They never make the device wait
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = DEFAULT.log_every))]
    pub log_every: u64,
    /// Steps between two checkpoints, in addition to the one after each epoch
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub checkpoint_every: Option<u64>,
    /// Largest global norm of the gradients, which are scaled down to it
    #[cfg_attr(feature = "clap", arg(long, value_name = "NORM"))]
    pub clip_norm: Option<f64>,
    /// Element types that the programs compute in: `f32`, `bf16-mixed`, .. Arrays, checkpoints and
    /// metrics keep theirs [default: bf16-mixed on TPUs and recent GPUs, else f32]
    #[cfg_attr(feature = "clap", arg(long, value_name = "POLICY"))]
    pub precision: Option<DTypePolicy>,
    /// Threads that read samples; the result does not depend on their number
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = DEFAULT.workers))]
    pub workers: usize,
    /// Longest wait for one step or one batch, after which the run fails [default: 20 times the
    /// longest so far, at least an hour, and a day for the first]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS", value_parser = seconds))]
    pub wait_limit: Option<Duration>,
    /// Show no progress bar
    #[cfg_attr(feature = "clap", arg(long))]
    pub quiet: bool,
    /// Description of the model and data. A run does not resume from a checkpoint with another one.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub label: Option<String>,
}

const DEFAULT: TrainerOptions = TrainerOptions {
    epochs: 1,
    batch_size: 128,
    seed: 0,
    out: None,
    resume: false,
    resume_from: None,
    allow_changes: Vec::new(),
    properties: Vec::new(),
    log_every: 50,
    checkpoint_every: None,
    clip_norm: None,
    precision: None,
    workers: 1,
    wait_limit: None,
    quiet: false,
    label: None,
};

impl Default for TrainerOptions {
    fn default() -> Self {
        DEFAULT
    }
}

#[cfg(feature = "clap")]
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "expected a positive number of seconds".to_string())
}

impl TrainerOptions {
    /// Checks values that cannot work, and options that need others.
    ///
    /// # Errors
    /// The first option with such a value.
    pub(crate) fn check(&self) -> Result<()> {
        let nothing = [
            ("epochs", self.epochs),
            ("batch_size", self.batch_size as u64),
            ("log_every", self.log_every),
        ];
        for (name, value) in nothing {
            if value == 0 {
                return Err(Error::invalid(
                    "trainer",
                    format!("`{name}` is 0; it must be at least 1"),
                ));
            }
        }
        if self.checkpoint_every == Some(0) {
            return Err(Error::invalid(
                "trainer",
                "`checkpoint_every` is 0; it must be at least 1, or not set",
            ));
        }
        if let Some(norm) = self
            .clip_norm
            .filter(|norm| !(*norm > 0.0 && norm.is_finite()))
        {
            return Err(Error::invalid(
                "trainer",
                format!("`clip_norm` is {norm}; it must be positive and finite"),
            ));
        }
        if self.wait_limit == Some(Duration::ZERO) {
            return Err(Error::invalid(
                "trainer",
                "`wait_limit` is 0, in which no step can end; it must be longer, or not set",
            ));
        }
        if (self.resume || self.resume_from.is_some()) && self.out.is_none() {
            return Err(Error::invalid(
                "trainer",
                "`resume` needs `out`: the directory of the run to go on with",
            ));
        }
        if !self.allow_changes.is_empty() && !self.resume && self.resume_from.is_none() {
            return Err(Error::invalid(
                "trainer",
                "`allow_changes` needs `resume` or `resume_from` (--resume, --from): a run to go \
                 on with",
            ));
        }
        if self.checkpoint_every.is_some() && self.out.is_none() {
            return Err(Error::invalid(
                "trainer",
                "`checkpoint_every` needs `out`: the directory to write checkpoints to",
            ));
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "clap"))]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: TrainerOptions,
    }

    #[test]
    fn flags_have_the_defaults_of_the_options() {
        let options = Command::try_parse_from(["train"]).unwrap().options;
        assert_eq!(options, TrainerOptions::default());
    }

    #[test]
    fn every_flag_sets_its_option() {
        let flags = "train --epochs 3 --batch-size 8 --seed 5 --out dir --resume --from 40 \
                     --allow-changes seed,batch-size --log-every 7 --checkpoint-every 9 \
                     --clip-norm 0.5 --precision bf16-mixed --workers 2 --wait-limit 60 --quiet";
        let options = Command::try_parse_from(flags.split(' ').filter(|flag| !flag.is_empty()));
        let expected = TrainerOptions {
            epochs: 3,
            batch_size: 8,
            seed: 5,
            out: Some("dir".into()),
            resume: true,
            resume_from: Some("40".into()),
            allow_changes: vec!["seed".into(), "batch-size".into()],
            log_every: 7,
            checkpoint_every: Some(9),
            clip_norm: Some(0.5),
            precision: Some("bf16-mixed".parse().unwrap()),
            workers: 2,
            wait_limit: Some(Duration::from_secs(60)),
            quiet: true,
            ..TrainerOptions::default()
        };
        assert_eq!(options.unwrap().options, expected);
    }
}
