//! Accelerators, parsed from text once and opened at run time.

mod auto;
mod text;

use std::{path::PathBuf, sync::Arc};

use halite_core::{Client, Error, ProcessGroup, Result};
use halite_fetch::{Bar, Cache, Progress};
use halite_telemetry::TelemetryOptions;

use self::auto::{auto, gpus};
use crate::{
    compile_cache::{CompileCache, CompileCacheOptions},
    cpu, cuda,
    devices::Devices,
    embedded,
    environment::{Environment, OPEN},
    load::load_in_job,
    locate::{Located, Source},
    opened::{Driver, Opened},
    options::OpenOptions,
    plugins::PLUGINS,
    tpu, vendor,
};

/// An accelerator to run on.
///
/// A number after the name is a number of devices, on every platform; indices are in brackets, or
/// several of them separated by commas: `tpu:4` is four chips, `tpu:[4]` the fifth chip.
///
/// ```
/// use halite_backends::{Accelerator, Devices};
///
/// assert_eq!("cpu:8".parse::<Accelerator>()?, Accelerator::Cpu { devices: Some(8) });
/// assert_eq!("cuda:2".parse::<Accelerator>()?, Accelerator::Cuda { devices: Devices::Count(2) });
/// let third = Accelerator::Cuda { devices: Devices::Indices(vec![2]) };
/// assert_eq!("cuda:[2]".parse::<Accelerator>()?, third);
/// assert_eq!(Accelerator::Plugin("/opt/my_plugin.so".into()).to_string(), "plugin:/opt/my_plugin.so");
/// assert!("abacus".parse::<Accelerator>().is_err());
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Accelerator {
    /// The first that works of TPU, CUDA and CPU, or the embedded executor: `auto`.
    #[default]
    Auto,
    /// The CPU of this machine: `cpu`, or as virtual devices: `cpu:8`.
    Cpu {
        /// Number of virtual devices; 1 if not given.
        devices: Option<u32>,
    },
    /// NVIDIA GPUs: `cuda`, the first ones: `cuda:2`, or some of them: `cuda:[1,3]`. Indices count
    /// from 0 among the GPUs in `CUDA_VISIBLE_DEVICES`.
    Cuda {
        /// The GPUs.
        devices: Devices,
    },
    /// Google TPUs: `tpu`, the first chips of this host: `tpu:4`, or some of them: `tpu:[5]`.
    /// Indices count from 0.
    Tpu {
        /// The chips.
        chips: Devices,
    },
    /// The executor that is part of halite: `embedded`, or as virtual devices: `embedded:8`.
    Embedded {
        /// Number of virtual devices; 1 if not given.
        devices: Option<u32>,
    },
    /// All devices of another vendor whose plugin is in [`PLUGINS`](crate::PLUGINS), by the name of
    /// its platform: `rocm` (AMD), `oneapi` (Intel) or `tt` (Tenstorrent). Never run on such
    /// devices by halite's developers.
    Vendor(&'static str),
    /// Any PJRT plugin: `plugin:PATH`.
    Plugin(PathBuf),
}

impl Accelerator {
    /// Returns [`Auto`](Self::Auto).
    pub fn auto() -> Self {
        Self::Auto
    }

    /// Returns the CPU of this machine, as one device.
    pub fn cpu() -> Self {
        Self::Cpu { devices: None }
    }

    /// All NVIDIA GPUs.
    pub fn cuda() -> Self {
        Self::Cuda {
            devices: Devices::All,
        }
    }

    /// All TPUs of this host.
    pub fn tpu() -> Self {
        Self::Tpu {
            chips: Devices::All,
        }
    }

    /// The executor that is part of halite, with one device.
    pub fn embedded() -> Self {
        Self::Embedded { devices: None }
    }

    /// This accelerator with a number of devices, as `cpu:8`: the first ones, or virtual ones of a
    /// CPU.
    ///
    /// ```
    /// use halite_backends::Accelerator;
    ///
    /// # fn main() -> halite_core::Result<()> {
    /// assert_eq!(Accelerator::cpu().devices(8)?.to_string(), "cpu:8");
    /// assert_eq!(Accelerator::cuda().devices(2)?.to_string(), "cuda:2");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If `count` is 0, or more than a CPU can be divided into; for `auto`, a vendor and a plugin,
    /// which have the devices that they find: `Trainer::builder(&client).devices(..)` takes some of
    /// them.
    pub fn devices(self, count: u32) -> Result<Self> {
        match self {
            Self::Auto | Self::Vendor(_) | Self::Plugin(_) => Err(Error::invalid(
                format!("accelerator {self}"),
                format!(
                    "{count} devices asked for, but only cpu, embedded, cuda and tpu have a number \
                     of devices; open it, and take some with `Trainer::builder(&client).devices(..)`"
                ),
            )),
            Self::Cpu { .. } => format!("cpu:{count}").parse(),
            Self::Embedded { .. } => format!("embedded:{count}").parse(),
            Self::Cuda { .. } => format!("cuda:{count}").parse(),
            Self::Tpu { .. } => format!("tpu:{count}").parse(),
        }
    }

    /// Opens the accelerator. A plugin that is missing is installed, which is reported on stderr.
    ///
    /// [`Auto`](Self::Auto) takes the first that works of TPU, CUDA and CPU, or only the one that
    /// `PJRT_DEVICE` names (`TPU`, `CUDA`, `CPU`), as PyTorch/XLA does. Where no plugin for the CPU
    /// is installed and none can be (no package for this machine, no pip, no network), it takes
    /// [`Embedded`](Self::Embedded), and warns. A plugin that is installed and does not work is an
    /// error, because a run on another backend gets other numbers.
    ///
    /// # Errors
    /// If the machine has no such accelerator, with the reason for each candidate.
    pub fn open(&self) -> Result<Client> {
        Ok(self
            .open_with(&OpenOptions::default(), &mut Bar::default())?
            .client)
    }

    /// Opens the accelerator as a process of a job: see [`OpenOptions::processes`].
    ///
    /// ```no_run
    /// // no_run: needs GPUs.
    /// # use std::sync::Arc;
    /// use halite_backends::Accelerator;
    /// use halite_core::{ProcessGroup, SingleProcess};
    ///
    /// let group: Arc<dyn ProcessGroup> = Arc::new(SingleProcess); // `job.group()`
    /// let client = Accelerator::cuda().open_in(&group)?;
    /// println!("{} of {} devices", client.local_devices().len(), client.devices().len());
    /// # Ok::<(), halite_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open); if another process does not open it within the deadline.
    pub fn open_in(&self, group: &Arc<dyn ProcessGroup>) -> Result<Client> {
        let options = OpenOptions {
            processes: Some(group.clone()),
            ..OpenOptions::default()
        };
        Ok(self.open_with(&options, &mut Bar::default())?.client)
    }

    /// Opens the accelerator, and returns its driver too.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(&self, options: &OpenOptions, progress: &mut dyn Progress) -> Result<Opened> {
        let environment = Environment::read()?;
        environment.apply();
        let kept = options
            .compile_cache
            .clone()
            .map_or_else(CompileCacheOptions::from_environment, Ok)?;
        let opened = match self {
            Self::Auto => auto(&environment, options, progress),
            Self::Cpu { devices } => {
                cpu::open(devices.unwrap_or(1), options, progress).map_err(Error::from)
            }
            Self::Plugin(path) => by_path(path.clone(), options),
            Self::Embedded { devices } => embedded::open(devices.unwrap_or(1)),
            Self::Cuda { devices } => {
                let devices = gpus(devices, environment.gpus, options);
                cuda::open(&devices, options, progress)
            }
            Self::Tpu { chips } => tpu::open(chips, options, progress),
            Self::Vendor(platform) => vendor::open(platform, options, progress),
        };
        let mut opened = opened.map_err(|error| {
            Error::new(error.kind(), format!("accelerator {self}"), words(&error))
        })?;
        let telemetry = options.telemetry.clone();
        opened.client = telemetry
            .unwrap_or_else(TelemetryOptions::from_env)
            .attach(opened.client);
        // The embedded executor compiles in less time than a cache takes.
        if let Driver::Plugin { located, .. } = &opened.driver
            && let Some(cache) = CompileCache::open(&kept, options.cache.as_deref())?
        {
            let cache = Arc::new(cache.for_plugin(located));
            opened.client = opened.client.with_program_cache(cache);
        }
        tracing::info!(accelerator = %self, driver = %opened.driver, devices = opened.client.local_devices().len(), "opened");
        Ok(opened)
    }
}

/// Opens the plugin in this file, alone or in a job.
fn by_path(path: PathBuf, options: &OpenOptions) -> Result<Opened> {
    if cuda::is_plugin(&path) {
        cuda::load_libraries(&path, &Cache::open(options.cache.as_deref())?);
    }
    let located = Located {
        path,
        source: Source::Given,
        plugin: None,
    };
    load_in_job(located, options)
}

/// Returns the text of an error, without the operation where that adds nothing.
fn words(error: &Error) -> String {
    let of_platform = PLUGINS.iter().any(|plugin| plugin.platform == error.op());
    if error.op() == OPEN || of_platform {
        error.message().into()
    } else {
        error.to_string()
    }
}
