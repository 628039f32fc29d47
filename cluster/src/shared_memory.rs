//! The shared memory of a host, which MPI takes for its processes. Containers often have little, and
//! MPICH ends a process by SIGBUS or SIGSEGV where it takes more than there is.

use std::{env, path::Path, thread};

use halite_core::{Error, ErrorKind, Result};

const FOLDER: &str = "/dev/shm";

/// What each process of MPICH takes there, with some room.
const LEAST: u64 = 2 << 20;

/// What each process takes there with its network library, with some room.
const USUAL: u64 = 8 << 20;

/// Variable of MPICH's network library with its transports, and a value without shared memory of
/// [`FOLDER`]: it takes that of System V then.
const TRANSPORTS: (&str, &str) = ("UCX_TLS", "^posix");

/// A variable for this number of processes on this host, if they have little shared memory.
///
/// # Errors
/// If it is too little for them.
pub(crate) fn variable(processes: usize) -> Result<Option<(&'static str, &'static str)>> {
    match Space::of(Path::new(FOLDER)) {
        Some(space) => space.variable(processes as u64),
        // Not on every system.
        None => Ok(None),
    }
}

/// How many of a job's processes a host runs at most, as far as is known.
pub(crate) fn at_most(processes: usize) -> usize {
    processes.min(
        thread::available_parallelism()
            .map_or(1, usize::from)
            .max(2),
    )
}

/// Checks that a process which another launcher started finds enough.
///
/// # Errors
/// If not, or if it needs a variable that it lacks.
pub(crate) fn check(processes: usize) -> Result<()> {
    let Some(space) = Space::of(Path::new(FOLDER)) else {
        return Ok(());
    };
    // The others may have taken theirs already.
    let own = Space {
        free: space.free.saturating_mul(processes as u64),
        ..space
    };
    match own.variable(processes as u64)? {
        Some((name, value)) if env::var_os(name).is_none() => Err(too_little(
            &space,
            processes as u64,
            &format!("set {name}={value}, or "),
        )),
        _ => Ok(()),
    }
}

/// Bytes of a file system.
#[derive(Clone, Copy)]
struct Space {
    total: u64,
    free: u64,
}

impl Space {
    fn of(folder: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(folder).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Space {
            total: bytes(found.f_blocks),
            free: bytes(found.f_bavail),
        })
    }

    fn variable(&self, processes: u64) -> Result<Option<(&'static str, &'static str)>> {
        if self.free < processes.saturating_mul(LEAST) {
            return Err(too_little(self, processes, ""));
        }
        let is_little = self.free.min(self.total) <= processes.saturating_mul(USUAL);
        Ok(is_little.then_some(TRANSPORTS))
    }
}

fn too_little(space: &Space, processes: u64, remedy: &str) -> Error {
    let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let message = format!(
        "{FOLDER} has {} free of {}, and {processes} processes that exchange by it need {}; \
         {remedy}enlarge it (docker run --shm-size=1g; in Kubernetes an emptyDir with `medium: \
         Memory` at {FOLDER})",
        mebibytes(space.free),
        mebibytes(space.total),
        mebibytes(processes.saturating_mul(if remedy.is_empty() { LEAST } else { USUAL })),
    );
    Error::new(ErrorKind::OutOfMemory, "job", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_shared_memory_is_noticed() {
        let space = |total: u64, free: u64| Space {
            total: total << 20,
            free: free << 20,
        };
        assert_eq!(space(1024, 1024).variable(4).unwrap(), None);
        // That of Docker is 64 MiB.
        assert_eq!(space(64, 64).variable(4).unwrap(), None);
        assert_eq!(space(64, 64).variable(8).unwrap(), Some(TRANSPORTS));
        assert_eq!(space(1024, 20).variable(4).unwrap(), Some(TRANSPORTS));
        let error = space(1, 1).variable(2).unwrap_err().to_string();
        let expected = "/dev/shm has 1.0 MiB free of 1.0 MiB, and 2 processes that exchange by it \
                        need 4.0 MiB";
        assert!(error.contains(expected), "{error}");
    }
}
