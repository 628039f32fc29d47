//! Files of a run: their errors, and careful reads and writes.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use halite_core::{Error, ErrorKind, Result};

use halite_core::files::open_input;
pub(crate) use halite_core::files::{replace, sync_dir, temporary_of};

/// Returns an [`ErrorKind::Io`] with the operation, the path, the cause and advice.
pub(crate) fn failed(
    op: &'static str,
    doing: impl fmt::Display,
    path: &Path,
    error: &io::Error,
) -> Error {
    let message = format!(
        "cannot {doing} {}: {error}{}",
        path.display(),
        advice(error.kind())
    );
    Error::new(ErrorKind::Io, op, message)
}

fn advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::StorageFull => {
            "; free some space on that disk, or give an output directory on another one"
        }
        io::ErrorKind::QuotaExceeded => {
            "; this account's quota is used up: free some space, or give another output directory"
        }
        io::ErrorKind::FileTooLarge => {
            "; a limit on the size of files is set (`ulimit -f`) or the file system has one"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; it is mounted read-only: give an output directory elsewhere"
        }
        io::ErrorKind::PermissionDenied => {
            "; this account has no permission: change the permissions, or give an output directory \
             elsewhere"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; there is a file where a directory is needed: move it away, or give another output \
             directory"
        }
        _ => "",
    }
}

/// Writes a new file and flushes it to the disk.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// A file that replaces another as a whole once it is complete. Until then, and if it never is, the
/// other one is untouched. Nothing is created here: whoever writes does it.
pub(crate) struct Replacement {
    path: PathBuf,
    folder: PathBuf,
    /// The name until then, in the same folder. It is of this value alone, since several processes
    /// and threads may write the same file.
    name: String,
}

impl Replacement {
    /// A replacement of the file `path`, which need not exist.
    ///
    /// # Errors
    /// If `path` is a directory.
    pub(crate) fn of(op: &'static str, path: &Path) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = path.file_name().filter(|_| !path.is_dir()).ok_or_else(|| {
            let message = format!("{} is a directory; give the path of a file", path.display());
            Error::invalid(op, message)
        })?;
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let name = name.to_string_lossy();
        loop {
            let (process, count) = (process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let name = format!(".{name}.{process}.{count}.tmp");
            // A process that was killed may have had the same number.
            if !folder.join(&name).exists() {
                return Ok(Replacement {
                    path: path.to_owned(),
                    folder: folder.to_owned(),
                    name,
                });
            }
        }
    }

    /// The file that is replaced.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of both files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The name to write under, in the [folder](Self::folder).
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Replaces the file by what was written, which is on the disk. If that fails, it is removed.
    pub(crate) fn complete(&self) -> io::Result<()> {
        fs::rename(self.folder.join(&self.name), &self.path)
            .inspect_err(|_| self.remove())
            .and_then(|()| sync_dir(&self.folder))
    }

    /// Removes what was written, if it is there.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(self.folder.join(&self.name));
    }
}

/// Renames `path`, if it exists, to `path.aside`, or to a numbered name if that exists too.
///
/// # Errors
/// If it cannot be renamed.
pub(crate) fn move_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    let there = |path: &Path| path.symlink_metadata().is_ok();
    if !there(path) {
        return Ok(None);
    }
    let named = |ending: String| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let names =
        std::iter::once(".aside".to_string()).chain((2u64..).map(|n| format!(".aside.{n}")));
    let aside = names
        .map(named)
        .find(|aside| !there(aside))
        .expect("names do not run out");
    fs::rename(path, &aside)?;
    Ok(Some(aside))
}

/// Reads a plain file of at most `limit` bytes. Not a pipe or a device, which could block for ever.
pub(crate) fn read_plain(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    use std::io::Read;

    let file = open_plain(path)?;
    let length = file.metadata()?.len();
    if length > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it has {length} bytes, at most {limit} are expected"),
        ));
    }
    let mut bytes = Vec::new();
    // A file may grow while it is read.
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns true if a read error means that the file was changed or removed. After other errors (no
/// permission, too many open files, a failing disk) the file may be intact.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, IsADirectory, NotADirectory, NotFound, UnexpectedEof};
    matches!(
        error.kind(),
        NotFound | NotADirectory | IsADirectory | InvalidData | UnexpectedEof
    )
}

/// [`failed`] for reading; of the kind [`ErrorKind::Corrupt`] if the file [is damaged](is_damage).
pub(crate) fn unreadable(op: &'static str, path: &Path, error: &io::Error) -> Error {
    if is_damage(error) {
        Error::new(
            ErrorKind::Corrupt,
            op,
            failed(op, "read", path, error).message().to_string(),
        )
    } else {
        failed(op, "read", path, error)
    }
}

/// Opens a file for reading if it is a plain file; another one counts as damaged.
pub(crate) fn open_plain(path: &Path) -> io::Result<File> {
    open_input(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => io::Error::new(io::ErrorKind::InvalidData, error),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_aside_replaces_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        assert_eq!(move_aside(&path).unwrap(), None);
        for (text, name) in [("one", "report.json.aside"), ("two", "report.json.aside.2")] {
            fs::write(&path, text).unwrap();
            assert_eq!(move_aside(&path).unwrap(), Some(dir.path().join(name)));
        }
        assert_eq!(
            fs::read(dir.path().join("report.json.aside")).unwrap(),
            b"one"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn only_missing_or_changed_files_are_damage() {
        #[cfg(target_os = "linux")]
        for (errno, damage) in [
            (2, true),
            (20, true),
            (21, true),
            (1, false),
            (5, false),
            (12, false),
            (13, false),
            (24, false),
        ] {
            let error = io::Error::from_raw_os_error(errno);
            assert_eq!(is_damage(&error), damage, "{error}");
            let kind = if damage {
                ErrorKind::Corrupt
            } else {
                ErrorKind::Io
            };
            assert_eq!(
                unreadable("checkpoint", Path::new("COMMIT"), &error).kind(),
                kind,
                "{error}"
            );
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(is_damage(&read_plain(dir.path(), 10).unwrap_err()));
        assert!(is_damage(
            &read_plain(&dir.path().join("none"), 10).unwrap_err()
        ));
    }

    #[test]
    fn directories_or_long_files_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            read_plain(dir.path(), 10).unwrap_err().to_string(),
            "it is a directory, not a plain file"
        );
        fs::write(dir.path().join("long"), [0; 11]).unwrap();
        let error = read_plain(&dir.path().join("long"), 10).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it has 11 bytes, at most 10 are expected"
        );
    }
}
