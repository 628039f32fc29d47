//! The cache directory: search, installation and verification of packages.

mod install;
mod state;

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    error::{Context, Error, Result},
    limits::Limits,
    lock::{Acquire, Lock},
    package::Package,
    progress::{Progress, Step},
};

/// A directory of installed packages, which many processes and threads may use at the same time.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
    limits: Limits,
}

/// An installed package with the pinned files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The directory that holds the files.
    pub directory: PathBuf,
    /// True if this call installed it.
    pub fresh: bool,
}

impl Installed {
    /// The path of one file, by its [name](crate::FileSpec::name) in the table.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Thoroughness of the verification of existing files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Sizes and times of change; the digest of a file whose time has changed since it was
    /// verified, and of data that other users may change. Files of terms (`LICENSE`) may be
    /// missing.
    Quick,
    /// As [`Quick`](Self::Quick), and the digests of these files.
    Files(&'static [&'static str]),
    /// The digest of every file.
    Full,
}

/// State of a package in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not installed.
    Absent,
    /// Files that differ from the installed ones. They are never used; the next [`Cache::ensure`]
    /// replaces them.
    Damaged(String),
    /// Installed.
    Installed(Installed),
}

impl Cache {
    /// Opens the cache at `explicit`, else at `HALITE_CACHE_DIR`, else at the platform's place:
    /// `$XDG_CACHE_HOME/halite` or `~/.cache/halite`, `~/Library/Caches/halite` on macOS,
    /// `%LOCALAPPDATA%\halite\cache` on Windows. Creates nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NoHome`] when none of these is set.
    pub fn open(explicit: Option<&Path>) -> Result<Self> {
        let variable = |name: &str| {
            env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        // The XDG specification requires that relative paths in the variable are ignored.
        let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
        let named = explicit
            .map(Path::to_path_buf)
            .or_else(|| variable("HALITE_CACHE_DIR"));
        if let Some(path) = named {
            return Ok(Self::at(path));
        }
        let (found, looked_at) = if cfg!(windows) {
            (
                absolute("LOCALAPPDATA").map(|base| base.join("halite").join("cache")),
                "LOCALAPPDATA",
            )
        } else if cfg!(target_os = "macos") {
            (
                absolute("HOME").map(|home| home.join("Library/Caches/halite")),
                "HOME",
            )
        } else {
            let base = absolute("XDG_CACHE_HOME")
                .or_else(|| absolute("HOME").map(|home| home.join(".cache")));
            (base.map(|base| base.join("halite")), "XDG_CACHE_HOME, HOME")
        };
        found.map(Self::at).ok_or(Error::NoHome { looked_at })
    }

    /// Opens the cache at `root`, which need not exist yet.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        // Clients run in other directories, where a relative path would be another directory.
        let root = std::path::absolute(&root).unwrap_or(root);
        Self {
            root,
            limits: Limits::default(),
        }
    }

    /// Sets other deadlines.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Directory of a package, which may not exist.
    pub fn directory(&self, package: &Package) -> PathBuf {
        self.root.join(package.key())
    }

    /// Finds an installed package, with a quick check. Downloads nothing and needs no permission to
    /// write.
    ///
    /// # Errors
    ///
    /// If the system cannot read existing files.
    pub fn find(&self, package: &Package) -> Result<Option<Installed>> {
        Ok(match self.state(package, Check::Quick)? {
            State::Installed(installed) => Some(installed),
            State::Absent | State::Damaged(_) => None,
        })
    }

    /// Ensures that the package is installed: finds it, or downloads, verifies and installs it. Of
    /// several processes at the same time, one installs it and the others wait.
    ///
    /// # Errors
    ///
    /// Any kind of [`Error`]. A failed installation leaves no files.
    ///
    /// # Panics
    ///
    /// If the table entry is invalid: a name with a `/`, a malformed digest.
    pub fn ensure(&self, package: &Package, progress: &mut dyn Progress) -> Result<Installed> {
        self.ensure_checked(package, Check::Quick, progress)
    }

    /// As [`ensure`](Self::ensure), with this verification of existing files.
    ///
    /// # Errors
    ///
    /// As [`ensure`](Self::ensure).
    ///
    /// # Panics
    ///
    /// As [`ensure`](Self::ensure).
    pub fn ensure_checked(
        &self,
        package: &Package,
        check: Check,
        progress: &mut dyn Progress,
    ) -> Result<Installed> {
        package.assert_well_formed();
        if let State::Installed(installed) = self.state(package, check)? {
            return Ok(installed);
        }
        let lock = self.lock(package, progress)?;
        let damage = match self.state(package, check)? {
            State::Installed(installed) => return Ok(installed),
            State::Damaged(reason) => {
                progress.step(Step::Damaged {
                    package,
                    reason: &reason,
                });
                Some(reason)
            }
            State::Absent => None,
        };
        if lock.is_exclusive() {
            self.remove_leftovers(package);
        }
        progress.step(Step::Starting {
            package,
            directory: &self.directory(package),
        });
        let installed = self
            .install(package, progress)
            .map_err(|error| match damage {
                Some(reason) => Error::Damaged {
                    package: package.to_string(),
                    reason,
                    source: Box::new(error),
                },
                None => error,
            })?;
        progress.step(Step::Installed {
            package,
            directory: &installed.directory,
        });
        Ok(installed)
    }

    fn lock(&self, package: &Package, progress: &mut dyn Progress) -> Result<Lock> {
        let context = Context {
            package,
            root: &self.root,
        };
        let locks = self.root.join(".locks");
        for directory in [&locks, &self.partial()] {
            fs::create_dir_all(directory).map_err(|error| match error.kind() {
                // The root may be a file, or below one.
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound => Error::NotWritable {
                    path: directory.clone(),
                    source: error,
                },
                _ => context.error("create the directory", directory, error),
            })?;
        }
        let path = self.lock_of(&package.key());
        let acquired = Lock::acquire(
            &path,
            self.limits.longest_wait(package),
            |waited, holder| {
                progress.step(Step::Waiting {
                    package,
                    waited,
                    holder,
                });
            },
        );
        match acquired.map_err(|error| context.error("lock", &path, error))? {
            Acquire::Held(lock) => Ok(lock),
            Acquire::TimedOut { waited, holder } => Err(Error::Timeout {
                what: format!("waiting for another process that installs {package}"),
                waited,
                detail: format!(" (the lock {} is held by {holder})", path.display()),
            }),
        }
    }

    pub(crate) fn partial(&self) -> PathBuf {
        self.root.join(".partial")
    }

    /// The file that is locked while a package is installed.
    pub(crate) fn lock_of(&self, key: &str) -> PathBuf {
        self.root.join(".locks").join(key)
    }

    /// Removes leftovers of killed processes: of this package, whose lock the caller holds, and of
    /// others whose lock is free.
    fn remove_leftovers(&self, package: &Package) {
        for entry in fs::read_dir(self.partial()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(key) = name.to_str().and_then(key_of_partial) else {
                continue;
            };
            let free = key == package.key() || Lock::if_free(&self.lock_of(key)).is_some();
            if free {
                // Leftovers that cannot be removed take space but are never used.
                remove(&entry.path());
            }
        }
    }
}

/// The package's key in the name of a partial directory, `KEY.PROCESS-TIME-COUNT`.
pub(crate) fn key_of_partial(name: &str) -> Option<&str> {
    let (key, unique) = name.rsplit_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_key(key) && unique.split('-').count() == 3 && unique.split('-').all(is_number))
        .then_some(key)
}

/// Returns whether a name has the form of [`Package::key`]: client, name, version and 16 digits of
/// a digest.
pub(crate) fn is_key(name: &str) -> bool {
    let is_hex = |text: &str| {
        text.len() == 16
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let client = ["pip-", "npm-", "apt-"]
        .iter()
        .any(|client| name.starts_with(client));
    client
        && name.split('-').count() >= 4
        && name
            .rsplit_once('-')
            .is_some_and(|(_, digest)| is_hex(digest))
}

/// Removes a directory in which a client that was just killed may still create files for a moment.
pub(crate) fn remove(directory: &Path) {
    for _ in 0..3 {
        if fs::remove_dir_all(directory).is_ok() {
            break;
        }
    }
}

/// A name that no other process or thread uses. It includes the time because other machines may
/// share the directory.
pub(crate) fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    format!(
        "{}-{}-{}",
        process::id(),
        now.as_nanos(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::tests::PART;

    #[test]
    fn other_names_are_not_keys() {
        assert!(
            is_key(&PART.key()) && is_key("pip-fastatomstruct-xla-cpu-2026.6.23-4ac675590f3190ad")
        );
        for name in [
            "programs",
            "pip-x-0123456789abcdef",
            "mine-x-1-0123456789abcdef",
            "npm-x-1-0123456789ABCDEF",
        ] {
            assert!(!is_key(name), "{name}");
        }
        assert_eq!(
            key_of_partial(&format!("{}.1-22-3", PART.key())),
            Some(&*PART.key())
        );
        for name in [
            "thesis.1-2-3",
            "pip-x-1-0123456789abcdef.1-2",
            "pip-x-1-0123456789abcdef.1-b-3",
        ] {
            assert_eq!(key_of_partial(name), None, "{name}");
        }
    }
}
