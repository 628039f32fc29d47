//! The contents of a cache directory: listing, verification and removal.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    cache::{Cache, is_key, key_of_partial, remove, unique},
    error::{Error, Result},
    lock::Lock,
    manifest::{Manifest, sha256_of_file},
    package::MARKER,
};

/// One directory of a cache.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The name in the cache.
    pub name: String,
    /// The kind.
    pub kind: StoredKind,
    /// The path.
    pub path: PathBuf,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Time of installation or of the last change.
    pub changed: SystemTime,
    key: String,
}

/// Kind of a directory in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredKind {
    /// An installed package: its name, version and client according to its marker.
    Package(String),
    /// An installation.
    Partial {
        /// True if it is in progress; otherwise a killed process left it.
        in_use: bool,
    },
}

impl Cache {
    /// Lists the directories, packages first. Names that this crate does not create are omitted.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn stored(&self) -> Result<Vec<Stored>> {
        let mut stored = Vec::new();
        for (name, path) in directories(self.root())? {
            // Without a marker it may belong to another program.
            if is_key(&name)
                && let Ok(manifest) = Manifest::read(&path)
            {
                let kind = StoredKind::Package(manifest.package);
                stored.push(Stored::new(name.clone(), kind, path, name));
            }
        }
        for (name, path) in directories(&self.partial())? {
            if let Some(key) = key_of_partial(&name).map(String::from) {
                let kind = StoredKind::Partial {
                    in_use: Lock::if_free(&self.lock_of(&key)).is_none(),
                };
                stored.push(Stored::new(name, kind, path, key));
            }
        }
        Ok(stored)
    }

    /// Removes a directory that [`stored`](Self::stored) has listed. Returns `false` if another
    /// process is installing it.
    ///
    /// # Errors
    ///
    /// When it cannot be removed.
    pub fn remove(&self, stored: &Stored) -> Result<bool> {
        let Some(_lock) = Lock::if_free(&self.lock_of(&stored.key)) else {
            return Ok(false);
        };
        let gone = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Ok(true),
            _ => Err(Error::Io {
                action: "remove",
                path: stored.path.clone(),
                source: error,
            }),
        };
        if matches!(stored.kind, StoredKind::Partial { .. }) {
            return fs::remove_dir_all(&stored.path).map_or_else(gone, |()| Ok(true));
        }
        // Renamed first, so that a partial package never has its name.
        let aside = self.partial().join(format!("{}.{}", stored.key, unique()));
        let moved =
            fs::create_dir_all(self.partial()).and_then(|()| fs::rename(&stored.path, &aside));
        match moved {
            Ok(()) => {
                remove(&aside);
                Ok(true)
            }
            Err(error) => gone(error),
        }
    }
}

impl Stored {
    fn new(name: String, kind: StoredKind, path: PathBuf, key: String) -> Self {
        let (mut bytes, mut changed) = (0, SystemTime::UNIX_EPOCH);
        add(&path, &mut bytes, &mut changed);
        Stored {
            name,
            kind,
            path,
            bytes,
            changed,
            key,
        }
    }

    /// Compares the digests of all files of a package with those in its marker. Returns the damage,
    /// if there is any; installations in progress are not verified.
    ///
    /// # Errors
    ///
    /// When a file cannot be read.
    pub fn verify(&self) -> Result<Option<String>> {
        if matches!(self.kind, StoredKind::Partial { .. }) {
            return Ok(None);
        }
        let manifest = match Manifest::read(&self.path) {
            Ok(manifest) => manifest,
            Err(error) => return Ok(Some(format!("{MARKER}: {error}"))),
        };
        for entry in manifest.files {
            let path = self.path.join(&entry.name);
            match sha256_of_file(&path) {
                Ok((digest, size)) if (&digest, size) == (&entry.sha256, entry.size) => {}
                Ok((digest, size)) => {
                    let (name, want) = (&entry.name, &entry.sha256);
                    let found = format!("{name} has {size} bytes with SHA-256 {digest}");
                    return Ok(Some(format!(
                        "{found} instead of {} with {want}",
                        entry.size
                    )));
                }
                Err(error)
                    if [io::ErrorKind::NotFound, io::ErrorKind::InvalidInput]
                        .contains(&error.kind()) =>
                {
                    return Ok(Some(format!("{}: {error}", entry.name)));
                }
                Err(source) => {
                    return Err(Error::Io {
                        action: "read",
                        path,
                        source,
                    });
                }
            }
        }
        Ok(None)
    }
}

/// Names and paths of the directories in one, sorted.
fn directories(parent: &Path) -> Result<Vec<(String, PathBuf)>> {
    let listed = match fs::read_dir(parent) {
        Ok(listed) => listed,
        Err(error)
            if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) =>
        {
            return Ok(Vec::new());
        }
        Err(source) => {
            return Err(Error::Io {
                action: "list",
                path: parent.into(),
                source,
            });
        }
    };
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let listed = listed.flatten().filter(is_directory);
    let mut found: Vec<_> = listed
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect();
    found.sort();
    Ok(found)
}

/// Sums the sizes of all files below a directory, and finds the last change.
fn add(directory: &Path, bytes: &mut u64, changed: &mut SystemTime) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => add(&entry.path(), bytes, changed),
            Ok(metadata) => {
                *bytes += metadata.len();
                *changed = metadata.modified().unwrap_or(*changed).max(*changed);
            }
            // Removed meanwhile.
            Err(_) => {}
        }
    }
}
