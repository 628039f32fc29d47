//! Markers of loads under way, by which a program is recognized whose load killed the process.
//!
//! A serialized program is machine code that the plugin maps and links; where that goes wrong,
//! there is no error but a signal. So a marker is written before a program is handed out, and
//! removed once it is loaded. While the load lasts, the marker's file is locked, and the system
//! unlocks it when the process ends in whatever way: a marker that nobody holds is of a load that
//! did not come back. A process that was killed for another reason at that moment costs one
//! compilation.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process,
};

use halite_fetch::{file_size_limit, open_regular};

/// What the markers of loads hold at most, and the notes of programs that were set aside.
const LONGEST_NOTE: usize = 64;

/// A load under way in this process. Its marker is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Loading {
    path: PathBuf,
    /// Locked.
    _file: File,
}

impl Drop for Loading {
    fn drop(&mut self) {
        // While it is locked: who opens it now finds it locked or gone.
        _ = fs::remove_file(&self.path);
    }
}

/// What a marker says at the beginning of a load.
#[derive(Debug)]
pub(super) enum Begun {
    /// The load is marked from now on.
    Marked(Loading),
    /// It cannot be marked: another load of the same program is under way, or markers do not work
    /// here.
    Unmarked,
    /// A process died in its load. The marker is this call's to remove.
    Died(Loading, String),
}

/// Marks the load of a program by the file `path`.
pub(super) fn begin(path: &Path) -> Begun {
    if file_size_limit().is_some_and(|limit| limit < LONGEST_NOTE as u64) {
        return Begun::Unmarked;
    }
    let loading = |file| Loading {
        path: path.to_owned(),
        _file: file,
    };
    let created = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path);
    let mut file = match created {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let Ok(file) = open_regular(path) else {
                return Begun::Unmarked;
            };
            match file.try_lock() {
                Ok(()) if is_unlinked(&file) => return Begun::Unmarked,
                Ok(()) => {}
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return Begun::Unmarked,
            }
            let mut note = String::new();
            _ = Read::by_ref(&mut &file)
                .take(LONGEST_NOTE as u64)
                .read_to_string(&mut note);
            // An empty one is being made by another process, which has not locked it yet.
            return if note.is_empty() {
                Begun::Unmarked
            } else {
                Begun::Died(loading(file), note.trim().to_owned())
            };
        }
        Err(_) => return Begun::Unmarked,
    };
    // Locked before there is anything in it.
    if file.try_lock().is_err() || writeln!(file, "process {}", process::id()).is_err() {
        _ = fs::remove_file(path);
        return Begun::Unmarked;
    }
    Begun::Marked(loading(file))
}

/// Whether a file has lost its name: the load that it marked has just ended.
fn is_unlinked(file: &File) -> bool {
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

/// Times that a program was set aside, as the note in `path` says.
pub(super) fn times_aside(path: &Path) -> u32 {
    let mut note = String::new();
    let read = open_regular(path)
        .and_then(|file| file.take(LONGEST_NOTE as u64).read_to_string(&mut note));
    read.ok()
        .and_then(|_| note.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_under_way_is_not_marked_twice() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("marker");
        let Begun::Marked(first) = begin(&path) else {
            panic!("not marked")
        };
        assert!(matches!(begin(&path), Begun::Unmarked));
        drop(first);
        assert!(!path.exists());
        assert!(matches!(begin(&path), Begun::Marked(_)));
    }

    #[test]
    fn a_marker_that_nobody_holds_is_of_a_death() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("marker");
        fs::write(&path, "process 4711\n").unwrap();
        let Begun::Died(marker, note) = begin(&path) else {
            panic!("not seen")
        };
        assert_eq!(note, "process 4711");
        assert!(
            matches!(begin(&path), Begun::Unmarked),
            "one process sees to it"
        );
        drop(marker);
        assert!(!path.exists());
    }

    #[test]
    fn a_marker_that_is_being_made_is_no_death() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("marker");
        fs::write(&path, "").unwrap();
        assert!(matches!(begin(&path), Begun::Unmarked));
    }
}
