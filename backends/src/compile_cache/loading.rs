//! Markers of loads in progress, which identify a program whose load killed its process.
//!
//! A serialized program is machine code that the plugin maps and links; a failure there is a signal
//! instead of an error. So a marker file is written before a load and removed after it. It is
//! locked during the load, and the system unlocks it when the process ends for any reason: an
//! unlocked marker belongs to a load that did not return. If the process was killed for another
//! reason at that moment, the cost is one compilation.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    path::Path,
    process,
};

use halite_fetch::{file_size_limit, open_regular};

use super::lock::{Locked, is_unlinked};

/// Maximum size of markers and of notes about removed programs, in bytes.
const LONGEST_NOTE: usize = 64;

/// Result of marking a load.
#[derive(Debug)]
pub(super) enum Begun {
    /// The load is marked.
    Marked(Locked),
    /// The load cannot be marked: another load of the program is in progress, or markers do not work
    /// here.
    Unmarked,
    /// A process died while loading the program. The caller removes the marker.
    Died(Locked, String),
}

/// Marks the load of a program with the file `path`.
pub(super) fn begin(path: &Path) -> Begun {
    if file_size_limit().is_some_and(|limit| limit < LONGEST_NOTE as u64) {
        return Begun::Unmarked;
    }
    let loading = |file| Locked::new(path.to_owned(), file);
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
            // Another process is creating an empty one, and has not locked it yet.
            return if note.is_empty() {
                Begun::Unmarked
            } else {
                Begun::Died(loading(file), note.trim().to_owned())
            };
        }
        Err(_) => return Begun::Unmarked,
    };
    // Locked while it is still empty.
    if file.try_lock().is_err() || writeln!(file, "process {}", process::id()).is_err() {
        _ = fs::remove_file(path);
        return Begun::Unmarked;
    }
    Begun::Marked(loading(file))
}

/// Number of times that a program was removed because its load killed a process, from the note
/// `path`.
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
    fn load_in_progress_is_not_marked_twice() {
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
    fn end_of_a_load_leaves_the_marker_of_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("marker");
        let first = begin(&path);
        // As `halite cache clear` does.
        fs::remove_file(&path).unwrap();
        let second = begin(&path);
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn unlocked_marker_means_a_death() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("marker");
        fs::write(&path, "process 4711\n").unwrap();
        let Begun::Died(marker, note) = begin(&path) else {
            panic!("not seen")
        };
        assert_eq!(note, "process 4711");
        assert!(
            matches!(begin(&path), Begun::Unmarked),
            "one process handles it"
        );
        drop(marker);
        assert!(!path.exists());
    }

    #[test]
    fn empty_marker_is_not_a_death() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("marker");
        fs::write(&path, "").unwrap();
        assert!(matches!(begin(&path), Begun::Unmarked));
    }
}
