//! Stop requests from Ctrl-C, SIGTERM and SIGHUP. They set a flag, which the training loop checks
//! between steps and while it waits.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use halite_core::{
    Error, ErrorKind, Result,
    signals::{Handling, mask, unhandled},
};
use signal_hook::{
    SigId,
    consts::{SIGINT, SIGTERM},
    flag,
    low_level::unregister,
};

/// Exit code of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;
const ASKED: usize = 1;
const BY_INTERRUPT: usize = 2;
const BY_TERMINATE: usize = 3;
const BY_HANGUP: usize = 4;
/// The signals that ask a run to stop, with their values in a [`StopFlag`].
const SIGNALS: &[(i32, usize)] = &[
    (SIGINT, BY_INTERRUPT),
    (SIGTERM, BY_TERMINATE),
    #[cfg(unix)]
    (signal_hook::consts::SIGHUP, BY_HANGUP),
];

/// Reason for which a run stops before its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum StopReason {
    /// [`StopFlag::stop`] was called.
    Asked,
    /// A callback called [`Run::stop`](crate::callback::Run::stop).
    Callback,
    /// Ctrl-C, or SIGINT from elsewhere.
    Interrupt,
    /// SIGTERM: a scheduler or a service manager ends the process.
    Terminate,
    /// SIGHUP: the terminal was closed, or the connection to it was lost.
    Hangup,
}

impl StopReason {
    /// A number for messages between processes.
    pub(crate) fn code(self) -> u64 {
        let code = match self {
            StopReason::Asked | StopReason::Callback => ASKED,
            StopReason::Interrupt => BY_INTERRUPT,
            StopReason::Terminate => BY_TERMINATE,
            StopReason::Hangup => BY_HANGUP,
        };
        code as u64
    }

    /// The reason with this number; `None` for 0.
    pub(crate) fn of_code(code: u64) -> Option<Self> {
        StopFlag(Arc::new(AtomicUsize::new(code as usize))).reason()
    }

    /// The exit code that a shell expects of a process that ended for this reason: 128 and the
    /// signal's number.
    pub fn exit_code(self) -> u8 {
        match self {
            StopReason::Asked | StopReason::Callback => 0,
            StopReason::Interrupt => 130,
            StopReason::Terminate => 143,
            StopReason::Hangup => 129,
        }
    }
}

/// As in `stopped by SIGTERM`.
impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StopReason::Asked => "the stop flag",
            StopReason::Callback => "a callback",
            StopReason::Interrupt => "SIGINT (Ctrl-C)",
            StopReason::Terminate => "SIGTERM",
            StopReason::Hangup => "SIGHUP",
        })
    }
}

/// Flag that requests a training loop to stop. Clones share it. Checking it is one atomic load.
///
/// ```
/// use halite_train::signals::{StopFlag, StopReason};
///
/// let flag = StopFlag::new();
/// let other = flag.clone();
/// assert_eq!(flag.reason(), None);
/// other.stop();
/// assert_eq!(flag.reason(), Some(StopReason::Asked));
/// ```
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicUsize>);

impl StopFlag {
    /// Returns a flag that is not set.
    pub fn new() -> Self {
        StopFlag::default()
    }

    /// Sets it.
    pub fn stop(&self) {
        self.stop_for(StopReason::Asked);
    }

    /// Sets it for a reason.
    pub(crate) fn stop_for(&self, reason: StopReason) {
        // The first reason is kept.
        let code = reason.code() as usize;
        let _ = self
            .0
            .compare_exchange(0, code, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Returns true if it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The reason for which it was set.
    pub fn reason(&self) -> Option<StopReason> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            BY_INTERRUPT => Some(StopReason::Interrupt),
            BY_TERMINATE => Some(StopReason::Terminate),
            BY_HANGUP => Some(StopReason::Hangup),
            _ => Some(StopReason::Asked),
        }
    }
}

/// While it lives, SIGINT, SIGTERM and SIGHUP set a [`StopFlag`] instead of ending the process.
///
/// A second SIGINT ends the process at once, with status 130. When the last of them is dropped, the
/// signals have their default action again, unless the program handled them itself before.
///
/// A signal that was ignored when the first of them was made, as under `nohup` or in the background
/// of a shell script, stays ignored. Only Linux reports which those are.
#[derive(Debug)]
pub struct Interrupts {
    flag: StopFlag,
    actions: Vec<SigId>,
    handling: Option<Handling>,
}

impl Interrupts {
    /// Starts to watch for the signals.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn install() -> Result<Self> {
        Self::watch(StopFlag::new())
    }

    /// [`install`](Self::install) with the caller's flag.
    ///
    /// # Errors
    /// Those of [`install`](Self::install).
    pub fn watch(flag: StopFlag) -> Result<Self> {
        let refused = |error: std::io::Error| {
            Error::new(
                ErrorKind::Unavailable,
                "signals",
                "the system refuses a handler for SIGINT, SIGTERM or SIGHUP",
            )
            .caused_by(error)
        };
        let ignored = ignored().map_err(refused)?;
        // From here on, dropping it undoes the changes.
        let mut interrupts = Interrupts {
            flag,
            actions: Vec::new(),
            handling: Some(Handling::begin()),
        };
        let Interrupts {
            flag: StopFlag(reason),
            actions,
            ..
        } = &mut interrupts;
        let interrupted = Arc::new(AtomicBool::new(false));
        for &(signal, by) in SIGNALS {
            if ignored & bit(signal) != 0 {
                continue;
            }
            if signal == SIGINT {
                // In this order: the first SIGINT finds `interrupted` unset and then sets it.
                let again = interrupted.clone();
                actions.push(
                    flag::register_conditional_shutdown(signal, INTERRUPTED, again)
                        .map_err(refused)?,
                );
                actions.push(flag::register(signal, interrupted.clone()).map_err(refused)?);
            }
            actions.push(flag::register_usize(signal, reason.clone(), by).map_err(refused)?);
        }
        Ok(interrupts)
    }

    /// The flag that the signals set.
    pub fn flag(&self) -> StopFlag {
        self.flag.clone()
    }

    /// The reason for which the flag is set, if it is.
    pub fn reason(&self) -> Option<StopReason> {
        self.flag.reason()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        // First, so that no signal is lost in between.
        self.handling = None;
        for action in self.actions.drain(..) {
            unregister(action);
        }
    }
}

/// Returns the signals that were ignored before the first [`Interrupts`], a bit each.
///
/// A handler once installed stays for the life of the process, and without an action it would
/// swallow the signal. The first call installs one that does what the system would, except while
/// an [`Interrupts`] exists.
fn ignored() -> std::io::Result<u64> {
    static IGNORED: Mutex<Option<u64>> = Mutex::new(None);
    let mut known = IGNORED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(ignored) = *known {
        return Ok(ignored);
    }
    let [ignored, caught] = ["SigIgn:", "SigCgt:"].map(mask);
    for &(signal, _) in SIGNALS {
        // What the program handles or ignores itself comes back, not the system's way.
        if (ignored | caught) & bit(signal) == 0 {
            flag::register_conditional_default(signal, unhandled())?;
        }
    }
    *known = Some(ignored);
    Ok(ignored)
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_reason_stays() {
        let flag = StopFlag::new();
        assert!(!flag.is_set());
        flag.0.store(BY_TERMINATE, Ordering::SeqCst);
        flag.stop();
        assert_eq!(flag.reason(), Some(StopReason::Terminate));
    }
}
