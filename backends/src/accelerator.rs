//! Accelerators, parsed from text once and opened at run time.

mod devices;
mod text;

use std::{
    fmt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use halite_core::{
    Client, Error, ErrorKind, Kernels, KeyValueStore, ProcessGroup, Result, warning,
};
use halite_fetch::{Bar, Cache, Progress};
use halite_pjrt::{LoadOptions, OptionValue, Plugin};
use halite_telemetry::TelemetryOptions;

use crate::{
    compile_cache::{CompileCache, CompileCacheOptions},
    cpu, cuda,
    cuda::CudaOptions,
    embedded,
    environment::{self, Environment, OPEN, PLATFORM},
    kernels,
    locate::{Failure, Located, Source},
    needed,
    plugins::PLUGINS,
    tpu,
    tpu::TpuOptions,
    vendor,
};

pub use devices::Devices;

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
    /// its platform: `rocm` (AMD), `oneapi` (Intel) or `tt` (Tenstorrent). Never run on such devices
    /// by halite's developers.
    Vendor(&'static str),
    /// Any PJRT plugin: `plugin:PATH`.
    Plugin(PathBuf),
}

/// Options for opening an accelerator.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Cache directory of plugins; by default that of [`Cache::open`](halite_fetch::Cache::open).
    pub cache: Option<PathBuf>,
    /// Takes a plugin of the Python environment whose digest is not known, with a warning; by
    /// default if `HALITE_TRUST_PYTHON` is 1.
    pub trust_python: bool,
    /// Fails if a plugin is missing, instead of installing it.
    pub offline: bool,
    /// Compile cache; by default that of `HALITE_COMPILE_CACHE`.
    pub compile_cache: Option<CompileCacheOptions>,
    /// Output of telemetry; by default as `HALITE_DEBUG`, `HALITE_DUMP_DIR`, `HALITE_METRICS_FILE`
    /// and `HALITE_SYNC` configure it.
    pub telemetry: Option<TelemetryOptions>,
    /// Options of the plugin's client, by name, in addition to those that the accelerator sets.
    pub client: Vec<(String, OptionValue)>,
    /// Options of NVIDIA GPUs.
    pub cuda: CudaOptions,
    /// Options of TPUs.
    pub tpu: TpuOptions,
    /// The processes of a job, each of which opens the same accelerator. Those that share a host
    /// divide its GPUs or chips. The client then has the devices of all processes, of which this
    /// one addresses its own; a CPU is each process' own.
    pub processes: Option<Arc<dyn ProcessGroup>>,
    /// Deadline for loading the plugin and finding its devices together: vendors' code may wait for
    /// servers and for other hosts. By default the seconds in `HALITE_PLUGIN_DEADLINE`, or 180.
    pub deadline: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            cache: None,
            trust_python: environment::trust_python(),
            offline: false,
            compile_cache: None,
            telemetry: None,
            client: Vec::new(),
            cuda: CudaOptions::default(),
            tpu: TpuOptions::default(),
            processes: None,
            // An invalid value is an error when something is opened.
            deadline: Environment::read()
                .ok()
                .and_then(|environment| environment.plugin_deadline)
                .unwrap_or(LoadOptions::default().deadline),
        }
    }
}

/// An open accelerator.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Client of its devices.
    pub client: Client,
    /// Driver of its devices.
    pub driver: Driver,
    /// Accelerators that [`Accelerator::Auto`] prefers, each with the reason why it did not open.
    pub refused: Vec<String>,
}

/// Driver of the devices of an open accelerator.
#[derive(Clone, Debug)]
pub enum Driver {
    /// A PJRT plugin.
    Plugin {
        /// The plugin.
        plugin: &'static Plugin,
        /// File that it was loaded from, and how it was found.
        located: Located,
    },
    /// The executor that is part of halite.
    Embedded,
}

impl Driver {
    /// Returns the plugin, if it is one.
    pub fn plugin(&self) -> Option<&'static Plugin> {
        match self {
            Driver::Plugin { plugin, .. } => Some(plugin),
            Driver::Embedded => None,
        }
    }
}

/// The file of a plugin and how it was found, or `embedded`.
impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Driver::Plugin { located, .. } => located.fmt(f),
            Driver::Embedded => f.write_str("embedded"),
        }
    }
}

/// Upper bound of the number of virtual devices; each takes threads and memory.
pub(crate) const MOST_CPU_DEVICES: u32 = 1024;

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
    /// which have the devices that they find: `Trainer::builder(&client).devices(..)` takes some of them.
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

/// Returns the text of an error, without the operation where that adds nothing.
fn words(error: &Error) -> String {
    let of_platform = PLUGINS.iter().any(|plugin| plugin.platform == error.op());
    if error.op() == OPEN || of_platform {
        error.message().into()
    } else {
        error.to_string()
    }
}

fn auto(
    environment: &Environment,
    options: &OpenOptions,
    progress: &mut dyn Progress,
) -> Result<Opened> {
    let every = [
        Accelerator::Tpu {
            chips: Devices::All,
        },
        Accelerator::Cuda {
            devices: gpus(&Devices::All, environment.gpus, options),
        },
        Accelerator::cpu(),
    ];
    let platform = environment.platform.as_deref();
    let candidates = chosen(platform, every)?;
    let mut refused = Vec::new();
    let mut kind = ErrorKind::Unavailable;
    for candidate in &candidates {
        let opened = match candidate {
            Accelerator::Tpu { chips } => tpu::open(chips, options, progress),
            Accelerator::Cuda { devices } => cuda::open(devices, options, progress),
            _ => match cpu::open(1, options, progress) {
                Err(Failure::Absent(reason)) if platform.is_none() => {
                    return instead_of_cpu(reason, refused);
                }
                other => other.map_err(Error::from),
            },
        };
        match opened {
            Ok(opened) => return Ok(Opened { refused, ..opened }),
            Err(error) => {
                tracing::info!(accelerator = %candidate, reason = %words(&error), "not taken");
                kind = error.kind();
                refused.push(format!("{candidate}: {}", words(&error)));
            }
        }
    }
    let because = platform.map_or(String::new(), |name| format!("{PLATFORM}={name}; "));
    let message = format!("{because}{}", refused.join("; "));
    Err(Error::new(kind, OPEN, message))
}

/// Opens the embedded executor where no plugin for the CPU can be had, for this reason.
///
/// # Errors
/// The reason, if this build has no embedded executor.
fn instead_of_cpu(reason: Error, mut refused: Vec<String>) -> Result<Opened> {
    refused.push(format!("cpu: {}", words(&reason)));
    let opened =
        embedded::open(1).map_err(|_| Error::new(reason.kind(), OPEN, refused.join("; ")))?;
    warning!("{}", embedded_because(&reason));
    Ok(Opened { refused, ..opened })
}

/// Returns a line that says why the embedded executor is taken.
fn embedded_because(reason: &Error) -> String {
    let reason = words(reason);
    format!(
        "accelerator auto is `embedded`, the executor that is part of halite, because XLA's plugin \
         for the CPU, which is faster, cannot be had: {}",
        reason.lines().next().unwrap_or_default()
    )
}

/// Returns the GPUs of this process: without a number, and without other processes in its job, as many
/// as `GPU_NUM_DEVICES` says.
fn gpus(devices: &Devices, variable: Option<u32>, options: &OpenOptions) -> Devices {
    let group = options.processes.as_ref();
    let is_alone = group.is_none_or(|group| group.size() == 1);
    match (devices, variable) {
        (Devices::All, Some(count)) if is_alone => Devices::Count(count),
        _ => devices.clone(),
    }
}

/// Returns the candidates that `choice`, the value of `PJRT_DEVICE`, allows.
fn chosen(choice: Option<&str>, every: [Accelerator; 3]) -> Result<Vec<Accelerator>> {
    let Some(name) = choice else {
        return Ok(every.into());
    };
    let kept: Vec<Accelerator> = every
        .into_iter()
        .filter(|candidate| match candidate {
            Accelerator::Tpu { .. } => name.eq_ignore_ascii_case("tpu"),
            Accelerator::Cuda { .. } => ["cuda", "gpu"]
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known)),
            _ => name.eq_ignore_ascii_case("cpu"),
        })
        .collect();
    if kept.is_empty() {
        let message = format!("{PLATFORM} is `{name}`; expected TPU, CUDA or CPU, or unset");
        return Err(Error::invalid(OPEN, message));
    }
    Ok(kept)
}

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

/// Loads a plugin, and creates a client of the devices of all processes where the plugin can.
pub(crate) fn load_in_job(located: Located, options: &OpenOptions) -> Result<Opened> {
    let deadline = options.deadline;
    let Some(node) = options.node()? else {
        return load(located, options.client.clone(), &[], deadline, None);
    };
    let client = node.options().chain(options.client.iter().cloned());
    let opened = load(located.clone(), client.collect(), &[], deadline, Some(node));
    match opened {
        // A plugin without such options has the devices of its process alone, as those for CPUs.
        Err(error) if error.kind() == ErrorKind::InvalidArgument => {
            tracing::info!(%error, "opened without other processes");
            load(located, options.client.clone(), &[], deadline, None)
        }
        opened => opened,
    }
}

/// A process among those whose devices a client has.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) count: usize,
    /// Through which they find each other's devices.
    pub(crate) store: Arc<dyn KeyValueStore>,
}

impl Node {
    /// Options of a plugin's client.
    pub(crate) fn options(&self) -> impl Iterator<Item = (String, OptionValue)> + use<> {
        let options = [("node_id", self.index), ("num_nodes", self.count)];
        options
            .into_iter()
            .map(|(name, value)| (name.to_owned(), OptionValue::Int(value as i64)))
    }
}

impl OpenOptions {
    /// This process among several, with a store of their own; `None` for a process alone. All of
    /// them call this at the same time.
    pub(crate) fn node(&self) -> Result<Option<Node>> {
        let Some(group) = self.processes.as_ref().filter(|group| group.size() > 1) else {
            return Ok(None);
        };
        Ok(Some(Node {
            index: group.rank(),
            count: group.size(),
            store: group.store("devices")?,
        }))
    }
}

/// Loads a plugin and creates its client, both within the deadline.
pub(crate) fn load(
    located: Located,
    options: Vec<(String, OptionValue)>,
    environment: &[(&str, &str)],
    deadline: Duration,
    node: Option<Node>,
) -> Result<Opened> {
    let started = Instant::now();
    needed::provide(&located)?;
    let plugin = Plugin::load_with(
        &located.path,
        &load_options(&located, environment, deadline),
    )?;
    let left = deadline.saturating_sub(started.elapsed());
    let client = match node {
        Some(node) => plugin.client_with_store(options, left, node.store)?,
        None => plugin.client_within(options, left)?,
    };
    let variables = Environment::read()?;
    let wanted = (variables.kernels).unwrap_or(kernels::used(halite_kernels::OPTIMIZED));
    let callable = client.runs_custom_calls() && wanted != Kernels::Off && kernels::register();
    let called = if callable { wanted } else { Kernels::Off };
    let (one_function, faults) = (client.compiles_functions(), client.faults());
    let client = Client::new(client)
        .with_kernels(called)
        .with_processor(kernels::processor())
        .with_one_function(one_function)
        .with_faults(faults);
    Ok(Opened {
        client: match variables.unrolled {
            Some(nodes) => client.with_unrolled(nodes),
            None => client,
        },
        driver: Driver::Plugin { plugin, located },
        refused: Vec::new(),
    })
}

/// Returns the options for loading a library: one with a known digest needs no probe.
pub(crate) fn load_options<'a>(
    located: &Located,
    environment: &'a [(&'a str, &'a str)],
    deadline: Duration,
) -> LoadOptions<'a> {
    LoadOptions {
        environment,
        deadline,
        probe: located.plugin.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locate::Search;

    #[test]
    fn auto_names_hosts_that_have_a_plugin() {
        let directory = tempfile::tempdir().unwrap();
        let cache = halite_fetch::Cache::at(directory.path());
        let search = Search {
            variable: "HALITE_TEST_NO_PLUGIN",
            host: ("macos", "aarch64"),
            ..Search::cpu(&cache)
        };
        let Err(Failure::Absent(reason)) = search.ensure_that(&mut halite_fetch::Quiet, Ok) else {
            panic!("there is no package for this host");
        };
        let line = embedded_because(&reason);
        let end = "there is no package of the cpu plugin for macos aarch64, only for linux x86_64; \
                   name another plugin with plugin:PATH or HALITE_TEST_NO_PLUGIN";
        assert!(line.ends_with(end) && line.lines().count() == 1, "{line}");
        let opened = instead_of_cpu(reason, Vec::new()).unwrap();
        assert!(matches!(opened.driver, Driver::Embedded), "{opened:?}");
        assert!(
            !directory.path().join(".partial").exists(),
            "nothing is downloaded"
        );
    }

    #[test]
    fn variable_is_the_number_of_gpus_where_none_is_given() {
        let gpus = |devices: &Devices, variable| gpus(devices, variable, &OpenOptions::default());
        assert_eq!(gpus(&Devices::All, Some(4)), Devices::Count(4));
        assert_eq!(gpus(&Devices::Count(2), Some(4)), Devices::Count(2));
        let second = Devices::Indices(vec![1]);
        assert_eq!(gpus(&second, Some(4)), second);
        assert_eq!(gpus(&Devices::All, None), Devices::All);
    }

    #[test]
    fn pjrt_device_chooses_the_platform() {
        let every = || {
            [
                Accelerator::Tpu {
                    chips: Devices::All,
                },
                Accelerator::Cuda {
                    devices: Devices::All,
                },
                Accelerator::cpu(),
            ]
        };
        assert_eq!(chosen(None, every()).unwrap(), every());
        assert_eq!(chosen(Some("TPU"), every()).unwrap(), every()[..1]);
        assert_eq!(chosen(Some("GPU"), every()).unwrap(), every()[1..2]);
        assert_eq!(chosen(Some("cpu"), every()).unwrap(), every()[2..]);
        let error = chosen(Some("NEURON"), every()).unwrap_err().to_string();
        assert!(
            error.contains("PJRT_DEVICE is `NEURON`; expected TPU, CUDA or CPU"),
            "{error}"
        );
    }
}
