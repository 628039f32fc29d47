//! Loaded plugins: the file, the table of functions, and the reported attributes.
//!
//! A plugin is loaded once per process and never unloaded: its threads, its registered handlers and
//! every handle made by it point into it.

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use halite_core::{Error, ErrorKind, Result};
use halite_pjrt_sys::base::*;

use crate::{
    CallTime, at_exit, environment,
    environment_flags::EnvironmentFlags,
    frame::{Build, identity},
    gate::Gate,
    isolate::{self, Isolation},
    library_file,
    loader::{self, OP},
    probe::probe,
    table::Table,
    value::{OptionValue, Options},
};

/// A loaded plugin. It stays loaded until the process ends.
pub struct Plugin {
    path: PathBuf,
    /// `path`, for messages.
    shown: &'static str,
    table: Table,
    attributes: Options,
    build: Build,
    environment_flags: EnvironmentFlags,
    /// Passed by those who make or destroy a client.
    gate: Gate,
    /// Deadline for creating or destroying a client.
    deadline: Duration,
    /// Number of targets of custom calls that are registered with it.
    targets: Mutex<usize>,
}

/// The versions of StableHLO that a plugin accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StableHloVersions {
    /// The oldest portable artefact.
    pub minimum: [i64; 3],
    /// The newest, which text is parsed as.
    pub current: [i64; 3],
}

/// An extension that a plugin has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Extension {
    /// The number of its type, as in `PJRT_Extension_Type`.
    pub number: u32,
    /// The size in bytes, which determines its entries.
    pub size: usize,
}

impl Extension {
    /// The name of its type in the header, where this crate knows it.
    pub fn name(&self) -> Option<&'static str> {
        PJRT_Extension_Type::VALUES
            .iter()
            .find(|(_, number, _)| *number == self.number)
            .map(|(name, ..)| *name)
    }
}

/// Options of loading a plugin.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions<'a> {
    /// Environment variables that are set first, where the user has not set them (on Linux only).
    /// Plugins read them when they are loaded or make their first client, so a plugin that is
    /// loaded already has had its chance.
    pub environment: &'a [(&'a str, &'a str)],
    /// Deadline for loading, and for creating and destroying each client. Some plugins wait for
    /// servers that do not answer.
    pub deadline: Duration,
    /// Loads the library in a child process first (on Linux), which takes about 50 ms. Constructors
    /// run during loading; one that does not return would block every later load and the end of
    /// this process. Not needed for a library with a known digest. `HALITE_PLUGIN_PROBE=off`
    /// disables it.
    pub probe: bool,
}

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        LoadOptions {
            environment: &[],
            deadline: Duration::from_secs(180),
            probe: true,
        }
    }
}

/// State of a library file.
#[derive(Default)]
enum Slot {
    #[default]
    New,
    Loaded(&'static Plugin),
    /// A thread is stuck in it; it was abandoned after this time.
    Stuck(Duration),
}

impl Plugin {
    /// Loads and initializes a plugin. A file that is already loaded returns the same plugin.
    ///
    /// Plugins read the environment while they are loaded or make their first client, so set it
    /// before: `XLA_FLAGS` (an unknown flag in it ends the process). `TF_CPP_MIN_LOG_LEVEL=3`,
    /// which keeps XLA's own log off stderr, is set here where it is not (on Linux).
    ///
    /// # Errors
    /// If the file is missing, truncated, for another machine or not a plugin; if its version is too
    /// old; if it cannot be initialized, or not within the deadline.
    pub fn load(path: impl AsRef<Path>) -> Result<&'static Plugin> {
        Self::load_path(path.as_ref(), &LoadOptions::default())
    }

    /// Like [`load`](Self::load), with options.
    ///
    /// # Errors
    /// See [`load`](Self::load).
    pub fn load_with(path: impl AsRef<Path>, options: &LoadOptions<'_>) -> Result<&'static Plugin> {
        Self::load_path(path.as_ref(), options)
    }

    fn load_path(path: &Path, options: &LoadOptions<'_>) -> Result<&'static Plugin> {
        static KNOWN: Mutex<Option<HashMap<PathBuf, Arc<Mutex<Slot>>>>> = Mutex::new(None);

        at_exit::watch_thread();
        library_file::check(path)?;
        let path = path.canonicalize().map_err(|error| {
            Error::new(
                ErrorKind::Io,
                OP,
                format!("{} cannot be resolved", path.display()),
            )
            .caused_by(error)
        })?;
        let slot = {
            let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
            known
                .get_or_insert_default()
                .entry(path.clone())
                .or_default()
                .clone()
        };
        // Held while loading, so that two threads do not initialise one plugin twice.
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match *slot {
            Slot::Loaded(plugin) => return Ok(plugin),
            Slot::Stuck(waited) => return Err(stuck(&path, waited)),
            Slot::New => {}
        }
        environment::set_missing(&[("TF_CPP_MIN_LOG_LEVEL", "3")]);
        environment::set_missing(options.environment);
        let started = Instant::now();
        if options.probe {
            probe(OP, &path, options.deadline).inspect_err(|error| {
                if error.kind() == ErrorKind::DeadlineExceeded {
                    *slot = Slot::Stuck(options.deadline);
                }
            })?;
        }
        // For messages, also those of the process's end; a file is loaded once.
        let shown: &'static str = String::leak(path.display().to_string());
        let isolation = Isolation {
            thread: "pjrt-load",
            op: OP,
            plugin: shown,
            deadline: options.deadline.saturating_sub(started.elapsed()),
            notice: isolate::first_notice(options.deadline),
        };
        isolate::prepare_to_wait();
        let (file, deadline) = (path.clone(), options.deadline);
        let load = move || Self::load_now(file, shown, deadline);
        let loaded = isolate::keep_directory(shown, || isolate::run(isolation, load));
        let Some(loaded) = loaded else {
            *slot = Slot::Stuck(options.deadline);
            return Err(stuck(&path, options.deadline));
        };
        let plugin = loaded?;
        *slot = Slot::Loaded(plugin);
        Ok(plugin)
    }

    fn load_now(path: PathBuf, shown: &'static str, deadline: Duration) -> Result<&'static Plugin> {
        let unreadable = |error| {
            Error::new(
                ErrorKind::Io,
                OP,
                format!("{} cannot be read to its end", path.display()),
            )
            .caused_by(error)
        };
        let build = Build::of_file(&path).map_err(unreadable)?;
        let environment_flags = EnvironmentFlags::checked()?;
        let table = Table::of_library(&path)?;
        // SAFETY: initialising has no condition but to be the first call, once, which the caller's
        // lock sees to.
        unsafe { table.call("initialise plugin", &mut PJRT_Plugin_Initialize_Args::new()) }
            .map_err(|error| {
                Error::new(
                    error.kind(),
                    OP,
                    format!("{} refuses to start", path.display()),
                )
                .caused_by(error)
            })?;
        let attributes = table.attributes()?;
        let gate = Gate::new();
        let plugin = Plugin {
            path,
            shown,
            table,
            attributes,
            build,
            environment_flags,
            gate,
            deadline,
            targets: Mutex::new(0),
        };
        Ok(Box::leak(Box::new(plugin)))
    }

    /// A library whose constructors have not returned, if there is one. While there is, no library
    /// can be loaded, and the process can end by `_exit` or a signal only: `exit`, as at the end of
    /// `main`, waits for the loader.
    pub fn stuck_in_loader() -> Option<PathBuf> {
        loader::running()
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor version of the PJRT API it was built with.
    pub fn api_version(&self) -> (i32, i32) {
        self.table.version
    }

    /// The attributes that it reports.
    pub fn attributes(&self) -> &[(String, OptionValue)] {
        &self.attributes
    }

    /// The supported versions of StableHLO, if it reports them.
    pub fn stablehlo(&self) -> Option<StableHloVersions> {
        let version = |name: &str| match self
            .attributes
            .iter()
            .find(|(attribute, _)| attribute == name)
        {
            Some((_, OptionValue::Ints(numbers))) => numbers[..].try_into().ok(),
            _ => None,
        };
        Some(StableHloVersions {
            minimum: version("stablehlo_minimum_version")?,
            current: version("stablehlo_current_version")?,
        })
    }

    /// The extensions, in the order of the plugin's list.
    pub fn extensions(&self) -> Vec<Extension> {
        self.table
            .extensions()
            .map(|(number, _, size)| Extension { number, size })
            .collect()
    }

    /// Names of the functions of the API that it does not have, of those that this crate knows.
    pub fn missing_functions(&self) -> Vec<&'static str> {
        halite_pjrt_sys::SLOTS
            .iter()
            .filter(|slot| self.table.entry(slot.offset).is_none())
            .map(|slot| slot.name)
            .collect()
    }

    /// Starts counting and timing the calls of the plugin's functions: see
    /// [`call_times`](Self::call_times). This cannot be stopped, and reads the clock twice per call.
    pub fn time_calls(&self) {
        self.table.times.start();
    }

    /// The functions that were called since [`time_calls`](Self::time_calls), on all threads, in
    /// the order of the table.
    pub fn call_times(&self) -> Vec<CallTime> {
        self.table.times.called()
    }

    /// Identity of the programs that the plugin serializes.
    pub(crate) fn identity(&self, platform: &str) -> String {
        identity(platform, self.api_version(), &self.build)
    }

    /// The compiler's flags in the environment, as they were when it was loaded.
    pub(crate) fn environment_flags(&self) -> &EnvironmentFlags {
        &self.environment_flags
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The path, for messages.
    pub(crate) fn shown(&self) -> &'static str {
        self.shown
    }

    pub(crate) fn targets(&self) -> &Mutex<usize> {
        &self.targets
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.api_version();
        write!(f, "Plugin({} {major}.{minor})", self.path.display())
    }
}

fn stuck(path: &Path, waited: Duration) -> Error {
    let why = match Plugin::stuck_in_loader() {
        Some(other) if other != path => {
            format!(
                "the constructors of {} do not return, and block the loading of any other library",
                other.display()
            )
        }
        _ => "it may wait for a server or a device that does not answer".to_owned(),
    };
    let message = format!(
        "{} has not started after {} s, and is not tried again in this process; {why}",
        path.display(),
        waited.as_secs_f32()
    );
    Error::new(ErrorKind::DeadlineExceeded, OP, message)
}
