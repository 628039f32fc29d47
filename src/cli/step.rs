//! Options that `train` and `plan` share.

use std::str::FromStr;

use clap::{Arg, Args, ValueEnum};
use halite::{
    Error, MeshShape, Result,
    ir::Remat,
    models::TrainingOptions,
    nn::{
        Pattern, Schedule, ScheduleSpec, TransformerConfig, optim::WeightAveraging,
        schedule::RunLength,
    },
    plan::{self, Candidate},
    train::{
        GradientClip, NumericsOptions, ReduceLrOnPlateau, Strategy, TrainerBuilder, TrainerOptions,
        flags::positive,
    },
};

/// Options of the sharding over several devices.
#[derive(Args, Clone, Debug)]
pub(super) struct ShardingArgs {
    /// Device mesh: sizes of the axes `data`, `fsdp`, `model`, such as `data=2,model=4`; `auto`
    /// compiles the step for several and takes the one that is estimated fastest
    /// [default: one axis over all devices]
    #[arg(long, value_name = "AXES|auto")]
    pub(super) mesh: Option<MeshChoice>,
    /// Sharding strategy: `dp` shards the batch, `zero1` the batch and the optimizer's state, `fsdp`
    /// the batch and the parameters, `tp` the layers; also `dp+tp`, `zero1+tp`, `fsdp+tp`
    /// [default: dp; zero1 in a job of several processes; with --mesh auto the fastest of dp and fsdp,
    /// with or without tp]
    #[arg(long, value_name = "NAME")]
    strategy: Option<Strategy>,
    /// Smallest number of elements of a parameter that `fsdp` splits [default: 16384]
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    min_elements: Option<usize>,
    /// Parameters that `fsdp` leaves whole, by patterns of their paths, such as `**.bias` or
    /// `words.table`
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    not_split: Vec<Pattern>,
}

/// Value of `--mesh`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MeshChoice {
    Auto,
    Axes(MeshShape),
}

impl FromStr for MeshChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(MeshChoice::Auto),
            axes => axes.parse().map(MeshChoice::Axes),
        }
    }
}

impl ShardingArgs {
    /// The axes of the mesh, if they are given.
    pub(super) fn axes(&self) -> Option<&MeshShape> {
        match &self.mesh {
            Some(MeshChoice::Axes(axes)) => Some(axes),
            Some(MeshChoice::Auto) | None => None,
        }
    }

    pub(super) fn is_auto(&self) -> bool {
        self.mesh == Some(MeshChoice::Auto)
    }

    /// The strategy on a mesh that is given, or on one axis.
    ///
    /// # Errors
    /// If an option of `fsdp` is given for a strategy without it.
    pub(super) fn strategy(&self) -> Result<Strategy> {
        let strategy = self.strategy.clone().unwrap_or_default();
        let given = [
            ("--min-elements", self.min_elements.is_some()),
            ("--not-split", !self.not_split.is_empty()),
        ];
        let given = given.into_iter().find(|(_, is_given)| *is_given);
        match given {
            Some((option, _)) if !strategy.has_fsdp() => {
                let message = format!(
                    "{option} is of `fsdp`, and the strategy is `{strategy}`; use --strategy fsdp"
                );
                Err(Error::invalid("strategy", message))
            }
            _ => self.with_rules(strategy),
        }
    }

    /// The strategy, if it is given, as [`strategy`](Self::strategy).
    ///
    /// # Errors
    /// As there.
    pub(super) fn given_strategy(&self) -> Result<Option<Strategy>> {
        let strategy = self.strategy()?;
        Ok(self.strategy.as_ref().map(|_| strategy))
    }

    /// The shardings over this many devices to choose from.
    ///
    /// # Errors
    /// If no mesh of these devices has the strategy.
    pub(super) fn candidates(&self, devices: usize) -> Result<Vec<Candidate>> {
        if self.strategy.is_some() {
            self.strategy()?;
        }
        let candidates = plan::candidates(devices, self.strategy.as_ref())?.into_iter();
        let with_rules = |candidate: Candidate| {
            let strategy = self.with_rules(candidate.strategy)?;
            Ok(Candidate {
                strategy,
                ..candidate
            })
        };
        candidates.map(with_rules).collect()
    }

    /// The strategy with the options of `fsdp`.
    fn with_rules(&self, strategy: Strategy) -> Result<Strategy> {
        let strategy = match self.min_elements {
            Some(elements) if strategy.has_fsdp() => strategy.min_elements(elements),
            _ => strategy,
        };
        let patterns = self.not_split.iter().filter(|_| strategy.has_fsdp());
        let patterns: Vec<String> = patterns.map(Pattern::to_string).collect();
        (patterns.iter()).try_fold(strategy, |strategy, pattern| strategy.not_split(pattern))
    }
}

/// Options of the learning rate, and of averages of the weights.
#[derive(Args, Clone, Debug)]
pub(super) struct RateArgs {
    /// Peak learning rate
    #[arg(long, default_value_t = TrainingOptions::LEARNING_RATE, value_name = "RATE", value_parser = learning_rate, allow_negative_numbers = true)]
    learning_rate: f64,
    /// Learning-rate schedule and its settings, such as `cosine:warmup=5%,end=0.1` or
    /// `plateau:patience=3`: `constant`, `linear`, `cosine`, `polynomial`, `step`, `exponential`,
    /// `one-cycle`, `inverse-sqrt`, `warm-restarts`, `plateau` [default: 10 % linear warmup, then
    /// cosine decay]
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<ScheduleSpec>,
    /// Average the weights with this decay, such as 0.999; validation, predictions and exports are of
    /// the average, which is saved beside the weights
    #[arg(long, value_name = "DECAY", value_parser = decay, allow_negative_numbers = true)]
    ema: Option<f64>,
}

impl RateArgs {
    /// Multiplies the learning rate; returns the rates before and after.
    pub(super) fn multiply(&mut self, factor: f64) -> (f64, f64) {
        let before = self.learning_rate;
        self.learning_rate *= factor;
        (before, self.learning_rate)
    }

    /// Returns a schedule without changes.
    pub(super) fn constant(&self) -> Schedule {
        Schedule::constant(self.learning_rate)
    }

    /// Returns the schedule of a run on this many training samples.
    pub(super) fn schedule(&self, options: &TrainerOptions, samples: usize) -> Result<Schedule> {
        let run = RunLength {
            steps: options.total_steps(samples),
            steps_per_epoch: options.steps_per_epoch(samples),
        };
        let needs_length = self
            .schedule
            .as_ref()
            .is_none_or(ScheduleSpec::needs_length);
        if needs_length && options.max_epochs.is_none() && options.max_steps.is_none() {
            let message = "--max-time alone does not say how long the learning-rate schedule is; \
                           give --max-epochs or --max-steps, too, or --schedule constant";
            return Err(Error::invalid("train", message));
        }
        match &self.schedule {
            Some(spec) => spec.schedule(self.learning_rate, run).map_err(|error| {
                Error::invalid("train", format!("--schedule {spec}: {}", error.message()))
            }),
            None => Ok(TrainingOptions::warmup_and_cosine(
                self.learning_rate,
                run.steps,
            )),
        }
    }

    /// Returns the trainer with what the options change during a run.
    pub(super) fn of_run(&self, mut trainer: TrainerBuilder) -> TrainerBuilder {
        if let Some(rule) = self.schedule.as_ref().and_then(ScheduleSpec::plateau) {
            trainer = trainer.callback(ReduceLrOnPlateau::new(rule));
        }
        match self.ema {
            Some(decay) => trainer.average(WeightAveraging::ema(decay)),
            None => trainer,
        }
    }
}

fn decay(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(decay) if (0.0..1.0).contains(&decay) => Ok(decay),
        _ => Err("expected a number from 0 to below 1, such as 0.999".into()),
    }
}

/// Returns the hyperparameters of a step. `clip` is the default limit of the gradients.
pub(super) fn training_options(
    numerics: &NumericsOptions,
    schedule: Schedule,
    clip: Option<f64>,
) -> TrainingOptions {
    let limit = numerics.gradient_clip_val.or(clip);
    TrainingOptions {
        schedule,
        clip: limit.and_then(|limit| GradientClip::new(limit, numerics.gradient_clip_algorithm)),
    }
}

/// Adds a default that is not a value of the option to its help.
pub(super) fn default_in_help(arg: Arg, default: &str) -> Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    arg.help(format!("{help} [default: {default}]"))
}

/// Options of the training step of a transformer.
#[derive(Args, Clone, Debug)]
pub(super) struct TransformerArgs {
    /// Context length in tokens [default: the model's]
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    context: Option<usize>,
    /// Dropout probability, of embeddings, attention weights and residual branches [default: 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    dropout: Option<f64>,
    /// Rematerialization, which saves memory by recomputing activations in the backward pass:
    /// `none`, `full` (saves only the input of each block), `save-dots` (also saves the results of
    /// matrix multiplications) [default: none]
    #[arg(long, value_enum, value_name = "POLICY", hide_possible_values = true)]
    remat: Option<RematPolicy>,
}

impl TransformerArgs {
    /// Returns `model` with the options that are given.
    pub(super) fn config(&self, model: &TransformerConfig) -> TransformerConfig {
        TransformerConfig {
            context_length: self.context.unwrap_or(model.context_length),
            dropout: self.dropout.unwrap_or(model.dropout),
            remat: self.remat.map_or(model.remat, RematPolicy::remat),
            ..*model
        }
    }

    /// The context length that is given.
    pub(super) fn context(&self) -> Option<usize> {
        self.context
    }

    /// The dropout probability that is given.
    pub(super) fn dropout(&self) -> Option<f64> {
        self.dropout
    }

    /// Returns the flags that are given: they apply to transformers only.
    pub(super) fn given(&self) -> Vec<&'static str> {
        let flags = [
            ("--context", self.context.is_some()),
            ("--dropout", self.dropout.is_some()),
            ("--remat", self.remat.is_some()),
        ];
        let given = flags.into_iter().filter(|(_, given)| *given);
        given.map(|(flag, _)| flag).collect()
    }
}

/// Activations that the backward pass recomputes.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RematPolicy {
    None,
    Full,
    SaveDots,
}

impl RematPolicy {
    fn remat(self) -> Option<Remat> {
        match self {
            RematPolicy::None => None,
            RematPolicy::Full => Some(Remat::Full),
            RematPolicy::SaveDots => Some(Remat::SaveDots),
        }
    }
}

fn learning_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("expected a positive number, such as 2e-3".into()),
    }
}
