//! Options of every training run: devices, sharding, checkpoints, output.

use std::{
    env, fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    sync::Arc,
    thread,
};

use clap::{Arg, Args, builder::ArgPredicate};
use halite::{
    Array, Error, ErrorKind, MeshShape, Result, Tree,
    backends::{Accelerator, Driver, OpenOptions, Opened},
    cluster::tell_stopped,
    data::{Dataset, ValidationSet},
    fetch,
    models::TrainingStep,
    nn::{Optimizer, Schedule},
    plan::{self, Candidate},
    profile::StepRange,
    train::{
        Fitted, GradientClip, LearningRateFinder, NumericsOptions, Task, Trainer, TrainerBuilder,
        TrainerOptions,
        flags::positive,
        signals::{StopFlag, StopReason},
    },
    tree::Family,
};
use halite_core::{Client, DeviceId, ProcessGroup};

use crate::cli::{
    Session,
    config::{SaveConfig, flag_of_config, is_of_this_launch},
    give_up, io_error, launch, open_options, profile,
    step::{RateArgs, ShardingArgs},
    waiting,
};

/// Options of every training run.
#[derive(Args, Debug)]
#[command(arg = flag_of_config())]
pub(super) struct Run {
    /// Accelerator: `auto` (the best of TPU, CUDA and CPU; `embedded` where no plugin for the CPU
    /// can be had), `cpu`, `cpu:N` for N virtual devices, `cuda`, `cuda:N` for the first N,
    /// `cuda:[0,1]` by index, `tpu` likewise, `embedded`, `embedded:N`, `rocm` (AMD), `oneapi`
    /// (Intel), `tt` (Tenstorrent), or `plugin:PATH` of a PJRT plugin
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Number of devices to train on, or `all`; with `--accelerator cpu` or `embedded` they are
    /// virtual devices
    /// [default: as many as --mesh has, else all]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    devices: Option<DeviceCount>,
    #[command(flatten)]
    sharding: ShardingArgs,
    #[command(flatten)]
    pub(super) options: TrainerOptions,
    /// Write a device trace of these steps below --out, for TensorBoard's profiler: 10..15 are the
    /// steps 10 to 14
    #[arg(long, value_name = "FIRST..END")]
    profile_steps: Option<StepRange>,
    /// In place of the training, find out which learning rates the model learns at: 100 steps of
    /// growing rates, with a plot range-test.svg in --out
    #[arg(long, visible_alias = "lr-find")]
    pub(super) range_test: bool,
    /// Cache directory of plugins and data sets [default: HALITE_CACHE_DIR, else the platform's
    /// cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// The processes of the job; `None` until the command has joined it.
    #[arg(skip)]
    pub(super) processes: Option<Arc<dyn ProcessGroup>>,
}

/// Value of `--devices`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DeviceCount {
    All,
    Exactly(usize),
}

impl FromStr for DeviceCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(DeviceCount::All),
            _ => match positive(text) {
                Ok(count) => Ok(DeviceCount::Exactly(count)),
                Err(expected) => Err(format!(
                    "{expected}, or `all`; indices belong to the accelerator, as in `--accelerator \
                     'cuda:[0,1]'`"
                )),
            },
        }
    }
}

impl Run {
    /// Opens the accelerator, and returns it with the devices to train on.
    pub(super) fn open(&self) -> Result<(Client, Vec<DeviceId>)> {
        self.open_with(&mut fetch::Bar::default())
    }

    fn open_with(&self, bar: &mut fetch::Bar) -> Result<(Client, Vec<DeviceId>)> {
        let requested = self.requested_devices();
        let accelerator = with_virtual_devices(&self.accelerator, requested)?;
        let options = OpenOptions {
            processes: self.processes.clone(),
            ..open_options(self.cache_dir.clone())
        };
        let opened = accelerator.open_with(&options, bar)?;
        profile::opened(&opened.driver);
        // In a job, the devices of all processes, where the client has them.
        let mut devices = if self.is_alone() {
            opened.client.local_devices()
        } else {
            opened
                .client
                .devices()
                .iter()
                .map(|device| device.id())
                .collect()
        };
        if let Some(count) = requested {
            if count > devices.len() {
                return Err(self.too_few_devices(&accelerator, &opened, devices.len(), count));
            }
            devices.truncate(count);
        }
        Ok((opened.client, devices))
    }

    /// Returns the number of devices that the options ask for; `None` is all of them.
    fn requested_devices(&self) -> Option<usize> {
        match (self.devices, self.sharding.axes()) {
            (Some(DeviceCount::Exactly(count)), _) => Some(count),
            (Some(DeviceCount::All), _) | (None, None) => None,
            // Those of this process.
            (None, Some(mesh)) => {
                let local = mesh
                    .axes()
                    .filter(|(name, _)| *name != halite::nn::PROCESS_AXIS);
                local.map(|(_, size)| size).reduce(|one, other| one * other)
            }
        }
    }

    fn too_few_devices(
        &self,
        accelerator: &Accelerator,
        opened: &Opened,
        found: usize,
        count: usize,
    ) -> Error {
        let option = match (self.sharding.axes(), self.devices) {
            (Some(mesh), None) => format!("--mesh {mesh}"),
            _ => format!("--devices {count}"),
        };
        let devices = if found == 1 { "device" } else { "devices" };
        let mut message = match accelerator {
            Accelerator::Auto => format!(
                "{option}: accelerator auto is {}, which has {found} {devices}",
                opened.client.platform().name
            ),
            named => format!("{option}: {named} has {found} {devices}"),
        };
        for reason in &opened.refused {
            message.push_str(&format!("; {reason}"));
        }
        let name = match opened.driver {
            Driver::Embedded => Some("embedded"),
            _ if *opened.client.platform().name == *"cpu" => Some("cpu"),
            _ => None,
        };
        let named = name.and_then(|name| format!("{name}:{count}").parse::<Accelerator>().ok());
        if let (Accelerator::Auto, Some(named)) = (accelerator, named) {
            message.push_str(&format!(
                "; use --accelerator {named} for virtual CPU devices"
            ));
        }
        Error::invalid("train", message)
    }

    /// Opens the accelerator while another thread loads the data. Each has a progress bar for what
    /// it downloads.
    pub(super) fn open_and_load<T: Send + 'static>(
        &self,
        load: impl FnOnce(&fetch::Cache, &mut fetch::Bar) -> Result<T> + Send + 'static,
    ) -> Result<(Client, Vec<DeviceId>, T)> {
        let mut bar = fetch::Bar::default();
        let (mut bar_of_data, cache) = (bar.beside(), self.cache());
        let loading = thread::Builder::new()
            .name("load data".into())
            .spawn(move || load(&cache?, &mut bar_of_data))
            .map_err(|error| {
                Error::new(
                    ErrorKind::Unavailable,
                    "train",
                    "cannot start a thread that loads the data",
                )
                .caused_by(error)
            })?;
        // An error is reported at once. The thread may then be in a long download, and ends with
        // the process.
        let (client, devices) = self.open_with(&mut bar)?;
        let data = loading
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((client, devices, data))
    }

    /// Number of devices that the processes of the job train on together, of which `devices` are
    /// those of this process's client.
    pub(super) fn devices_of_all(&self, client: &Client, devices: &[DeviceId]) -> usize {
        let spans = client.devices().len() > client.local_devices().len();
        let clients = match &self.processes {
            Some(group) if !spans => group.size(),
            _ => 1,
        };
        devices.len() * clients
    }

    /// Returns the cache of data sets.
    pub(super) fn cache(&self) -> Result<fetch::Cache> {
        Ok(fetch::Cache::open(self.cache_dir.as_deref())?)
    }

    /// Returns whether this process prints and writes for all of the job.
    pub(super) fn is_coordinator(&self) -> bool {
        self.processes
            .as_ref()
            .is_none_or(|group| group.rank() == 0)
    }

    /// Whether this process is not one of several.
    pub(super) fn is_alone(&self) -> bool {
        self.processes
            .as_ref()
            .is_none_or(|group| group.size() == 1)
    }

    /// Returns the directory of the run: `--out`, or `runs/NAME`.
    pub(super) fn out(&self, name: &str) -> PathBuf {
        let default = || Path::new("runs").join(name);
        self.options.out.clone().unwrap_or_else(default)
    }

    /// Returns the schedule of a run on this many training samples. A range test replaces the rate.
    pub(super) fn schedule(&self, rate: &RateArgs, samples: usize) -> Result<Schedule> {
        if self.range_test {
            Ok(rate.constant())
        } else {
            rate.schedule(&self.options, samples)
        }
    }

    /// Returns a trainer with these options, which trains this `step`.
    pub(super) fn trainer<K: Task, O>(
        &self,
        client: &Client,
        devices: Vec<DeviceId>,
        out: &Path,
        stop: &StopFlag,
        step: &TrainingStep<K, O>,
    ) -> TrainerBuilder {
        let options = TrainerOptions {
            out: Some(out.into()),
            // After a failure of the job, unless the user says where to begin.
            resume: self.options.resume || is_restart(out) && self.options.resume_from.is_none(),
            numerics: NumericsOptions {
                gradient_clip_val: step.clip.map(GradientClip::limit),
                ..self.options.numerics
            },
            ..self.options.clone()
        };
        let trainer = Trainer::builder(client)
            .options(options)
            .stop_flag(stop)
            .callback(SaveConfig)
            .devices(devices);
        let trainer = match &self.processes {
            Some(group) => trainer.processes(group.clone()),
            None => trainer,
        };
        match self.profile_steps.clone() {
            Some(steps) => trainer.callback(profile::of_steps(steps)),
            None => trainer,
        }
    }

    /// Trains a step, from these values if there are some; with `--range-test` finds a learning rate,
    /// and breaks with the exit code.
    pub(super) fn fit<K: Task, O: Optimizer>(
        &self,
        trainer: &Trainer,
        step: TrainingStep<K, O>,
        data: (impl Dataset + 'static, impl ValidationSet),
        values: Option<<K::Model as Family>::Of<Array>>,
        out: &Path,
        stop: &StopFlag,
    ) -> Result<ControlFlow<ExitCode, Fitted<K>>> {
        let (train, validation) = data;
        if self.range_test {
            let found = self.find_rate(trainer, step, train, values, out);
            return fitted(self, found, stop).map(ControlFlow::Break);
        }
        let TrainingStep {
            task,
            model,
            optimizer,
            ..
        } = step;
        let result = match values {
            Some(values) => trainer.fit_from(task, model, values, optimizer, train, validation),
            None => trainer.fit(task, model, optimizer, train, validation),
        };
        fitted(self, result, stop).map(ControlFlow::Continue)
    }

    /// Runs the range test of a step, from these values if there are some, and says what it found.
    fn find_rate<K: Task, O: Optimizer>(
        &self,
        trainer: &Trainer,
        step: TrainingStep<K, O>,
        train: impl Dataset + 'static,
        values: Option<<K::Model as Family>::Of<Array>>,
        out: &Path,
    ) -> Result<ExitCode> {
        let finder = LearningRateFinder::default();
        let TrainingStep {
            task,
            model,
            optimizer,
            ..
        } = step;
        let found = match values {
            Some(values) => trainer.lr_find_from(task, model, values, optimizer, train, finder)?,
            None => trainer.lr_find(task, model, optimizer, train, finder)?,
        };
        if !self.is_coordinator() {
            return Ok(ExitCode::SUCCESS);
        }
        fs::create_dir_all(out).map_err(io_error("range test", "create the directory", out))?;
        let plot = out.join("range-test.svg");
        found.plot(&plot)?;
        say!("{found}");
        if let Some(rate) = found.suggestion {
            say!("train with --learning-rate {rate:.1e}");
        }
        say!("plot: {}", plot.display());
        Ok(ExitCode::SUCCESS)
    }

    /// Shards the step of a trainer over `devices` devices as `--mesh` and `--strategy` say; with
    /// `--mesh auto`, as is estimated to be fastest.
    pub(super) fn sharded<K: Task + Clone, O: Optimizer + Clone>(
        &self,
        trainer: TrainerBuilder,
        devices: usize,
        step: &TrainingStep<K, O>,
        train: &Arc<impl Dataset + 'static>,
    ) -> Result<TrainerBuilder> {
        let one = |mesh: &MeshShape| trainer.clone().mesh(mesh.clone());
        if !self.sharding.is_auto() {
            let trainer = self.sharding.axes().map_or_else(|| trainer.clone(), one);
            return Ok(match self.sharding.given_strategy()? {
                Some(strategy) => trainer.strategy(strategy),
                None => trainer,
            });
        }
        let candidates = self.sharding.candidates(devices)?;
        for Candidate { strategy, .. } in &candidates {
            strategy.check_paths(&step.model)?;
        }
        if let [Candidate { mesh, strategy }] = &candidates[..] {
            return Ok(one(mesh).strategy(strategy.clone()));
        }
        let count = candidates.len();
        let spinner = waiting(format!("compiling the step for {count} meshes"));
        let search = plan::fastest(&trainer, candidates, |trainer| {
            let model = Tree::leaf_refs(&step.model).map_leaves(|_, param| param.clone());
            let (task, optimizer) = (step.task.clone(), step.optimizer.clone());
            plan::plan_on(trainer, task, model, optimizer, train.clone())
        });
        spinner.finish_and_clear();
        let search = search?;
        remark!("--mesh auto: {}", search.reason());
        search.apply(trainer)
    }
}

/// Returns the result of a training. Ends the process after a cancellation or a timeout, because
/// dropping the client would block on the compiler or device that hangs.
fn fitted<T>(run: &Run, result: Result<T>, stop: &StopFlag) -> Result<T> {
    result.inspect_err(|error| {
        if matches!(
            error.kind(),
            ErrorKind::Cancelled | ErrorKind::DeadlineExceeded
        ) {
            if let Some(group) = &run.processes {
                group.warn_others(error);
            }
            let code = stop.reason().map_or(1, StopReason::exit_code);
            give_up(error, code);
        }
    })
}

/// Prints the result, and returns the exit code.
pub(super) fn finish<K: Task>(run: &Run, fitted: &Fitted<K>, trainer: &Trainer) -> ExitCode {
    if run.is_coordinator() {
        say!("{fitted}");
        if let Some(out) = &trainer.options().out {
            say!("plot, table and report: {}", out.display());
        }
    }
    let Some(reason) = fitted.stopped_by else {
        return ExitCode::SUCCESS;
    };
    if reason != StopReason::Callback && run.is_coordinator() {
        remark!("stopped before the last epoch; the same command with --resume continues the run");
    }
    let mut code = reason.exit_code();
    if !run.is_alone() && code != 0 {
        // All stop at one step, whichever got the signal: the launcher returns its code.
        tell_stopped(code);
        code = 0;
    }
    _ = Session::current().stopped.set(code);
    ExitCode::from(code)
}

/// Returns whether `halite launch` starts the job again that began the run in `out`. It may have
/// failed because another run is there.
fn is_restart(out: &Path) -> bool {
    env::var(launch::RESTART).is_ok_and(|count| count != "0") && is_of_this_launch(out)
}

/// Sets the default of `--max-epochs`, which holds unless steps or time limit the run.
pub(super) fn epochs(arg: Arg, default: &'static str) -> Arg {
    let none = None::<&str>;
    arg.help("Passes over the training data; no limit with --max-steps or --max-time")
        .default_value(default)
        .default_value_if("max_steps", ArgPredicate::IsPresent, none)
        .default_value_if("max_time", ArgPredicate::IsPresent, none)
}

/// Replaces `cpu` or `embedded` by as many virtual devices as are requested. Other accelerators
/// have the devices that they have.
fn with_virtual_devices(accelerator: &Accelerator, count: Option<usize>) -> Result<Accelerator> {
    match (accelerator, count) {
        (
            Accelerator::Cpu { devices: None } | Accelerator::Embedded { devices: None },
            Some(count),
        ) => format!("{accelerator}:{count}").parse(),
        (accelerator, _) => Ok(accelerator.clone()),
    }
}
