//! Locked files: of a load or a compilation in progress. The system unlocks them when the process
//! ends for any reason.

use std::{
    fs::{self, File},
    path::PathBuf,
};

/// A file that this process has locked. Dropping it removes the file.
#[derive(Debug)]
pub(super) struct Locked {
    path: PathBuf,
    /// Holds the lock.
    file: File,
}

impl Locked {
    /// The file `path`, which is open and locked.
    pub(super) fn new(path: PathBuf, file: File) -> Self {
        Locked { path, file }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // While it is locked, so that other processes find it locked or removed. If it was removed
        // already, the file of this name is of another process.
        if !is_unlinked(&self.file) {
            _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns whether a file was removed: the process that had locked it is done.
pub(super) fn is_unlinked(file: &File) -> bool {
    #[cfg(unix)]
    return file
        .metadata()
        .is_ok_and(|metadata| std::os::unix::fs::MetadataExt::nlink(&metadata) == 0);
    #[cfg(not(unix))]
    {
        _ = file;
        false
    }
}
