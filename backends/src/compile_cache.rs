//! Compiled programs on the disk: what one process compiled, the next one loads.
//!
//! A directory holds one file for each program, named by its [key](ProgramKey). Files are written
//! under another name and renamed, so many processes may use one directory at once, and one that is
//! killed leaves whole files only. Whatever is wrong with a file, it is a miss: the program is
//! compiled, and the file replaced. A file is never trusted to be what its name says: the key
//! stands in it too, under a digest.
//!
//! Serialized programs hold machine code, and a digest can be written by anybody. So the directory
//! is made for its owner alone, and only files are loaded that belong to the user of this process
//! and that nobody else may write, except out of a [read-only](Access::ReadOnly) cache, which the
//! user vouches for by naming it.
//!
//! Files of other names than those given here are never read, counted or removed: the directory may
//! be the user's own.

mod entry;
mod file;
mod fuzz;
mod loading;
mod options;

use std::{
    collections::HashMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use halite_core::{CachedProgram, Compiled, Error, ErrorKind, ProgramCache, ProgramKey, Result};
use halite_fetch::{Bytes, Cache};
use sha2::{Digest, Sha256};

pub(crate) use fuzz::{entry as fuzz_entry, entry_seeds as fuzz_entry_seeds, size as fuzz_size};
pub use options::{Access, CompileCacheOptions};

use crate::locate::Located;
use entry::{Entry, Header};
use loading::{Begun, Loading};

/// The directory within the cache directory.
const DIRECTORY: &str = "programs";
/// How the names of kept programs end.
const SUFFIX: &str = ".program";
/// How names end of what is being written, or was by a process that was killed.
const PARTIAL: &str = ".partial";
/// How names of markers end: of a load under way, or of one that killed its process.
const LOADING: &str = ".loading";
/// How names of notes end, of programs whose load killed a process.
const ASIDE: &str = ".aside";
/// Number of processes that a program's load may kill before it is not kept again.
const DEATHS: u32 = 2;
/// Time after which notes of deaths are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// What is being written is not for so long.
const ABANDONED: Duration = Duration::from_secs(60 * 60);
/// So many programs are kept at most, also where they are small: every process that adds one looks
/// at all.
const MOST: usize = 10_000;

/// Compiled programs in a directory, for any number of processes at once.
///
/// Clients that an [`Accelerator`](crate::Accelerator) opens have one. Any other client can be
/// given one:
///
/// ```
/// use halite_backends::{Access, CompileCache, CompileCacheOptions};
/// use halite_core::{Client, Null};
/// use halite_telemetry::ClientMetrics;
///
/// # let directory = tempfile::tempdir()?;
/// let options = CompileCacheOptions { directory: Some(directory.path().into()), access: Access::ReadWrite, ..Default::default() };
/// let client = Client::new(Null::new(1)).measured();
/// let client = match CompileCache::open(&options, None)? {
///     Some(cache) => client.with_program_cache(std::sync::Arc::new(cache)),
///     None => client, // it is turned off
/// };
/// assert_eq!(client.counters().snapshot().cache_hits, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CompileCache {
    directory: PathBuf,
    writes: bool,
    limit: u64,
    /// The library whose programs these are, if it is known; its digest is taken when it is first
    /// wanted.
    library: Option<Library>,
    /// Writing failed, and that was said.
    broken: AtomicBool,
    stored_bytes: AtomicU64,
    /// Of those, since the directory was last looked through for what is too much.
    unchecked_bytes: Mutex<Option<u64>>,
    /// Programs that were given out and are being loaded.
    loading: Mutex<HashMap<ProgramKey, Loading>>,
}

/// A plugin's library.
#[derive(Debug)]
struct Library {
    path: PathBuf,
    digest: OnceLock<String>,
}

/// A program that is kept.
#[derive(Clone, Debug)]
pub struct CacheEntry {
    /// Its key.
    pub key: ProgramKey,
    /// The program's name.
    pub name: String,
    /// The platform it is for.
    pub platform: String,
    /// Bytes on the disk.
    pub bytes: u64,
    /// How long compiling it took.
    pub compile_time: Duration,
    /// When it was last taken out or put in.
    pub used: SystemTime,
}

impl CompileCache {
    /// Opens the cache that `options` describe, in the directory that they name or else in
    /// `packages`, the cache directory. Writes nothing yet. `None` if it is turned off, or if there
    /// is no directory for it.
    ///
    /// # Errors
    /// If a directory that is to be read only is not there.
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
                    tracing::debug!("compiled programs are not kept: {error}");
                    return Ok(None);
                }
            },
        };
        if !writes && options.directory.is_some() && !directory.is_dir() {
            let message = format!(
                "{} is to be read only, and is no directory; name one, or `off`",
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
        }))
    }

    /// The same cache, whose keys hold the digest of this library too. It is taken from the table
    /// of known plugins, or of the file, when a program is first looked for.
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

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Bytes that it may take on the disk.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that this process put in.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Relaxed)
    }

    /// What is kept, the last used first. Files that are no kept programs are left out.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn entries(&self) -> Result<Vec<CacheEntry>> {
        let mut entries = Vec::new();
        for file in self
            .files()?
            .into_iter()
            .filter(|file| file.kind == Kind::Program)
        {
            let Ok(Header {
                key,
                name,
                platform,
                compile_time,
            }) = Header::of_file(&file.path)
            else {
                continue;
            };
            entries.push(CacheEntry {
                key,
                name,
                platform,
                bytes: file.bytes,
                compile_time,
                used: file.changed,
            });
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        Ok(entries)
    }

    /// Removes everything that is kept; returns how many programs and bytes that were.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn clear(&self) -> Result<(usize, u64)> {
        let (mut count, mut bytes) = (0, 0);
        for file in self.files()? {
            match fs::remove_file(&file.path) {
                Ok(()) => {
                    count += usize::from(file.kind == Kind::Program);
                    bytes += file.bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("remove", &file.path, &error)),
            }
        }
        Ok((count, bytes))
    }

    /// What there is besides programs.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn other_files(&self) -> Result<OtherFiles> {
        let mut other = OtherFiles::default();
        for file in self.files()? {
            let count = match file.kind {
                Kind::Program => continue,
                Kind::Partial => &mut other.partial,
                Kind::Digest => &mut other.digests,
                Kind::Loading | Kind::Aside => &mut other.markers,
            };
            count.files += 1;
            count.bytes += file.bytes;
        }
        Ok(other)
    }

    /// Removes what processes left that were killed while they wrote, an hour ago or more.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn remove_abandoned(&self) -> Result<FileCount> {
        let mut removed = FileCount::default();
        for file in self.files()?.iter().filter(|file| file.is_abandoned()) {
            if fs::remove_file(&file.path).is_ok() {
                removed.files += 1;
                removed.bytes += file.bytes;
            }
        }
        Ok(removed)
    }

    /// Takes all digests again, of programs and of the libraries whose digests are remembered.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn verify(&self) -> Result<Verified> {
        let mut verified = Verified::default();
        for file in self.files()? {
            let reason = match file.kind {
                Kind::Program => self.verify_program(&file.path),
                Kind::Digest => {
                    file::verify_digest(&file.path).unwrap_or_else(|error| Some(error.to_string()))
                }
                Kind::Partial | Kind::Loading | Kind::Aside => continue,
            };
            verified.files += 1;
            verified.damaged.extend(reason.map(|reason| DamagedFile {
                path: file.path,
                reason,
            }));
        }
        Ok(verified)
    }

    /// Why a program would not be used.
    fn verify_program(&self, path: &Path) -> Option<String> {
        let bytes = match file::read_trusted(path, self.limit, self.writes) {
            Ok(bytes) => bytes,
            Err(error) => return Some(error.to_string()),
        };
        let key = Header::of_file(path).map(|header| header.key);
        let is_of_name = |key: &ProgramKey| self.path_of(key) == path;
        match key {
            Ok(key) if !is_of_name(&key) => Some(format!("it is the program {key}")),
            Ok(key) => Entry::parse(&bytes, &key).err(),
            Err(reason) => Some(reason),
        }
    }

    /// Our files in the directory: other names are not looked at and never removed.
    fn files(&self) -> Result<Vec<OnDisk>> {
        let listed = match fs::read_dir(&self.directory) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed("read", &self.directory, &error)),
        };
        Ok(listed
            .flatten()
            .filter_map(|listed| OnDisk::of(&listed))
            .collect())
    }

    /// The key under which a program of this library is kept.
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

    /// Marks the load of a program that is about to be given out. `false` if the last one killed
    /// its process: the program is gone then, and may be kept once more.
    fn begin_load(&self, key: &ProgramKey, name: &str) -> bool {
        match loading::begin(&self.named(key, LOADING)) {
            Begun::Marked(marker) => {
                self.loading
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(*key, marker);
                true
            }
            Begun::Unmarked => true,
            Begun::Died(_marker, by) => {
                let note = self.named(key, ASIDE);
                let times = loading::times_aside(&note) + 1;
                halite_core::warning!(
                    "{by} ended while it loaded the compiled program `{name}` ({key}); it is compiled again"
                );
                // Before the marker goes, so that no process finds the program without it.
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

    fn end_load(&self, key: &ProgramKey) -> Option<Loading> {
        self.loading
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key)
    }

    /// Says once that nothing more will be written, and why.
    fn give_up(&self, error: &io::Error) {
        if !self.broken.swap(true, Relaxed) {
            halite_core::warning!(
                "compiled programs are not kept: {}: {error}. Training goes on; HALITE_COMPILE_CACHE=off, or =PATH of another \
                 directory, ends this message",
                self.directory.display()
            );
        }
    }

    fn write(&self, key: &ProgramKey, bytes: &[u8]) -> io::Result<()> {
        file::create_for_owner(&self.directory)?;
        file::replace(&self.path_of(key), bytes)
    }

    /// Counts what was written, and sees to the limit: at the first time, and whenever it may have
    /// been passed by much.
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

    /// Removes what was not used for longest, until the rest is within the limits; and what killed
    /// processes left.
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
            // One that another process removed at the same time is gone as well.
            let gone = fs::remove_file(&file.path)
                .map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true);
            if gone {
                tracing::debug!(file = %file.path.display(), "a compiled program makes room");
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
                    // When it was last used decides what makes room. If that cannot be noted, it
                    // goes earlier.
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

    fn insert(
        &self,
        key: &ProgramKey,
        compiled: &Compiled<'_>,
        serialize: &dyn Fn() -> Result<Vec<u8>>,
    ) {
        if !self.writes || self.broken.load(Relaxed) {
            return;
        }
        let Ok(key) = self.key_of(key) else { return };
        if loading::times_aside(&self.named(&key, ASIDE)) >= DEATHS {
            tracing::debug!(
                "`{}` is not kept: loading it killed {DEATHS} processes",
                compiled.name
            );
            return;
        }
        let payload = match serialize() {
            Ok(payload) => payload,
            Err(error) => {
                tracing::debug!("`{}` is not kept: {error}", compiled.name);
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
                "`{}` is not kept: {} is more than the whole cache",
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
            && self.end_load(&key).is_some()
        {
            // It loads, after all.
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
    /// What is damaged goes, so that it is not read again and again.
    fn remove(&self, path: &Path, reason: &dyn fmt::Display) {
        tracing::debug!("{} is not used: {reason}", path.display());
        if self.writes {
            // What cannot be removed is replaced once the program is compiled.
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

/// A file of ours in the directory.
struct OnDisk {
    path: PathBuf,
    kind: Kind,
    bytes: u64,
    changed: SystemTime,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Program,
    Partial,
    Digest,
    Loading,
    Aside,
}

impl Kind {
    /// By the whole form of the name: what only ends as ours does is somebody else's.
    fn of_name(name: &str) -> Option<Self> {
        let stem = |suffix| name.strip_suffix(suffix);
        let keyed = |suffix| stem(suffix).is_some_and(|stem| file::is_hex(stem, 64));
        match () {
            () if keyed(SUFFIX) => Some(Kind::Program),
            () if keyed(LOADING) => Some(Kind::Loading),
            () if keyed(ASIDE) => Some(Kind::Aside),
            () if stem(file::DIGEST).is_some_and(|stem| file::is_hex(stem, 32)) => {
                Some(Kind::Digest)
            }
            () if stem(PARTIAL).is_some_and(file::is_partial) => Some(Kind::Partial),
            () => None,
        }
    }
}

impl OnDisk {
    fn of(listed: &fs::DirEntry) -> Option<Self> {
        let kind = Kind::of_name(listed.file_name().to_str()?)?;
        let metadata = listed.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(OnDisk {
            path: listed.path(),
            kind,
            bytes: metadata.len(),
            changed: metadata.modified().unwrap_or(UNIX_EPOCH),
        })
    }

    /// Whether it is of no use any more.
    fn is_abandoned(&self) -> bool {
        let age = SystemTime::now()
            .duration_since(self.changed)
            .unwrap_or_default();
        match self.kind {
            Kind::Partial => age > ABANDONED,
            Kind::Loading | Kind::Aside => age > FORGOTTEN,
            Kind::Program | Kind::Digest => false,
        }
    }
}

/// Files of a compile cache besides programs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OtherFiles {
    /// Remembered digests of plugins' libraries.
    pub digests: FileCount,
    /// Programs that are being written, or were by processes that were killed.
    pub partial: FileCount,
    /// Markers of loads under way, and of loads that killed their process.
    pub markers: FileCount,
}

/// Result of taking the digests of a compile cache again.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verified {
    /// Number of files whose digests were taken.
    pub files: usize,
    /// Those of them that are not used as they are.
    pub damaged: Vec<DamagedFile>,
}

/// A file that would not be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DamagedFile {
    /// Its path.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Files and their sizes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FileCount {
    /// How many.
    pub files: usize,
    /// Bytes of all of them.
    pub bytes: u64,
}
