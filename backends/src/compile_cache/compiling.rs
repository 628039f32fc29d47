//! Turns to compile: of the processes of a host that need one program, one compiles it, and the
//! others wait and load it. The system ends the turn of a process that is killed.

use std::{
    fs::{File, TryLockError},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::lock::{Locked, is_unlinked};

/// Time between two looks at the lock.
const LOOK: Duration = Duration::from_millis(20);

/// Waits for a turn, by a lock on the file `path`, at most for `patience`. Returns none if there are
/// no locks here, or the wait was too long; and whether there was a wait.
pub(super) fn wait(path: &Path, patience: Duration) -> (Option<Locked>, bool) {
    let begun = Instant::now();
    let mut has_waited = false;
    while begun.elapsed() < patience {
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let Ok(file) = opened else {
            return (None, has_waited);
        };
        match file.try_lock() {
            // Its turn has just ended.
            Ok(()) if is_unlinked(&file) => {}
            Ok(()) => {
                let path = path.to_owned();
                return (Some(Locked::new(path, file)), has_waited);
            }
            Err(TryLockError::WouldBlock) => {
                has_waited = true;
                thread::sleep(LOOK);
            }
            Err(TryLockError::Error(_)) => return (None, has_waited),
        }
    }
    (None, has_waited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.compiling");
        let (first, has_waited) = wait(&path, Duration::from_secs(9));
        assert!(first.is_some() && !has_waited);
        let (none, has_waited) = wait(&path, Duration::from_millis(50));
        assert!(none.is_none() && has_waited);
        thread::scope(|scope| {
            let second = scope.spawn(|| wait(&path, Duration::from_secs(9)));
            thread::sleep(Duration::from_millis(60));
            drop(first);
            let (second, has_waited) = second.join().unwrap();
            assert!(second.is_some() && has_waited);
        });
        assert!(!path.exists());
        // Without a directory nothing is locked.
        let (none, has_waited) = wait(&directory.path().join("no/a"), Duration::from_secs(9));
        assert!(none.is_none() && !has_waited);
    }
}
