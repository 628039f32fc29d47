//! The start of a run: its programs are traced and compiled, its directory is opened, and its state
//! is initialized or restored.

use std::{
    panic::Location,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use halite_core::{
    Array, Client, DType, DTypePolicy, DeviceId, Error, ErrorKind, HostArray, Result, Sharding,
    tree::{Empty, Family, Leaf, Tree},
    wait::{default_limit, wait_until},
};
use halite_data::Loader;
use halite_ir::cost;
use halite_nn::{ArrayCollectives, ArraySpec, Jit, Optimizer, Param, Processes, Schedule, rng};
use halite_telemetry::ClientMetrics;

use super::{
    Fit, LoopState, Validated, frozen,
    messages::{left_out, resumed},
    meter::{Meter, Sum},
};
use crate::{
    MetricValues, Task, Trainer,
    callback::{Run, RunFacts},
    callbacks::{Callbacks, NanCheck, take_checked},
    cause::Batches,
    checkpoint::RunPosition,
    in_flight::InFlight,
    loggers::Split,
    measured::Measured,
    processes::{Agreement, ResumeFrom, check_alike, shared_store},
    programs::{Evaluated, ModelArrays, ModelParams, Programs, RunState, StepParts, padding},
    resume,
    run_files::{self, RunFiles},
    signals::Interrupts,
    trained::trained_paths,
    validation_set::NamedSet,
    waits::Limits,
    window::WINDOW,
};

/// Bytes on the host that may wait for the device while a state is restored.
const UPLOADING: usize = 64 << 20;

/// Time between two looks at a compiler's thread.
const COMPILE_POLL: Duration = Duration::from_millis(2);

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

impl<'a, K: Task, O: Optimizer> Fit<'a, K, O>
where
    ModelParams<K>: Send + Sync,
{
    /// Traces the programs, so that every mistake of the task, the gradients and the optimizer is
    /// reported before anything is compiled, read or written; then opens the directory of the run.
    pub(crate) fn new(trainer: &'a Trainer, inputs: FitInputs<K, O>) -> Result<Self> {
        let started = Instant::now();
        let before = trainer.client.metrics().activity();
        let FitInputs {
            task,
            model,
            optimizer,
            train,
            validation,
            values,
            line,
        } = inputs;
        let (mesh, options) = (&trainer.mesh, &trainer.options);
        if trainer.average.is_some() {
            check_averaged(&*model)?;
        }
        let batch = trainer.batch_specs::<K>(&train)?;
        let (strategy, other_strategy) = trainer.strategy_of(&*model, &*optimizer)?;
        let parts = StepParts {
            task: &task,
            params: &model,
            optimizer: &optimizer,
            options: trainer.step_options::<K>(&train),
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
        let client = &trainer.client;
        let evaluated = validation.iter().map(|set| {
            Ok(Evaluated {
                which: set.described(),
                batch: trainer.batch_specs::<K>(&set.data)?,
                padding: padding(&set.described(), &set.data),
            })
        });
        let evaluated = evaluated.collect::<Result<Vec<_>>>()?;
        let programs = Programs::new(client, mesh, &parts, &batch, &evaluated, steps)?;
        let mut programs = programs.of_line(line);
        let lowered = programs
            .step
            .lower(&programs.state, &programs.inputs(mesh))?;
        let facts = Arc::new(RunFacts {
            metric_names: metric_names(&programs, &validation),
            collected: collected(&programs, &validation),
            schedules: schedules(&*optimizer),
            flops_per_step: cost(&lowered.graph).contractions(),
            peak_flops: peak_flops(client, mesh.devices(), &trainer.precision),
            client: client.clone(),
            devices: mesh.devices().to_vec(),
        });
        let checked = take_checked(options, &trainer.callbacks, &facts.metric_names)?;
        let code = lowered.comparable_code();
        let frozen = match &trainer.frozen_from {
            Some(base) => {
                programs.left_out = frozen::unchanged(&*model, &lowered.graph);
                Some(frozen::property::<K>(
                    base,
                    &programs.left_out,
                    values.as_ref(),
                )?)
            }
            None => None,
        };
        let mut identity =
            trainer.identity(&train, &validation, &*optimizer, &strategy, &code, frozen);
        let interrupts = Interrupts::watch(trainer.stop.clone().unwrap_or_default())?;
        let stop = interrupts.flag();
        if let Some(processes) = &trainer.processes {
            let identity = identity.identity();
            check_alike(processes, identity, options, &train, &validation)?;
        }
        let opened = run_files::open(options, |saved| {
            identity.wait_before_resume(saved, &Limits::new(options.wait_limit), &stop)?;
            resume::check(saved, identity.identity(), options, &programs, mesh)
        });
        let (files, saved) = match opened {
            Ok(opened) => {
                let (files, saved) = opened.unzip();
                (files, Ok(saved.flatten()))
            }
            Err(error) => (None, Err(error)),
        };
        let (files, mut store) = files.map(RunFiles::parted).unzip();
        let saved = match &trainer.processes {
            Some(processes) => {
                let saved = ResumeFrom::shared(processes, saved)?;
                store = shared_store(processes, store)?;
                saved
            }
            None => saved?.map(ResumeFrom::of).transpose()?,
        };
        let trained = trained_paths(&*model).map(|path| format!("model.{path}"));
        let nan_check = NanCheck {
            window: programs.train_metrics.clone(),
            // Every process finds the same cause.
            loader: train.whole(),
            trained: Arc::new(trained.collect()),
            batches: Batches::of_step(options.numerics.accumulate_grad_batches),
            on_not_finite: options.on_not_finite,
            growth: Some(Default::default()),
        };
        let hyperparameters = identity.identity().hyperparameters();
        let loggers = &trainer.loggers;
        let callbacks = Callbacks::new(
            options,
            loggers,
            checked,
            nan_check,
            files,
            store,
            hyperparameters,
        )?;
        if let Some(message) = other_strategy {
            callbacks.progress_bar.progress.message(&message);
        }
        Ok(Fit {
            trainer,
            programs,
            train,
            validation,
            identity,
            callbacks,
            facts,
            saved,
            interrupts,
            stop,
            before,
            exchanged_before: (trainer.processes.as_ref())
                .map(Processes::exchanged)
                .unwrap_or_default(),
            started,
            values,
            saves_copies: None,
            gather: (trainer.spans_processes).then(|| ArrayCollectives::new(client, mesh)),
        })
    }

    /// Does not warn of a loss that grows.
    pub(crate) fn expecting_growth(mut self) -> Self {
        self.callbacks.nan_check.growth = None;
        self
    }

    /// The state of the loop before the first step of a new run.
    fn loop_state(&self, state: RunState<K, O, Array>, window: Array) -> LoopState<K, O> {
        let options = &self.trainer.options;
        let batches = self.train.batches_per_epoch();
        LoopState {
            live: Some((state, window)),
            run: Run {
                step: 0,
                epoch: 0,
                batch: 0,
                epochs: options.epochs(),
                batches_per_epoch: options.numerics.steps_of(batches),
                batch_size: options.samples_per_step(),
                out: options.out.clone(),
                resumed_from_step: None,
                train_metrics: MetricValues::new(),
                facts: self.facts.clone(),
                earlier_seconds: 0.0,
                skipped: 0,
                started: self.started,
                agreed_seconds: None,
                save_requested: false,
                stop_requested: false,
                stopped_by: None,
                new_rate_factor: None,
                rate_factor: 1.0,
                has_rate_factor: self.trainer.has_rate_factor,
            },
            meter: Meter::new(&self.programs.train_metrics),
            in_flight: InFlight::new("step", options.wait_limit),
            first: 0,
            saved_at: None,
            input_wait: Duration::ZERO,
            training: Duration::ZERO,
            time_to_first_step: Arc::default(),
            has_failed: false,
            agreement: self.trainer.processes.as_ref().map(Agreement::new),
            measured: Measured::default(),
            validated: Validated::default(),
            skipped_in_window: 0,
            step_rate_factor: 1.0,
            loss_scale: None,
        }
    }

    /// Compiles the training step, and initializes or restores the state meanwhile.
    pub(super) fn begin(&mut self) -> Result<LoopState<K, O>> {
        let options = &self.trainer.options;
        let has_steps = self.saved.as_ref().is_none_or(|saved| {
            let RunPosition { step, epoch, .. } = saved.position;
            epoch < options.epochs() && options.max_steps.is_none_or(|most| step < most)
        });
        let inputs = self.programs.inputs(&self.trainer.mesh);
        if self.stops_alone() {
            return Err(self.stopped_before("before a program was compiled"));
        }
        if has_steps {
            self.programs
                .step
                .prepare_in_background(&self.programs.state, &inputs)?;
            if let Some(steps) = &self.programs.steps {
                steps.prepare_in_background()?;
            }
        }
        let progress = &self.callbacks.progress_bar.progress;
        let options = &self.trainer.options;
        if let (Some(out), true, None) = (&options.out, options.resume, &self.saved) {
            let out = out.display();
            progress.message(&format!("nothing to resume in {out}: starting a new run"));
        }
        if let Some(left_out) = left_out(&self.train, options) {
            progress.message(&left_out);
        }
        progress.waiting_for("compiling the training step");
        let mut now = match self.saved.take() {
            Some(saved) => self.restore(saved)?,
            None => self.initialize()?,
        };
        if has_steps {
            if !self.wait_until_compiled(&self.programs.step, "train step")? {
                return Err(self.stopped_before("while the program `train step` was compiled"));
            }
            // Collects the compiled step: errors of the compiler come before the state is donated,
            // and compile time is not part of an epoch's.
            self.programs.step.prepare(&self.programs.state, &inputs)?;
            if let Some(steps) = &self.programs.steps {
                if !self.wait_until_compiled(steps.program(), "train steps")? {
                    return Err(self.stopped_before("while the program `train steps` was compiled"));
                }
                steps.prepare()?;
            }
        }
        self.callbacks.progress_bar.progress.done_waiting();
        if has_steps && self.callbacks.checkpointing.is_some() {
            // Its choice is printed before the first step.
            self.choose_mode()?;
        }
        // No process starts a step before all have compiled it.
        self.agree(&mut now)?;
        if now.run.resumed_from_step.is_some() {
            // Of several processes the time that they agreed on: each has a clock of its own.
            now.validated.seconds = now.seconds();
        }
        Ok(now)
    }

    fn initialize(&mut self) -> Result<LoopState<K, O>> {
        let (client, mesh) = (&self.trainer.client, &self.trainer.mesh);
        let key = HostArray::from_slice(&rng::key(self.trainer.options.seed), [2])?;
        let key = Array::upload(client, &key, &Sharding::replicated(mesh))?;
        let init = &self.programs.init;
        init.prepare_in_background(&Empty::new(), &Leaf(ArraySpec::of(&key)))?;
        if !self.wait_until_compiled(init, "init")? {
            return Err(self.stopped_before("while the program `init` was compiled"));
        }
        let mut state = init.run(&key)?;
        if let Some(values) = self.values.take() {
            let mut specs = self.programs.state.model.leaves().into_iter();
            state.model = values.try_map_leaves(|_, array| {
                let spec = specs
                    .next()
                    .expect("the values have the structure of the model");
                placed(client, array, spec)
            })?;
        }
        let window = self.programs.train_metrics.upload(client, mesh)?;
        Ok(self.loop_state(state, window))
    }

    /// Restores the run to the position at which `saved` was written.
    fn restore(&mut self, mut saved: ResumeFrom) -> Result<LoopState<K, O>> {
        let position = saved.position;
        let options = &self.trainer.options;
        let processes = self.trainer.processes.as_ref();
        let comparison = self
            .identity
            .identity()
            .compare(&saved.metadata.identity, &options.allow_changes);
        let warnings = comparison.warnings().into_iter();
        for warning in warnings.filter(|_| processes.is_none_or(|all| all.rank() == 0)) {
            halite_core::warning!("{}: {warning}", saved.path.display());
        }
        let saved_size = saved.metadata.identity.samples_per_step();
        let batch = self.batch_to_resume_at(position, saved_size);
        let (programs, mesh) = (&self.programs, &self.trainer.mesh);
        let specs = resume::array_specs(programs, mesh);
        let types = resume::array_types(saved.window.as_ref(), programs, mesh);
        let extras = std::mem::take(&mut saved.metadata.extras);
        let client = self.trainer.client.unattributed();
        let (mut arrays, mut uploading, mut skipped_before) = (Vec::<Array>::new(), 0, 0);
        saved.take_each(processes, &types, |index, host| {
            let (name, spec) = &specs[index];
            let host = match &**name {
                WINDOW => {
                    let metrics = &self.programs.train_metrics;
                    let (window, skipped) = metrics.continued(&host, &extras)?;
                    skipped_before = skipped;
                    window
                }
                _ => match &programs.divided {
                    Some(divided) => divided.shard(name, host)?,
                    None => host,
                },
            };
            uploading += host.bytes().len();
            arrays.push(Array::upload_as(
                &client,
                &Arc::new(host),
                &spec.sharding,
                spec.stored,
            )?);
            if uploading > UPLOADING {
                arrays.iter().try_for_each(Array::wait)?;
                uploading = 0;
            }
            Ok(())
        })?;
        let window = arrays.pop().expect("the window is the last of the specs");
        let arrays = match self.values.take() {
            Some(values) => frozen::with_values::<K, O>(programs, &client, arrays, values)?,
            None => arrays,
        };
        let metadata = saved.metadata;
        let mut now = self.loop_state(self.programs.state.rebuild(arrays), window);

        now.meter.sums = (metadata.sums.iter())
            .map(|(total, weight)| Sum {
                total: total.0,
                weight: weight.0,
            })
            .collect();
        let train_metrics = metadata.measured.train_metrics.iter();
        now.run.train_metrics = train_metrics
            .map(|(name, value)| (Arc::from(name.as_str()), value.0))
            .collect();
        now.run.step = position.step;
        now.run.epoch = position.epoch;
        now.run.batch = batch;
        now.run.resumed_from_step = Some(position.step);
        now.run.earlier_seconds = metadata.seconds;
        now.run.skipped = metadata.skipped + skipped_before;
        now.run.rate_factor = metadata.rate_factor.0;
        now.step_rate_factor = metadata.rate_factor.0;
        now.validated.step = metadata.validated;
        now.first = position.step;
        now.saved_at = Some(position);
        now.loss_scale = metadata.measured.loss_scale.map(|scale| scale.0);
        now.measured = metadata.measured;
        self.callbacks.load_states(metadata.callbacks)?;
        self.callbacks
            .progress_bar
            .progress
            .message(&resumed(position, metadata.seconds, options));
        Ok(now)
    }

    /// The step of the epoch to continue with: after a change of the samples of a step, the one with
    /// the next sample that was not seen.
    fn batch_to_resume_at(&self, position: RunPosition, saved_size: Option<u64>) -> usize {
        let options = &self.trainer.options;
        let size = options.samples_per_step().max(1) as u64;
        let samples = position.batch.saturating_mul(saved_size.unwrap_or(size));
        let steps = options.numerics.steps_of(self.train.batches_per_epoch());
        usize::try_from(samples / size).map_or(steps, |batch| batch.min(steps))
    }

    /// Waits until `program` is compiled; `false` if the run is asked to stop first.
    pub(super) fn wait_until_compiled<S: Family, I: Family, P: Family>(
        &self,
        program: &Jit<S, I, P>,
        name: &str,
    ) -> Result<bool> {
        let poll = |_| {
            let compiled = !program.is_compiling();
            if !compiled {
                thread::sleep(COMPILE_POLL);
            }
            compiled.then_some(())
        };
        let name = || format!("the compiler, which has `{name}`");
        let late = |error: Error| error.with_note("set a longer limit with HALITE_WAIT_LIMIT");
        let waited = wait_until(name, default_limit(), || self.stops_alone(), poll);
        Ok(waited.map_err(late)?.is_some())
    }

    fn stopped_before(&self, when: &str) -> Error {
        let message = format!(
            "stopped before the first step, {when}; nothing was trained, and {}",
            self.callbacks.newest_checkpoint()
        );
        Error::new(ErrorKind::Cancelled, "fit", message)
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

/// Places an array as `spec` says; arrays that are in place are moved.
pub(super) fn placed(client: &Client, array: Array, spec: &ArraySpec) -> Result<Array> {
    if array.stored() != spec.stored {
        Array::upload_as(
            client,
            &Arc::new(array.read()?),
            &spec.sharding,
            spec.stored,
        )
    } else if array.sharding() != &spec.sharding {
        array.reshard(client, &spec.sharding)
    } else {
        Ok(array)
    }
}

/// Peak rate of all these devices together in FLOP/s; `None` if that of one is not known.
fn peak_flops(client: &Client, devices: &[DeviceId], policy: &DTypePolicy) -> Option<f64> {
    let used = client.devices().into_iter();
    let used = used.filter(|device| devices.contains(&device.id()));
    used.map(|device| device.spec()?.peak_flops(policy)).sum()
}
