//! The trainer: `fit`, `validate`, `test` and `predict`.

mod builder;
mod predict;
mod samples;

use std::{panic::Location, sync::Arc};

use halite_core::{
    Array, Client, DType, DTypePolicy, Error, ErrorKind, Mesh, PinnedPool, Result, Sharding,
    TensorType,
    tree::{Family, Leaf, Tree},
};
use halite_data::{
    BadSample, Dataset, DeviceBatch, LastBatch, Loader, LoaderOptions, Order, Position, Prefetch,
    Shard, ValidationSet,
};
use halite_nn::{ArraySpec, Optimizer, Param, Processes, optim::WeightAveraging};
use halite_telemetry::ClientMetrics;

pub use self::{
    builder::{BatchSizes, TrainerBuilder},
    predict::Answers,
};
use crate::{
    Fitted, Limit, LoweredStep, Measure, MetricValues, Property, Strategy, Task, TrainerOptions,
    callback::{Callback, Shared},
    fit::{Fit, FitInputs, Start},
    identity::{Data, Identity, PendingIdentity, Values},
    in_flight::InFlight,
    loggers::Logger,
    lower,
    metrics::{Collecting, Scores},
    processes::over_processes,
    programs::{
        BatchArrays, Evaluate, ModelArrays, ModelParams, StepOptions, StepParts, batch_types,
        discover_evaluation, evaluate_program, means_of_pass, padding,
    },
    signals::StopFlag,
    state::undivided,
    validation_set::{NamedSet, check_names},
    waits::{Limits, NextBatch, next_batch, wait},
    window::Window,
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
    /// Whether nobody has chosen it.
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
    ) -> Result<Fitted<K>>
    where
        ModelParams<K>: Send + Sync,
    {
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
    ) -> Result<LoweredStep>
    where
        ModelParams<K>: Send + Sync,
    {
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
        match self.is_default_strategy {
            true => {
                let data_parallel = Strategy::data_parallel();
                let message = format!("strategy `{data_parallel}`: {reason}");
                Ok((data_parallel, Some(message)))
            }
            false => {
                let message = format!("{reason}; use `dp` (--strategy dp), or another optimizer");
                Err(Error::new(ErrorKind::Unsupported, "strategy", message))
            }
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
    ) -> Result<Fit<'_, K, O>>
    where
        ModelParams<K>: Send + Sync,
    {
        let train = self.training::<K>(Arc::new(train));
        let train = train.map_err(|error| of_data("training data", &error))?;
        let is_off = self.options.limit_val_batches.is_some_and(Limit::is_none);
        let sets = match is_off {
            true => Vec::new(),
            false => validation.into_sets(),
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

    /// Computes the metrics of `model` over `dataset`, exactly: padding of the last batch does not
    /// count. [`limit_val_batches`](TrainerOptions::limit_val_batches) limits it.
    ///
    /// Of a [confusion matrix](crate::metrics::Confusion) these are its accuracy, precision, recall and
    /// F1; the matrix itself is in [`Report::confusion`](crate::Report::confusion) of a fit.
    ///
    /// # Errors
    /// Those of [`fit`](Self::fit).
    #[track_caller]
    pub fn validate<K: Task>(
        &self,
        task: K,
        model: &ModelArrays<K>,
        dataset: impl Dataset + 'static,
    ) -> Result<MetricValues> {
        let loader = self.in_order::<K>(Arc::new(dataset))?;
        self.metrics_of(Location::caller(), task, model, self.limited(loader)?)
    }

    /// Computes the metrics of `model` over every sample of `dataset`, as
    /// [`validate`](Self::validate), for data on which nothing was chosen.
    ///
    /// # Errors
    /// Those of [`fit`](Self::fit).
    #[track_caller]
    pub fn test<K: Task>(
        &self,
        task: K,
        model: &ModelArrays<K>,
        dataset: impl Dataset + 'static,
    ) -> Result<MetricValues> {
        let loader = self.in_order::<K>(Arc::new(dataset))?;
        let loader = match self.options.fast_dev_run {
            Some(_) => self.limited(loader)?,
            None => loader,
        };
        self.metrics_of(Location::caller(), task, model, loader)
    }

    /// Computes the metrics of `model` over one pass of `loader`.
    fn metrics_of<K: Task>(
        &self,
        line: &'static Location<'static>,
        task: K,
        model: &ModelArrays<K>,
        loader: Loader,
    ) -> Result<MetricValues> {
        let specs = self.batch_specs::<K>(&loader)?;
        let metrics = discover_evaluation(&task, model, &specs, &loader)?;
        let (client, task) = (&self.client, Arc::new(task));
        let program = evaluate_program(client, &self.mesh, &self.strategy, &task, &metrics)
            .precision(self.precision)
            .of_line(line);
        let scores = self.score::<K>(
            &program,
            &metrics,
            &Tree::leaf_refs(model),
            &loader,
            &|| false,
        )?;
        let scores = scores.expect("it is never asked to stop");
        metrics.collected().warn_undefined(&scores);
        Ok(scores.values)
    }

    /// Computes the metrics of `model` over one pass of `loader`; `None` if it is asked to stop
    /// first.
    pub(crate) fn score<K: Task>(
        &self,
        program: &Evaluate<K>,
        metrics: &Window,
        model: &<K::Model as Family>::Of<&Array>,
        loader: &Loader,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Scores>> {
        let mut window = Leaf(metrics.upload(&self.client, &self.mesh)?);
        let limit = self.options.wait_limit;
        let (mut in_flight, mut limits) =
            (InFlight::new("validation step", limit), Limits::new(limit));
        let mut collecting = Collecting::new(metrics.collected());
        let mut prefetch = self.prefetch(loader, Position::default())?;
        for number in 1.. {
            let batch = match next_batch("validation", &mut prefetch, &mut limits, stop)? {
                NextBatch::Batch(batch) => self.batch_tree::<K>(batch)?,
                NextBatch::End => break,
                NextBatch::Stopped => return Ok(None),
            };
            if stop() {
                return Ok(None);
            }
            let (next, rows) = program.run_with((
                Tree::leaf_refs(model).map_leaves(|_, array| *array),
                (Tree::leaf_refs(&batch), Tree::leaf_refs(&window)),
            ))?;
            window = next;
            in_flight.push(number, &window.0, stop)?;
            let rows: Vec<&Array> = rows.iter().map(|Leaf(rows)| rows).collect();
            if !collecting.push(&rows, in_flight.limits(), stop)? {
                return Ok(None);
            }
        }
        if !collecting.settle(in_flight.limits(), stop)? {
            return Ok(None);
        }
        let scores = window.0.fetch()?;
        let name = || "the validation metrics".to_string();
        match wait(name, in_flight.limits(), stop, |slice| {
            scores.wait_ready(slice).then_some(())
        })? {
            Some(()) => {
                let read = metrics.read(&scores.wait()?)?;
                let read = match self.exchanging() {
                    Some(processes) => over_processes(read, processes)?,
                    None => read,
                };
                let means = means_of_pass(metrics, read, loader)?;
                collecting.finish(means, self.exchanging()).map(Some)
            }
            None => Ok(None),
        }
    }

    /// The loader of the training data.
    fn training<K: Task>(&self, dataset: Arc<dyn Dataset>) -> Result<Loader> {
        let options = &self.options;
        let order = match options.overfit_batches {
            Some(_) => Order::Sequential,
            // A stream has one order.
            None if dataset.is_sequential() => Order::Sequential,
            None => Order::Shuffled { seed: options.seed },
        };
        let loader = Loader::shared(
            dataset,
            LoaderOptions {
                order,
                last: options.last_batch,
                bad_samples: options.bad_samples,
                workers: options.workers,
                ahead: options.read_ahead,
                shard: self.shard(options.batch_size)?,
                ..LoaderOptions::new(options.batch_size)
            },
        )?;
        check_weights::<K>(&loader)?;
        let loader = match options.limit_train_batches {
            None => loader,
            Some(limit) => {
                let name = match options.overfit_batches {
                    Some(_) => "overfit_batches",
                    None => "limit_train_batches",
                };
                let batches = limit.of(name, loader.batches_per_epoch())?;
                loader.limited(batches)?
            }
        };
        // Without weights a batch that is missing in the last step of an epoch would count.
        let (batches, of_step) = (
            loader.batches_per_epoch(),
            options.numerics.accumulate_grad_batches,
        );
        if has_weights::<K>(&loader) || batches.is_multiple_of(of_step) {
            return Ok(loader);
        }
        if batches < of_step {
            let message = format!(
                "`accumulate_grad_batches` is {of_step}, an epoch has {batches} batches, and the \
                 task's batch has no leaf for the weights, by which a step can have fewer; use at \
                 most {batches}, or add a leaf for the weights"
            );
            return Err(Error::invalid("batch", message));
        }
        loader.limited(batches - batches % of_step)
    }

    /// The part of each batch that this process reads.
    fn shard(&self, batch_size: usize) -> Result<Shard> {
        match &self.processes {
            None => Ok(Shard::default()),
            Some(_) if self.spans_processes => self.shard_of_devices(batch_size),
            Some(processes) => Ok(Shard {
                index: processes.rank(),
                of: processes.size(),
            }),
        }
    }

    /// The rows of a batch that the devices of this process hold.
    fn shard_of_devices(&self, batch_size: usize) -> Result<Shard> {
        let rows = TensorType::new(DType::U8, [batch_size]);
        let part = self
            .client
            .addressable_part(&rows, &*self.batch_sharding()?)?;
        let (start, length) = (part[0].start, part[0].len());
        if batch_size.is_multiple_of(length) && start.is_multiple_of(length) {
            return Ok(Shard {
                index: start / length,
                of: batch_size / length,
            });
        }
        let message = format!(
            "the devices of this process hold the rows {:?} of a batch of {batch_size}, which are no \
             part of it that one process can read; arrange the devices of each process side by side \
             in the mesh {}",
            part[0], self.mesh
        );
        Err(Error::invalid("trainer", message))
    }

    /// A loader of every sample once, in the dataset's order.
    fn in_order<K: Task>(&self, dataset: Arc<dyn Dataset>) -> Result<Loader> {
        let options = LoaderOptions {
            shard: self.shard(self.options.eval_batch_size())?,
            ..self.padded()
        };
        let loader = Loader::shared(dataset, options)?;
        check_weights::<K>(&loader)?;
        Ok(loader)
    }

    /// The loader of a validation, of as many batches as the options allow.
    fn limited(&self, loader: Loader) -> Result<Loader> {
        match self.options.limit_val_batches {
            Some(limit) => {
                let batches = limit.of("limit_val_batches", loader.batches_per_epoch())?;
                loader.limited(batches)
            }
            None => Ok(loader),
        }
    }

    fn padded(&self) -> LoaderOptions {
        LoaderOptions {
            workers: self.options.workers,
            ahead: self.options.read_ahead,
            last: LastBatch::Pad,
            bad_samples: self.options.bad_samples,
            ..LoaderOptions::new(self.options.eval_batch_size())
        }
    }

    /// The loader with batches in page-locked memory, where the options ask for it.
    fn pinned(&self, loader: &Loader) -> Loader {
        let loader = loader.clone();
        match &self.pinned {
            Some(pool) => loader.with_pinned_memory(pool),
            None => loader,
        }
    }

    /// Uploads the batches of an epoch from `start` on, each of them on its own.
    fn prefetch(&self, loader: &Loader, start: Position) -> Result<Prefetch> {
        let batches = self.pinned(loader).epoch_from(start);
        let shardings = vec![self.batch_sharding()?];
        Prefetch::new(batches, &self.client, shardings, self.options.prefetch)
    }

    /// Uploads the training batches of an epoch from `start` on, in launches of as many steps as
    /// `sizes` says.
    pub(crate) fn prefetch_steps(
        &self,
        loader: &Loader,
        start: Position,
        sizes: impl IntoIterator<Item = usize, IntoIter: Send + 'static>,
    ) -> Result<Prefetch> {
        Prefetch::accumulated(
            self.pinned(loader).epoch_from(start),
            &self.client,
            vec![self.batch_sharding()?],
            self.options.prefetch,
            self.options.numerics.accumulate_grad_batches,
            sizes,
        )
    }

    pub(crate) fn batch_tree<K: Task>(&self, batch: DeviceBatch) -> Result<BatchArrays<K>> {
        batch.into_tree(&<K::Batch as Family>::Of::<()>::default())
    }

    /// The identity of a run of this trainer. Data are digested only if the run saves checkpoints.
    pub(crate) fn identity<O: Optimizer>(
        &self,
        train: &Loader,
        validation: &[NamedSet],
        optimizer: &O,
        strategy: &Strategy,
        step: &[u8],
        frozen: Option<Property>,
    ) -> PendingIdentity {
        let TrainerOptions {
            label,
            seed,
            batch_size,
            numerics,
            last_batch,
            limit_train_batches,
            overfit_batches,
            max_steps,
            out,
            properties,
            ..
        } = &self.options;
        let all = |limit: Option<Limit>| limit.map_or("all".to_string(), |limit| limit.to_string());
        let epochs = match self.options.epochs() {
            u64::MAX => None,
            epochs => Some(epochs.to_string()),
        };
        let steps = max_steps.map(|steps| format!("{steps} steps"));
        let lengths = epochs.into_iter().chain(steps).collect::<Vec<_>>();
        let length = match &lengths[..] {
            [] => "no limit".to_string(),
            lengths => lengths.join(" or "),
        };
        let platform = self.client.platform();
        let properties: Vec<Property> = properties.iter().cloned().chain(frozen).collect();
        let known = Identity::new(Values {
            label: label.as_deref(),
            seed: *seed,
            batch_size: *batch_size as u64,
            samples: train.dataset().len() as u64,
            clip: numerics.clipping().map(|clip| clip.to_string()),
            accumulate_grad_batches: numerics.accumulate_grad_batches as u64,
            last_batch: last_batch.to_string(),
            limit_train_batches: all(limit_train_batches.filter(|_| overfit_batches.is_none())),
            overfit_batches: overfit_batches.map_or("none".into(), |limit| limit.to_string()),
            optimizer: format!("{optimizer:#?}"),
            precision: self.precision.to_string(),
            epochs: length,
            // The names of the axes of a single device change nothing.
            mesh: match (self.exchanging(), self.mesh.size()) {
                (None, 1) => "1 device".into(),
                (None, _) => self.mesh.to_string(),
                (Some(processes), _) => {
                    format!("{} processes of {}", processes.size(), self.mesh)
                }
            },
            strategy: strategy.to_string(),
            plugin: format!("{} {}", platform.name, platform.version)
                .trim()
                .to_string(),
            step,
            properties: &properties,
        });
        let data = out.as_ref().map(|_| Data {
            train: train.dataset().clone(),
            validation: (validation.iter())
                .map(|set| {
                    Arc::new(NamedSet {
                        name: set.name.clone(),
                        data: set.data.dataset().clone(),
                    })
                })
                .collect(),
        });
        PendingIdentity::new(known, data)
    }

    /// The sharding of the fields of a batch: by samples.
    fn batch_sharding(&self) -> Result<Arc<Sharding>> {
        Sharding::new(&self.mesh, self.strategy.batch_spec(&self.mesh))
    }

    pub(crate) fn batch_specs<K: Task>(
        &self,
        loader: &Loader,
    ) -> Result<<K::Batch as Family>::Of<ArraySpec>> {
        let sharding = self.batch_sharding()?;
        let types = match self.spans_processes {
            true => loader.whole().batch_types(),
            false => loader.batch_types(),
        };
        let specs = types
            .into_iter()
            .map(|ty| ArraySpec::new(ty, &sharding))
            .collect();
        halite_data::batch_tree(specs, &<K::Batch as Family>::Of::<()>::default())
    }
}

/// Whether the last leaf of the task's batch has the weights of the samples.
fn has_weights<K: Task>(loader: &Loader) -> bool {
    let leaves = <K::Batch as Family>::Of::<()>::default().leaf_count();
    leaves > loader.dataset().fields().len()
}

/// Checks that padding of the last batch can be left out, and samples that are skipped.
fn check_weights<K: Task>(loader: &Loader) -> Result<()> {
    let leaves = <K::Batch as Family>::Of::<()>::default().leaf_count();
    let skips = loader.options().bad_samples != BadSample::Fail;
    // Any other number of leaves is an error of its own.
    if leaves != loader.dataset().fields().len() || (loader.padding() == 0 && !skips) {
        return Ok(());
    }
    let what = if skips {
        format!("bad samples are skipped ({})", loader.options().bad_samples)
    } else {
        format!(
            "{} samples are not divisible by the batch size {}",
            loader.dataset().len(),
            loader.options().batch_size
        )
    };
    let masks = if skips {
        "mask them"
    } else {
        "mask the padding of the last batch"
    };
    let message = format!(
        "{what}, and the task's batch has no leaf for the weights that {masks}; add a leaf after \
         the {} fields, and use it in `Mean::weighted`",
        loader.dataset().fields().len()
    );
    Err(Error::invalid("batch", message))
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
