//! The clock of a client's devices: which launches are timed there, and when the previous one
//! completed.
//!
//! A device runs its launches in order, so a launch has run since the previous one completed, or
//! since it was queued, whichever is later. An event's callback costs about a microsecond, which
//! tiny steps would notice: where launches are short, only two successive ones are observed every
//! 10 ms, which gives the time of the second.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Ends of launches on the devices of a client.
#[derive(Debug)]
pub(crate) struct DeviceClock {
    started: Instant,
    every_launch: bool,
    /// Nanoseconds since `started` before which no launch is timed.
    due: AtomicU64,
    /// True if launches are long enough to time each of them.
    long: AtomicBool,
    timed: Mutex<Timed>,
}

#[derive(Debug, Default)]
struct Timed {
    /// Number of the launch that was observed last.
    last: Option<u64>,
    /// For each device of a launch, by position: the newest launch that completed, and when.
    done: Vec<Option<(u64, Instant)>>,
}

impl DeviceClock {
    /// Time between two samples of short launches.
    const PERIOD: Duration = Duration::from_millis(10);

    /// Launches that take longer are all timed.
    const LONG: Duration = Duration::from_micros(200);

    pub(crate) fn new(every_launch: bool) -> Self {
        DeviceClock {
            started: Instant::now(),
            every_launch,
            due: AtomicU64::new(0),
            long: AtomicBool::new(false),
            timed: Mutex::default(),
        }
    }

    /// Returns whether to observe the completion of a launch that is queued at `now`.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.every_launch
            || self.long.load(Relaxed)
            || self.nanos(now) >= self.due.load(Relaxed)
            || tracing::enabled!(target: "halite::device", tracing::Level::TRACE)
    }

    fn nanos(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_nanos() as u64
    }

    fn timed(&self) -> MutexGuard<'_, Timed> {
        self.timed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the completion of the client's `number`th launch is observed. The second of two
    /// successive ones ends a sample.
    pub(crate) fn observed(&self, number: u64, queued: Instant) {
        let mut timed = self.timed();
        let is_second = number > 0 && timed.last == Some(number - 1);
        timed.last = Some(number);
        if is_second {
            let next = self.nanos(queued) + Self::PERIOD.as_nanos() as u64;
            self.due.store(next, Relaxed);
        }
    }

    /// Records the end of a launch on the device at `position`; returns the end of the launch before
    /// it there, if that was observed.
    pub(crate) fn ended(&self, position: usize, number: u64, end: Instant) -> Option<Instant> {
        let mut timed = self.timed();
        if timed.done.len() <= position {
            timed.done.resize(position + 1, None);
        }
        let (previous, previous_end) = timed.done[position].replace((number, end))?;
        (number > 0 && previous == number - 1).then_some(previous_end)
    }

    /// Decides by the time of a launch whether all of the next ones are timed.
    pub(crate) fn took(&self, took: Duration) {
        self.long.store(took > Self::LONG, Relaxed);
    }
}
