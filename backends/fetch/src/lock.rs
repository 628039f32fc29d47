//! One installer at a time per package, among all processes of the machine.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Held while a package is being installed. The system lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    /// `None` on file systems that have no locks. The rename is still atomic there; only work may be done twice.
    file: Option<File>,
}

pub(crate) enum Acquire {
    Held(Lock),
    TimedOut(Duration),
}

impl Lock {
    /// Waits at most `deadline`, calling `waiting` now and then.
    pub(crate) fn acquire(path: &Path, deadline: Duration, mut waiting: impl FnMut(Duration)) -> io::Result<Acquire> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Acquire::Held(Self { file: Some(file) })),
                Err(TryLockError::WouldBlock) => {
                    let waited = start.elapsed();
                    if waited >= deadline {
                        return Ok(Acquire::TimedOut(waited));
                    }
                    waiting(waited);
                    thread::sleep(Duration::from_millis(50));
                }
                Err(TryLockError::Error(error)) if has_no_locks(&error) => {
                    return Ok(Acquire::Held(Self { file: None }));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Whether no other process can be installing the same package now.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.file.is_some()
    }
}

fn has_no_locks(error: &io::Error) -> bool {
    // Network file systems answer ENOLCK ("no locks available"), which has no kind of its own.
    const ENOLCK: i32 = 37;
    error.kind() == io::ErrorKind::Unsupported || (cfg!(target_os = "linux") && error.raw_os_error() == Some(ENOLCK))
}
