//! One run of training: the loop, and what happens around it.
//!
//! The loop queues steps and reads nothing back. Metrics gather on the device in a *window*; every
//! `log_every` steps the window is copied to the host without waiting for it, and a new one begins.
//! What arrives is added up in f64.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    panic::Location,
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use halite_core::{
    Array, Error, ErrorKind, HostArray, Mesh, Pending, Result, Sharding,
    tree::{Empty, Family, Leaf, Tree},
};
use halite_data::{Loader, Position};
use halite_nn::{ArraySpec, Jit, Optimizer, rng};
use halite_telemetry::{Activity, ClientMetrics, FunctionActivity};

use crate::{
    Metrics, Report, Task, Trainer, TrainerOptions,
    checkpoint::{self, Saved},
    finite,
    identity::{self, Identity},
    in_flight::InFlight,
    loggers::{Row, Split},
    measured::Measured,
    outputs::{Exact, Outputs, Progressed},
    programs::{
        BatchArrays, LOSS, ModelArrays, ModelParams, Programs, RunState, StepOptions, Window,
    },
    signals::{Interrupts, StopFlag, StopReason},
    since_start::since_start,
    waits::{Limits, NextBatch, next_batch, wait, wait_also_when_stopped},
};

/// Sums of one metric, on the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    total: f64,
    weight: f64,
}

/// Windows that are on their way to the host, and the sums of those that arrived.
struct Meter {
    window: Window,
    pending: VecDeque<(u64, Pending<HostArray>)>,
    sums: Vec<Sum>,
}

impl Meter {
    fn new(window: Window) -> Self {
        let sums = vec![Sum::default(); window.names().len()];
        Meter {
            window,
            pending: VecDeque::new(),
            sums,
        }
    }

    /// Takes the windows that have arrived into `arrived`, the last step of each and its means;
    /// all, waiting for them, if `all`. What arrived before an error is in `arrived` too.
    fn collect(
        &mut self,
        all: bool,
        limits: &Limits,
        stop: &StopFlag,
        arrived: &mut Vec<(u64, Metrics)>,
        loader: &Loader,
    ) -> Result<()> {
        while let Some((step, pending)) = self.pending.pop_front() {
            if !all && !pending.is_ready() {
                self.pending.push_front((step, pending));
                break;
            }
            let name = || format!("the metrics of step {step}");
            wait_also_when_stopped(name, limits, &|| stop.is_set(), |slice| {
                pending.wait_ready(slice).then_some(())
            })?;
            let metrics = self.window.read(&pending.wait()?)?;
            finite::check_metrics(&metrics, |step| self.window.cause(loader, step))?;
            for (sum, metric) in self.sums.iter_mut().zip(&metrics) {
                sum.total += metric.total;
                sum.weight += metric.weight;
            }
            // An epoch can end right after a window was sent, and a run stop there: the next one is
            // empty then.
            if metrics.iter().any(|metric| metric.weight != 0.0) {
                arrived.push((
                    step,
                    metrics
                        .iter()
                        .map(|metric| (metric.name.clone(), metric.mean()))
                        .collect(),
                ));
            }
        }
        Ok(())
    }

    fn means(&self) -> Metrics {
        let mean = |sum: &Sum| {
            if sum.weight > 0.0 {
                sum.total / sum.weight
            } else {
                0.0
            }
        };
        self.window
            .names()
            .iter()
            .cloned()
            .zip(self.sums.iter().map(mean))
            .collect()
    }
}

/// A trained model, and how it came to be.
pub struct Fitted<K: Task> {
    /// The model after the last step.
    pub model: ModelArrays<K>,
    /// What happened.
    pub report: Report,
    /// Who asked it to stop before its last epoch, if anyone did.
    pub stopped_by: Option<StopReason>,
}

impl<K: Task> fmt::Display for Fitted<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)
    }
}

impl<K: Task> fmt::Debug for Fitted<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fitted")
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

/// One run: what does not change while it goes.
pub(crate) struct Run<'a, K: Task, O: Optimizer> {
    trainer: &'a Trainer,
    programs: Programs<K, O>,
    train: Loader,
    validation: Loader,
    identity: identity::Pending,
    outputs: Outputs,
    saved: Option<Saved>,
    interrupts: Interrupts,
    stop: StopFlag,
    /// Paths, in the state, of the parameters that are trained.
    trained: Arc<HashSet<String>>,
    before: Activity,
    started: Instant,
}

/// One run: what changes.
struct Progressing<K: Task, O: Optimizer> {
    /// The state and the window; `None` only while a step has them.
    live: Option<(RunState<K, O, Array>, Array)>,
    meter: Meter,
    /// Updates made, since the first start.
    step: u64,
    position: Position,
    /// The step this process began at.
    first: u64,
    /// Seconds of earlier starts of this run.
    earlier: f64,
    best: Option<f64>,
    in_flight: InFlight,
    /// Time in which a step could have been queued and its batch was not there.
    input_wait: Duration,
    /// Time in epochs, validation and compiling excluded.
    training: Duration,
    /// When the first step was done: since the start of the run, and since that of the process.
    first_step: Arc<OnceLock<(Duration, Option<Duration>)>>,
    /// Training metrics of the last finished epoch.
    train: Metrics,
    /// Measurements of the process before, which are reported if this one has no step to do.
    measured: Measured,
}

impl<'a, K: Task, O: Optimizer> Run<'a, K, O>
where
    ModelParams<K>: Send + Sync,
{
    pub(crate) fn start(
        trainer: &'a Trainer,
        line: &'static Location<'static>,
        task: Arc<K>,
        model: Arc<ModelParams<K>>,
        optimizer: Arc<O>,
        train: Loader,
        validation: Loader,
    ) -> Result<Self> {
        let started = Instant::now();
        let before = trainer.client.metrics().activity();
        let Trainer {
            client,
            mesh,
            strategy,
            options,
            precision,
            ..
        } = trainer;
        let doing = StepOptions {
            clip_norm: options.clip_norm,
            precision: *precision,
        };
        let [batch, validating] = [
            trainer.batch_specs::<K>(&train)?,
            trainer.batch_specs::<K>(&validation)?,
        ];
        let (layout, batches) = ((mesh, strategy), [&batch, &validating]);
        let programs =
            Programs::new(client, layout, &task, &model, &optimizer, batches, doing)?.of_line(line);
        // Mistakes of gradients and of the optimizer too are told before anything is compiled, read
        // or written.
        let step = programs
            .step
            .lower(
                &programs.state,
                &(batch, Leaf(programs.train_metrics.spec(mesh))),
            )?
            .program
            .code;
        let identity = trainer.identity([&train, &validation], &*optimizer, &step);
        let check = |saved: &Saved| fits(saved, &trainer.options, identity.get(), &programs, mesh);
        let (outputs, saved) = Outputs::open(&trainer.options, train.batches_per_epoch(), check)?;
        let interrupts = Interrupts::watch(trainer.stop.clone().unwrap_or_default())?;
        let stop = interrupts.flag();
        let trained = model
            .named()
            .into_iter()
            .filter(|(_, param)| param.trainable)
            .map(|(path, _)| format!("model.{path}"));
        let trained = Arc::new(trained.collect());
        Ok(Run {
            trainer,
            programs,
            train,
            validation,
            identity,
            outputs,
            saved,
            interrupts,
            stop,
            trained,
            before,
            started,
        })
    }
}

impl<K: Task, O: Optimizer> Progressing<K, O> {
    fn new(
        state: RunState<K, O, Array>,
        window: Array,
        meter: Meter,
        wait_limit: Option<Duration>,
    ) -> Self {
        Progressing {
            live: Some((state, window)),
            meter,
            step: 0,
            position: Position::default(),
            first: 0,
            earlier: 0.0,
            best: None,
            in_flight: InFlight::new("step", wait_limit),
            input_wait: Duration::ZERO,
            training: Duration::ZERO,
            first_step: Arc::default(),
            train: Metrics::new(),
            measured: Measured::default(),
        }
    }

    /// The state and the window.
    ///
    /// # Errors
    /// If a step took them and failed: the run is over then.
    fn live(&self) -> Result<&(RunState<K, O, Array>, Array)> {
        self.live.as_ref().ok_or_else(lost)
    }
}

fn lost() -> Error {
    Error::new(
        ErrorKind::Internal,
        "fit",
        "an earlier step failed and took the state with it",
    )
}

#[derive(PartialEq)]
enum Next {
    GoOn,
    Stop,
}

impl<K: Task, O: Optimizer> Run<'_, K, O>
where
    ModelParams<K>: Send + Sync,
{
    pub(crate) fn fit(mut self) -> Result<Fitted<K>> {
        let mut now = self.begin().inspect_err(|error| {
            // Dropping a program waits for its compiler, which may be what does not come back.
            if matches!(
                error.kind(),
                ErrorKind::Cancelled | ErrorKind::DeadlineExceeded
            ) {
                self.programs.init.abandon_background();
                self.programs.step.abandon_background();
            }
        })?;
        let result = self.epochs(&mut now);
        let is_late = result
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::DeadlineExceeded);
        if is_late {
            // What hangs may be the device that a save waits for.
            self.outputs
                .give_up_waiting(now.in_flight.limits().grace().min(LAST_COPIES));
        }
        // Whatever happened, what is being written is written before this returns; the first error
        // is the one to tell.
        let finished = self.outputs.finish();
        let report = result.map_err(|error| {
            if is_late {
                error.with_note(&self.outputs.what_stays())
            } else {
                error
            }
        })?;
        finished?;
        let (state, _) = now.live.ok_or_else(lost)?;
        let stopped_by = self.interrupts.reason().filter(|_| report.interrupted);
        Ok(Fitted {
            model: state.model,
            report,
            stopped_by,
        })
    }

    /// The first state, or that of the latest checkpoint.
    fn begin(&mut self) -> Result<Progressing<K, O>> {
        let meter = Meter::new(self.programs.train_metrics.clone());
        let epochs = self.trainer.options.epochs;
        let steps = self
            .saved
            .as_ref()
            .is_none_or(|saved| saved.position().epoch < epochs);
        let window = Leaf(self.programs.train_metrics.spec(&self.trainer.mesh));
        let inputs = (self.trainer.batch_specs::<K>(&self.train)?, window);
        if self.stop.is_set() {
            return Err(self.stopped_before("the program `init`"));
        }
        if steps {
            // It is compiled while the state is made, which needs another program, or a checkpoint.
            self.programs
                .step
                .prepare_in_background(&self.programs.state, &inputs)?;
        }
        self.outputs.waiting_for("compiling the training step");
        let now = match self.saved.take() {
            Some(saved) => {
                let position = saved.position();
                let now = self.restore(saved, meter)?;
                self.outputs.resumed(position, epochs);
                now
            }
            None => self.first_state(meter)?,
        };
        if steps && !self.is_compiled(&self.programs.step, "train step")? {
            return Err(self.stopped_before("the program `train step`"));
        }
        if steps {
            // Collects the compiled step: errors of the compiler come before the state is donated,
            // and compile time is not part of an epoch's.
            self.programs.step.prepare(&self.programs.state, &inputs)?;
        }
        self.outputs.done_waiting();
        Ok(now)
    }

    fn first_state(&self, meter: Meter) -> Result<Progressing<K, O>> {
        let (client, mesh) = (&self.trainer.client, &self.trainer.mesh);
        let key = HostArray::from_slice(&rng::key(self.trainer.options.seed), [2])?;
        let key = Array::upload(client, &key, &Sharding::replicated(mesh))?;
        let init = &self.programs.init;
        init.prepare_in_background(&Empty::new(), &Leaf(ArraySpec::of(&key)))?;
        if !self.is_compiled(init, "init")? {
            return Err(self.stopped_before("the program `init`"));
        }
        let state = init.run(&Leaf(key))?;
        let window = self.programs.train_metrics.upload(client, mesh)?;
        Ok(Progressing::new(
            state,
            window,
            meter,
            self.trainer.options.wait_limit,
        ))
    }

    /// Waits until the threads of `program` have compiled it; `false` if the run is asked to stop
    /// first.
    fn is_compiled<S: Family, I: Family, P: Family>(
        &self,
        program: &Jit<S, I, P>,
        name: &str,
    ) -> Result<bool> {
        let compiled = |_| {
            let compiled = !program.is_compiling();
            if !compiled {
                thread::sleep(COMPILE_POLL);
            }
            compiled.then_some(())
        };
        // How long a compiler takes says nothing about steps, and the other way round.
        let wait = wait(
            || format!("the compiler, which has `{name}`"),
            &Limits::new(None),
            &|| self.stop.is_set(),
            compiled,
        );
        Ok(wait?.is_some())
    }

    fn stopped_before(&self, what: &str) -> Error {
        let message = format!(
            "stopped before the first step, while {what} was compiled; nothing was trained, and {}",
            self.outputs.what_stays()
        );
        Error::new(ErrorKind::Cancelled, "fit", message)
    }

    fn epochs(&mut self, now: &mut Progressing<K, O>) -> Result<Report> {
        let mut validation = None;
        let mut interrupted = false;
        while now.position.epoch < self.trainer.options.epochs {
            let epoch = now.position.epoch;
            interrupted = self.epoch(now)? == Next::Stop;
            if !interrupted {
                now.train = now.meter.means();
                self.outputs.validating();
                validation = match self.validate(now) {
                    Ok(validation) => validation,
                    Err(error) => return Err(self.keep(now, error)),
                };
                // Interrupted in validation: the steps of the epoch are done, and its validation is
                // done again later.
                interrupted = validation.is_none();
            }
            let Some(metrics) = validation.as_ref().filter(|_| !interrupted) else {
                self.save_stopped(now)?;
                break;
            };
            self.outputs
                .epoch_done(&now.train, self.row(now, Split::Validation, metrics));
            now.position = Position {
                epoch: epoch + 1,
                batch: 0,
            };
            now.meter = Meter::new(self.programs.train_metrics.clone());
            let window = self
                .programs
                .train_metrics
                .upload(&self.trainer.client, &self.trainer.mesh)?;
            now.live.as_mut().ok_or_else(lost)?.1 = window;
            self.save(now, validation.as_deref())?;
            // After what must not be lost.
            self.outputs.plot();
        }
        if validation.is_none() && !interrupted {
            // All epochs were done before: a resumed run that was finished says what it had
            // reached.
            self.outputs.waiting_for("validating");
            validation = self.validate(now)?;
            self.outputs.done_waiting();
            interrupted = validation.is_none();
        }
        self.outputs.finish()?;
        self.report(now, validation.unwrap_or_default(), interrupted)
    }

    /// The rest of an epoch.
    fn epoch(&mut self, now: &mut Progressing<K, O>) -> Result<Next> {
        let batches = self.train.batches_per_epoch();
        self.outputs
            .epoch_begun(now.position.epoch, now.position.batch);
        let TrainerOptions {
            log_every,
            checkpoint_every,
            wait_limit,
            ..
        } = self.trainer.options;
        let (begun, compiled) = (Instant::now(), self.compile_time());
        let mut next = Next::GoOn;
        if now.position.batch < batches {
            let mut prefetch = self.trainer.prefetch(&self.train, now.position)?;
            let (mut limits, stop) = (Limits::new(wait_limit), self.stop.clone());
            loop {
                let batch =
                    match next_batch("training", &mut prefetch, &mut limits, &|| stop.is_set()) {
                        Ok(NextBatch::Batch(batch)) => self.trainer.batch_tree::<K>(batch),
                        Ok(NextBatch::End) => break,
                        Ok(NextBatch::Stopped) => {
                            next = Next::Stop;
                            break;
                        }
                        Err(error) => Err(error),
                    };
                let batch = match batch {
                    Ok(batch) => batch,
                    Err(error) => return Err(self.keep(now, error)),
                };
                self.step(now, batch)?;
                now.position.batch += 1;
                if now.step.is_multiple_of(log_every) {
                    self.send_window(now)?;
                }
                self.collect(now, false)?;
                if self.interrupts.reason().is_some() {
                    next = Next::Stop;
                    break;
                }
                if checkpoint_every.is_some_and(|every| now.step.is_multiple_of(every))
                    && now.position.batch < batches
                {
                    self.save(now, None)?;
                }
            }
            now.input_wait += prefetch.waited();
            if next == Next::Stop {
                // Before the reader is waited for, which may hang.
                self.save_stopped(now)?;
            }
        }
        if next == Next::GoOn {
            self.send_window(now)?;
            self.collect(now, true)?;
        }
        now.training += begun
            .elapsed()
            .saturating_sub(self.compile_time() - compiled);
        Ok(next)
    }

    fn compile_time(&self) -> Duration {
        self.programs.step.stages().total()
    }

    /// Queues one step.
    fn step(&mut self, now: &mut Progressing<K, O>, batch: BatchArrays<K>) -> Result<()> {
        let _span = tracing::trace_span!("step", step = now.step + 1).entered();
        let (state, window) = now.live.take().ok_or_else(lost)?;
        let (state, Leaf(window)) = self.programs.step.call(state, &(batch, Leaf(window)))?;
        if now.step == now.first
            && let Some(shard) = window.shards().first()
        {
            let (started, first_step) = (self.started, now.first_step.clone());
            shard.ready()?.on_ready(Box::new(move |_| {
                _ = first_step.set((started.elapsed(), since_start()))
            }));
        }
        let queued = now
            .in_flight
            .push(now.step + 1, &window, &|| self.stop.is_set());
        now.live = Some((state, window));
        now.step += 1;
        self.trainer.client.metrics().step();
        self.outputs.stepped();
        queued
    }

    /// Begins a new window, and the copy of the old one to the host.
    fn send_window(&mut self, now: &mut Progressing<K, O>) -> Result<()> {
        let empty = self
            .programs
            .train_metrics
            .upload(&self.trainer.client, &self.trainer.mesh)?;
        let (_, window) = now.live.as_mut().ok_or_else(lost)?;
        let full = std::mem::replace(window, empty);
        now.meter.pending.push_back((now.step, full.fetch()?));
        Ok(())
    }

    /// Takes the windows that have arrived; all of them, waiting, if `all`.
    fn collect(&mut self, now: &mut Progressing<K, O>, all: bool) -> Result<()> {
        // First for the steps that the windows are of: a device that hangs does so in one of them.
        if let Some((last, _)) = now.meter.pending.back().filter(|_| all) {
            now.in_flight.settle(*last, &|| self.stop.is_set())?;
        }
        let mut arrived = Vec::new();
        let collected = now.meter.collect(
            all,
            now.in_flight.limits(),
            &self.stop,
            &mut arrived,
            &self.train,
        );
        for (step, means) in arrived {
            let row = self.row(now, Split::Train, &means);
            self.outputs.window(Row { step, ..row });
        }
        collected
    }

    /// Scores the model on the validation data; `None` if it is asked to stop on the way.
    fn validate(&self, now: &Progressing<K, O>) -> Result<Option<Metrics>> {
        let _span = tracing::trace_span!("validate").entered();
        let Programs {
            evaluate,
            evaluate_metrics,
            ..
        } = &self.programs;
        let model = &now.live()?.0.model;
        let window = Leaf(evaluate_metrics.spec(&self.trainer.mesh));
        let inputs = (
            Tree::as_ref(model).map(|_, array| ArraySpec::of(array)),
            (self.trainer.batch_specs::<K>(&self.validation)?, window),
        );
        evaluate.prepare_in_background(&Empty::new(), &inputs)?;
        if !self.is_compiled(evaluate, "evaluate")? {
            evaluate.abandon_background();
            return Ok(None);
        }
        self.trainer
            .score::<K>(evaluate, evaluate_metrics, model, &self.validation, &|| {
                self.stop.is_set()
            })
    }

    /// Saves the steps that were done before the run was asked to stop, if there are any.
    fn save_stopped(&mut self, now: &mut Progressing<K, O>) -> Result<()> {
        if now.step == now.first {
            return Ok(());
        }
        self.save_settled(now)?;
        // The devices have done their work; copies of it that do not come either must not hold the
        // process.
        self.outputs
            .give_up_waiting(now.in_flight.limits().grace().max(STOPPED_COPIES));
        Ok(())
    }

    /// Saves when all that is queued is done: what a hung device has cannot be saved.
    fn save_settled(&mut self, now: &mut Progressing<K, O>) -> Result<()> {
        now.in_flight.settle(u64::MAX, &|| self.stop.is_set())?;
        self.save(now, None)
    }

    /// Queues a checkpoint of where the run is; `validation` are the scores of the epoch that ends
    /// here.
    fn save(
        &mut self,
        now: &mut Progressing<K, O>,
        validation: Option<&[(Arc<str>, f64)]>,
    ) -> Result<()> {
        if !self.outputs.saves() {
            return Ok(());
        }
        let position = checkpoint::Position {
            step: now.step,
            epoch: now.position.epoch,
            batch: now.position.batch as u64,
        };
        if self.outputs.is_saved(position) {
            return Ok(());
        }
        // The save before is waited for below, and itself waits for what these steps make.
        if let Some(saved) = self.outputs.saved_step() {
            now.in_flight.settle(saved, &|| self.stop.is_set())?;
        }
        // The sums in the checkpoint must cover exactly the steps before it.
        self.collect(now, true)?;
        let score = validation
            .and_then(|metrics| metrics.first())
            .map(|(_, loss)| *loss)
            .filter(|loss| loss.is_finite());
        let is_best = score.is_some_and(|score| now.best.is_none_or(|best| score < best));
        if is_best {
            now.best = score;
        }
        let (state, window) = now.live()?;
        let mut arrays = Vec::new();
        for (path, array) in state.named() {
            arrays.push((path, array.fetch()?));
        }
        arrays.push((WINDOW.to_string(), window.fetch()?));
        let progressed = Progressed {
            identity: Some(self.identity.get().clone()),
            measured: self.measured(now),
            table: None,
            seconds: self.seconds(now),
            best: now.best.map(Exact),
            metrics: now
                .meter
                .window
                .names()
                .iter()
                .map(ToString::to_string)
                .collect(),
            sums: now
                .meter
                .sums
                .iter()
                .map(|sum| (Exact(sum.total), Exact(sum.weight)))
                .collect(),
            batch_size: None,
            samples: None,
            label: None,
            precision: None,
        };
        let best = score
            .filter(|_| is_best)
            .map(|score| (LOSS.to_string(), score));
        let (window, trained, step) = (now.meter.window.clone(), self.trained.clone(), now.step);
        let loader = self.train.clone();
        let check = move |arrays: &[(String, HostArray)]| {
            finite::check_state(arrays, &window, &trained, step, |step| {
                window.cause(&loader, step)
            })
        };
        self.outputs.save(
            position,
            self.trainer.options.seed,
            progressed,
            arrays,
            best,
            check,
        )
    }

    /// Saves what was learnt before the data, or the scoring, failed with `error`.
    fn keep(&mut self, now: &mut Progressing<K, O>, error: Error) -> Error {
        // Of two errors the first tells more.
        let saved = self.save_settled(now).and_then(|()| {
            self.outputs
                .give_up_waiting(now.in_flight.limits().grace().max(STOPPED_COPIES));
            self.outputs.finish()
        });
        if let Err(second) = saved {
            halite_core::warning!("no checkpoint of step {} either: {second}", now.step);
        }
        error
    }

    /// The run as it was when `saved` was written.
    fn restore(&mut self, mut saved: Saved, mut meter: Meter) -> Result<Progressing<K, O>> {
        let (position, progressed) = (saved.position(), Progressed::of(&saved)?);
        let (identity, batches) = (
            progressed.identity(saved.seed()),
            self.train.batches_per_epoch(),
        );
        let comparison = self
            .identity
            .get()
            .compare(&identity, &self.trainer.options.allow_changes);
        for warning in comparison.warnings() {
            halite_core::warning!("{}: {warning}", saved.path().display());
        }
        let batch = if comparison.is_changed() {
            // The samples that were seen of the epoch, in batches of this run.
            let (then, now) = (
                identity.batch_size().unwrap_or(1),
                self.trainer.options.batch_size.max(1) as u64,
            );
            usize::try_from(position.batch.saturating_mul(then) / now)
                .ok()
                .map(|batch| batch.min(batches))
        } else {
            usize::try_from(position.batch)
                .ok()
                .filter(|batch| *batch <= batches)
        };
        let (Some(batch), true) = (batch, progressed.sums.len() == meter.sums.len()) else {
            let message = format!(
                "{} is of another dataset or task; use another `out`",
                saved.path().display()
            );
            return Err(Error::invalid("resume", message));
        };
        for (sum, (total, weight)) in meter.sums.iter_mut().zip(&progressed.sums) {
            *sum = Sum {
                total: total.0,
                weight: weight.0,
            };
        }
        let window = self.programs.train_metrics.spec(&self.trainer.mesh);
        let wanted = wanted(&self.programs, &window);
        let types: Vec<_> = wanted
            .iter()
            .map(|(path, spec)| (path.clone(), spec.ty.clone()))
            .collect();
        let hosts = saved.take_all(&types)?;
        let upload = |(host, (_, spec)): (HostArray, &(String, &ArraySpec))| {
            Array::upload_as(
                &self.trainer.client,
                &Arc::new(host),
                &spec.sharding,
                spec.stored,
            )
        };
        let mut arrays = hosts
            .into_iter()
            .zip(&wanted)
            .map(upload)
            .collect::<Result<Vec<_>>>()?;
        let window = arrays
            .pop()
            .expect("the window is the last that was wanted");
        let mut now = Progressing::new(
            self.programs.state.rebuild(arrays),
            window,
            meter,
            self.trainer.options.wait_limit,
        );
        now.step = position.step;
        now.first = position.step;
        now.position = Position {
            epoch: position.epoch,
            batch,
        };
        now.earlier = progressed.seconds;
        now.best = progressed.best.map(|best| best.0);
        let train = progressed.measured.train_metrics.iter();
        now.train = train
            .map(|(name, value)| (Arc::from(name.as_str()), value.0))
            .collect();
        now.measured = progressed.measured;
        Ok(now)
    }

    /// What is measured of the steps so far: by this process, or by the one before if this one made
    /// none.
    fn measured(&self, now: &Progressing<K, O>) -> Measured {
        let train_metrics = now
            .train
            .iter()
            .map(|(name, value)| (name.to_string(), Exact(*value)))
            .collect();
        if now.step == now.first {
            return Measured {
                train_metrics,
                ..now.measured.clone()
            };
        }
        let activity = self.trainer.client.metrics().activity().since(&self.before);
        let queued = (now.step - now.first) as f64;
        let step = &self.programs.step;
        let busy = activity
            .function(step.name(), Some(step.origin()))
            .and_then(FunctionActivity::execute_mean);
        let busy = busy.map(|mean| mean.as_secs_f64() * queued);
        let training = now.training.as_secs_f64();
        let samples = queued * self.trainer.options.batch_size as f64;
        let (first_step, of_process) = now.first_step.get().copied().unwrap_or_default();
        Measured {
            train_metrics,
            samples_per_second: Exact(if training > 0.0 {
                samples / training
            } else {
                0.0
            }),
            training_seconds: Exact(training),
            input_wait_seconds: Exact(now.input_wait.as_secs_f64()),
            // Two clocks may disagree by a little.
            device_busy_seconds: busy.map(|busy| Exact(busy.min(training))),
            seconds_to_first_step: Exact(first_step.as_secs_f64()),
            process_seconds_to_first_step: of_process.map(|since| Exact(since.as_secs_f64())),
        }
    }

    fn report(
        &self,
        now: &Progressing<K, O>,
        validation: Metrics,
        interrupted: bool,
    ) -> Result<Report> {
        let Trainer {
            client,
            mesh,
            options,
            ..
        } = self.trainer;
        let activity = client.metrics().activity().since(&self.before);
        let (counted, measured) = (activity.counters, self.measured(now));
        let named = |metrics: &Metrics| {
            metrics
                .iter()
                .map(|(name, value)| (name.to_string(), *value))
                .collect()
        };
        self.outputs.report(Report {
            metrics: named(if validation.is_empty() {
                &now.train
            } else {
                &validation
            }),
            train_metrics: named(&now.train),
            steps: now.step,
            epochs: now.position.epoch,
            seconds: self.seconds(now),
            samples_per_second: measured.samples_per_second.0,
            compiles: counted.compiles,
            cache_hits: counted.cache_hits,
            compile_seconds_saved: counted.compile_time_saved.as_secs_f64(),
            step_compiles: self.programs.step.compiles(),
            blocking_reads: counted.blocking_reads,
            uploads: counted.uploads,
            training_seconds: measured.training_seconds.0,
            input_wait_seconds: measured.input_wait_seconds.0,
            device_busy_seconds: measured.device_busy_seconds.map(|busy| busy.0),
            // They are about training; scoring alone is none.
            findings: activity
                .findings()
                .iter()
                .filter(|_| now.step > now.first)
                .map(ToString::to_string)
                .collect(),
            seconds_to_first_step: measured.seconds_to_first_step.0,
            process_seconds_to_first_step: measured
                .process_seconds_to_first_step
                .map(|since| since.0),
            devices: mesh.size() as u64,
            precision: self.trainer.precision.to_string(),
            plugin: client.platform().name.to_string(),
            plugin_version: client.platform().version.clone(),
            halite_version: env!("CARGO_PKG_VERSION").to_string(),
            seed: options.seed,
            interrupted,
            ..Report::default()
        })
    }

    fn row(&self, now: &Progressing<K, O>, split: Split, metrics: &[(Arc<str>, f64)]) -> Row {
        let metrics = metrics
            .iter()
            .map(|(name, value)| (name.to_string(), *value))
            .collect();
        Row {
            step: now.step,
            epoch: now.position.epoch,
            seconds: self.seconds(now),
            split,
            metrics,
        }
    }

    /// Seconds of training, those of earlier starts of this run included.
    fn seconds(&self, now: &Progressing<K, O>) -> f64 {
        now.earlier + self.started.elapsed().as_secs_f64()
    }
}

/// How often a compiler's thread is looked at.
const COMPILE_POLL: Duration = Duration::from_millis(2);

/// Least time that copies of the state may take once a run is asked to stop, or its data failed.
const STOPPED_COPIES: Duration = Duration::from_secs(60);

/// How long copies of the state may still take when a device is given up.
const LAST_COPIES: Duration = Duration::from_secs(5);
/// The arrays of a checkpoint, by name: those of the state, and the window.
fn wanted<'a, K: Task, O: Optimizer>(
    programs: &'a Programs<K, O>,
    window: &'a ArraySpec,
) -> Vec<(String, &'a ArraySpec)> {
    let mut wanted = programs.state.named();
    wanted.push((WINDOW.to_string(), window));
    wanted
}

/// Checks that a run of this identity can resume from `saved`.
///
/// # Errors
/// One error with every difference.
fn fits<K: Task, O: Optimizer>(
    saved: &Saved,
    options: &TrainerOptions,
    identity: &Identity,
    programs: &Programs<K, O>,
    mesh: &Arc<Mesh>,
) -> Result<()> {
    let progressed = Progressed::of(saved)?;
    let window = programs.train_metrics.spec(mesh);
    let types: Vec<_> = wanted(programs, &window)
        .into_iter()
        .map(|(path, spec)| (path, spec.ty.clone()))
        .collect();
    let mut others = saved.differences(&types);
    let names: Vec<&str> = programs
        .train_metrics
        .names()
        .iter()
        .map(|name| &**name)
        .collect();
    if progressed.metrics != names {
        others.insert(
            0,
            format!(
                "metrics: saved {}, given {}",
                progressed.metrics.join(", "),
                names.join(", ")
            ),
        );
    }
    let then = progressed.identity(saved.seed());
    identity.check_allowed(&then, &options.allow_changes)?;
    identity
        .compare(&then, &options.allow_changes)
        .check(&saved.path().display().to_string(), &others)
}

/// The name of the metrics' window among a checkpoint's arrays.
pub(crate) const WINDOW: &str = "window";
