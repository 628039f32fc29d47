//! Signals to a launcher.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use halite_core::{
    Result,
    signals::{Handling, mask, unhandled},
};
use signal_hook::{
    SigId,
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
    low_level::unregister,
};

const NUMBERS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// While it lives, SIGHUP, SIGINT and SIGTERM are kept here instead of ending the process, but for
/// those that it ignores.
pub(crate) struct Signals {
    number: Arc<AtomicUsize>,
    actions: Vec<SigId>,
    handling: Option<Handling>,
}

impl Signals {
    /// # Errors
    /// If the system refuses.
    pub(crate) fn watch() -> Result<Self> {
        install_defaults()?;
        let mut signals = Signals {
            number: Arc::default(),
            actions: Vec::new(),
            handling: Some(Handling::begin()),
        };
        let ignored = mask("SigIgn:");
        for number in NUMBERS
            .into_iter()
            .filter(|&number| ignored & bit(number) == 0)
        {
            let action = flag::register_usize(number, signals.number.clone(), number as usize);
            signals.actions.push(action?);
        }
        Ok(signals)
    }

    /// The last signal since the call before.
    pub(crate) fn take(&self) -> Option<i32> {
        Some(self.number.swap(0, SeqCst) as i32).filter(|&number| number != 0)
    }

    /// Ends the process by signals again, and returns the last one that did not.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.restore();
        self.take()
    }

    fn restore(&mut self) {
        // First, so that no signal is lost in between.
        self.handling = None;
        for action in self.actions.drain(..) {
            unregister(action);
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.restore();
    }
}

/// A handler once installed stays. These do what the system would while nobody handles the signals,
/// but for what the program handled or ignored before.
fn install_defaults() -> Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*installed {
        let own = mask("SigIgn:") | mask("SigCgt:");
        for number in NUMBERS.into_iter().filter(|&number| own & bit(number) == 0) {
            flag::register_conditional_default(number, unhandled())?;
        }
        *installed = true;
    }
    Ok(())
}

fn bit(number: i32) -> u64 {
    1 << (number - 1)
}
