//! Cache of compiled programs on the disk: one process compiles, later ones load.
//!
//! A directory has one file per program, named by its [key](ProgramKey). A file is written under a
//! temporary name and renamed, so that several processes can use one directory and a killed process
//! leaves only complete files. Any problem with a file is a cache miss: the program is compiled and
//! the file replaced. Each file contains its key and a digest, both of which are checked.
//!
//! Serialized programs contain machine code, and anybody can write a digest. Therefore the
//! directory is created with access for its owner only, and a file is loaded only if it belongs to
//! the user of this process and nobody else may write it. The exception is a
//! [read-only](Access::ReadOnly) cache, which the user trusts by naming it.
//!
//! Files with other names are never read, counted or removed: the directory may contain the user's
//! own files.

mod compiling;
mod entry;
mod file;
mod fuzz;
mod listing;
mod loading;
mod lock;
mod options;

use std::{
    collections::HashMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use halite_core::{CachedProgram, Compiled, Error, ErrorKind, ProgramCache, ProgramKey, Result};
use halite_fetch::{Bytes, Cache};
use sha2::{Digest, Sha256};

pub(crate) use fuzz::{entry as fuzz_entry, entry_seeds as fuzz_entry_seeds, size as fuzz_size};
pub use listing::{CacheEntry, DamagedFile, FileCount, OtherFiles, Verified};
pub use options::{Access, CompileCacheOptions, parse_bytes};

use crate::locate::Located;
use entry::{Entry, Header};
use listing::Kind;
use loading::Begun;
use lock::Locked;

/// The directory within the cache directory.
const DIRECTORY: &str = "programs";
/// Suffix of cached programs.
const SUFFIX: &str = ".program";
/// Suffix of files that are being written, or were by a process that was killed.
const PARTIAL: &str = ".partial";
/// Suffix of markers: of a load in progress, or of one that killed its process.
const LOADING: &str = ".loading";
/// Suffix of locks of programs that are being compiled.
const COMPILING: &str = ".compiling";
/// Longest wait for another process that compiles a program.
const PATIENCE: Duration = Duration::from_secs(600);
/// Suffix of notes about programs whose load killed a process.
const ASIDE: &str = ".aside";
/// Number of processes that a program's load may kill before the program is not cached again.
const DEATHS: u32 = 2;
/// Time after which notes about killed processes are removed.
const FORGOTTEN: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Age at which a partial file is abandoned.
const ABANDONED: Duration = Duration::from_secs(60 * 60);
/// Maximum number of programs, however small: each insertion lists the directory.
const MOST: usize = 10_000;

/// A cache of compiled programs in a directory, which any number of processes can use at once.
///
/// Clients that an [`Accelerator`](crate::Accelerator) opens have one. For any other client:
///
/// ```
/// use halite_backends::{CompileCache, CompileCacheOptions};
/// use halite_core::{Client, Null};
/// use halite_telemetry::ClientMetrics;
///
/// # let directory = tempfile::tempdir()?;
/// let options = CompileCacheOptions {
///     directory: Some(directory.path().into()),
///     ..CompileCacheOptions::default()
/// };
/// let client = Client::new(Null::new(1)).measured();
/// let client = match CompileCache::open(&options, None)? {
///     Some(cache) => client.with_program_cache(std::sync::Arc::new(cache)),
///     None => client, // the cache is off
/// };
/// assert_eq!(client.counters().snapshot().cache_hits, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CompileCache {
    directory: PathBuf,
    writes: bool,
    limit: u64,
    /// The plugin's library, if it is known. Its digest is computed on first use.
    library: Option<Library>,
    /// True once writing failed, which is logged once.
    broken: AtomicBool,
    stored_bytes: AtomicU64,
    /// Bytes stored since the limit was last enforced; `None` if it never was.
    unchecked_bytes: Mutex<Option<u64>>,
    /// Programs that were found and are being loaded.
    loading: Mutex<HashMap<ProgramKey, Loads>>,
    /// Programs that this process compiles.
    compiling: Mutex<HashMap<ProgramKey, Locked>>,
}

/// Loads of one program in progress, of several threads.
#[derive(Debug)]
struct Loads {
    count: usize,
    /// Removed with the last of them; `None` if the load is not marked.
    marker: Option<Locked>,
}

/// A plugin's library.
#[derive(Debug)]
struct Library {
    path: PathBuf,
    digest: OnceLock<String>,
}

impl CompileCache {
    /// Opens the cache described by `options`, in their directory or else in `packages`, the cache
    /// directory. Writes nothing yet. Returns `None` if the cache is off, or if no cache directory
    /// is known.
    ///
    /// # Errors
    /// If the directory of a read-only cache does not exist.
    pub fn open(options: &CompileCacheOptions, packages: Option<&Path>) -> Result<Option<Self>> {
        let writes = match options.access {
            Access::Off => return Ok(None),
            Access::ReadOnly => false,
            Access::ReadWrite => true,
        };
        let directory = match &options.directory {
            Some(directory) => std::path::absolute(directory).unwrap_or_else(|_| directory.clone()),
            None => match Cache::open(packages) {
                Ok(cache) => cache.root().join(DIRECTORY),
                Err(error) => {
                    tracing::debug!("compiled programs are not cached: {error}");
                    return Ok(None);
                }
            },
        };
        if !writes && options.directory.is_some() && !directory.is_dir() {
            let message = format!(
                "the read-only cache {} is not a directory; name a directory, or use `off`",
                directory.display()
            );
            return Err(Error::new(ErrorKind::Unavailable, OP, message));
        }
        Ok(Some(CompileCache {
            directory,
            writes,
            limit: options.limit,
            library: None,
            broken: AtomicBool::new(false),
            stored_bytes: AtomicU64::new(0),
            unchecked_bytes: Mutex::new(None),
            loading: Mutex::default(),
            compiling: Mutex::default(),
        }))
    }

    /// Returns the same cache with the digest of this library as a part of its keys. The digest is
    /// that of the table of known plugins, or is computed from the file on first use.
    pub fn for_plugin(mut self, located: &Located) -> Self {
        let digest = located
            .plugin
            .map(|plugin| OnceLock::from(plugin.library.sha256.to_owned()))
            .unwrap_or_default();
        self.library = Some(Library {
            path: located.path.clone(),
            digest,
        });
        self
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Maximum size on the disk in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that this process inserted.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Relaxed)
    }

    /// The key of a program of this library.
    fn key_of(&self, key: &ProgramKey) -> io::Result<ProgramKey> {
        let Some(library) = &self.library else {
            return Ok(*key);
        };
        let digest = match library.digest.get() {
            Some(digest) => digest,
            None => {
                let digest = file::digest_of(&library.path, &self.directory, self.writes)?;
                library.digest.get_or_init(|| digest)
            }
        };
        Ok(ProgramKey(
            Sha256::new()
                .chain_update(digest)
                .chain_update(key.0)
                .finalize()
                .into(),
        ))
    }

    fn path_of(&self, key: &ProgramKey) -> PathBuf {
        self.named(key, SUFFIX)
    }

    fn named(&self, key: &ProgramKey, suffix: &str) -> PathBuf {
        self.directory.join(format!("{key}{suffix}"))
    }

    /// Marks the load of a program. Returns false if the last load killed its process; the program
    /// is then removed, and may be inserted once more.
    fn begin_load(&self, key: &ProgramKey, name: &str) -> bool {
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loads) = loading.get_mut(key) {
            loads.count += 1;
            return true;
        }
        let mut begun = |marker| {
            loading.insert(*key, Loads { count: 1, marker });
            true
        };
        match loading::begin(&self.named(key, LOADING)) {
            Begun::Marked(marker) => begun(Some(marker)),
            Begun::Unmarked => begun(None),
            Begun::Died(_marker, by) => {
                let note = self.named(key, ASIDE);
                let times = loading::times_aside(&note) + 1;
                halite_core::warning!(
                    "{by} ended while it loaded the compiled program `{name}` ({key}); the \
                     program is compiled again"
                );
                // Before the marker is removed, so that no process finds the program without it.
                let removed = fs::remove_file(self.path_of(key));
                if let Err(error) =
                    removed.and_then(|()| file::replace(&note, format!("{times}\n").as_bytes()))
                {
                    tracing::debug!("{} is not set aside: {error}", self.path_of(key).display());
                }
                false
            }
        }
    }

    /// The turn to compile a program, if this process has it.
    fn end_turn(&self, key: &ProgramKey) -> Option<Locked> {
        let mut compiling = self
            .compiling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        compiling.remove(key)
    }

    /// Ends a load. Returns whether it was the last one in progress, and was marked.
    fn end_load(&self, key: &ProgramKey) -> bool {
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(loads) = loading.get_mut(key) else {
            return false;
        };
        loads.count -= 1;
        let is_last = loads.count == 0;
        is_last
            && loading
                .remove(key)
                .is_some_and(|loads| loads.marker.is_some())
    }

    /// Logs once that writing failed; nothing more is written.
    fn give_up(&self, error: &io::Error) {
        if !self.broken.swap(true, Relaxed) {
            halite_core::warning!(
                "compiled programs are not cached: {}: {error}. Training continues; set \
                 HALITE_COMPILE_CACHE to another directory, or to `off`, to silence this warning",
                self.directory.display()
            );
        }
    }

    fn write(&self, key: &ProgramKey, bytes: &[u8]) -> io::Result<()> {
        file::create_for_owner(&self.directory)?;
        file::replace(&self.path_of(key), bytes)
    }

    /// Counts stored bytes, and enforces the limit: at the first insertion, and whenever it may be
    /// exceeded by more than 1/64.
    fn stored(&self, bytes: u64) {
        self.stored_bytes.fetch_add(bytes, Relaxed);
        let mut unchecked = self
            .unchecked_bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let since = unchecked.map(|before| before + bytes);
        *unchecked = since.filter(|since| *since <= self.limit / 64).or(Some(0));
        if *unchecked == Some(0) {
            self.make_room();
        }
    }

    /// Removes the least recently used programs until the rest is within the limits, and abandoned
    /// files.
    fn make_room(&self) {
        let Ok(mut files) = self.files() else { return };
        files.retain(|file| !(file.is_abandoned() && fs::remove_file(&file.path).is_ok()));
        let mut size: u64 = files.iter().map(|file| file.bytes).sum();
        files.retain(|file| file.kind == Kind::Program);
        files.sort_by_key(|file| file.changed);
        let mut count = files.len();
        for file in files {
            if size <= self.limit && count <= MOST {
                break;
            }
            // Another process may have removed it at the same time.
            let gone = fs::remove_file(&file.path)
                .map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true);
            if gone {
                tracing::debug!(file = %file.path.display(), "removed to make room");
                size -= file.bytes;
                count -= 1;
            }
        }
    }
}

const OP: &str = "compile cache";

fn failed(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::new(
        ErrorKind::Io,
        OP,
        format!("cannot {what} {}: {error}", path.display()),
    )
}

impl ProgramCache for CompileCache {
    fn find(&self, key: &ProgramKey) -> Option<CachedProgram> {
        let key = self
            .key_of(key)
            .inspect_err(|error| self.give_up(error))
            .ok()?;
        let path = self.path_of(&key);
        let bytes = match file::read_trusted(&path, self.limit, self.writes) {
            Ok(bytes) => bytes,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::debug!("{} is not used: {error}", path.display());
                }
                return None;
            }
        };
        match Entry::parse(&bytes, &key) {
            Ok(entry) => {
                if self.writes {
                    if !self.begin_load(&key, &entry.header.name) {
                        return None;
                    }
                    // The time of the last use decides what is removed first. If it cannot be set,
                    // the program is removed earlier.
                    _ = file::touch(&path);
                }
                Some(CachedProgram {
                    serialized: entry.payload.to_vec(),
                    compile_time: entry.header.compile_time,
                })
            }
            Err(reason) => {
                self.remove(&path, &reason);
                None
            }
        }
    }

    fn begin(&self, key: &ProgramKey) -> bool {
        if !self.writes || self.broken.load(Relaxed) {
            return false;
        }
        let Ok(key) = self.key_of(key) else {
            return false;
        };
        if file::create_for_owner(&self.directory).is_err() {
            return false;
        }
        let (turn, has_waited) = compiling::wait(&self.named(&key, COMPILING), PATIENCE);
        // Where another process could not store it, those that have waited compile at once.
        if let Some(turn) = turn.filter(|_| !has_waited) {
            let mut compiling = self
                .compiling
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            compiling.insert(key, turn);
        }
        has_waited
    }

    fn failed(&self, key: &ProgramKey) {
        if let Ok(key) = self.key_of(key) {
            self.end_turn(&key);
        }
    }

    fn insert(
        &self,
        key: &ProgramKey,
        compiled: &Compiled<'_>,
        serialize: &dyn Fn() -> Result<Vec<u8>>,
    ) {
        let Ok(key) = self.key_of(key) else { return };
        // Until it is stored.
        let _turn = self.end_turn(&key);
        if !self.writes || self.broken.load(Relaxed) {
            return;
        }
        if loading::times_aside(&self.named(&key, ASIDE)) >= DEATHS {
            tracing::debug!(
                "`{}` is not cached: loading it killed {DEATHS} processes",
                compiled.name
            );
            return;
        }
        let payload = match serialize() {
            Ok(payload) => payload,
            Err(error) => {
                tracing::debug!("`{}` is not cached: {error}", compiled.name);
                return;
            }
        };
        let bytes = Entry {
            header: Header::of(&key, compiled),
            payload: &payload,
        }
        .to_bytes();
        if bytes.len() as u64 > self.limit {
            tracing::debug!(
                "`{}` is not cached: its {} exceed the limit of the cache",
                compiled.name,
                Bytes(bytes.len() as u64)
            );
            return;
        }
        match self.write(&key, &bytes) {
            Ok(()) => self.stored(bytes.len() as u64),
            Err(error) => self.give_up(&error),
        }
    }

    fn loaded(&self, key: &ProgramKey) {
        if let Ok(key) = self.key_of(key)
            && self.end_load(&key)
        {
            // The load succeeded, so earlier deaths had another cause.
            _ = fs::remove_file(self.named(&key, ASIDE));
        }
    }

    fn rejected(&self, key: &ProgramKey, reason: &Error) {
        if let Ok(key) = self.key_of(key) {
            self.end_load(&key);
            self.remove(&self.path_of(&key), reason);
        }
    }
}

impl CompileCache {
    /// Removes a damaged file, so that it is not read repeatedly.
    fn remove(&self, path: &Path, reason: &dyn fmt::Display) {
        tracing::debug!("{} is not used: {reason}", path.display());
        if self.writes {
            // A file that cannot be removed is replaced once the program is compiled.
            _ = fs::remove_file(path);
        }
    }
}

impl fmt::Debug for CompileCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CompileCache({}{})",
            self.directory.display(),
            if self.writes { "" } else { ", read only" }
        )
    }
}
