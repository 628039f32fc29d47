//! Ctrl-C and SIGTERM ask a run to stop; the loop looks at a flag between steps, saves, and ends.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use halite_core::{Error, ErrorKind, Result};
use signal_hook::{
    SigId,
    consts::{SIGINT, SIGTERM},
    flag,
    low_level::unregister,
};

/// What a shell expects of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;
const ASKED: usize = 1;
const BY_INTERRUPT: usize = 2;
const BY_TERMINATE: usize = 3;

/// Why a run is to stop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StopReason {
    /// [`StopFlag::stop`] was called.
    Asked,
    /// Ctrl-C, or SIGINT from elsewhere.
    Interrupt,
    /// SIGTERM: a scheduler or a service manager wants the process to end.
    Terminate,
}

/// Says to a loop that it is to stop. Clones are the same flag. Looking at it is one atomic load.
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
    /// One that is not set.
    pub fn new() -> Self {
        StopFlag::default()
    }

    /// Sets it.
    pub fn stop(&self) {
        // Which signal came first stays.
        let _ = self.0.compare_exchange(0, ASKED, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Why it is set, if it is.
    pub fn reason(&self) -> Option<StopReason> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            BY_INTERRUPT => Some(StopReason::Interrupt),
            BY_TERMINATE => Some(StopReason::Terminate),
            _ => Some(StopReason::Asked),
        }
    }
}

/// While it lives, SIGINT and SIGTERM set a [`StopFlag`] instead of ending the process.
///
/// A second SIGINT ends the process at once, with status 130. When the last of them is dropped, both signals do again
/// what they do by default, unless the program handled them itself before.
#[derive(Debug)]
pub struct Interrupts {
    flag: StopFlag,
    actions: Vec<SigId>,
    default: &'static Defaults,
}

impl Interrupts {
    /// Begins to watch for both signals.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn install() -> Result<Self> {
        Self::watch(StopFlag::new())
    }

    /// As [`install`](Self::install), with a flag that others may set too.
    ///
    /// # Errors
    /// As [`install`](Self::install).
    pub fn watch(flag: StopFlag) -> Result<Self> {
        let refused = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, "signals", "the system refuses a handler for SIGINT and SIGTERM").caused_by(error)
        };
        let default = Defaults::get().map_err(refused)?;
        default.suspend();
        // From here on, dropping it undoes what was done.
        let mut interrupts = Interrupts { flag, actions: Vec::new(), default };
        let Interrupts { flag: StopFlag(reason), actions, .. } = &mut interrupts;
        let interrupted = Arc::new(AtomicBool::new(false));
        // In this order: the first SIGINT finds `interrupted` unset and goes on to set it.
        actions.push(flag::register_conditional_shutdown(SIGINT, INTERRUPTED, interrupted.clone()).map_err(refused)?);
        actions.push(flag::register(SIGINT, interrupted).map_err(refused)?);
        actions.push(flag::register_usize(SIGINT, reason.clone(), BY_INTERRUPT).map_err(refused)?);
        actions.push(flag::register_usize(SIGTERM, reason.clone(), BY_TERMINATE).map_err(refused)?);
        Ok(interrupts)
    }

    /// The flag that the signals set.
    pub fn flag(&self) -> StopFlag {
        self.flag.clone()
    }

    /// The signal that came, if one did.
    pub fn reason(&self) -> Option<StopReason> {
        self.flag.reason()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        // First, so that no signal falls between and is swallowed.
        self.default.resume();
        for action in self.actions.drain(..) {
            unregister(action);
        }
    }
}

/// A handler once installed stays for the life of the process, and without an action it would swallow the signal. This
/// action does what the system would, except while somebody watches.
#[derive(Debug)]
struct Defaults {
    watchers: AtomicUsize,
    nobody_watches: Arc<AtomicBool>,
}

impl Defaults {
    fn get() -> std::io::Result<&'static Self> {
        static DEFAULTS: OnceLock<Defaults> = OnceLock::new();
        if let Some(defaults) = DEFAULTS.get() {
            return Ok(defaults);
        }
        let nobody_watches = Arc::new(AtomicBool::new(false));
        let defaults =
            DEFAULTS.get_or_init(|| Defaults { watchers: AtomicUsize::new(0), nobody_watches: nobody_watches.clone() });
        // Only the one whose value went in registers it.
        if Arc::ptr_eq(&defaults.nobody_watches, &nobody_watches) {
            for signal in [SIGINT, SIGTERM] {
                if !is_handled_already(signal) {
                    flag::register_conditional_default(signal, nobody_watches.clone())?;
                }
            }
        }
        Ok(defaults)
    }

    fn suspend(&self) {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        self.nobody_watches.store(false, Ordering::SeqCst);
    }

    fn resume(&self) {
        if self.watchers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.nobody_watches.store(true, Ordering::SeqCst);
        }
    }
}

/// Whether the program handles or ignores `signal` itself: then its way is to come back, not the system's. Known on
/// Linux only; elsewhere the system's way comes back.
fn is_handled_already(signal: i32) -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let masks = status.lines().filter_map(|line| line.strip_prefix("SigCgt:").or_else(|| line.strip_prefix("SigIgn:")));
    masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let flag = StopFlag::new();
        assert!(!flag.is_set());
        flag.0.store(BY_TERMINATE, Ordering::SeqCst);
        flag.stop();
        assert_eq!(flag.reason(), Some(StopReason::Terminate));
    }
}
