//! From a builder to a trainer: checks of what was set, the defaults that depend on devices, and the
//! loggers and callbacks that options name.

use std::{sync::Arc, time::Duration};

use halite_core::{Client, DTypePolicy, Error, Mesh, PinnedPool, Result, Sharding};
use halite_nn::Processes;

use super::{super::Trainer, TrainerBuilder};
use crate::{
    EarlyStopping, JsonLines, LearningRateMonitor, LoggerName, Measure, ObservingOptions, Property,
    Strategy, TensorBoard, ThroughputMonitor, TrainerOptions,
};

/// Default of [`TrainerOptions::process_timeout`].
const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

impl TrainerBuilder {
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
            early_stopping_mode,
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
        if let Some(mode) = early_stopping_mode {
            stopping = stopping.mode(mode);
        }
        if let Some(patience) = patience {
            stopping = stopping.patience(patience);
        }
        if let Some(change) = min_delta {
            stopping = stopping.min_delta(change);
        }
        self.callback(stopping)
    }

    /// The processes of the job, if there are several.
    fn processes_on(&self, mesh: &Mesh, spans_processes: bool) -> Result<Option<Processes>> {
        let group = self.processes.as_ref().filter(|group| group.size() > 1);
        let patience = self.options.process_timeout.unwrap_or(PROCESS_TIMEOUT);
        // Programs that run on the devices of all exchange nothing through the group.
        let lanes = if spans_processes {
            &Mesh::single(mesh.devices()[0])
        } else {
            mesh
        };
        let processes = group.map(|group| Processes::new(group, lanes, patience));
        processes.transpose()
    }

    fn build_observed(self) -> Result<Trainer> {
        let mesh = Arc::new(self.on_devices()?);
        let spans_processes = self.spans_processes();
        if spans_processes {
            self.check_processes_in(&mesh)?;
        }
        let strategy = self.strategy_on(&mesh)?;
        let processes = self.processes_on(&mesh, spans_processes)?;
        let rank = processes.as_ref().map_or(0, Processes::rank);
        let count = if spans_processes {
            1
        } else {
            processes.as_ref().map_or(1, Processes::size)
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
    first.map_or(DTypePolicy::F32, |device| device.default_policy())
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
