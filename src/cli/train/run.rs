//! What all trainings have: where they run, how they go on, and what is left of them.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use clap::Args;
use halite::{
    Error, ErrorKind, MeshAxes, Result,
    backends::{Accelerator, OpenOptions},
    fetch,
    nn::Schedule,
    train::{
        Fitted, Strategy, Task, Trainer, TrainerBuilder,
        signals::{StopFlag, StopReason},
    },
};
use halite_core::{Client, DTypePolicy, DeviceId};

use crate::cli::{STOPPED, give_up, positive, profile};

/// Options of every training.
#[derive(Args, Debug)]
pub(super) struct Run {
    /// What to train on: `auto`, `cpu`, `cuda`, `cuda:0,1`, `tpu`, or `plugin:PATH` of a PJRT
    /// plugin
    #[arg(long, default_value = "auto", value_name = "NAME")]
    accelerator: Accelerator,
    /// Over how many devices to train, each on its part of every batch; on the CPU they are virtual
    /// [default: 1, or all of --mesh]
    #[arg(long, value_name = "N", value_parser = positive::<usize>, allow_negative_numbers = true)]
    devices: Option<usize>,
    /// The devices as a grid, such as `data=2,model=4`
    #[arg(long, value_name = "AXES")]
    mesh: Option<MeshAxes>,
    /// What is split over the devices: `dp` the batch, `fsdp` also the parameters, `tp` the layers,
    /// `dp+tp`, `fsdp+tp`
    #[arg(long, default_value_t = Strategy::default(), value_name = "NAME")]
    strategy: Strategy,
    /// What the programs compute in: `f32`, `bf16-mixed`, `f16-mixed`, `bf16`, `use-bf16`,
    /// `downcast-bf16` [default: bf16-mixed on TPUs and recent GPUs, else f32]
    #[arg(long, value_name = "POLICY")]
    precision: Option<DTypePolicy>,
    /// All that is drawn at random is a function of it
    #[arg(
        long,
        default_value_t = 0,
        value_name = "SEED",
        allow_negative_numbers = true
    )]
    pub(super) seed: u64,
    /// Go on from the latest checkpoint in --out, if there is one
    #[arg(long)]
    resume: bool,
    /// Resume from this checkpoint in --out in place of the latest: `step-00000040`, or `40`
    #[arg(long, value_name = "CHECKPOINT")]
    from: Option<String>,
    /// Resume although these differ from the saved run, by the names that the refusal gives; `all`
    /// for any
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    allow_changes: Vec<String>,
    /// Directory of the run [default: runs/DATA-MODEL]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Threads that read samples; they do not change the results
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        allow_negative_numbers = true
    )]
    workers: usize,
    /// Steps between two checkpoints, besides the one after each epoch
    #[arg(long, value_name = "N", value_parser = positive::<u64>, allow_negative_numbers = true)]
    checkpoint_every: Option<u64>,
    /// How long to wait for one step or one batch before the run ends [default: 20 times the
    /// longest so far, at least an hour]
    #[arg(long, value_name = "SECONDS", value_parser = positive::<u64>, allow_negative_numbers = true)]
    wait_limit: Option<u64>,
    /// Where packages are kept [default: HALITE_CACHE_DIR, else the platform's cache directory]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// No progress bar
    #[arg(long)]
    quiet: bool,
}

impl Run {
    /// The accelerator, and the devices of it that are asked for.
    pub(super) fn open(&self) -> Result<(Client, Vec<DeviceId>)> {
        let of_mesh = self.mesh.as_ref().map_or(Some(1), MeshAxes::size);
        let count = self.devices.or(of_mesh).unwrap_or(usize::MAX);
        let accelerator = with_devices(self.accelerator.clone(), count)?;
        let options = OpenOptions {
            cache: self.cache_dir.clone(),
            ..OpenOptions::default()
        };
        let opened = accelerator.open_with(&options, &mut fetch::Bar::default())?;
        profile::plugin_opened(opened.plugin);
        let client = opened.client;
        let local = client.local_devices();
        let Some(devices) = local.get(..count) else {
            let asked = match (&self.mesh, self.devices) {
                (Some(mesh), None) => format!("--mesh {mesh}"),
                _ => format!("--devices {count}"),
            };
            return Err(Error::invalid(
                "train",
                format!("{asked}: {accelerator} has {}", local.len()),
            ));
        };
        let devices = devices.to_vec();
        Ok((client, devices))
    }

    /// The same, while another thread reads the data, if all of `package` is here. What has to be
    /// fetched is fetched in order, under one bar.
    pub(super) fn open_and_load<T: Send>(
        &self,
        package: &fetch::Package,
        load: impl FnOnce(&fetch::Cache) -> Result<T> + Send,
    ) -> Result<(Client, Vec<DeviceId>, T)> {
        let load = || load(&self.cache()?);
        let is_here = self
            .cache()
            .is_ok_and(|cache| cache.find(package).is_ok_and(|found| found.is_some()));
        if !is_here {
            let (client, devices) = self.open()?;
            return Ok((client, devices, load()?));
        }
        let (opened, data) = thread::scope(|scope| {
            let loading = thread::Builder::new()
                .name("load data".into())
                .spawn_scoped(scope, load);
            let opened = self.open();
            let no_thread = |error| {
                Error::new(
                    ErrorKind::Unavailable,
                    "train",
                    "the system gives no thread to read the data on",
                )
                .caused_by(error)
            };
            let data = loading.map_err(no_thread).and_then(|loading| {
                loading
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            (opened, data)
        });
        let (client, devices) = opened?;
        Ok((client, devices, data?))
    }

    /// Where data is fetched to.
    pub(super) fn cache(&self) -> Result<fetch::Cache> {
        Ok(fetch::Cache::open(self.cache_dir.as_deref())?)
    }

    /// The directory of the run, which is named for what it trains unless another is asked for.
    pub(super) fn out(&self, name: &str) -> PathBuf {
        self.out
            .clone()
            .unwrap_or_else(|| Path::new("runs").join(name))
    }

    /// A trainer with these options.
    pub(super) fn trainer(
        &self,
        client: &Client,
        devices: Vec<DeviceId>,
        out: &Path,
        stop: &StopFlag,
    ) -> TrainerBuilder {
        let trainer = Trainer::builder(client)
            .stop_flag(stop)
            .seed(self.seed)
            .workers(self.workers)
            .resume(self.resume)
            .allow_changes(self.allow_changes.clone())
            .quiet(self.quiet)
            .out(out)
            .devices(devices)
            .strategy(self.strategy.clone());
        let trainer = match &self.from {
            Some(checkpoint) => trainer.resume_from(checkpoint),
            None => trainer,
        };
        let trainer = match self.precision {
            Some(policy) => trainer.precision(policy),
            None => trainer,
        };
        let trainer = match &self.mesh {
            Some(mesh) => trainer.mesh(mesh.clone()),
            None => trainer,
        };
        let trainer = match self.wait_limit {
            Some(seconds) => trainer.wait_limit(Duration::from_secs(seconds)),
            None => trainer,
        };
        match self.checkpoint_every {
            Some(steps) => trainer.checkpoint_every(steps),
            None => trainer,
        }
    }
}

/// Returns the result of a training. Ends the process after a cancellation or a timeout, because
/// dropping the client would block on the compiler or device that hangs.
pub(super) fn fitted<K: Task>(result: Result<Fitted<K>>, stop: &StopFlag) -> Result<Fitted<K>> {
    result.inspect_err(|error| {
        if matches!(
            error.kind(),
            ErrorKind::Cancelled | ErrorKind::DeadlineExceeded
        ) {
            let code = stop.reason().map_or(1, StopReason::exit_code);
            give_up(error, code);
        }
    })
}

/// Prints what came out; the exit code is what a shell expects.
pub(super) fn finish<K: Task>(fitted: &Fitted<K>, out: &Path) -> ExitCode {
    say!("{fitted}\nplot, table and report: {}", out.display());
    let Some(reason) = fitted.stopped_by else {
        return ExitCode::SUCCESS;
    };
    remark!("stopped before its last epoch; the same command with --resume goes on from here");
    _ = STOPPED.set(reason.exit_code());
    ExitCode::from(reason.exit_code())
}

/// Warms up to `rate` for a tenth of the steps, and then goes down on a cosine.
pub(super) fn schedule(rate: f64, steps: u64) -> Schedule {
    let warmup = steps / 10;
    Schedule::warmup(rate, warmup).then(Schedule::cosine(rate, steps - warmup))
}

pub(super) fn learning_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("a learning rate is a positive number, such as 2e-3".into()),
    }
}

/// More than one device of the CPU are virtual ones, which have to be asked for.
fn with_devices(accelerator: Accelerator, devices: usize) -> Result<Accelerator> {
    match accelerator {
        Accelerator::Auto | Accelerator::Cpu { devices: None } if devices != 1 => {
            format!("cpu:{devices}").parse()
        }
        other => Ok(other),
    }
}
