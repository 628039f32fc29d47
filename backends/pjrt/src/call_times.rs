//! Counts and times of calls of a plugin's functions.

use std::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use halite_pjrt_sys::{SLOTS, Slot};

/// One function of a plugin: how often it was called since
/// [`Plugin::time_calls`](crate::Plugin::time_calls), and how long that took, on all threads
/// together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CallTime {
    /// The function's name in the header.
    pub function: &'static str,
    /// Number of calls.
    pub count: u64,
    /// Total duration of the calls.
    pub total: Duration,
}

/// Statistics of a table's calls. Off by default, as reading the clock twice per call costs time.
pub(crate) struct CallTimes {
    on: AtomicBool,
    /// Count and nanoseconds by slot, as in [`SLOTS`].
    slots: Box<[(AtomicU64, AtomicU64)]>,
}

impl CallTimes {
    pub(crate) fn new() -> Self {
        CallTimes {
            on: AtomicBool::new(false),
            slots: SLOTS.iter().map(|_| Default::default()).collect(),
        }
    }

    pub(crate) fn start(&self) {
        self.on.store(true, Relaxed);
    }

    /// Runs `call`, which calls the function of this slot.
    #[inline]
    pub(crate) fn time<R>(&self, slot: &Slot, call: impl FnOnce() -> R) -> R {
        if self.on.load(Relaxed) {
            self.time_now(slot, call)
        } else {
            call()
        }
    }

    #[cold]
    fn time_now<R>(&self, slot: &Slot, call: impl FnOnce() -> R) -> R {
        let started = Instant::now();
        let result = call();
        let took = started.elapsed().as_nanos() as u64;
        let (count, nanos) = &self.slots[(slot.offset - SLOTS[0].offset) / size_of::<usize>()];
        count.fetch_add(1, Relaxed);
        nanos.fetch_add(took, Relaxed);
        result
    }

    /// The functions that were called, in the order of the table.
    pub(crate) fn called(&self) -> Vec<CallTime> {
        let of = |(slot, (count, nanos)): (&Slot, &(AtomicU64, AtomicU64))| CallTime {
            function: slot.name,
            count: count.load(Relaxed),
            total: Duration::from_nanos(nanos.load(Relaxed)),
        };
        SLOTS
            .iter()
            .zip(&self.slots)
            .map(of)
            .filter(|call| call.count > 0)
            .collect()
    }
}

impl fmt::Debug for CallTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.called()).finish()
    }
}
