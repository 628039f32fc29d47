//! The lock of a directory of checkpoints: one process writes at a time.

use std::{
    fmt,
    fs::{self, File, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use halite_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::store::OP;
use crate::{files, format::format_seconds};

/// Name of the lock file.
pub(crate) const LOCK: &str = ".lock";

/// Advisory lock on the directory. The system releases it when the process ends, also if it is
/// killed.
#[derive(Debug)]
pub(super) struct Lock(
    #[expect(dead_code, reason = "the lock lives as long as the file is open")] File,
);

/// Holder of a lock, as recorded in the lock file.
#[derive(Deserialize, Serialize)]
struct Holder {
    process: u32,
    host: String,
    /// Seconds since 1970.
    since: u64,
}

pub(super) fn lock(dir: &Path) -> Result<Lock> {
    let path = dir.join(LOCK);
    let failed = |doing: &str, error: io::Error| files::failed(OP, doing, &path, &error);
    // Opening a pipe would wait for its other end.
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(failed(
            "lock",
            io::Error::new(io::ErrorKind::InvalidData, "it is not a plain file"),
        ));
    }
    let open = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path);
    let mut file = open.map_err(|error| failed("write", error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let by =
                Holder::read(&mut file).map_or_else(String::new, |holder| format!(" ({holder})"));
            let message = format!(
                "{} is in use by another run{by}: wait until it ends, or give another output \
                 directory (`out`, --out)",
                dir.display()
            );
            return Err(Error::new(ErrorKind::Unavailable, OP, message));
        }
        // Some network file systems have no locks; the user must run one process at a time then.
        Err(TryLockError::Error(error)) => {
            halite_core::warning!("cannot lock {}: {error}", path.display())
        }
    }
    // The contents are only informative: a full disk must not prevent a resume.
    if let Err(error) = Holder::this_process().write(&mut file) {
        tracing::debug!("cannot write {}: {error}", path.display());
    }
    Ok(Lock(file))
}

/// The name of this host.
pub(crate) fn this_host() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok());
    let host = host.map(|name| name.trim().to_string());
    let host = host.filter(|name| !name.is_empty());
    host.unwrap_or_else(|| "an unknown host".to_string())
}

impl Holder {
    fn this_process() -> Self {
        Holder {
            process: std::process::id(),
            host: this_host(),
            since: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        }
    }

    fn write(&self, file: &mut File) -> io::Result<()> {
        let text = serde_json::to_vec(self).expect("it has only string keys and plain values");
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&text)
    }

    fn read(file: &mut File) -> Option<Self> {
        let mut bytes = Vec::new();
        file.take(4096).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        let age = format_seconds(now.saturating_sub(self.since) as f64);
        let host: String = self
            .host
            .chars()
            .filter(|character| !character.is_control())
            .take(100)
            .collect();
        write!(f, "process {} on {host}, since {age} ago", self.process)
    }
}
