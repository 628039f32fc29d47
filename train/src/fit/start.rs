//! The start of a run: its programs are traced, and its directory is opened.

use std::{panic::Location, path::PathBuf, sync::Arc, time::Instant};

use halite_core::{
    Client, DType, DTypePolicy, DeviceId, Error, Result,
    tree::{Leaf, Tree},
};
use halite_data::Loader;
use halite_ir::cost;
use halite_nn::{ArrayCollectives, Lowered, Optimizer, Param, Processes, Schedule};
use halite_telemetry::ClientMetrics;

use super::{Fit, frozen};
use crate::{
    Property, Strategy, Task, Trainer, TrainerOptions,
    callback::RunFacts,
    callbacks::{Callbacks, NanCheck, take_checked},
    cause::Batches,
    checkpoint::{CheckpointStore, Saved},
    loggers::{CsvLog, Split},
    processes::{ResumeFrom, check_alike, shared_store},
    programs::{Evaluated, ModelArrays, ModelParams, Programs, StepParts, padding},
    resume,
    run_files::{self, RunFiles},
    signals::Interrupts,
    trained::trained_paths,
    validation_set::NamedSet,
    waits::Limits,
};

/// The model of a run, and where it starts.
pub(crate) struct Start<K: Task> {
    pub(crate) model: ModelParams<K>,
    /// Initial parameters; without them, they are initialized.
    pub(crate) values: Option<ModelArrays<K>>,
}

/// The arguments of [`Trainer::fit`].
pub(crate) struct FitInputs<K: Task, O> {
    pub(crate) task: Arc<K>,
    pub(crate) model: Arc<ModelParams<K>>,
    pub(crate) optimizer: Arc<O>,
    pub(crate) train: Loader,
    pub(crate) validation: Vec<NamedSet>,
    /// Initial parameters, if they are given.
    pub(crate) values: Option<ModelArrays<K>>,
    /// The user's line.
    pub(crate) line: &'static Location<'static>,
}

impl<'a, K: Task, O: Optimizer> Fit<'a, K, O> {
    /// Traces the programs, so that every mistake of the task, the gradients and the optimizer is
    /// reported before anything is compiled, read or written; then opens the directory of the run.
    pub(crate) fn new(trainer: &'a Trainer, inputs: FitInputs<K, O>) -> Result<Self> {
        let started = Instant::now();
        let before = trainer.client.metrics().activity();
        let Traced {
            mut programs,
            lowered,
            strategy,
            other_strategy,
        } = Traced::new(trainer, &inputs)?;
        let (mesh, options) = (&trainer.mesh, &trainer.options);
        let (train, validation) = (&inputs.train, &inputs.validation);
        let facts = facts(trainer, &programs, &lowered, &inputs);
        let checked = take_checked(options, &trainer.callbacks, &facts.metric_names)?;
        let code = lowered.comparable_code();
        let frozen = leave_out_frozen(trainer, &mut programs, &lowered, &inputs)?;
        let optimizer = &*inputs.optimizer;
        let mut identity = trainer.identity(train, validation, optimizer, &strategy, &code, frozen);
        let interrupts = Interrupts::watch(trainer.stop.clone().unwrap_or_default())?;
        let stop = interrupts.flag();
        if let Some(processes) = &trainer.processes {
            check_alike(processes, identity.identity(), options, train, validation)?;
        }
        let opened = run_files::open(options, |saved| {
            identity.wait_before_resume(saved, &Limits::new(options.wait_limit), &stop)?;
            resume::check(saved, identity.identity(), options, &programs, mesh)
        });
        let directory = RunDirectory::new(trainer.processes.as_ref(), opened)?;
        let nan_check = nan_check(options, &programs, &*inputs.model, train.whole());
        let callbacks = Callbacks::new(
            options,
            &trainer.loggers,
            checked,
            nan_check,
            directory.files,
            directory.store,
            identity.identity().hyperparameters(),
        )?;
        if let Some(message) = other_strategy {
            callbacks.progress_bar.progress.message(&message);
        }
        Ok(Fit {
            trainer,
            programs,
            lowered: Some(lowered),
            train: inputs.train,
            validation: inputs.validation,
            identity,
            callbacks,
            facts,
            saved: directory.saved,
            interrupts,
            stop,
            before,
            exchanged_before: (trainer.processes.as_ref())
                .map(Processes::exchanged)
                .unwrap_or_default(),
            started,
            values: inputs.values,
            saves_copies: None,
            gather: (trainer.spans_processes).then(|| ArrayCollectives::new(&trainer.client, mesh)),
        })
    }

    /// Does not warn of a loss that grows.
    pub(crate) fn expecting_growth(mut self) -> Self {
        self.callbacks.nan_check.growth = None;
        self
    }
}

/// The programs of a run before they are compiled.
struct Traced<K: Task, O: Optimizer> {
    programs: Programs<K, O>,
    /// The training step.
    lowered: Lowered<Leaf<()>>,
    strategy: Strategy,
    /// Why the strategy is another one than that of the trainer, if it is.
    other_strategy: Option<String>,
}

impl<K: Task, O: Optimizer> Traced<K, O> {
    fn new(trainer: &Trainer, inputs: &FitInputs<K, O>) -> Result<Self> {
        let FitInputs {
            task,
            model,
            optimizer,
            train,
            validation,
            ..
        } = inputs;
        let (mesh, options) = (&trainer.mesh, &trainer.options);
        if trainer.average.is_some() {
            check_averaged(&**model)?;
        }
        let batch = trainer.batch_specs::<K>(train)?;
        let (strategy, other_strategy) = trainer.strategy_of(&**model, &**optimizer)?;
        let parts = StepParts {
            task,
            params: model,
            optimizer,
            options: trainer.step_options::<K>(train),
            strategy: &strategy,
        };
        let per_epoch = options.numerics.steps_of(train.batches_per_epoch());
        let steps = match options.steps_per_execution {
            steps if steps > per_epoch => {
                halite_core::warning!(
                    "`steps_per_execution` is {steps}, and an epoch has {per_epoch} steps: each is \
                     launched singly"
                );
                1
            }
            steps => steps,
        };
        let evaluated = validation.iter().map(|set| {
            Ok(Evaluated {
                which: set.described(),
                batch: trainer.batch_specs::<K>(&set.data)?,
                padding: padding(&set.described(), &set.data),
            })
        });
        let evaluated = evaluated.collect::<Result<Vec<_>>>()?;
        let programs = Programs::new(&trainer.client, mesh, &parts, &batch, &evaluated, steps)?;
        let programs = programs.of_line(inputs.line);
        let lowered = programs
            .step
            .lower(&programs.state, &programs.inputs(mesh))?;
        Ok(Traced {
            programs,
            lowered,
            strategy,
            other_strategy,
        })
    }
}

/// The directory of a run, if it has one: what this process writes to, and the checkpoint to resume
/// from.
struct RunDirectory {
    files: Option<(PathBuf, CsvLog)>,
    store: Option<CheckpointStore>,
    saved: Option<ResumeFrom>,
}

impl RunDirectory {
    /// What the processes of a job have of what this one has opened.
    fn new(
        processes: Option<&Processes>,
        opened: Result<Option<(RunFiles, Option<Saved>)>>,
    ) -> Result<Self> {
        let (files, saved) = match opened {
            Ok(opened) => {
                let (files, saved) = opened.unzip();
                (files, Ok(saved.flatten()))
            }
            Err(error) => (None, Err(error)),
        };
        let (files, mut store) = files.map(RunFiles::parted).unzip();
        let saved = match processes {
            Some(processes) => {
                let saved = ResumeFrom::shared(processes, saved)?;
                store = shared_store(processes, store)?;
                saved
            }
            None => saved?.map(ResumeFrom::of).transpose()?,
        };
        Ok(RunDirectory {
            files,
            store,
            saved,
        })
    }
}

fn facts<K: Task, O: Optimizer>(
    trainer: &Trainer,
    programs: &Programs<K, O>,
    lowered: &Lowered<Leaf<()>>,
    inputs: &FitInputs<K, O>,
) -> Arc<RunFacts> {
    let (client, devices) = (&trainer.client, trainer.mesh.devices());
    Arc::new(RunFacts {
        metric_names: metric_names(programs, &inputs.validation),
        collected: collected(programs, &inputs.validation),
        schedules: schedules(&*inputs.optimizer),
        flops_per_step: cost(&lowered.graph).contractions(),
        peak_flops: peak_flops(client, devices, &trainer.precision),
        client: client.clone(),
        devices: devices.to_vec(),
    })
}

/// Leaves the parameters that are frozen out of checkpoints, if they come from somewhere; returns
/// where from, for the identity of the run.
fn leave_out_frozen<K: Task, O: Optimizer>(
    trainer: &Trainer,
    programs: &mut Programs<K, O>,
    lowered: &Lowered<Leaf<()>>,
    inputs: &FitInputs<K, O>,
) -> Result<Option<Property>> {
    let Some(base) = &trainer.frozen_from else {
        return Ok(None);
    };
    programs.left_out = frozen::unchanged(&*inputs.model, &lowered.graph);
    frozen::property::<K>(base, &programs.left_out, inputs.values.as_ref()).map(Some)
}

/// `loader` has the samples of all processes: every process finds the same cause.
fn nan_check<K: Task, O: Optimizer>(
    options: &TrainerOptions,
    programs: &Programs<K, O>,
    model: &ModelParams<K>,
    loader: Loader,
) -> NanCheck {
    let trained = trained_paths(model).map(|path| format!("model.{path}"));
    NanCheck {
        window: programs.train_metrics.clone(),
        loader,
        trained: Arc::new(trained.collect()),
        batches: Batches::of_step(options.numerics.accumulate_grad_batches),
        on_not_finite: options.on_not_finite,
        growth: Some(Default::default()),
    }
}

/// Names of the metrics of a run, with the data that they are of.
fn metric_names<K: Task, O: Optimizer>(
    programs: &Programs<K, O>,
    validation: &[NamedSet],
) -> Vec<String> {
    let train = programs.train_metrics.names().iter();
    let train = train.map(|name| format!("{} {name}", Split::Train));
    let evaluation = programs.evaluation.as_ref();
    let evaluated =
        evaluation.map_or_else(Vec::new, |evaluation| evaluation.metrics.result_names());
    let validation = validation.iter().flat_map(|set| {
        let names = evaluated.iter();
        names.map(|name| format!("{} {}", Split::Validation, set.metric(name)))
    });
    train.chain(validation).collect()
}

/// Names of the validation metrics that are collected.
fn collected<K: Task, O: Optimizer>(
    programs: &Programs<K, O>,
    validation: &[NamedSet],
) -> Vec<Arc<str>> {
    let evaluation = programs.evaluation.as_ref();
    let names = evaluation.map(|evaluation| evaluation.metrics.collected().result_names());
    let names = names.unwrap_or_default();
    let of_set = |set: &NamedSet| {
        names
            .iter()
            .map(|name| set.metric(name))
            .collect::<Vec<_>>()
    };
    validation.iter().flat_map(of_set).collect()
}

/// The learning rates of an optimizer.
fn schedules(optimizer: &impl Optimizer) -> Vec<(String, Schedule)> {
    let schedules = optimizer.schedules().into_iter();
    schedules
        .map(|(name, schedule)| (name, schedule.clone()))
        .collect()
}

/// Checks that averages of the trained parameters, which are at least `f32`, have their types.
fn check_averaged<M: Tree<Leaf = Param>>(model: &M) -> Result<()> {
    let is_narrow = |param: &Param| !matches!(param.ty.dtype(), DType::F32 | DType::F64);
    let named = model.named().into_iter();
    let mut narrow = named.filter(|(_, param)| param.trainable && is_narrow(param));
    if let Some((path, param)) = narrow.next() {
        let message = format!(
            "the parameter `{path}` is declared in {}, and its average is in f32, with which the \
             model is another one. Declare it in f32 (`precision` bf16-mixed computes in bf16), or \
             train without averages",
            param.ty.dtype()
        );
        return Err(Error::invalid("average", message));
    }
    Ok(())
}

/// Peak rate of all these devices together in FLOP/s; `None` if that of one is not known.
fn peak_flops(client: &Client, devices: &[DeviceId], policy: &DTypePolicy) -> Option<f64> {
    let used = client.devices().into_iter();
    let used = used.filter(|device| devices.contains(&device.id()));
    used.map(|device| device.spec()?.peak_flops(policy)).sum()
}
