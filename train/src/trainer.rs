//! The trainer: `fit`, `validate`, `test` and `predict`.

mod batches;
mod builder;
mod evaluate;
mod predict;
mod run_identity;
mod samples;

use std::{panic::Location, sync::Arc};

use halite_core::{Client, DTypePolicy, Error, ErrorKind, Mesh, PinnedPool, Result, tree::Tree};
use halite_data::{Dataset, Loader, ValidationSet};
use halite_nn::{Optimizer, Param, Processes, optim::WeightAveraging};
use halite_telemetry::ClientMetrics;

use self::batches::has_weights;
pub use self::{
    builder::{BatchSizes, TrainerBuilder},
    predict::Answers,
};
use crate::{
    Fitted, Limit, LoweredStep, Measure, Strategy, Task, TrainerOptions,
    callback::{Callback, Shared},
    fit::{Fit, FitInputs, Start},
    loggers::Logger,
    lower,
    programs::{ModelParams, StepOptions, StepParts, batch_types, padding},
    signals::StopFlag,
    state::undivided,
    validation_set::{NamedSet, check_names},
};

/// Trains models. [`Trainer::builder`] makes one; the same trainer can fit many models.
#[derive(Clone, Debug)]
pub struct Trainer {
    pub(crate) client: Client,
    pub(crate) mesh: Arc<Mesh>,
    /// The processes that train together, if there are several.
    pub(crate) processes: Option<Processes>,
    /// The mesh has the devices of all processes, which run one program.
    pub(crate) spans_processes: bool,
    pub(crate) strategy: Strategy,
    /// Whether it is the default, not a choice of the user.
    pub(crate) is_default_strategy: bool,
    pub(crate) options: TrainerOptions,
    /// Page-locked memory of batches.
    pub(crate) pinned: Option<PinnedPool>,
    pub(crate) precision: DTypePolicy,
    pub(crate) average: Option<WeightAveraging>,
    /// Where frozen parameters come from, if checkpoints leave them out.
    pub(crate) frozen_from: Option<String>,
    /// Whether a callback changes the learning rate.
    pub(crate) has_rate_factor: bool,
    pub(crate) stop: Option<StopFlag>,
    pub(crate) callbacks: Vec<Shared<dyn Callback + Send>>,
    pub(crate) loggers: Vec<Shared<dyn Logger + Send>>,
}

impl Trainer {
    /// Returns a builder with the default options.
    pub fn builder(client: &Client) -> TrainerBuilder {
        TrainerBuilder::new(client.clone().measured())
    }

    /// The devices that it trains on: those of this process, or of all processes, where one program
    /// runs on all of them.
    pub fn mesh(&self) -> &Arc<Mesh> {
        &self.mesh
    }

    /// The client of its devices.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The sharding strategy of parameters and batches.
    pub fn strategy(&self) -> &Strategy {
        &self.strategy
    }

    /// The precision policy of its programs.
    pub fn precision(&self) -> DTypePolicy {
        self.precision
    }

    /// Its options.
    pub fn options(&self) -> &TrainerOptions {
        &self.options
    }

    /// Trains `model` on `train`, and after each epoch scores it on `validation`; `()` is no
    /// validation. Several sets have names, `[("clean", clean), ("noisy", noisy)]`, with which the
    /// names of their metrics begin: `clean/loss`, which [monitors](crate::EarlyStopping) can name.
    /// The best checkpoint is the one with the lowest loss of the first set.
    ///
    /// Ctrl-C, SIGTERM, SIGHUP and the [stop flag](TrainerBuilder::stop_flag) save a checkpoint and
    /// return with [`Report::interrupted`](crate::Report) set. Before the first step there is
    /// nothing to save, and the result is an error of the kind
    /// [`Cancelled`](halite_core::ErrorKind::Cancelled).
    ///
    /// # Errors
    /// All mistakes of the task's code at once; an error of the compiler; a loss or metric that is
    /// not finite, with its name and step; a sample that cannot be read; a directory that cannot be
    /// written; an error of a callback.
    #[track_caller]
    pub fn fit<K: Task, O: Optimizer>(
        &self,
        task: K,
        model: ModelParams<K>,
        optimizer: O,
        train: impl Dataset + 'static,
        validation: impl ValidationSet,
    ) -> Result<Fitted<K>> {
        self.run(
            Location::caller(),
            task,
            Start {
                model,
                values: None,
            },
            optimizer,
            train,
            validation,
        )?
        .fit()
    }

    /// The training step that [`fit`](Self::fit) compiles for these arguments, as a program. Nothing
    /// runs, and nothing of the size of the model is allocated.
    ///
    /// # Errors
    /// All mistakes of the task's code at once; a parameter or a batch that does not divide.
    pub fn lower_step<K: Task, O: Optimizer>(
        &self,
        task: K,
        model: ModelParams<K>,
        optimizer: O,
        train: impl Dataset + 'static,
    ) -> Result<LoweredStep> {
        let train = self.training::<K>(Arc::new(train));
        let train = train.map_err(|error| of_data("training", &error))?;
        let batch = batch_types::<K>(&self.batch_specs::<K>(&train)?);
        let parts = StepParts {
            options: self.step_options::<K>(&train),
            strategy: &self.strategy_of(&model, &optimizer)?.0,
            task: &Arc::new(task),
            params: &Arc::new(model),
            optimizer: &Arc::new(optimizer),
        };
        lower::lower_parts(&parts, &self.mesh, batch, &self.client.capabilities())
    }

    /// The options of the step on batches of this loader.
    pub(crate) fn step_options<K: Task>(&self, train: &Loader) -> StepOptions {
        let options = &self.options;
        StepOptions {
            clip: options.numerics.clipping(),
            precision: self.precision,
            accumulate: options.numerics.accumulate_grad_batches,
            has_weights: has_weights::<K>(train),
            on_not_finite: options.on_not_finite,
            detect_anomaly: options.detect_anomaly,
            average: self.average,
            has_rate_factor: self.has_rate_factor,
            padding: padding("training data", train),
            gradient_norm: options.observing.log.contains(&Measure::GradientNorm),
            processes: self.exchanging().cloned(),
        }
    }

    /// The processes whose programs exchange what they compute; `None` where one program runs on the
    /// devices of all.
    fn exchanging(&self) -> Option<&Processes> {
        self.processes.as_ref().filter(|_| !self.spans_processes)
    }

    /// The strategy for a model with this optimizer, and why it is another one than that of the
    /// trainer, if it is.
    ///
    /// # Errors
    /// If processes cannot divide the state, and the user has chosen that they do.
    pub(crate) fn strategy_of<M: Tree<Leaf = Param>, O: Optimizer>(
        &self,
        model: &M,
        optimizer: &O,
    ) -> Result<(Strategy, Option<String>)> {
        let strategy = self.strategy.clone();
        if self.exchanging().is_none() || !strategy.shards_state() {
            return Ok((strategy, None));
        }
        let whole = undivided(model, optimizer);
        let [first, others @ ..] = &whole[..] else {
            return Ok((strategy, None));
        };
        let others = match others.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let reason = format!(
            "`{strategy}` divides the elements of a parameter among processes, and {} needs those of \
             `{first}`{others} together",
            short_name::<O>()
        );
        if self.is_default_strategy {
            let data_parallel = Strategy::data_parallel();
            let message = format!("strategy `{data_parallel}`: {reason}");
            Ok((data_parallel, Some(message)))
        } else {
            let message = format!("{reason}; use `dp` (--strategy dp), or another optimizer");
            Err(Error::new(ErrorKind::Unsupported, "strategy", message))
        }
    }

    pub(crate) fn run<K: Task, O: Optimizer>(
        &self,
        line: &'static Location<'static>,
        task: K,
        start: Start<K>,
        optimizer: O,
        train: impl Dataset + 'static,
        validation: impl ValidationSet,
    ) -> Result<Fit<'_, K, O>> {
        let train = self.training::<K>(Arc::new(train));
        let train = train.map_err(|error| of_data("training data", &error))?;
        let is_off = self.options.limit_val_batches.is_some_and(Limit::is_none);
        let sets = if is_off {
            Vec::new()
        } else {
            validation.into_sets()
        };
        let mut validation = Vec::new();
        for (name, data) in sets {
            let set = NamedSet { name, data };
            let which = set.described();
            let loader = self.in_order::<K>(set.data);
            let loader = loader.and_then(|loader| self.limited(loader));
            validation.push(NamedSet {
                name: set.name,
                data: loader.map_err(|error| of_data(&which, &error))?,
            });
        }
        check_names(&validation)?;
        let inputs = FitInputs {
            task: Arc::new(task),
            model: Arc::new(start.model),
            optimizer: Arc::new(optimizer),
            train,
            validation,
            values: start.values,
            line,
        };
        Fit::new(self, inputs)
    }
}

/// An error of a loader, with the name of its data.
fn of_data(which: &str, error: &Error) -> Error {
    Error::new(error.kind(), which.to_string(), error.message())
}

/// Name of a type without modules: `Partition<AdamW, Muon>`.
fn short_name<T>() -> String {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let parts = std::any::type_name::<T>().split_inclusive(|c: char| !is_name(c));
    parts.filter(|part| !part.ends_with(':')).collect()
}
