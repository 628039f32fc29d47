//! A probe that loads a library in a child process first.
//!
//! The system's loader holds a lock while it runs the constructors of a library. One that does not
//! return blocks every other load and the end of the process, and one that aborts ends the process.
//! So a library that halite does not know is first loaded into a shell (by `LD_PRELOAD`), which can
//! be killed. It costs about 50 ms for a library of 200 MB.

use std::{path::Path, time::Duration};

use halite_core::Result;

/// The variable that disables the probe if it is `off`.
#[cfg(target_os = "linux")]
const SWITCH: &str = "HALITE_PLUGIN_PROBE";

/// Checks that the constructors of the library at `path` return within `deadline`. Other errors of
/// the loader are left to the load itself.
///
/// # Errors
/// If they do not return in time, or end their process.
#[cfg(target_os = "linux")]
pub(crate) fn probe(op: &'static str, path: &Path, deadline: Duration) -> Result<()> {
    use std::{
        ffi::OsString,
        fs::File,
        os::unix::ffi::OsStrExt,
        process::{Command, Stdio},
        thread,
        time::Instant,
    };

    use halite_core::{Error, ErrorKind};

    use crate::isolate::{first_notice, warn_waiting};

    /// Exit status of the shell, if it started.
    const RAN: i32 = 83;
    /// Exit status of a process that the loader cannot start.
    const NOT_STARTED: i32 = 127;

    if std::env::var_os(SWITCH).is_some_and(|value| value == "off") {
        return Ok(());
    }
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &format!("exit {RAN}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut preloaded = path.as_os_str().to_owned();
    // The loader takes these for the end of a path.
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || *byte == b':')
    {
        let Ok(file) = File::open(path) else {
            return Ok(());
        };
        command.stdin(file);
        preloaded = OsString::from("/proc/self/fd/0");
    }
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preloaded.push(":");
        preloaded.push(others);
    }
    // A system without a shell has no probe.
    let Ok(mut child) = command.env("LD_PRELOAD", preloaded).spawn() else {
        return Ok(());
    };
    let shown = path.display().to_string();
    let (started, mut notice) = (Instant::now(), first_notice(deadline));
    let status = loop {
        if let Ok(Some(status)) = child.try_wait() {
            break status;
        }
        let waited = started.elapsed();
        if waited >= deadline {
            // Both fail only if it has ended meanwhile.
            _ = child.kill();
            _ = child.wait();
            let message = format!(
                "{shown} has not started after {} s: its constructors, which run while it is \
                 loaded, do not return; it is not \
                 loaded into this process",
                deadline.as_secs_f32()
            );
            return Err(Error::new(ErrorKind::DeadlineExceeded, op, message));
        }
        if waited >= notice {
            warn_waiting(op, &shown, waited, deadline);
            notice *= 3;
        }
        thread::sleep(Duration::from_millis(
            if waited < Duration::from_millis(200) {
                2
            } else {
                20
            },
        ));
    };
    match status.code() {
        Some(RAN | NOT_STARTED) => Ok(()),
        _ => {
            let message = format!(
                "loading {shown} ended the process that tried it ({status}), so it is not loaded \
                 into this one; use another \
                 build of it, or set {SWITCH}=off to load it all the same"
            );
            Err(Error::new(ErrorKind::Internal, op, message))
        }
    }
}

/// The loaders of other systems are not supported.
#[cfg(not(target_os = "linux"))]
pub(crate) fn probe(_: &'static str, _: &Path, _: Duration) -> Result<()> {
    Ok(())
}
