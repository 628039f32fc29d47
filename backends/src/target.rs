//! Targets: devices to compile for that need not be present (ahead-of-time compilation).
//!
//! Vendors' plugins contain their compilers, which need no device: a [`Target`] names the devices
//! (`tpu:v5e:16x16`, `cuda:h200:2x8`), [`Target::open`] loads the plugin, and
//! [`OpenTarget::compile`] compiles. Nothing here runs a program.
//!
//! ```no_run
//! // no_run: installs libtpu (205 MB) where it is missing.
//! use halite_backends::{OpenOptions, Target};
//! use halite_fetch::Bar;
//!
//! let target: Target = "tpu:v5e:4x4".parse()?;
//! let open = target.open(&OpenOptions::default(), &mut Bar::default())?;
//! assert_eq!((open.devices().len(), open.device_kind()), (16, "TPU v5 lite"));
//! println!("{} bytes of memory on each", open.memory_per_device().unwrap_or_default());
//! # halite_core::Result::<()>::Ok(())
//! ```

mod cuda;
mod tpu;

pub use cuda::{CudaTarget, Gpu};
pub use tpu::{TpuGeneration, TpuTarget};

use std::{fmt, str::FromStr, sync::Arc};

use halite_core::{
    Capabilities, CompileOptions, DTypePolicy, DeviceId, DeviceSpec, Error, ErrorKind, MeshShape,
    Program, ProgramMemory, Result, Shortage,
};
use halite_fetch::{Bytes, Cache, Progress};
use halite_pjrt::{CompiledProgram, DeviceDescription, OptionValue, Plugin, Topology};

use crate::{
    Located, OpenOptions, Search,
    devices::MOST_CPU_DEVICES,
    environment::{self, Environment},
    load::load_options,
    needed,
};

/// Devices to compile for, present or not.
///
/// ```
/// use halite_backends::Target;
///
/// let target: Target = "tpu:v5e:16x16".parse()?;
/// assert_eq!(target.device_count(), 256);
/// assert_eq!(target.to_string(), "tpu:v5e:16x16");
/// assert!("tpu:v5e:32x32".parse::<Target>().unwrap_err().to_string().contains("at most 16"));
/// # halite_core::Result::<()>::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// The CPU of this machine as virtual devices: `cpu:8`.
    Cpu {
        /// Number of devices.
        devices: u32,
    },
    /// NVIDIA devices: `cuda:h200:2x8` is 2 hosts of 8 devices each; `cuda:h200` is one device.
    Cuda(CudaTarget),
    /// A TPU slice: `tpu:v5e:16x16`, or several: `tpu:v6e:16x16,slices=4`.
    Tpu(TpuTarget),
}

/// Examples of all forms, for errors.
const FORMS: &str = "expected for instance tpu:v5e:4x4, tpu:v4:4x4x4,megacore, \
    tpu:v6e:16x16,slices=4, cuda:h100:1x8 (hosts x devices per host) or cpu:8";

impl Target {
    /// Number of devices as the compiler counts them: each core is a device where the two cores of
    /// a chip do not work as one.
    pub fn device_count(&self) -> usize {
        match self {
            Target::Cpu { devices } => *devices as usize,
            Target::Cuda(target) => target.device_count(),
            Target::Tpu(target) => target.device_count(),
        }
    }

    /// Number of TPU slices, which only the data center network connects. A mesh can span all
    /// slices, preferably with an outermost axis of this size: collectives over it use that
    /// network.
    pub fn slices(&self) -> usize {
        match self {
            Target::Tpu(target) => target.slices as usize,
            Target::Cpu { .. } | Target::Cuda(_) => 1,
        }
    }

    /// Returns whether only the data center network connects some of its devices: several slices,
    /// or several GPU hosts.
    pub fn crosses_network(&self) -> bool {
        self.slices() > 1 || matches!(self, Target::Cuda(target) if target.hosts > 1)
    }

    /// The vendor's specification of one device; `None` for CPUs.
    pub fn spec(&self) -> Option<DeviceSpec> {
        match self {
            Target::Cpu { .. } => None,
            Target::Cuda(target) => DeviceSpec::of_kind(target.gpu.kind()),
            Target::Tpu(target) => target.spec(),
        }
    }

    /// The kind of accelerator: `cpu`, `cuda`, `tpu`.
    pub fn platform(&self) -> &'static str {
        match self {
            Target::Cpu { .. } => "cpu",
            Target::Cuda(_) => "cuda",
            Target::Tpu(_) => "tpu",
        }
    }

    /// What decides how programs for its devices are lowered: as
    /// [`Client::capabilities`](halite_core::Client::capabilities) of a client with such devices, but
    /// for calls of halite's kernels.
    ///
    /// # Errors
    /// If a variable of the environment has a value that it cannot have.
    pub fn capabilities(&self) -> Result<Capabilities> {
        environment::capabilities(self.platform())
    }

    /// The policy of programs for its devices, unless a user names one: as
    /// [`Device::default_policy`](halite_core::Device::default_policy) of such a device.
    pub fn default_policy(&self) -> DTypePolicy {
        let attributes = match self {
            Target::Cpu { .. } | Target::Tpu(_) => Vec::new(),
            Target::Cuda(target) => {
                let capability = target.gpu.compute_capability();
                vec![("compute_capability".to_owned(), capability)]
            }
        };
        halite_pjrt::default_policy(self.platform(), &attributes)
    }

    /// Finds the plugin that compiles for it, and installs it if it is missing and `options` allow
    /// it. Loads nothing.
    ///
    /// # Errors
    /// If the plugin is missing and cannot be installed.
    pub fn locate(&self, options: &OpenOptions, progress: &mut dyn Progress) -> Result<Located> {
        let found = Cache::open(options.cache.as_deref())
            .map_err(Error::from)
            .and_then(|cache| {
                let search = self.search(&cache);
                if options.offline {
                    search.find()
                } else {
                    search.ensure(progress)
                }
            });
        found.map_err(|error| self.failed(&error))
    }

    /// Loads the plugin that compiles for it, and installs it if it is missing and `options` allow
    /// it.
    ///
    /// Vendors' compilers abort the process on some programs, and may take long. A program that
    /// must continue in any case compiles in a child process, as `halite plan` does.
    ///
    /// A plugin is loaded once per process. Environment variables that libtpu needs without a TPU
    /// (`TPU_SKIP_MDS_QUERY` and others, unless the user set them) are set before that and stay
    /// set: open real TPUs in another process.
    ///
    /// # Errors
    /// If the plugin is missing and cannot be installed, does not start in time, or does not
    /// support the target.
    pub fn open(&self, options: &OpenOptions, progress: &mut dyn Progress) -> Result<OpenTarget> {
        Environment::read()?.apply();
        let opened = self.opened(options, progress);
        let opened = opened.map_err(|error| self.failed(&error))?;
        let devices = opened.devices.len();
        tracing::info!(target = %self, file = %opened.located, devices, "opened");
        Ok(opened)
    }

    fn failed(&self, error: &Error) -> Error {
        Error::new(error.kind(), format!("target {self}"), error.to_string())
    }

    fn search<'a>(&self, cache: &'a Cache) -> Search<'a> {
        match self {
            Target::Cpu { .. } => Search::cpu(cache),
            Target::Cuda(_) => Search::cuda(cache),
            Target::Tpu(_) => Search::tpu(cache),
        }
    }

    fn opened(&self, options: &OpenOptions, progress: &mut dyn Progress) -> Result<OpenTarget> {
        let cache = Cache::open(options.cache.as_deref())?;
        let search = Search {
            trust_python: options.trust_python,
            ..self.search(&cache)
        };
        let (located, plugin) = {
            let environment: &[_] = if let Target::Tpu(_) = self {
                tpu::ENVIRONMENT
            } else {
                &[]
            };
            let load = |located: Located| {
                needed::provide(&located)?;
                let load = load_options(&located, environment, options.deadline);
                Ok((Plugin::load_with(&located.path, &load)?, located))
            };
            let (plugin, located) = if options.offline {
                search.find_that(load)
            } else {
                search.ensure_that(progress, load)
            }?;
            (located, plugin)
        };
        let topology = match self {
            // The plugin has no named topologies; that of a client serves, and its devices cost
            // nothing.
            Target::Cpu { devices } => plugin
                .client(vec![(
                    "cpu_device_count".to_owned(),
                    OptionValue::from(i64::from(*devices)),
                )])?
                .topology()?,
            Target::Cuda(target) => plugin.topology(target.gpu.name(), target.options())?,
            Target::Tpu(target) => plugin.topology(&target.topology(), target.options())?,
        };
        let devices = topology.devices()?;
        let wanted = self.device_count();
        if devices.len() != wanted {
            let message = format!(
                "the plugin has {} devices for it, expected {wanted}; use another build of it",
                devices.len()
            );
            return Err(Error::new(ErrorKind::Internal, "open", message));
        }
        Ok(OpenTarget {
            target: self.clone(),
            located,
            plugin,
            topology,
            devices,
            memory_limit: None,
        })
    }
}

/// A target whose compiler is loaded.
#[derive(Debug)]
pub struct OpenTarget {
    target: Target,
    located: Located,
    plugin: &'static Plugin,
    topology: Topology,
    devices: Vec<DeviceDescription>,
    memory_limit: Option<u64>,
}

impl OpenTarget {
    /// The target.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The file of the compiler, and how it was found.
    pub fn located(&self) -> &Located {
        &self.located
    }

    /// The plugin that compiles.
    pub fn plugin(&self) -> &'static Plugin {
        self.plugin
    }

    /// The devices in id order, with neighbors adjacent: the cores of a chip, then chips along the
    /// first axis of the slice, then along the next axes, then slices.
    pub fn devices(&self) -> &[DeviceDescription] {
        &self.devices
    }

    /// The model of the devices in the vendor's spelling.
    pub fn device_kind(&self) -> &str {
        self.devices.first().map_or("", |device| &device.kind)
    }

    /// Sets the bytes of memory that programs can use on one device, in place of the compiler's
    /// limit.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Bytes of memory that programs can use on one device: a [limit](Self::memory_limit) that was
    /// set, or that of the compiler, if it has one.
    pub fn memory_per_device(&self) -> Option<u64> {
        if self.memory_limit.is_some() {
            return self.memory_limit;
        }
        let attributes = &self.devices.first()?.attributes;
        match attributes
            .iter()
            .find(|(name, _)| name == "device_memory_bytes_limit")
        {
            Some((_, OptionValue::Int(bytes))) => u64::try_from(*bytes).ok(),
            _ => None,
        }
    }

    /// The shape of a mesh of these axes over the first of [`devices`](Self::devices), the last
    /// axis fastest.
    ///
    /// # Errors
    /// As [`MeshShape::new`]; if the mesh has more devices than the target.
    pub fn mesh<N: Into<Arc<str>>>(
        &self,
        axes: impl IntoIterator<Item = (N, usize)>,
    ) -> Result<MeshShape> {
        let mesh = MeshShape::new(axes)?;
        if mesh.size() <= self.devices.len() {
            return Ok(mesh);
        }
        let message = format!(
            "{mesh:#} needs {} devices, but {} has {}",
            mesh.size(),
            self.target,
            self.devices.len()
        );
        Err(Error::invalid("mesh", message))
    }

    /// Compiles for these devices. Empty `options.devices` means the first of
    /// [`devices`](Self::devices).
    ///
    /// # Errors
    /// The compiler's error. [`OutOfMemory`](ErrorKind::OutOfMemory) if the program does not fit a
    /// device, with a [`Shortage`](halite_core::Shortage) as its source where the sizes are known.
    pub fn compile(&self, program: &Program, options: &CompileOptions) -> Result<CompiledProgram> {
        let mut options = options.clone();
        if options.devices.is_empty() {
            options.devices = self.ids().take(program.devices()).collect();
        }
        let compiled = self.topology.compile(program, &options)?;
        // Only libtpu checks this itself.
        if let (Ok(memory), Some(available)) = (compiled.memory(), self.memory_per_device()) {
            let ProgramMemory {
                arguments,
                outputs,
                aliased,
                temporary,
                ..
            } = memory;
            let required = memory.required();
            if required > available {
                let message = format!(
                    "`{}` does not fit {}: arguments {}, results {} (of which {} reuse arguments), \
                     temporary memory {}",
                    program.name,
                    self.device_kind(),
                    Bytes(arguments),
                    Bytes(outputs),
                    Bytes(aliased),
                    Bytes(temporary)
                );
                let error = Error::new(ErrorKind::OutOfMemory, "compile", message)
                    .on(self.topology.platform());
                return Err(error.caused_by(Shortage {
                    required,
                    available,
                }));
            }
        }
        Ok(compiled)
    }

    fn ids(&self) -> impl Iterator<Item = DeviceId> {
        self.devices.iter().map(|device| device.id)
    }
}

/// Formats as it is parsed: `tpu:v6e:16x16,slices=4`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Cpu { devices } => write!(f, "cpu:{devices}"),
            Target::Cuda(target) => write!(f, "cuda:{target}"),
            Target::Tpu(target) => write!(f, "tpu:{target}"),
        }
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (platform, rest) = text
            .split_once(':')
            .map_or((text, None), |(platform, rest)| (platform, Some(rest)));
        let parsed = match (platform, rest) {
            ("cpu", None) => Ok(Target::Cpu { devices: 1 }),
            ("cpu", Some(count)) => match count.parse() {
                Ok(devices @ 1..=MOST_CPU_DEVICES) => Ok(Target::Cpu { devices }),
                _ => Err(format!(
                    "invalid number of devices `{count}`; expected 1 to {MOST_CPU_DEVICES}, as in \
                     cpu:8"
                )),
            },
            ("cuda", Some(rest)) => rest.parse().map(Target::Cuda),
            ("tpu", Some(rest)) => rest.parse().map(Target::Tpu),
            ("cuda" | "tpu", None) => Err(format!("the {platform} devices are missing; {FORMS}")),
            _ => Err(format!("unknown target; {FORMS}")),
        };
        parsed.map_err(|message| Error::invalid(format!("target {text}"), message))
    }
}

/// Parses sizes separated by `x`.
fn sizes(text: &str) -> Option<Vec<u32>> {
    text.split('x')
        .map(|size| size.parse().ok().filter(|size| *size > 0))
        .collect()
}

fn by_x(sizes: &[u32]) -> String {
    sizes
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join("x")
}
