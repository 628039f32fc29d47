//! Compiled programs on the disk: what one process compiled, the next one loads.
//!
//! A directory holds one file for each program, named by its [key](ProgramKey). Files are written under another name and
//! renamed, so many processes may use one directory at once, and one that is killed leaves whole files only. Whatever is wrong
//! with a file, it is a miss: the program is compiled, and the file replaced. A file is never trusted to be what its name says:
//! the key stands in it too, under a digest.
//!
//! Serialized programs hold machine code, and a digest can be written by anybody. So the directory is made for its owner
//! alone, and only files are loaded that belong to the user of this process and that nobody else may write, except out of a
//! [read-only](Access::ReadOnly) cache, which the user vouches for by naming it.

mod entry;
mod file;
mod options;

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use halite_core::{Compiled, Error, ErrorKind, KeptProgram, ProgramCache, ProgramKey, Result};
use halite_fetch::{Bytes, Cache};
use sha2::{Digest, Sha256};

pub use options::{Access, CompileCacheOptions};

use crate::locate::Located;
use entry::{Entry, Header};

/// The directory within the cache directory.
const DIRECTORY: &str = "programs";
/// How the names of kept programs end.
const SUFFIX: &str = ".program";
/// How names end of what is being written, or was by a process that was killed.
const PARTIAL: &str = ".partial";
/// What is being written is not for so long.
const ABANDONED: Duration = Duration::from_secs(60 * 60);
/// So many programs are kept at most, also where they are small: every process that adds one looks at all.
const MOST: usize = 10_000;

/// Compiled programs in a directory, for any number of processes at once.
///
/// Clients that an [`Accelerator`](crate::Accelerator) opens have one. Any other client can be given one:
///
/// ```
/// use halite_backends::{Access, CompileCache, CompileCacheOptions};
/// use halite_core::{Client, Null};
///
/// # let directory = tempfile::tempdir()?;
/// let options = CompileCacheOptions { directory: Some(directory.path().into()), access: Access::ReadWrite, ..Default::default() };
/// let client = Client::new(Null::new(1));
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
    /// The library whose programs these are, if it is known; its digest is taken when it is first wanted.
    library: Option<Library>,
    /// Writing failed, and that was said.
    broken: AtomicBool,
    stored_bytes: AtomicU64,
    /// Of those, since the directory was last looked through for what is too much.
    unchecked_bytes: Mutex<Option<u64>>,
}

/// A plugin's library.
#[derive(Debug)]
struct Library {
    path: PathBuf,
    digest: OnceLock<String>,
}

/// A program that is kept.
#[derive(Clone, Debug)]
pub struct KeptEntry {
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
    /// Opens the cache that `options` describe, in the directory that they name or else in `packages`, the cache directory.
    /// Writes nothing yet. `None` if it is turned off, or if there is no directory for it.
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
            let message = format!("{} is to be read only, and is no directory; name one, or `off`", directory.display());
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
        }))
    }

    /// The same cache, whose keys hold the digest of this library too. It is taken from the table of known plugins, or of the
    /// file, when a program is first looked for.
    pub fn for_plugin(mut self, located: &Located) -> Self {
        let digest = located.plugin.map(|plugin| OnceLock::from(plugin.library.sha256.to_owned())).unwrap_or_default();
        self.library = Some(Library { path: located.path.clone(), digest });
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
    pub fn entries(&self) -> Result<Vec<KeptEntry>> {
        let mut entries = Vec::new();
        for file in self.files()?.into_iter().filter(|file| file.kind == Kind::Program) {
            let Ok(Header { key, name, platform, compile_time }) = Header::of_file(&file.path) else { continue };
            entries.push(KeptEntry { key, name, platform, bytes: file.bytes, compile_time, used: file.changed });
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

    /// Our files in the directory: other names are not looked at and never removed.
    fn files(&self) -> Result<Vec<OnDisk>> {
        let listed = match fs::read_dir(&self.directory) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed("read", &self.directory, &error)),
        };
        Ok(listed.flatten().filter_map(|listed| OnDisk::of(&listed)).collect())
    }

    /// The key under which a program of this library is kept.
    fn key_of(&self, key: &ProgramKey) -> io::Result<ProgramKey> {
        let Some(library) = &self.library else { return Ok(*key) };
        let digest = match library.digest.get() {
            Some(digest) => digest,
            None => {
                let digest = file::digest_of(&library.path, &self.directory, self.writes)?;
                library.digest.get_or_init(|| digest)
            }
        };
        Ok(ProgramKey(Sha256::new().chain_update(digest).chain_update(key.0).finalize().into()))
    }

    fn path_of(&self, key: &ProgramKey) -> PathBuf {
        self.directory.join(format!("{key}{SUFFIX}"))
    }

    /// Says once that nothing more will be written, and why.
    fn give_up(&self, error: &io::Error) {
        if !self.broken.swap(true, Relaxed) {
            tracing::warn!(
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

    /// Counts what was written, and sees to the limit: at the first time, and whenever it may have been passed by much.
    fn stored(&self, bytes: u64) {
        self.stored_bytes.fetch_add(bytes, Relaxed);
        let mut unchecked = self.unchecked_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let since = unchecked.map(|before| before + bytes);
        *unchecked = since.filter(|since| *since <= self.limit / 64).or(Some(0));
        if *unchecked == Some(0) {
            self.make_room();
        }
    }

    /// Removes what was not used for longest, until the rest is within the limits; and what killed processes left.
    fn make_room(&self) {
        let Ok(mut files) = self.files() else { return };
        let now = SystemTime::now();
        files.retain(|file| {
            let age = now.duration_since(file.changed).unwrap_or_default();
            let abandoned = file.kind == Kind::Partial && age > ABANDONED;
            !(abandoned && fs::remove_file(&file.path).is_ok())
        });
        let mut size: u64 = files.iter().map(|file| file.bytes).sum();
        files.retain(|file| file.kind == Kind::Program);
        files.sort_by_key(|file| file.changed);
        let mut count = files.len();
        for file in files {
            if size <= self.limit && count <= MOST {
                break;
            }
            // One that another process removed at the same time is gone as well.
            let gone = fs::remove_file(&file.path).map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |()| true);
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
    Error::new(ErrorKind::Io, OP, format!("cannot {what} {}: {error}", path.display()))
}

impl ProgramCache for CompileCache {
    fn find(&self, key: &ProgramKey) -> Option<KeptProgram> {
        let key = self.key_of(key).inspect_err(|error| self.give_up(error)).ok()?;
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
                    // When it was last used decides what makes room. If that cannot be noted, it goes earlier.
                    _ = file::touch(&path);
                }
                Some(KeptProgram { serialized: entry.payload.to_vec(), compile_time: entry.header.compile_time })
            }
            Err(reason) => {
                self.remove(&path, &reason);
                None
            }
        }
    }

    fn keep(&self, key: &ProgramKey, compiled: &Compiled<'_>, serialize: &dyn Fn() -> Result<Vec<u8>>) {
        if !self.writes || self.broken.load(Relaxed) {
            return;
        }
        let Ok(key) = self.key_of(key) else { return };
        let payload = match serialize() {
            Ok(payload) => payload,
            Err(error) => {
                tracing::debug!("`{}` is not kept: {error}", compiled.name);
                return;
            }
        };
        let bytes = Entry { header: Header::of(&key, compiled), payload: &payload }.to_bytes();
        if bytes.len() as u64 > self.limit {
            tracing::debug!("`{}` is not kept: {} is more than the whole cache", compiled.name, Bytes(bytes.len() as u64));
            return;
        }
        match self.write(&key, &bytes) {
            Ok(()) => self.stored(bytes.len() as u64),
            Err(error) => self.give_up(&error),
        }
    }

    fn refused(&self, key: &ProgramKey, reason: &Error) {
        if let Ok(key) = self.key_of(key) {
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
        write!(f, "CompileCache({}{})", self.directory.display(), if self.writes { "" } else { ", read only" })
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
}

impl OnDisk {
    fn of(listed: &fs::DirEntry) -> Option<Self> {
        let name = listed.file_name();
        let name = name.to_str()?;
        let kinds = [(SUFFIX, Kind::Program), (PARTIAL, Kind::Partial), (file::DIGEST, Kind::Digest)];
        let (_, kind) = kinds.into_iter().find(|(suffix, _)| name.ends_with(suffix))?;
        let metadata = listed.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(OnDisk { path: listed.path(), kind, bytes: metadata.len(), changed: metadata.modified().unwrap_or(UNIX_EPOCH) })
    }
}
