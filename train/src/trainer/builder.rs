//! The builder of a trainer.

mod largest_batch;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use halite_core::{
    Client, DTypePolicy, DeviceId, Error, ErrorKind, Mesh, MeshShape, PinnedPool, ProcessGroup,
    Result, Sharding,
};
use halite_data::{BadSample, LastBatch};
use halite_nn::{PROCESS_AXIS, Processes, optim::WeightAveraging};

pub use self::largest_batch::BatchSizes;
use super::Trainer;
use crate::{
    CheckpointMode, EarlyStopping, GradientClipAlgorithm, Interval, JsonLines, LearningRateMonitor,
    Limit, LoggerName, Measure, ModelCheckpoint, ObservingOptions, OnNotFinite, Property, Strategy,
    TensorBoard, ThroughputMonitor, TrainerOptions,
    callback::{Callback, Shared},
    loggers::Logger,
    signals::StopFlag,
};

/// Default of [`TrainerOptions::process_timeout`].
const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// Builder of a [`Trainer`].
#[derive(Clone, Debug)]
pub struct TrainerBuilder {
    client: Client,
    devices: Option<Vec<DeviceId>>,
    mesh: Option<Vec<(Arc<str>, usize)>>,
    processes: Option<Arc<dyn ProcessGroup>>,
    strategy: Option<Strategy>,
    average: Option<WeightAveraging>,
    frozen_from: Option<String>,
    has_rate_factor: bool,
    options: TrainerOptions,
    stop: Option<StopFlag>,
    callbacks: Vec<Shared<dyn Callback + Send>>,
    loggers: Vec<Shared<dyn Logger + Send>>,
}

macro_rules! setters {
    ($($name:ident: $ty:ty => $value:expr;)*) => {$(
        #[doc = concat!(
            "Sets [`TrainerOptions::", stringify!($name), "`](field@TrainerOptions::",
            stringify!($name), ")."
        )]
        pub fn $name(mut self, $name: $ty) -> Self {
            self.options.$name = $value;
            self
        }
    )*};
}

impl TrainerBuilder {
    pub(super) fn new(client: Client) -> Self {
        TrainerBuilder {
            client,
            devices: None,
            mesh: None,
            processes: None,
            strategy: None,
            average: None,
            frozen_from: None,
            has_rate_factor: false,
            options: TrainerOptions::default(),
            stop: None,
            callbacks: Vec::new(),
            loggers: Vec::new(),
        }
    }

    setters! {
        max_epochs: u64 => Some(max_epochs);
        max_steps: u64 => Some(max_steps);
        max_time: Duration => Some(max_time);
        batch_size: usize => batch_size;
        eval_batch_size: usize => Some(eval_batch_size);
        last_batch: LastBatch => last_batch;
        bad_samples: BadSample => bad_samples;
        limit_train_batches: impl Into<Limit> => Some(limit_train_batches.into());
        limit_val_batches: impl Into<Limit> => Some(limit_val_batches.into());
        overfit_batches: impl Into<Limit> => Some(overfit_batches.into());
        fast_dev_run: u64 => Some(fast_dev_run);
        val_check_interval: impl Into<Interval> => Some(val_check_interval.into());
        check_val_every_n_epoch: u64 => check_val_every_n_epoch;
        num_sanity_val_steps: u64 => num_sanity_val_steps;
        steps_per_execution: usize => steps_per_execution;
        seed: u64 => seed;
        on_not_finite: OnNotFinite => on_not_finite;
        detect_anomaly: bool => detect_anomaly;
        out: impl Into<PathBuf> => Some(out.into());
        resume: bool => resume;
        resume_from: impl Into<String> => Some(resume_from.into());
        log_every_n_steps: u64 => log_every_n_steps;
        checkpoint: ModelCheckpoint => checkpoint;
        checkpoint_mode: CheckpointMode => checkpoint_mode;
        keep_last: usize => keep_last;
        workers: usize => workers;
        read_ahead: usize => read_ahead;
        prefetch: usize => prefetch;
        pinned_memory: bool => pinned_memory;
        wait_limit: Duration => Some(wait_limit);
        process_timeout: Duration => Some(process_timeout);
        check_replicas: bool => check_replicas;
        quiet: bool => quiet;
        label: impl Into<String> => Some(label.into());
    }

    /// [`max_epochs`](Self::max_epochs), by its earlier name.
    pub fn epochs(self, epochs: u64) -> Self {
        self.max_epochs(epochs)
    }

    /// [`log_every_n_steps`](Self::log_every_n_steps), by its earlier name.
    pub fn log_every(self, steps: u64) -> Self {
        self.log_every_n_steps(steps)
    }

    /// Sets [`ModelCheckpoint::every_n_train_steps`](field@ModelCheckpoint::every_n_train_steps).
    pub fn checkpoint_every(mut self, steps: u64) -> Self {
        self.options.checkpoint.every_n_train_steps = Some(steps);
        self
    }

    /// [`gradient_clip_val`](Self::gradient_clip_val), by its earlier name.
    pub fn clip_norm(self, clip_norm: f64) -> Self {
        self.gradient_clip_val(clip_norm)
    }

    /// Sets [`NumericsOptions::gradient_clip_val`](crate::NumericsOptions).
    pub fn gradient_clip_val(mut self, limit: f64) -> Self {
        self.options.numerics.gradient_clip_val = Some(limit);
        self
    }

    /// Sets [`NumericsOptions::gradient_clip_algorithm`](crate::NumericsOptions).
    pub fn gradient_clip_algorithm(mut self, algorithm: GradientClipAlgorithm) -> Self {
        self.options.numerics.gradient_clip_algorithm = algorithm;
        self
    }

    /// Sets [`NumericsOptions::accumulate_grad_batches`](crate::NumericsOptions).
    pub fn accumulate_grad_batches(mut self, batches: usize) -> Self {
        self.options.numerics.accumulate_grad_batches = batches;
        self
    }

    /// Sets [`NumericsOptions::precision`](crate::NumericsOptions).
    pub fn precision(mut self, precision: DTypePolicy) -> Self {
        self.options.numerics.precision = Some(precision);
        self
    }

    /// Adds a property of the run that changes the result and that the trainer does not know: a
    /// part of the model without arrays, a setting of the data. A run does not resume from a
    /// checkpoint with another value, unless the [change is allowed](Self::allow_changes). Errors
    /// name the property as it is given here; a command line gives its flag: `--dropout`.
    ///
    /// The trainer itself compares the seed, the batch size, the number of samples,
    /// [digests](halite_data::Dataset::digest) of the data, the clipping of gradients, the
    /// optimizer (its `Debug` text), the precision, and the arrays of the model.
    pub fn property(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.options.properties.push(Property {
            name: name.into(),
            value: value.to_string(),
        });
        self
    }

    /// Allows these properties to differ from those of the checkpoint that the run resumes from.
    /// The names are those in the error; `all` allows any. Arrays of another model are always
    /// rejected.
    pub fn allow_changes<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.options
            .allow_changes
            .extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets the devices to train on. Default: all devices of this process, or of all
    /// [processes](Self::processes) if the client has them; with a [mesh](Self::mesh), as many as it
    /// has.
    pub fn devices(mut self, devices: impl IntoIterator<Item = DeviceId>) -> Self {
        self.devices = Some(devices.into_iter().collect());
        self
    }

    /// Arranges the devices as a mesh with named axes, `[("data", 2), ("model", 4)]`; as many of
    /// the [devices](Self::devices) as the sizes multiply to, in row-major order. Default: one axis
    /// with all devices, over which the strategy shards.
    pub fn mesh<N: Into<Arc<str>>>(mut self, axes: impl IntoIterator<Item = (N, usize)>) -> Self {
        self.mesh = Some(
            axes.into_iter()
                .map(|(name, size)| (name.into(), size))
                .collect(),
        );
        self
    }

    /// Trains with the other processes of a job: each has its part of every batch, and all have the
    /// same parameters. Every process must make the same calls, with the same options.
    ///
    /// The batch size, the order of the samples, the metrics and random numbers are those of the
    /// whole job: they do not depend on the number of processes. In a [mesh](Self::mesh) the
    /// processes are the axis `process`, which may be left out. Process 0 alone prints, logs and
    /// writes the directory of the run, which callbacks of other processes do not see. `predict` does
    /// not divide its samples among processes: each process that calls it runs on all of them.
    ///
    /// Of a client with the devices of all processes, as `Accelerator::open_in` gives for GPUs and
    /// TPUs, the mesh is over all of them, and one program runs on it with every strategy, as on the
    /// devices of one process (tested on the embedded executor as a plugin; not yet on several GPUs
    /// or on TPUs).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use halite_core::{ProcessGroup, SingleProcess};
    ///
    /// let job: Arc<dyn ProcessGroup> = Arc::new(SingleProcess); // a job of one
    /// let client = halite_backends::Accelerator::cpu().open()?;
    /// let trainer = halite_train::Trainer::builder(&client).processes(job).build()?;
    /// # Ok::<(), halite_core::Error>(())
    /// ```
    pub fn processes(mut self, group: Arc<dyn ProcessGroup>) -> Self {
        self.processes = Some(group);
        self
    }

    /// Sets the sharding of parameters, optimizer state and batches over the mesh. Default:
    /// [data parallel](Strategy::data_parallel); of several processes
    /// [`zero1`](Strategy::zero1), if the optimizer is
    /// [elementwise](halite_nn::Optimizer::is_elementwise).
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// Sets a flag with which other threads stop the run, as Ctrl-C does: it saves a checkpoint and
    /// returns. The signals set the flag too, and it stays set.
    pub fn stop_flag(mut self, stop: &StopFlag) -> Self {
        self.stop = Some(stop.clone());
        self
    }

    /// Adds a callback, after those that were added before. Clones of the builder and the trainer
    /// share it: a run has it until it ends, and finds it as the run before left it.
    pub fn callback(mut self, callback: impl Callback + Send + 'static) -> Self {
        self.has_rate_factor |= callback.changes_learning_rate();
        self.callbacks.push(Shared(Arc::new(Mutex::new(callback))));
        self
    }

    /// Keeps an average of the parameters, which is validated in their place, saved beside them, and
    /// returned as [`Fitted::average`](crate::Fitted): Lightning's `EMAWeightAveraging` and
    /// `StochasticWeightAveraging`. Statistics that are not trained, as those of
    /// [`BatchNorm`](halite_nn::BatchNorm), are the model's.
    ///
    /// ```
    /// use halite_nn::optim::WeightAveraging;
    ///
    /// # fn trainer(client: &halite_core::Client) -> halite_core::Result<halite_train::Trainer> {
    /// halite_train::Trainer::builder(client).average(WeightAveraging::ema(0.999)).build()
    /// # }
    /// ```
    pub fn average(mut self, average: WeightAveraging) -> Self {
        self.average = Some(average);
        self
    }

    /// Leaves the frozen parameters out of checkpoints: they are the values of
    /// [`Trainer::fit_from`](crate::Trainer::fit_from), which come from `base`, such as the path of
    /// published weights. A checkpoint has a digest of them and this name, and a run resumes from it
    /// with the same values alone. For adapters ([`Lora`](halite_nn::Lora)) and new heads, whose
    /// checkpoints are otherwise as large as the model.
    ///
    /// State that steps change, such as running statistics, stays in checkpoints.
    pub fn frozen_from(mut self, base: impl Into<String>) -> Self {
        self.frozen_from = Some(base.into());
        self
    }

    /// Adds a logger, beside `metrics.csv` and the progress bar. Shared as a
    /// [callback](Self::callback) is.
    pub fn logger(mut self, logger: impl Logger + Send + 'static) -> Self {
        self.loggers.push(Shared(Arc::new(Mutex::new(logger))));
        self
    }

    /// Prints a line with the loss every `steps` steps, also without a terminal
    /// ([`ObservingOptions::print_every`]).
    pub fn print_every(mut self, steps: u64) -> Self {
        self.options.observing.print_every = Some(steps);
        self
    }

    /// Adds measurements to the metrics that are logged.
    pub fn log(mut self, measures: impl IntoIterator<Item = Measure>) -> Self {
        self.options.observing.log.extend(measures);
        self
    }

    /// Sets all options at once.
    pub fn options(mut self, options: TrainerOptions) -> Self {
        self.options = options;
        self
    }

    /// Builds the trainer.
    ///
    /// # Errors
    /// The option with an invalid value, or the device that does not exist.
    pub fn build(self) -> Result<Trainer> {
        self.options.check()?;
        self.observed().build_observed()
    }

    /// Adds the loggers and callbacks that the options name, after those of the program.
    fn observed(mut self) -> Self {
        let ObservingOptions {
            logger,
            log,
            early_stopping,
            patience,
            min_delta,
            print_every: _, // of the progress bar
        } = self.options.observing.clone();
        // A name that is given twice is one logger: two would write the same file.
        for name in without_repeats(logger) {
            self = match name {
                LoggerName::Csv => self,
                LoggerName::JsonLines => self.logger(JsonLines::new()),
                LoggerName::TensorBoard => self.logger(TensorBoard::new()),
            };
        }
        for measure in without_repeats(log) {
            self = match measure {
                Measure::GradientNorm => self, // in the step
                Measure::LearningRate => self.callback(LearningRateMonitor),
                Measure::Throughput => self.callback(ThroughputMonitor::new()),
            };
        }
        let Some(monitor) = early_stopping else {
            return self;
        };
        let mut stopping = EarlyStopping::new(monitor);
        if let Some(patience) = patience {
            stopping = stopping.patience(patience);
        }
        if let Some(change) = min_delta {
            stopping = stopping.min_delta(change);
        }
        self.callback(stopping)
    }

    fn build_observed(self) -> Result<Trainer> {
        let mesh = Arc::new(self.on_devices()?);
        let spans_processes = self.spans_processes();
        if spans_processes {
            self.check_processes_in(&mesh)?;
        }
        let strategy = self.strategy_on(&mesh)?;
        let group = self.processes.filter(|group| group.size() > 1);
        let patience = self.options.process_timeout.unwrap_or(PROCESS_TIMEOUT);
        // Programs that run on the devices of all exchange nothing through the group.
        let lanes = match spans_processes {
            true => &Mesh::single(mesh.devices()[0]),
            false => &*mesh,
        };
        let processes = group.map(|group| Processes::new(&group, lanes, patience));
        let processes = processes.transpose()?;
        let rank = processes.as_ref().map_or(0, Processes::rank);
        let count = match spans_processes {
            true => 1,
            false => processes.as_ref().map_or(1, Processes::size),
        };
        let mut options = self.options.resolved();
        if rank > 0 {
            // Process 0 prints, logs and writes for all.
            options.quiet = true;
            options.out = None;
        }
        for (name, size) in [
            ("batch_size", options.batch_size),
            ("eval_batch_size", options.eval_batch_size()),
        ] {
            check_batch_size(name, size, &strategy, &mesh, count)?;
        }
        let precision = options.numerics.precision;
        let precision = precision.unwrap_or_else(|| default_precision(&self.client, &mesh));
        precision.check()?;
        if let Some(average) = &self.average {
            average.check()?;
            // A resume with another rule is refused.
            options.properties.push(Property {
                name: "average".into(),
                value: average.to_string(),
            });
        }
        Ok(Trainer {
            pinned: pinned_pool(&self.client, &options),
            client: self.client,
            average: self.average,
            frozen_from: self.frozen_from,
            has_rate_factor: self.has_rate_factor,
            mesh,
            processes,
            spans_processes,
            is_default_strategy: self.strategy.is_none(),
            strategy,
            precision,
            stop: self.stop,
            callbacks: self.callbacks,
            // A development run leaves nothing behind.
            loggers: match options.fast_dev_run {
                Some(_) => Vec::new(),
                None if rank > 0 => Vec::new(),
                None => self.loggers,
            },
            options,
        })
    }

    /// Arranges the devices as a mesh.
    fn on_devices(&self) -> Result<Mesh> {
        let mut devices = self.chosen_devices()?;
        if let Some(shape) = self.local_axes()? {
            // The first devices are the default; devices that were chosen are all used.
            if self.devices.is_none() {
                devices.truncate(shape.size());
            }
            return Mesh::new(shape, devices);
        }
        if let [device] = devices[..] {
            return Ok(Mesh::single(device));
        }
        let strategy = self.strategy.clone().unwrap_or_default();
        let axis = strategy.axis_of_all().ok_or_else(|| {
            let model = devices.len() / 2;
            let message = format!(
                "`{strategy}` on {} devices needs a mesh, such as `.mesh([(\"data\", 2), (\"model\", \
                 {model})])`, --mesh data=2,model={model}",
                devices.len()
            );
            Error::invalid("trainer", message)
        })?;
        Mesh::new([(axis, devices.len())], devices)
    }

    /// The strategy on the devices of this process, or of all processes where these run one program.
    fn strategy_on(&self, mesh: &Mesh) -> Result<Strategy> {
        let processes = match self.spans_processes() {
            true => 1,
            false => self.processes.as_ref().map_or(1, |group| group.size()),
        };
        let Some(strategy) = &self.strategy else {
            let zero = Strategy::zero1();
            let data_parallel = Strategy::data_parallel();
            data_parallel.check(mesh)?;
            return Ok(match processes > 1 && zero.check(mesh).is_ok() {
                true => zero,
                false => data_parallel,
            });
        };
        strategy.check(mesh)?;
        if processes > 1 && mesh.size() == 1 && strategy.shards_parameters() {
            let message = format!(
                "`{strategy}` shards parameters over the devices of one process, and each of the \
                 {processes} processes has one device. Between processes on CPUs there are `zero1` \
                 and `dp`; `{strategy}` runs in one process with all devices (--devices), or with \
                 several in each (--mesh process={processes},data=2)"
            );
            return Err(Error::new(ErrorKind::Unsupported, "strategy", message));
        }
        Ok(strategy.clone())
    }

    /// The axes of the mesh over the devices of this process, or of all processes where these run
    /// one program; `None` if there are no others than that of the processes.
    fn local_axes(&self) -> Result<Option<MeshShape>> {
        let Some(axes) = &self.mesh else {
            return Ok(None);
        };
        if self.spans_processes() {
            if axes.iter().any(|(name, _)| **name == *PROCESS_AXIS) {
                let message = format!(
                    "the mesh has the axis `{PROCESS_AXIS}`, which is that of processes with programs \
                     of their own; here one program runs on {} devices of all processes: leave the \
                     axis out",
                    self.client.devices().len()
                );
                return Err(Error::invalid("trainer", message));
            }
            return MeshShape::new(axes.iter().cloned()).map(Some);
        }
        let count = self.processes.as_ref().map_or(1, |group| group.size());
        let (processes, local): (Vec<_>, Vec<_>) = axes
            .iter()
            .cloned()
            .partition(|(name, _)| **name == *PROCESS_AXIS);
        if let Some((_, size)) = processes.iter().find(|(_, size)| *size != count) {
            let job = match count {
                1 => "there is one process; start more with `halite launch -n`, and give the job \
                      to the trainer (`processes`)"
                    .to_string(),
                count => format!("the job has {count} processes"),
            };
            let message = format!("the axis `{PROCESS_AXIS}` of the mesh is {size}, and {job}");
            return Err(Error::invalid("trainer", message));
        }
        let is_given = !local.is_empty() || processes.is_empty();
        is_given.then(|| MeshShape::new(local)).transpose()
    }

    /// Whether one program runs on the devices of all processes: the client has them, and the
    /// processes train together.
    fn spans_processes(&self) -> bool {
        let is_job = (self.processes.as_ref()).is_some_and(|group| group.size() > 1);
        is_job
            && self
                .client
                .devices()
                .iter()
                .any(|device| !device.is_local())
    }

    /// Checks that every process has a device in the mesh of one program for all: in all of them
    /// alike.
    fn check_processes_in(&self, mesh: &Mesh) -> Result<()> {
        let devices = self.client.devices();
        let in_mesh = devices
            .iter()
            .filter(|one| mesh.devices().contains(&one.id()));
        let in_mesh: BTreeSet<u32> = in_mesh.map(|one| one.process()).collect();
        let all: BTreeSet<u32> = devices.iter().map(|one| one.process()).collect();
        let absent: Vec<String> = all.difference(&in_mesh).map(u32::to_string).collect();
        if absent.is_empty() {
            return Ok(());
        }
        let message = format!(
            "process {} has none of the {} devices of the mesh; one program runs on devices of all {} \
             processes: take some of each (`devices`, --devices), or start fewer processes",
            absent.join(", "),
            mesh.size(),
            all.len()
        );
        Err(Error::invalid("trainer", message))
    }

    /// Returns the devices that were chosen, or all devices of this process, or of all where one
    /// program runs on them. Never empty.
    fn chosen_devices(&self) -> Result<Vec<DeviceId>> {
        let invalid = |message: String| Err(Error::invalid("trainer", message));
        let local = match self.spans_processes() {
            true => self
                .client
                .devices()
                .iter()
                .map(|device| device.id())
                .collect(),
            false => self.client.local_devices(),
        };
        let Some(devices) = &self.devices else {
            if local.is_empty() {
                return invalid(format!("{:?} has no device for this process", self.client));
            }
            return Ok(local);
        };
        if let Some(unknown) = devices.iter().find(|device| !local.contains(device)) {
            let others = match self.client.addresses(&[*unknown]) {
                true => "",
                false => {
                    "; to train on devices of other processes, give the job to the trainer \
                          (`processes`)"
                }
            };
            return invalid(format!(
                "unknown device {}; this process has {local:?}{others}",
                unknown.0
            ));
        }
        if devices.is_empty() {
            return invalid("`devices` is empty; a run needs at least one".into());
        }
        Ok(devices.clone())
    }
}

/// Page-locked memory for batches, if the options ask for it and the backend has it. Training does
/// not fail for want of it.
fn pinned_pool(client: &Client, options: &TrainerOptions) -> Option<PinnedPool> {
    if !options.pinned_memory {
        return None;
    }
    let pool = PinnedPool::new(client, PinnedPool::DEFAULT_LIMIT).unwrap_or_else(|error| {
        halite_core::warning!("pinned_memory: {error}; batches are in pageable memory");
        None
    });
    if pool.is_none() {
        let platform = &client.platform().name;
        tracing::info!("pinned_memory: {platform} does not page-lock host memory");
    }
    pool
}

/// Checks that a batch of this size can be split over the mesh.
fn check_batch_size(
    name: &str,
    batch_size: usize,
    strategy: &Strategy,
    mesh: &Arc<Mesh>,
    processes: usize,
) -> Result<()> {
    let sharding = Sharding::new(mesh, strategy.batch_spec(mesh))?;
    let parts = sharding.parts(0) * processes;
    if batch_size.is_multiple_of(parts) {
        return Ok(());
    }
    let less = batch_size - batch_size % parts;
    let divisible = if less > 0 {
        format!("{less} and {}", less.saturating_add(parts))
    } else {
        parts.to_string()
    };
    let over = if parts == mesh.size() * processes {
        "devices".to_string()
    } else {
        format!("parts, {sharding}")
    };
    let of = match processes {
        1 => String::new(),
        processes => format!(" of {processes} processes"),
    };
    let message = format!(
        "`{name}` {batch_size} is not divisible by {parts} {over}{of}; {divisible} would be"
    );
    Err(Error::invalid("trainer", message))
}

/// The names in the order of their first occurrence.
fn without_repeats<T: PartialEq>(names: Vec<T>) -> Vec<T> {
    let mut kept = Vec::new();
    for name in names {
        if !kept.contains(&name) {
            kept.push(name);
        }
    }
    kept
}

/// The default policy for the first device of the mesh.
fn default_precision(client: &Client, mesh: &Mesh) -> DTypePolicy {
    let devices = client.devices();
    let first = devices
        .iter()
        .find(|device| mesh.devices().first() == Some(&device.id()));
    let attributes = first.map(|device| device.attributes()).unwrap_or_default();
    DTypePolicy::auto(&client.platform().name, &attributes)
}

#[cfg(test)]
mod tests {
    use halite_core::{HostArray, Null};
    use halite_data::{InMemory, Loader, LoaderOptions, Position};

    use super::*;

    /// Returns the mesh of a trainer on a machine with four devices.
    fn mesh_of(change: impl FnOnce(TrainerBuilder) -> TrainerBuilder) -> String {
        let builder = Trainer::builder(&Client::new(Null::new(4)));
        let trainer = change(builder).build().unwrap();
        let ids = trainer.mesh().devices().iter().map(|id| id.0);
        format!("{} on {:?}", trainer.mesh(), ids.collect::<Vec<_>>())
    }

    #[test]
    fn all_devices_are_the_default() {
        assert_eq!(mesh_of(|builder| builder), "mesh(data=4) on [0, 1, 2, 3]");
    }

    #[test]
    fn batches_are_in_pinned_memory_on_request() {
        let numbers = HostArray::from_slice(&[1.0f32; 4000], [4, 1000]).unwrap();
        let data = InMemory::new([("number", numbers)]).unwrap();
        let loader = Loader::new(data, LoaderOptions::new(2)).unwrap();
        let pinned = |on: bool| {
            let client = Client::new(Null::new(1));
            let trainer = Trainer::builder(&client).pinned_memory(on).build().unwrap();
            let batches = trainer.prefetch(&loader, Position::default()).unwrap();
            assert_eq!(batches.map(Result::unwrap).count(), 2);
            trainer.pinned.as_ref().map(|pool| pool.bytes() >= 8000)
        };
        assert_eq!((pinned(true), pinned(false)), (Some(true), None));
    }

    #[test]
    fn mesh_takes_the_first_devices() {
        let mesh = mesh_of(|builder| builder.mesh([("data", 2)]));
        assert_eq!(mesh, "mesh(data=2) on [0, 1]");
    }
}
