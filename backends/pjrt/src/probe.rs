//! A probe that loads a library in a child process first.
//!
//! The system's loader holds a lock while it runs the constructors of a library. One that does not
//! return blocks every other load and the end of the process, and one that aborts ends the process.
//! So a library that halite does not know is first loaded into a shell (by `LD_PRELOAD`), which can
//! be killed. It costs about 50 ms for a library of 200 MB.

#[cfg(target_os = "linux")]
pub(crate) use linux::probe;

/// The loaders of other systems are not supported.
#[cfg(not(target_os = "linux"))]
pub(crate) fn probe(
    _: &'static str,
    _: &std::path::Path,
    _: std::time::Duration,
) -> halite_core::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        ffi::OsString,
        fs::File,
        io,
        os::unix::ffi::OsStrExt,
        path::Path,
        process::{Child, Command, ExitStatus, Stdio},
        thread,
        time::{Duration, Instant},
    };

    use halite_core::{Error, ErrorKind, Result};

    use crate::isolate::{first_notice, warn_waiting};

    /// The variable that disables the probe if it is `off`.
    const SWITCH: &str = "HALITE_PLUGIN_PROBE";
    /// Exit status of the shell, if it started.
    const RAN: i32 = 83;
    /// Exit status of a process that the loader cannot start.
    const NOT_STARTED: i32 = 127;

    /// Checks that the constructors of the library at `path` return within `deadline`. Other errors
    /// of the loader are left to the load itself.
    ///
    /// # Errors
    /// If they do not return in time, or end their process.
    pub(crate) fn probe(op: &'static str, path: &Path, deadline: Duration) -> Result<()> {
        if std::env::var_os(SWITCH).is_some_and(|value| value == "off") {
            return Ok(());
        }
        // A system without a shell has no probe, and the load itself reports an unreadable file.
        let Ok(child) = start_with(path) else {
            return Ok(());
        };
        let shown = path.display().to_string();
        let status = exit_status(op, child, &shown, deadline)?;
        match status.code() {
            Some(RAN | NOT_STARTED) => Ok(()),
            _ => {
                let message = format!(
                    "loading {shown} ended the process that tried it ({status}), so it is not \
                     loaded into this one; use another build of it, or set {SWITCH}=off to load \
                     it all the same"
                );
                Err(Error::new(ErrorKind::Internal, op, message))
            }
        }
    }

    /// Starts a shell that the system's loader loads the library into.
    fn start_with(library: &Path) -> io::Result<Child> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &format!("exit {RAN}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut preloaded = library.as_os_str().to_owned();
        // The loader takes these for the end of a path.
        let ends_path = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':';
        if library.as_os_str().as_bytes().iter().any(ends_path) {
            command.stdin(File::open(library)?);
            preloaded = OsString::from("/proc/self/fd/0");
        }
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preloaded.push(":");
            preloaded.push(others);
        }
        command.env("LD_PRELOAD", preloaded).spawn()
    }

    /// Waits for the end of the shell that loads `library`, and kills it at the deadline.
    fn exit_status(
        op: &'static str,
        mut child: Child,
        library: &str,
        deadline: Duration,
    ) -> Result<ExitStatus> {
        /// Time in which the constructors of most libraries return.
        const SHORT: Duration = Duration::from_millis(200);

        let (started, mut notice) = (Instant::now(), first_notice(deadline));
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                return Ok(status);
            }
            let waited = started.elapsed();
            if waited >= deadline {
                // Both fail only if it has ended meanwhile.
                _ = child.kill();
                _ = child.wait();
                let message = format!(
                    "{library} has not started after {} s: its constructors, which run while it \
                     is loaded, do not return; it is not loaded into this process",
                    deadline.as_secs_f32()
                );
                return Err(Error::new(ErrorKind::DeadlineExceeded, op, message));
            }
            if waited >= notice {
                warn_waiting(op, library, waited, deadline);
                notice *= 3;
            }
            let pause = if waited < SHORT { 2 } else { 20 };
            thread::sleep(Duration::from_millis(pause));
        }
    }
}
