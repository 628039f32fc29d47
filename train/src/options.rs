//! The options of a trainer: the one place with their names, defaults and descriptions.

use std::{path::PathBuf, time::Duration};

use halite_core::{DTypePolicy, Error, Result};

#[cfg(feature = "clap")]
use crate::flags::{clip_norm, positive, seconds};

/// Options of a [`Trainer`](crate::Trainer). Each has a default that works.
///
/// With the feature `clap` they are `clap::Args` too: the descriptions here are the help of the
/// flags, and the defaults are theirs. A command with other defaults sets them with `mut_arg`, by
/// the name of the field. Properties and the label have no flags; a command that trains one model
/// sets them.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct TrainerOptions {
    /// Passes over the training data
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.epochs,
            value_parser = positive::<u64>, allow_negative_numbers = true)
    )]
    pub epochs: u64,
    /// Samples per step, over all devices
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.batch_size,
            value_parser = positive::<usize>, allow_negative_numbers = true)
    )]
    pub batch_size: usize,
    /// Steps in one launch of a program, for models whose steps take microseconds
    // The steps are the same, but for rounding: on XLA's CPU plugin, those of a tiny model are compiled
    // in another way if this is more than 1. Launches do not pass a step at which metrics are copied or a checkpoint
    // is saved; steps that do not fill one are launched singly.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.steps_per_execution,
            value_parser = positive::<usize>, allow_negative_numbers = true)
    )]
    pub steps_per_execution: usize,
    /// Seed of all random numbers: initialization, order of samples, dropout, sampling
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "SEED", default_value_t = DEFAULT.seed,
            allow_negative_numbers = true)
    )]
    pub seed: u64,
    /// Precision and gradient clipping.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub numerics: NumericsOptions,
    /// Directory of the run: checkpoints, metrics, plot, report
    // Without it nothing is written.
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIR"))]
    pub out: Option<PathBuf>,
    /// Continue from the latest checkpoint in --out, if there is one
    #[cfg_attr(feature = "clap", arg(long))]
    pub resume: bool,
    /// Continue from this checkpoint in --out instead of the latest: `step-00000040`, or `40`
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
    pub properties: Vec<Property>,
    /// Steps between two log entries of the training metrics
    // The copies to the host never make the device wait.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.log_every,
            value_parser = positive::<u64>, allow_negative_numbers = true)
    )]
    pub log_every: u64,
    /// Steps between two checkpoints, in addition to the one after each epoch
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", value_parser = positive::<u64>, allow_negative_numbers = true)
    )]
    pub checkpoint_every: Option<u64>,
    /// How a checkpoint is written while the run trains
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "MODE", value_enum, default_value_t = DEFAULT.checkpoint_mode)
    )]
    pub checkpoint_mode: CheckpointMode,
    /// Newest checkpoints to keep, in addition to the best one
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.keep_last,
            value_parser = positive::<usize>, allow_negative_numbers = true)
    )]
    pub keep_last: usize,
    /// Threads that load samples; the result does not depend on their number
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = DEFAULT.workers,
            allow_negative_numbers = true)
    )]
    pub workers: usize,
    /// Timeout for one step or one batch, after which the run fails [default: 20 times the longest
    /// so far, at least an hour, and a day for the first]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)
    )]
    pub wait_limit: Option<Duration>,
    /// Do not show a progress bar
    #[cfg_attr(feature = "clap", arg(long))]
    pub quiet: bool,
    /// Description of the model and data. A run does not resume from a checkpoint with another one.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub label: Option<String>,
}

/// Options that change what a training step computes: precision and gradient clipping. A plan of a
/// step shares them with the trainer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct NumericsOptions {
    /// Compute and parameter dtypes: `f32`, `tf32` (f32, multiplied as fast as the device can),
    /// `bf16-mixed`, `f16-mixed`, `bf16`, `use-bf16`, `downcast-bf16` [default: bf16-mixed on TPUs and
    /// recent GPUs, else f32]
    #[cfg_attr(feature = "clap", arg(long, value_name = "POLICY"))]
    pub precision: Option<DTypePolicy>,
    /// Clip gradients to this global norm; 0 turns clipping off
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NORM", value_parser = clip_norm, allow_negative_numbers = true)
    )]
    pub clip_norm: Option<f64>,
}

/// How a checkpoint is written while the run trains.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum CheckpointMode {
    /// `copy` if the host has the memory, else `stream`; the choice is printed
    #[default]
    Auto,
    /// Copy the state to host memory and write it while training goes on: takes memory for one more
    /// state, and the next step waits for the copy alone
    Copy,
    /// Write one array after another: takes memory for the largest array, and the next step waits
    /// until the last was copied
    Stream,
}

impl CheckpointMode {
    /// True to copy a state of `bytes`, with this many bytes of free memory, if that is known.
    pub(crate) fn copies(self, bytes: u64, available: Option<u64>) -> bool {
        match self {
            CheckpointMode::Copy => true,
            CheckpointMode::Stream => false,
            // A part is left for other uses.
            CheckpointMode::Auto => {
                available.is_none_or(|available| bytes <= available - available / 4)
            }
        }
    }
}

/// A named property of a run, which changes its result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Property {
    /// Name in errors; a command line gives its flag: `--dropout`.
    pub name: String,
    /// Value, as text.
    pub value: String,
}

const DEFAULT: TrainerOptions = TrainerOptions {
    epochs: 1,
    batch_size: 128,
    steps_per_execution: 1,
    seed: 0,
    numerics: NumericsOptions {
        precision: None,
        clip_norm: None,
    },
    out: None,
    resume: false,
    resume_from: None,
    allow_changes: Vec::new(),
    properties: Vec::new(),
    log_every: 50,
    checkpoint_every: None,
    checkpoint_mode: CheckpointMode::Auto,
    keep_last: 2,
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

impl TrainerOptions {
    /// Checks values that cannot work, and options that need others.
    ///
    /// # Errors
    /// The first option with such a value.
    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::invalid("trainer", message));
        let numbers = [
            ("epochs", self.epochs),
            ("batch_size", self.batch_size as u64),
            ("steps_per_execution", self.steps_per_execution as u64),
            ("log_every", self.log_every),
            ("keep_last", self.keep_last as u64),
        ];
        if let Some((name, _)) = numbers.into_iter().find(|(_, value)| *value == 0) {
            return invalid(format!("`{name}` is 0; it must be at least 1"));
        }
        if self.checkpoint_every == Some(0) {
            return invalid("`checkpoint_every` is 0; it must be at least 1, or not set".into());
        }
        self.check_steps_per_execution()?;
        if let Some(norm) = self.numerics.clip_norm
            && !(norm >= 0.0 && norm.is_finite())
        {
            return invalid(format!(
                "`clip_norm` is {norm}; it must be finite, and positive or 0 for no clipping"
            ));
        }
        if self.wait_limit == Some(Duration::ZERO) {
            return invalid(
                "`wait_limit` is 0, in which no step can end; it must be longer, or not set".into(),
            );
        }
        let resumes = self.resume || self.resume_from.is_some();
        if resumes && self.out.is_none() {
            return invalid("`resume` needs `out`: the directory of the run to continue".into());
        }
        if !self.allow_changes.is_empty() && !resumes {
            return invalid(
                "`allow_changes` needs `resume` or `resume_from` (--resume, --from): a run to \
                 continue"
                    .into(),
            );
        }
        if self.checkpoint_every.is_some() && self.out.is_none() {
            return invalid(
                "`checkpoint_every` needs `out`: the directory to write checkpoints to".into(),
            );
        }
        Ok(())
    }

    /// Checks that a launch fits between two steps at which metrics are copied or a checkpoint is
    /// saved.
    fn check_steps_per_execution(&self) -> Result<()> {
        let steps = self.steps_per_execution;
        let intervals = [
            ("log_every", Some(self.log_every)),
            ("checkpoint_every", self.checkpoint_every),
        ];
        for (name, every) in intervals {
            if let Some(every) = every.filter(|every| *every < steps as u64) {
                let message = format!(
                    "`steps_per_execution` is {steps} and `{name}` is {every}, so that no launch \
                     has {steps} steps; use at most {every}, or a `{name}` of at least {steps}"
                );
                return Err(Error::invalid("trainer", message));
            }
        }
        Ok(())
    }
}

impl NumericsOptions {
    /// Upper bound of the global norm of the gradients; `None` does not clip them.
    pub fn clipping(&self) -> Option<f64> {
        self.clip_norm.filter(|norm| *norm > 0.0)
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
        let flags = "train --epochs 3 --batch-size 8 --steps-per-execution 4 --seed 5 --out dir --resume --from 40 \
                     --allow-changes seed,batch-size --log-every 7 --checkpoint-every 9 \
                     --checkpoint-mode stream --keep-last 5 \
                     --clip-norm 0.5 --precision bf16-mixed --workers 2 --wait-limit 60 --quiet";
        let options = Command::try_parse_from(flags.split(' ').filter(|flag| !flag.is_empty()));
        let expected = TrainerOptions {
            epochs: 3,
            batch_size: 8,
            steps_per_execution: 4,
            seed: 5,
            numerics: NumericsOptions {
                precision: Some("bf16-mixed".parse().unwrap()),
                clip_norm: Some(0.5),
            },
            out: Some("dir".into()),
            resume: true,
            resume_from: Some("40".into()),
            allow_changes: vec!["seed".into(), "batch-size".into()],
            log_every: 7,
            checkpoint_every: Some(9),
            checkpoint_mode: CheckpointMode::Stream,
            keep_last: 5,
            workers: 2,
            wait_limit: Some(Duration::from_secs(60)),
            quiet: true,
            ..TrainerOptions::default()
        };
        assert_eq!(options.unwrap().options, expected);
    }

    #[test]
    fn invalid_flags_say_what_is_expected() {
        for (flag, expected) in [
            ("--epochs 0", "expected a whole number of at least 1"),
            ("--batch-size -1", "expected a whole number of at least 1"),
            ("--wait-limit 0", "expected a positive number of seconds"),
            ("--clip-norm -1", "expected a norm"),
        ] {
            let words = ["train"].into_iter().chain(flag.split(' '));
            let error = Command::try_parse_from(words).err().unwrap().to_string();
            assert!(error.contains(expected), "{flag}: {error}");
        }
    }

    #[test]
    fn launches_are_not_longer_than_log_every() {
        let flags = ["train", "--steps-per-execution=64"];
        let options = Command::try_parse_from(flags).unwrap().options;
        let error = options.check().unwrap_err().to_string();
        assert!(
            error.contains("`steps_per_execution` is 64 and `log_every` is 50"),
            "{error}"
        );
    }

    #[test]
    fn large_states_are_streamed() {
        let auto = CheckpointMode::Auto;
        for (bytes, available, copies) in [
            (10, None, true),
            (75, Some(100), true),
            (76, Some(100), false),
            (u64::MAX, Some(u64::MAX), false),
        ] {
            assert_eq!(
                auto.copies(bytes, available),
                copies,
                "{bytes} {available:?}"
            );
        }
        assert!(CheckpointMode::Copy.copies(100, Some(1)));
        assert!(!CheckpointMode::Stream.copies(1, Some(100)));
    }

    #[test]
    fn clip_norm_of_0_turns_clipping_off() {
        for (flag, clipping) in [("--clip-norm=0", None), ("--clip-norm=0.5", Some(0.5))] {
            let options = Command::try_parse_from(["train", flag]).unwrap().options;
            options.check().unwrap();
            assert_eq!(options.numerics.clipping(), clipping, "{flag}");
        }
    }
}
