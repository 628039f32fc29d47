//! The cache directory: finding, installing and checking packages.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::{
    client::{Work, file_name},
    error::{Context, Error, Result},
    lock::{Acquire, Lock},
    manifest::{self, MARKER, Manifest, sha256_of_file},
    package::Package,
    progress::{Progress, Step},
    unpack,
};

/// A directory that holds installed packages. Many processes and threads may use one at the same time.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
    limits: Limits,
}

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For one run of a client, in all.
    pub download: Duration,
    /// For a client that writes nothing to disk.
    pub stall: Duration,
    /// For another process that installs the same package.
    pub lock: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        Self { download: minutes(30), stall: minutes(3), lock: minutes(35) }
    }
}

/// A package whose files are there and are the pinned ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The directory that holds the files.
    pub directory: PathBuf,
    /// Whether this call installed it.
    pub fresh: bool,
}

impl Installed {
    /// The path of one file, by its [name](crate::FileSpec::name) in the table.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// How closely to look at files that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Sizes and times of change; the digest only of a file whose time has changed since it was verified.
    Quick,
    /// The digest of every file.
    Full,
}

/// What the cache holds of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Absent,
    /// Files that are not the ones installed. They are never used; the next [`Cache::ensure`] replaces them.
    Damaged(String),
    /// All of it.
    Installed(Installed),
}

impl Cache {
    /// The cache at `explicit`; without that at `HALITE_CACHE_DIR`; without that at the platform's place:
    /// `$XDG_CACHE_HOME/halite` or `~/.cache/halite`, `~/Library/Caches/halite` on macOS, `%LOCALAPPDATA%\halite\cache` on
    /// Windows. Creates nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NoHome`] when none of these is set.
    pub fn open(explicit: Option<&Path>) -> Result<Self> {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        // XDG's specification says that a relative path in the variable is to be ignored.
        let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
        let named = explicit.map(Path::to_path_buf).or_else(|| variable("HALITE_CACHE_DIR"));
        if let Some(path) = named {
            return Ok(Self::at(path));
        }
        let (found, looked_at) = if cfg!(windows) {
            (absolute("LOCALAPPDATA").map(|base| base.join("halite").join("cache")), "LOCALAPPDATA")
        } else if cfg!(target_os = "macos") {
            (absolute("HOME").map(|home| home.join("Library/Caches/halite")), "HOME")
        } else {
            let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
            (base.map(|base| base.join("halite")), "XDG_CACHE_HOME, HOME")
        };
        found.map(Self::at).ok_or(Error::NoHome { looked_at })
    }

    /// The cache at `root`, which need not exist yet.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        // Clients run in other directories, so a relative path would mean another place to them.
        let root = std::path::absolute(&root).unwrap_or(root);
        Self { root, limits: Limits::default() }
    }

    /// The same cache with other deadlines.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a package is or would be.
    pub fn directory(&self, package: &Package) -> PathBuf {
        self.root.join(package.key())
    }

    /// The package if it is installed, after a quick check. Downloads nothing and needs no permission to write.
    ///
    /// # Errors
    ///
    /// When the system refuses to read what is there.
    pub fn find(&self, package: &Package) -> Result<Option<Installed>> {
        Ok(match self.state(package, Check::Quick)? {
            State::Installed(installed) => Some(installed),
            State::Absent | State::Damaged(_) => None,
        })
    }

    /// Makes sure that the package is installed: finds it, or downloads, verifies and installs it. When several
    /// processes ask at once, one does the work and the others wait for it.
    ///
    /// # Errors
    ///
    /// Each kind of [`Error`]. No file of a failed installation is left.
    ///
    /// # Panics
    ///
    /// When the table entry is wrong in itself: a name with a `/`, a digest that is not one.
    pub fn ensure(&self, package: &Package, progress: &mut dyn Progress) -> Result<Installed> {
        package.assert_well_formed();
        if let Some(installed) = self.find(package)? {
            return Ok(installed);
        }
        let lock = self.lock(package, progress)?;
        match self.state(package, Check::Quick)? {
            State::Installed(installed) => return Ok(installed),
            State::Damaged(reason) => progress.step(Step::Damaged { package, reason: &reason }),
            State::Absent => {}
        }
        if lock.is_exclusive() {
            self.remove_leftovers(package);
        }
        progress.step(Step::Starting { package, directory: &self.directory(package) });
        let installed = self.install(package, progress)?;
        progress.step(Step::Installed { package, directory: &installed.directory });
        Ok(installed)
    }

    /// Looks at what is there, without changing it. (A quick check that had to take a digest notes the file's new
    /// time of change in the marker, if it may.)
    ///
    /// # Errors
    ///
    /// When the system refuses to read what is there.
    pub fn state(&self, package: &Package, check: Check) -> Result<State> {
        let directory = self.directory(package);
        let mut manifest = match Manifest::read(&directory) {
            Ok(manifest) => manifest,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.exists() => {
                return Ok(State::Absent);
            }
            // A cache below a file holds nothing; that it cannot be written is said when it is to be.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(State::Absent),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Error::Io { action: "read", path: directory.join(MARKER), source: error });
            }
            Err(error) => return Ok(State::Damaged(format!("{MARKER}: {error}"))),
        };
        if !manifest.agrees_with(package) {
            return Ok(State::Damaged(format!("{MARKER} speaks of other files")));
        }
        let mut touched = false;
        for entry in &mut manifest.files {
            let path = directory.join(&entry.name);
            let refused = |action, source| Error::Io { action, path: path.clone(), source };
            let metadata = match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_file() => metadata,
                Ok(_) => return Ok(State::Damaged(format!("{} is not a file", entry.name))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(State::Damaged(format!("{} is missing", entry.name)));
                }
                Err(error) => return Err(refused("look at", error)),
            };
            if metadata.len() != entry.size {
                let reason = format!("{} has {} bytes instead of {}", entry.name, metadata.len(), entry.size);
                return Ok(State::Damaged(reason));
            }
            let modified = manifest::modified(&metadata).map_err(|error| refused("look at", error))?;
            if modified == entry.modified && check == Check::Quick {
                continue;
            }
            let (digest, _) = sha256_of_file(&path).map_err(|error| refused("read", error))?;
            if digest != entry.sha256 {
                let reason = format!("{} has SHA-256 {digest} instead of {}", entry.name, entry.sha256);
                return Ok(State::Damaged(reason));
            }
            touched |= modified != entry.modified;
            entry.modified = modified;
        }
        if touched {
            // Only saves work later; a cache that cannot be written works without.
            let _ = self.rewrite_marker(&manifest, &directory);
        }
        Ok(State::Installed(Installed { directory, fresh: false }))
    }

    fn lock(&self, package: &Package, progress: &mut dyn Progress) -> Result<Lock> {
        let context = Context { package, root: &self.root };
        let locks = self.root.join(".locks");
        for directory in [&locks, &self.partial()] {
            fs::create_dir_all(directory).map_err(|error| match error.kind() {
                // The root may be a file, or below one.
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound => {
                    Error::NotWritable { path: directory.clone(), source: error }
                }
                _ => context.error("create the directory", directory, error),
            })?;
        }
        let path = locks.join(package.key());
        let acquired = Lock::acquire(&path, self.limits.lock, |waited| progress.step(Step::Waiting { package, waited }));
        match acquired.map_err(|error| context.error("lock", &path, error))? {
            Acquire::Held(lock) => Ok(lock),
            Acquire::TimedOut(waited) => Err(Error::Timeout {
                what: format!("waiting for another process that installs {package}"),
                waited,
                detail: format!(" (it holds the lock {})", path.display()),
            }),
        }
    }

    /// Downloads, verifies, unpacks and commits. The caller holds the lock.
    fn install(&self, package: &Package, progress: &mut dyn Progress) -> Result<Installed> {
        let context = || Context { package, root: &self.root };
        let partial = Partial::create(&self.partial(), package)
            .map_err(|error| context().error("create a directory in", &self.partial(), error))?;
        let install = partial.0.join("install");
        let create = |directory: &Path| {
            fs::create_dir(directory).map_err(|error| context().error("create the directory", directory, error))
        };
        create(&install)?;
        let mut digests = Vec::new();
        for part in package.archives() {
            let [download, scratch] = ["download", "scratch"].map(|name| partial.0.join(name));
            create(&download)?;
            create(&scratch)?;
            let context = Context { package: part, root: &self.root };
            let work = Work { context, limits: &self.limits, download, scratch };
            let archive = work.download(progress)?;
            digests.push(verify_archive(&work.context, &archive)?);
            unpack::unpack(&work, &archive, &install, progress)?;
            // The next archive needs the space.
            remove(&work.download);
            remove(&work.scratch);
        }

        let cannot_commit = |error| context().error("write the marker in", &install, error);
        let manifest = Manifest::of(package, digests.join(" "), &install).map_err(cannot_commit)?;
        manifest.write(&install.join(MARKER)).map_err(cannot_commit)?;
        for file in package.installed_files() {
            for directory in Path::new(file.name).ancestors().skip(1) {
                sync_directory(&install.join(directory));
            }
        }
        self.commit(&context(), &install, &partial.0.join("replaced"))
    }

    /// Gives the finished directory its final name. Until the rename there is nothing under that name, after it
    /// everything.
    fn commit(&self, context: &Context<'_>, install: &Path, replaced: &Path) -> Result<Installed> {
        let directory = self.directory(context.package);
        if directory.symlink_metadata().is_ok() {
            // It was found damaged. Processes that have its files open keep them.
            fs::rename(&directory, replaced).map_err(|error| context.error("move away", &directory, error))?;
        }
        if let Err(error) = fs::rename(install, &directory) {
            // Without locks another process may have been faster.
            return match self.find(context.package)? {
                Some(installed) => Ok(installed),
                None => Err(context.error("rename the finished installation to", &directory, error)),
            };
        }
        sync_directory(&self.root);
        Ok(Installed { directory, fresh: true })
    }

    fn rewrite_marker(&self, manifest: &Manifest, directory: &Path) -> io::Result<()> {
        let temporary = directory.join(format!(".{MARKER}.{}", unique()));
        let written = manifest.write(&temporary).and_then(|()| fs::rename(&temporary, directory.join(MARKER)));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    fn partial(&self) -> PathBuf {
        self.root.join(".partial")
    }

    /// Removes what killed processes left of this package. The caller holds the lock, so nobody is at work on it.
    fn remove_leftovers(&self, package: &Package) {
        let prefix = format!("{}.", package.key());
        for entry in fs::read_dir(self.partial()).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                // What cannot be removed costs space but is never used.
                remove(&entry.path());
            }
        }
    }
}

/// A directory for one installation under way, removed with its owner.
struct Partial(PathBuf);

impl Partial {
    fn create(parent: &Path, package: &Package) -> io::Result<Self> {
        let path = parent.join(format!("{}.{}", package.key(), unique()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes a directory in which a client that was just killed may still be creating files for a moment.
fn remove(directory: &Path) {
    for _ in 0..3 {
        if fs::remove_dir_all(directory).is_ok() {
            break;
        }
    }
}

/// Returns the archive's digest, if it is the pinned one or none is pinned.
fn verify_archive(context: &Context<'_>, archive: &Path) -> Result<String> {
    let package = context.package;
    let (found, found_size) = sha256_of_file(archive).map_err(|error| context.error("read the archive", archive, error))?;
    match package.archive_sha256 {
        Some(expected) if expected != found => Err(Error::ArchiveDigest {
            package: package.to_string(),
            archive: file_name(archive),
            expected,
            expected_size: package.archive_size,
            found,
            found_size,
        }),
        _ => Ok(found),
    }
}

/// A name no other process or thread uses: other machines may share the directory, so the time is in it too.
fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{}", process::id(), now.as_nanos(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Makes a rename or new names in a directory survive a power cut, where the system can.
fn sync_directory(path: &Path) {
    if cfg!(unix) {
        // Some file systems refuse to sync a directory; there is nothing to do about it.
        let _ = fs::File::open(path).and_then(|directory| directory.sync_all());
    }
}
