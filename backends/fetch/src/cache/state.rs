//! Verification of installed files.

use std::{fs, io, path::Path};

use super::{Cache, Check, Installed, State, install::protect, unique};
use crate::{
    error::{Error, Result},
    files::replaceable_by_others,
    manifest::{Entry, Manifest, Stamp, sha256_of_file},
    package::{FileSpec, MARKER, Package},
};

impl Cache {
    /// Determines the state of a package without changing its files. (A quick check that had to
    /// take a digest writes the new times of the file to the marker, if it may.)
    ///
    /// # Errors
    ///
    /// If the system cannot read existing files; [`Error::Replaceable`] for libraries and programs
    /// that another user could replace between this check and their use.
    pub fn state(&self, package: &Package, check: Check) -> Result<State> {
        let directory = self.directory(package);
        let mut manifest = match Manifest::read(&directory) {
            Ok(manifest) => manifest,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.exists() => {
                return Ok(State::Absent);
            }
            // A cache below a file is empty; an installation reports that it cannot be written.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(State::Absent),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Error::Io {
                    action: "read",
                    path: directory.join(MARKER),
                    source: error,
                });
            }
            Err(error) => return Ok(State::Damaged(format!("{MARKER}: {error}"))),
        };
        if !manifest.agrees_with(package) {
            return Ok(State::Damaged(format!("{MARKER} lists other files")));
        }
        // Times in the marker are as trustworthy as the protection of the marker.
        let replaceable = self.replaceable(package, &directory)?;
        if let Some(reason) = &replaceable
            && package.has_code()
        {
            return Err(Error::replaceable(package, reason));
        }
        let trusts_times = replaceable.is_none();
        let mut touched = false;
        for (entry, file) in manifest.files.iter_mut().zip(package.installed_files()) {
            let path = directory.join(&entry.name);
            let stamp = entry.stamp;
            if let Some(damage) = verify(entry, file, &path, check, trusts_times)? {
                return Ok(State::Damaged(damage));
            }
            touched |= entry.stamp != stamp;
        }
        if touched {
            // This only saves later work, so a read-only cache is not an error.
            let _ = rewrite_marker(&manifest, &directory);
        }
        Ok(State::Installed(Installed {
            directory,
            fresh: false,
        }))
    }

    /// Returns an error if other users could replace what is at `path` in the cache, or what is in
    /// the directory of a package with libraries or programs there.
    pub(super) fn check_replaceable(&self, package: &Package, path: &Path) -> Result<()> {
        if !package.has_code() {
            return Ok(());
        }
        match self.replaceable(package, path)? {
            Some(reason) => Err(Error::replaceable(package, &reason)),
            None => Ok(()),
        }
    }

    /// Returns why other users could replace the files of a package in `directory`, if they could.
    fn replaceable(&self, package: &Package, directory: &Path) -> Result<Option<String>> {
        let names = package.installed_files().map(|file| file.name);
        let files = names.chain([MARKER]).map(|name| directory.join(name));
        let paths: Vec<_> = files.chain([directory.to_path_buf()]).collect();
        replaceable_by_others(self.root(), &paths).map_err(|source| Error::Io {
            action: "look at the permissions of",
            path: directory.to_path_buf(),
            source,
        })
    }
}

/// Verifies an installed file, and updates the time of its last change in `entry`. Returns the
/// damage, if any.
fn verify(
    entry: &mut Entry,
    file: &FileSpec,
    path: &Path,
    check: Check,
    trusts_times: bool,
) -> Result<Option<String>> {
    let refused = |action, source| Error::Io {
        action,
        path: path.to_path_buf(),
        source,
    };
    let name = &entry.name;
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata,
        Ok(_) => return Ok(Some(format!("{name} is not a file"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let may_be_missing = check != Check::Full && file.is_notice();
            return Ok((!may_be_missing).then(|| format!("{name} is missing")));
        }
        Err(error) => return Err(refused("look at", error)),
    };
    if metadata.len() != entry.size {
        let (found, expected) = (metadata.len(), entry.size);
        return Ok(Some(format!(
            "{name} has {found} bytes instead of {expected}"
        )));
    }
    let stamp = Stamp::of(&metadata).map_err(|error| refused("look at", error))?;
    let needs_digest = match check {
        Check::Quick => false,
        Check::Files(names) => names.contains(&&**name),
        Check::Full => true,
    };
    if stamp == entry.stamp && trusts_times && !needs_digest {
        return Ok(None);
    }
    let (digest, _) = sha256_of_file(path).map_err(|error| refused("read", error))?;
    if digest != entry.sha256 {
        let expected = &entry.sha256;
        return Ok(Some(format!(
            "{name} has SHA-256 {digest} instead of {expected}"
        )));
    }
    entry.stamp = stamp;
    Ok(None)
}

fn rewrite_marker(manifest: &Manifest, directory: &Path) -> io::Result<()> {
    let temporary = directory.join(format!(".{MARKER}.{}", unique()));
    let written = manifest
        .write(&temporary)
        .and_then(|()| protect(&temporary))
        .and_then(|()| fs::rename(&temporary, directory.join(MARKER)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}
