//! Finds the library of a plugin, and installs it if it is missing.
//!
//! The search order is: the path that the caller gives, the environment variable, the cache, the
//! Python environment. The first two are explicit choices of the user and are not checked; a
//! library that is found elsewhere must have a digest of [`PLUGINS`].

mod python;

pub(crate) use python::{directories_of, packages_directories};

use std::{
    env, fmt,
    path::{Path, PathBuf},
};

use halite_core::{Error, ErrorKind, Result};
use halite_fetch::{Cache, Check, Progress, State, Step};

use crate::{
    environment,
    plugins::{HERE, KnownPlugin, PLUGINS, hosts},
};

/// A plugin's library that may be loaded.
#[derive(Clone, Debug)]
pub struct Located {
    /// File of the library.
    pub path: PathBuf,
    /// The place where it was found.
    pub source: Source,
    /// Entry in the table, if the digest is known.
    pub plugin: Option<&'static KnownPlugin>,
}

/// The place where a plugin's library was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The caller gave the path.
    Given,
    /// This environment variable has the path.
    Environment(&'static str),
    /// Installed in the cache.
    Cache,
    /// Installed in the Python environment.
    Python,
    /// This call installed it in the cache.
    Installed,
}

/// `path (package version, from the cache)`
impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.path.display())?;
        if let Some(plugin) = self.plugin {
            write!(f, "{} {}, ", plugin.package.name, plugin.package.version)?;
        }
        match self.source {
            Source::Given => f.write_str("as given)"),
            Source::Environment(variable) => write!(f, "from {variable})"),
            Source::Cache => f.write_str("from the cache)"),
            Source::Python => f.write_str("from the Python environment)"),
            Source::Installed => f.write_str("installed now)"),
        }
    }
}

/// A search for the plugin of one platform.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// Kind of accelerator, as in [`KnownPlugin::platform`].
    pub platform: &'static str,
    /// Environment variable that may have a path.
    pub variable: &'static str,
    /// Path that the user gave, if any.
    pub given: Option<&'a Path>,
    /// Cache of installed plugins.
    pub cache: &'a Cache,
    /// Operating system and architecture that plugins are searched for, as
    /// [`KnownPlugin::target`]; those of this process by default.
    pub host: (&'static str, &'static str),
    /// Takes a library of the Python environment whose digest is not known, with a warning:
    /// `HALITE_TRUST_PYTHON` by default.
    pub trust_python: bool,
}

/// The platforms, each with the environment variable that may have the path of its plugin.
const VARIABLES: [(&str, &str); 6] = [
    (Search::CPU, "HALITE_CPU_PLUGIN"),
    ("tpu", "HALITE_TPU_PLUGIN"),
    ("cuda", "HALITE_CUDA_PLUGIN"),
    ("rocm", "HALITE_ROCM_PLUGIN"),
    ("oneapi", "HALITE_ONEAPI_PLUGIN"),
    ("tt", "HALITE_TT_PLUGIN"),
];

/// Failure of a search.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No library is there, and none can be installed: the platform has no package for this
    /// machine, or the client that downloads it is missing or failed.
    Absent(Error),
    /// Any other failure: a library is there, but it is damaged or does not work.
    Other(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let (Failure::Absent(error) | Failure::Other(error)) = failure;
        error
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Other(error)
    }
}

/// Reasons why no library was accepted.
struct Missed {
    /// Each place that was searched, with the reason.
    refused: Vec<String>,
    /// Names of the known plugins that were found.
    tried: Vec<&'static str>,
    /// True if a library is there, whether or not it is known.
    found: bool,
}

impl Missed {
    /// Adds a library that is there, and the reason why it is not used.
    fn found(&mut self, refused: String) {
        self.refused.push(refused);
        self.found = true;
    }
}

impl<'a> Search<'a> {
    /// Platform of [`cpu`](Self::cpu), and operation of its errors.
    pub(crate) const CPU: &'static str = "cpu";

    /// Searches for the CPU's plugin: `HALITE_CPU_PLUGIN`, then `cache`, then Python.
    pub fn cpu(cache: &'a Cache) -> Self {
        Self::of(Self::CPU, "HALITE_CPU_PLUGIN", cache)
    }

    /// Searches for the plugin of NVIDIA GPUs: `HALITE_CUDA_PLUGIN`, then `cache`, then Python.
    pub fn cuda(cache: &'a Cache) -> Self {
        Self::of("cuda", "HALITE_CUDA_PLUGIN", cache)
    }

    /// Searches for the plugin of TPUs: `HALITE_TPU_PLUGIN`, then `cache`, then Python.
    pub fn tpu(cache: &'a Cache) -> Self {
        Self::of("tpu", "HALITE_TPU_PLUGIN", cache)
    }

    fn of(platform: &'static str, variable: &'static str, cache: &'a Cache) -> Self {
        Self {
            platform,
            variable,
            given: None,
            cache,
            host: HERE,
            trust_python: environment::trust_python(),
        }
    }

    /// Searches for a platform of the table: `HALITE_ROCM_PLUGIN` for `rocm`, then `cache`, then
    /// Python. `None` if no plugin is for such a platform.
    pub fn platform(platform: &str, cache: &'a Cache) -> Option<Self> {
        let (platform, variable) = VARIABLES.iter().find(|(name, _)| *name == platform)?;
        Some(Self::of(platform, variable, cache))
    }

    /// Returns the searches for all platforms, in the order of the table.
    pub fn all(cache: &'a Cache) -> impl Iterator<Item = Self> {
        (VARIABLES.iter()).map(|(platform, variable)| Self::of(platform, variable, cache))
    }

    /// Finds the library. Downloads nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if there is none, with the reason for each place that was
    /// searched. An error too if the user's path is not a file: other places are not searched then.
    pub fn find(&self) -> Result<Located> {
        Ok(self.find_that(Ok)?)
    }

    /// Finds the library, or installs the platform's default.
    ///
    /// # Errors
    /// As [`find`](Self::find), if the platform has no default on this system, or if it cannot be
    /// installed.
    pub fn ensure(&self, progress: &mut dyn Progress) -> Result<Located> {
        Ok(self.ensure_that(progress, Ok)?)
    }

    /// Returns the result of the first library that `take` accepts, as [`find`](Self::find).
    pub(crate) fn find_that<T>(
        &self,
        mut take: impl FnMut(Located) -> Result<T>,
    ) -> Result<T, Failure> {
        self.in_order(&mut take)?
            .map_err(|missed| self.nothing(missed))
    }

    /// Returns the result of the first library that `take` accepts, as [`ensure`](Self::ensure).
    /// The default is not installed if it was found and not accepted.
    pub(crate) fn ensure_that<T>(
        &self,
        progress: &mut dyn Progress,
        mut take: impl FnMut(Located) -> Result<T>,
    ) -> Result<T, Failure> {
        let missed = match self.in_order(&mut take)? {
            Ok(taken) => return Ok(taken),
            Err(missed) => missed,
        };
        match self.known().next() {
            Some(default) if !missed.tried.contains(&default.name) => {
                match install(default, self.cache, progress) {
                    Ok(located) => Ok(take(located)?),
                    Err(error) if error.kind() == ErrorKind::Unavailable && !missed.found => {
                        Err(Failure::Absent(error))
                    }
                    // What is there may be all that is needed.
                    Err(error) => Err(Failure::Other(if missed.found {
                        error.with_note(&format!("not used: {}", missed.refused.join("; ")))
                    } else {
                        error
                    })),
                }
            }
            _ => Err(self.nothing(missed)),
        }
    }

    /// Offers every library to `take` until it accepts one. A library that the user names is the
    /// only one.
    fn in_order<T>(
        &self,
        take: &mut impl FnMut(Located) -> Result<T>,
    ) -> Result<Result<T, Missed>> {
        if let Some(located) = self.users()? {
            return take(located).map(Ok);
        }
        let mut missed = Missed {
            refused: vec![format!("{} is not set", self.variable)],
            tried: Vec::new(),
            found: false,
        };
        // Python is last, because it takes a while to start.
        for place in [Search::in_cache, Search::in_python] {
            for located in place(self, &mut missed) {
                let description = located.to_string();
                missed
                    .tried
                    .extend(located.plugin.map(|plugin| plugin.name));
                match take(located) {
                    Ok(taken) => return Ok(Ok(taken)),
                    // Another copy would wait for the same device or server. A CPU's plugin waits
                    // for neither.
                    Err(error)
                        if error.kind() == ErrorKind::DeadlineExceeded
                            && self.platform != Self::CPU =>
                    {
                        return Err(error);
                    }
                    Err(error) => missed.found(format!("{description}: {error}")),
                }
            }
        }
        Ok(Err(missed))
    }

    fn nothing(&self, missed: Missed) -> Failure {
        let Missed {
            refused,
            tried,
            found,
        } = missed;
        let by_path = format!("name another plugin with plugin:PATH or {}", self.variable);
        let message = match self.known().next() {
            Some(default) if tried.contains(&default.name) => {
                format!("no working plugin: {}; {by_path}", refused.join("; "))
            }
            Some(default) => format!(
                "no working plugin: {}; install one with `halite plugins install {}`",
                refused.join("; "),
                default.name
            ),
            None => format!("{}; {by_path}", self.no_package()),
        };
        let error = Error::new(ErrorKind::Unavailable, self.platform, message);
        if found {
            Failure::Other(error)
        } else {
            Failure::Absent(error)
        }
    }

    /// Returns the known plugins for the host that may be used without being named. The first is
    /// installed if there is none.
    fn known(&self) -> impl Iterator<Item = &'static KnownPlugin> {
        let (platform, host) = (self.platform, self.host);
        PLUGINS.iter().filter(move |plugin| {
            plugin.platform == platform && plugin.target == host && !plugin.only_by_name
        })
    }

    fn no_package(&self) -> String {
        let (system, machine) = self.host;
        let of_platform = PLUGINS
            .iter()
            .filter(|plugin| plugin.platform == self.platform);
        format!(
            "there is no package of the {} plugin for {system} {machine}, only for {}",
            self.platform,
            hosts(of_platform)
        )
    }

    /// Returns the library that the user names, by argument or variable.
    fn users(&self) -> Result<Option<Located>> {
        let variable = || {
            env::var_os(self.variable)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let (path, source) = match self.given {
            Some(path) => (path.into(), Source::Given),
            None => match variable() {
                Some(path) => (path, Source::Environment(self.variable)),
                None => return Ok(None),
            },
        };
        match path.metadata() {
            Ok(metadata) if metadata.is_file() => Ok(Some(Located {
                path,
                source,
                plugin: None,
            })),
            other => {
                let reason = other.map_or_else(|error| error.to_string(), |_| "not a file".into());
                let from = match source {
                    Source::Environment(variable) => format!("{variable} is "),
                    _ => String::new(),
                };
                let message = format!(
                    "{from}{}: {reason}; expected the path of a plugin's library",
                    path.display()
                );
                Err(Error::invalid(self.platform, message))
            }
        }
    }

    /// Returns the libraries in the cache, and adds to `missed` why others are not used.
    fn in_cache(&self, missed: &mut Missed) -> Vec<Located> {
        let mut found = Vec::new();
        for plugin in self.known() {
            match self.cache.state(&plugin.package, Check::Quick) {
                Ok(State::Installed(installed)) => {
                    let path = installed.path(plugin.library.name);
                    found.push(Located { path, source: Source::Cache, plugin: Some(plugin) });
                }
                Ok(State::Damaged(reason)) => missed.found(format!(
                    "{} is damaged and not used: {reason}; `halite plugins install {}` fetches it again",
                    self.cache.directory(&plugin.package).display(),
                    plugin.name
                )),
                Ok(State::Absent) => {}
                Err(error) => missed.found(error.to_string()),
            }
        }
        if found.is_empty() {
            missed
                .refused
                .push(format!("not installed in {}", self.cache.root().display()));
        }
        found
    }
}

/// Installs a known plugin in the cache, if it is not there yet. The files of an installed one are
/// digested again.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if it is not built for this machine; otherwise as [`Cache::ensure`].
pub fn install(
    plugin: &'static KnownPlugin,
    cache: &Cache,
    progress: &mut dyn Progress,
) -> Result<Located> {
    built_for(plugin, HERE)?;
    if plugin.shows_licence && cache.find(&plugin.package)?.is_none() {
        progress.step(Step::Terms {
            package: &plugin.package,
            terms: plugin.licence,
        });
    }
    let installed = cache.ensure_checked(&plugin.package, Check::Full, progress)?;
    let source = if installed.fresh {
        Source::Installed
    } else {
        Source::Cache
    };
    Ok(Located {
        path: installed.path(plugin.library.name),
        source,
        plugin: Some(plugin),
    })
}

/// Checks that a plugin is built for `host`.
///
/// # Errors
/// [`ErrorKind::Unsupported`], with the hosts that have a package.
fn built_for(plugin: &KnownPlugin, host: (&str, &str)) -> Result<()> {
    if plugin.target == host {
        return Ok(());
    }
    let (system, machine) = host;
    let message = format!(
        "plugin `{}` has a package for {} and none for {system} {machine}, which this machine is; \
         name another plugin with plugin:PATH, or take `embedded`, which needs none",
        plugin.name,
        hosts([plugin])
    );
    Err(Error::new(ErrorKind::Unsupported, "install", message))
}
