//! One installer at a time per package, among all processes of the machine.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::Path,
    process, thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::files::{Links, file_size_limit, open_regular_with};

/// Held while a package is being installed. The system lets go of it when the process ends, however
/// it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    /// `None` on file systems that have no locks. The rename is still atomic there; only work may
    /// be done twice.
    file: Option<File>,
}

pub(crate) enum Acquire {
    Held(Lock),
    TimedOut { waited: Duration, holder: String },
}

/// Most bytes that are read of what a holder wrote of itself.
const LONGEST_NOTE: u64 = 300;

impl Lock {
    /// Waits at most `deadline`, calling `waiting` at once and then several times a second, with
    /// how long it has waited and who holds the lock.
    pub(crate) fn acquire(
        path: &Path,
        deadline: Duration,
        mut waiting: impl FnMut(Duration, &str),
    ) -> io::Result<Acquire> {
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).read(true).write(true);
        let mut file = open_regular_with(options, path, Links::Refuse)?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => {
                    // For messages only: a full disk must not prevent the lock.
                    _ = note_holder(&mut file);
                    return Ok(Acquire::Held(Self { file: Some(file) }));
                }
                Err(TryLockError::WouldBlock) => {
                    let (waited, holder) = (start.elapsed(), holder(&mut file));
                    if waited >= deadline {
                        return Ok(Acquire::TimedOut { waited, holder });
                    }
                    waiting(waited, &holder);
                    thread::sleep(Duration::from_millis(50));
                }
                Err(TryLockError::Error(error)) if has_no_locks(&error) => {
                    return Ok(Acquire::Held(Self { file: None }));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Acquires the lock if it is free. Creates no file: without one, nobody has ever held the
    /// lock.
    pub(crate) fn if_free(path: &Path) -> Option<Option<Self>> {
        match open_regular_with(
            OpenOptions::new().read(true).write(true),
            path,
            Links::Refuse,
        ) {
            Ok(file) => match file.try_lock() {
                Ok(()) => Some(Some(Self { file: Some(file) })),
                Err(_) => None,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(None),
            Err(_) => None,
        }
    }

    /// Returns whether no other process can be installing the same package now.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.file.is_some()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The lock is free from now on.
        _ = self.file.as_ref().map(|file| file.set_len(0));
    }
}

/// Writes the holder of the lock into its file.
fn note_holder(file: &mut File) -> io::Result<()> {
    // A write beyond the limit would kill the process.
    if file_size_limit().is_some_and(|limit| limit < LONGEST_NOTE) {
        return Ok(());
    }
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("{} {since} {}\n", process::id(), host_name()).as_bytes())
}

/// The holder of a lock according to its file: `process 4711 on host, for 35 s`.
fn holder(file: &mut File) -> String {
    let mut note = String::new();
    let read = file
        .rewind()
        .and_then(|()| file.take(LONGEST_NOTE).read_to_string(&mut note));
    let mut words = note.trim().splitn(3, ' ');
    let (Ok(_), Some(Ok(id)), Some(Ok(since)), Some(host)) = (
        read,
        words.next().map(str::parse::<u32>),
        words.next().map(str::parse::<u64>),
        words.next().filter(|host| !host.contains(char::is_control)),
    ) else {
        return "an unknown process".into();
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    format!(
        "process {id} on {host}, for {} s",
        now.saturating_sub(since)
    )
}

fn host_name() -> String {
    #[cfg(unix)]
    return rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    #[cfg(not(unix))]
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "this host".into())
}

fn has_no_locks(error: &io::Error) -> bool {
    // Network file systems answer "no locks available", which has no `ErrorKind`.
    #[cfg(unix)]
    if error.raw_os_error() == Some(rustix::io::Errno::NOLCK.raw_os_error()) {
        return true;
    }
    error.kind() == io::ErrorKind::Unsupported
}
