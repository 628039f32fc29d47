//! Administration of the compile cache: its files on the disk, listed, verified and removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use halite_core::{Platform, ProgramKey, Result};

use super::{
    ABANDONED, ASIDE, COMPILING, CompileCache, FORGOTTEN, LOADING, PARTIAL, SUFFIX,
    entry::{Entry, Header},
    failed, file,
};

/// A cached program.
#[derive(Clone, Debug)]
pub struct CacheEntry {
    /// The key.
    pub key: ProgramKey,
    /// The program's name.
    pub name: String,
    /// The platform that it was compiled for.
    pub platform: String,
    /// Size on the disk in bytes.
    pub bytes: u64,
    /// Compile time of the original compilation.
    pub compile_time: Duration,
    /// Time of the last insertion or load.
    pub used: SystemTime,
}

impl CompileCache {
    /// The cached programs, most recently used first. Other files are omitted.
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
                platform: Platform::current_name(&platform).to_owned(),
                bytes: file.bytes,
                compile_time,
                used: file.changed,
            });
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.used));
        Ok(entries)
    }

    /// Removes all files of the cache, and returns the number of programs and of bytes.
    ///
    /// # Errors
    /// If a file cannot be removed.
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

    /// The files of the cache besides programs.
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

    /// Removes files that killed processes left behind, an hour ago or more.
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

    /// Verifies all digests, of programs and of libraries.
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

    /// The reason why a program would not be used.
    fn verify_program(&self, path: &Path) -> Option<String> {
        let bytes = match file::read_trusted(path, self.limit, self.writes) {
            Ok(bytes) => bytes,
            Err(error) => return Some(error.to_string()),
        };
        let key = Header::of_file(path).map(|header| header.key);
        let is_of_name = |key: &ProgramKey| self.path_of(key) == path;
        match key {
            Ok(key) if !is_of_name(&key) => Some(format!("it contains the program {key}")),
            Ok(key) => Entry::parse(&bytes, &key).err(),
            Err(reason) => Some(reason),
        }
    }

    /// The files of the cache; other names are ignored.
    pub(super) fn files(&self) -> Result<Vec<OnDisk>> {
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
}

/// A file of the cache.
pub(super) struct OnDisk {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    pub(super) changed: SystemTime,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Program,
    Partial,
    Digest,
    Loading,
    Aside,
}

impl Kind {
    /// The kind by the complete name: a matching suffix alone is not enough.
    fn of_name(name: &str) -> Option<Self> {
        let stem = |suffix| name.strip_suffix(suffix);
        let keyed = |suffix| stem(suffix).is_some_and(|stem| file::is_hex(stem, 64));
        match () {
            () if keyed(SUFFIX) => Some(Kind::Program),
            () if keyed(LOADING) => Some(Kind::Loading),
            () if keyed(ASIDE) => Some(Kind::Aside),
            () if keyed(COMPILING) => Some(Kind::Partial),
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

    /// Returns whether it can be removed.
    pub(super) fn is_abandoned(&self) -> bool {
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
    /// Cached digests of plugins' libraries.
    pub digests: FileCount,
    /// Programs that are being written, or were by killed processes.
    pub partial: FileCount,
    /// Markers of loads in progress, and of loads that killed their process.
    pub markers: FileCount,
}

/// Result of [`CompileCache::verify`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verified {
    /// Number of files that were verified.
    pub files: usize,
    /// Files that would not be used.
    pub damaged: Vec<DamagedFile>,
}

/// A file that would not be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DamagedFile {
    /// The path.
    pub path: PathBuf,
    /// The problem.
    pub reason: String,
}

/// Files and their sizes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FileCount {
    /// Number of files.
    pub files: usize,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
}
