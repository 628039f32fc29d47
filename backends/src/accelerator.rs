//! Which accelerator to run on, parsed once and opened at run time.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

use halite_core::{Client, Error, ErrorKind, Result};
use halite_fetch::{Bar, Cache, Progress};
use halite_pjrt::{OptionValue, Plugin};

use crate::{
    compile_cache::{CompileCache, CompileCacheOptions},
    locate::{Located, Search, Source},
};

/// Which accelerator to run on.
///
/// ```
/// use halite_backends::Accelerator;
///
/// assert_eq!("cpu:8".parse::<Accelerator>()?, Accelerator::Cpu { devices: Some(8) });
/// assert_eq!(Accelerator::Plugin("/opt/my_plugin.so".into()).to_string(), "plugin:/opt/my_plugin.so");
/// assert!("abacus".parse::<Accelerator>().is_err());
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Accelerator {
    /// The best there is: `auto`.
    #[default]
    Auto,
    /// This machine's processor: `cpu`, or as so many virtual devices: `cpu:8`.
    Cpu {
        /// How many; 1 if not given.
        devices: Option<u32>,
    },
    /// NVIDIA devices: `cuda`, or some of them: `cuda:0,1`. Cannot be opened yet.
    Cuda {
        /// Which; all if empty.
        devices: Vec<u32>,
    },
    /// Google TPU devices: `tpu`. Cannot be opened yet.
    Tpu,
    /// Any PJRT plugin: `plugin:PATH`.
    Plugin(PathBuf),
}

/// How an accelerator is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Where plugins are installed; without it as [`Cache::open`] says.
    pub cache: Option<PathBuf>,
    /// Fail where a plugin is missing, instead of installing it.
    pub offline: bool,
    /// Where compiled programs are kept; without it as `HALITE_COMPILE_CACHE` says.
    pub compile_cache: Option<CompileCacheOptions>,
    /// Options for the plugin's client, by name, besides those that the accelerator means.
    pub client: Vec<(String, OptionValue)>,
}

/// An open accelerator.
#[derive(Clone, Debug)]
pub struct Opened {
    /// A handle on its devices.
    pub client: Client,
    /// The plugin that drives it.
    pub plugin: &'static Plugin,
    /// The file the plugin was loaded from, and how it was found.
    pub located: Located,
}

/// More virtual devices than anyone tests with; each takes threads and memory.
const MOST_CPU_DEVICES: u32 = 1024;

impl Accelerator {
    /// The best there is.
    pub fn auto() -> Self {
        Self::Auto
    }

    /// This machine's processor, as one device.
    pub fn cpu() -> Self {
        Self::Cpu { devices: None }
    }

    /// Opens it. A plugin that is missing is installed, which is said on stderr.
    ///
    /// # Errors
    /// If there is no such accelerator here, with the reason why each candidate was refused.
    pub fn open(&self) -> Result<Client> {
        Ok(self.open_with(&OpenOptions::default(), &mut Bar::default())?.client)
    }

    /// Opens it, and says from which file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(&self, options: &OpenOptions, progress: &mut dyn Progress) -> Result<Opened> {
        let kept = options.compile_cache.clone().map_or_else(CompileCacheOptions::from_environment, Ok)?;
        let opened = match self {
            Self::Auto => auto(options, progress),
            Self::Cpu { devices } => cpu(*devices, options, progress),
            Self::Plugin(path) => by_path(path.clone(), options),
            Self::Cuda { .. } => Err(Error::new(ErrorKind::Unsupported, OPEN, CUDA_IS_TO_COME)),
            Self::Tpu => Err(Error::new(ErrorKind::Unsupported, OPEN, TPU_IS_TO_COME)),
        };
        let mut opened = opened.map_err(|error| Error::new(error.kind(), format!("accelerator {self}"), words(&error)))?;
        if let Some(cache) = CompileCache::open(&kept, options.cache.as_deref())? {
            opened.client = opened.client.with_program_cache(Arc::new(cache.for_plugin(&opened.located)));
        }
        tracing::info!(accelerator = %self, file = %opened.located, devices = opened.client.local_devices().len(), "opened");
        Ok(opened)
    }
}

/// The operation of errors that say nothing but why an accelerator cannot be opened.
const OPEN: &str = "open";
const CUDA_IS_TO_COME: &str = "this version of halite opens no CUDA devices; plugin:PATH opens any PJRT plugin";
const TPU_IS_TO_COME: &str = "this version of halite opens no TPU devices; plugin:PATH opens any PJRT plugin";

/// What an error says, without the name of the operation where that adds nothing.
fn words(error: &Error) -> String {
    if [OPEN, Search::CPU].contains(&error.op()) { error.message().into() } else { error.to_string() }
}

fn auto(options: &OpenOptions, progress: &mut dyn Progress) -> Result<Opened> {
    cpu(None, options, progress).map_err(|error| {
        let message = format!("tpu and cuda: this version of halite does not open them; cpu: {}", words(&error));
        Error::new(error.kind(), OPEN, message)
    })
}

fn cpu(devices: Option<u32>, options: &OpenOptions, progress: &mut dyn Progress) -> Result<Opened> {
    let devices = i64::from(devices.unwrap_or(1));
    let cache = Cache::open(options.cache.as_deref())?;
    let search = Search::cpu(&cache);
    // What is found is tried in turn: a library may need something that this system lacks.
    let open = |located: Located| {
        // Plugins make four devices when they are not told.
        let client = [("cpu_device_count".to_string(), OptionValue::from(devices))];
        load(located, client.into_iter().chain(options.client.iter().cloned()).collect())
    };
    if options.offline { search.find_that(open) } else { search.ensure_that(progress, open) }
}

fn by_path(path: PathBuf, options: &OpenOptions) -> Result<Opened> {
    load(Located { path, source: Source::Given, plugin: None }, options.client.clone())
}

fn load(located: Located, options: Vec<(String, OptionValue)>) -> Result<Opened> {
    let plugin = Plugin::load(&located.path)?;
    Ok(Opened { client: Client::new(plugin.client(options)?), plugin, located })
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu { devices: None } => f.write_str("cpu"),
            Self::Cpu { devices: Some(count) } => write!(f, "cpu:{count}"),
            Self::Cuda { devices } if devices.is_empty() => f.write_str("cuda"),
            Self::Cuda { devices } => {
                write!(f, "cuda:{}", devices.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
            }
            Self::Tpu => f.write_str("tpu"),
            Self::Plugin(path) => write!(f, "plugin:{}", path.display()),
        }
    }
}

impl FromStr for Accelerator {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |reason: String| Error::invalid(format!("accelerator {text}"), reason);
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        match (kind, rest) {
            ("auto", None) => Ok(Self::Auto),
            ("cpu", None) => Ok(Self::Cpu { devices: None }),
            ("cpu", Some(count)) => match count.parse() {
                Ok(count @ 1..=MOST_CPU_DEVICES) => Ok(Self::Cpu { devices: Some(count) }),
                _ => Err(refused(format!("`{count}` is no number of devices from 1 to {MOST_CPU_DEVICES}; want cpu or cpu:8"))),
            },
            ("cuda", None) => Ok(Self::Cuda { devices: Vec::new() }),
            ("cuda", Some(list)) => {
                let devices: Result<Vec<u32>, _> = list.split(',').map(str::parse).collect();
                let devices = devices.map_err(|_| refused(format!("`{list}` is no list of devices; want cuda or cuda:0,1")))?;
                match (1..devices.len()).find(|&index| devices[..index].contains(&devices[index])) {
                    Some(index) => Err(refused(format!("device {} is named twice", devices[index]))),
                    None => Ok(Self::Cuda { devices }),
                }
            }
            ("tpu", None) => Ok(Self::Tpu),
            ("plugin", Some(path)) if !path.is_empty() => Ok(Self::Plugin(path.into())),
            ("plugin", _) => Err(refused("the path is missing; want plugin:/path/to/plugin.so".into())),
            _ => Err(refused("there is none of this name; there are auto, cpu, cpu:8, cuda, cuda:0,1, tpu, plugin:PATH".into())),
        }
    }
}
