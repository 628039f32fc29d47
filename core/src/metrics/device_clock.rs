//! How long launches run on the device, found from when their results are ready.
//!
//! Work on a device goes in the order of its launches, so a launch has run since the one before it
//! was done, or since it was queued, whichever is later. Being told costs about a microsecond,
//! which tiny steps would feel: where launches are short, only two in a row are asked for every 10
//! ms, and the second one's time is known.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::{Function, Metric, Metrics, lock};
use crate::DeviceBuffer;

#[derive(Debug)]
pub(crate) struct DeviceClock {
    started: Instant,
    every_launch: bool,
    /// Nanoseconds since `started` before which nothing is timed.
    due: AtomicU64,
    /// Whether launches take so long that each can be timed.
    long: AtomicBool,
    timed: Mutex<Timed>,
}

#[derive(Debug, Default)]
struct Timed {
    /// The launch that was last timed.
    last: Option<u64>,
    /// A launch whose end is known.
    done: Option<(u64, Instant)>,
}

impl DeviceClock {
    const PERIOD: Duration = Duration::from_millis(10);

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

    /// Whether the end of a launch that is queued at `now` is to be asked for.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.every_launch
            || self.long.load(Relaxed)
            || self.nanos(now) >= self.due.load(Relaxed)
            || tracing::enabled!(target: "halite::device", tracing::Level::TRACE)
    }

    fn nanos(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_nanos() as u64
    }
}

impl Metrics {
    /// Asks when `output` of the launch with this number, which was queued from `started` to `now`,
    /// is ready.
    pub(crate) fn time_launch(
        self: &Arc<Self>,
        function: &Arc<Function>,
        number: u64,
        (started, now): (Instant, Instant),
        output: Option<&DeviceBuffer>,
    ) {
        let Some(ready) = output.and_then(|output| output.ready().ok()) else {
            return;
        };
        {
            let mut timed = lock(&self.clock.timed);
            let is_second = number > 0 && timed.last == Some(number - 1);
            timed.last = Some(number);
            if is_second {
                self.clock.due.store(
                    self.clock.nanos(now) + DeviceClock::PERIOD.as_nanos() as u64,
                    Relaxed,
                );
            }
        }
        // A launch that is done when it returns was run by the call itself.
        let begun = if ready.is_ready() { started } else { now };
        let (metrics, function) = (self.clone(), function.clone());
        ready.notify_when_ready(Box::new(move |result| {
            let end = Instant::now();
            let before = lock(&metrics.clock.timed).done.replace((number, end));
            let Some((_, before)) = before.filter(|(before, _)| number > 0 && *before == number - 1) else { return };
            if result.is_err() {
                return;
            }
            let took = end.saturating_duration_since(before.max(begun));
            metrics.clock.long.store(took > DeviceClock::LONG, Relaxed);
            metrics.timer(Metric::Execute).add_at(end, took);
            function.executed(took);
            tracing::trace!(target: "halite::device", program = &*function.name, nanos = took.as_nanos() as u64, "execute");
        }));
    }
}
