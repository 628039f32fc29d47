//! The builder of a trainer.

mod build;
mod largest_batch;
mod mesh;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use halite_core::{Client, DTypePolicy, DeviceId, ProcessGroup};
use halite_data::{BadSample, LastBatch};
use halite_nn::optim::WeightAveraging;

pub use self::largest_batch::BatchSizes;
use crate::{
    CheckpointMode, GradientClipAlgorithm, Interval, Limit, Measure, ModelCheckpoint, OnNotFinite,
    Property, Strategy, TrainerOptions,
    callback::{Callback, Shared},
    loggers::Logger,
    signals::StopFlag,
};

/// Builder of a [`Trainer`](crate::Trainer).
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
    /// If the client has the devices of all processes, as `Accelerator::open_in` gives for GPUs and
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
    /// `StochasticWeightAveraging`.
    ///
    /// State that is not trained, such as the statistics of [`BatchNorm`](halite_nn::BatchNorm), is
    /// averaged, too, and before each validation it is updated for the averaged weights from 64
    /// training batches, as by PyTorch's `update_bn`.
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
    /// ([`ObservingOptions::print_every`](crate::ObservingOptions)).
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
}
