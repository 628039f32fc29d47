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

use tracing::Span;

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
    /// For each device of a launch, by position: the newest launch whose end is known.
    done: Vec<Option<(u64, Instant)>>,
}

impl Timed {
    /// Records the end of a launch on the device at `position`; returns the launch before it there.
    fn end(&mut self, position: usize, number: u64, end: Instant) -> Option<(u64, Instant)> {
        if self.done.len() <= position {
            self.done.resize(position + 1, None);
        }
        self.done[position].replace((number, end))
    }
}

/// A launch to time.
pub(crate) struct TimedLaunch<'a> {
    /// Number of the launch, over all programs of the client.
    pub(crate) number: u64,
    /// When the call that queued it began.
    pub(crate) started: Instant,
    /// When that call returned.
    pub(crate) queued: Instant,
    /// Results as `[device][output]`.
    pub(crate) outputs: &'a [Vec<DeviceBuffer>],
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
    /// Times a launch on its first device, and on all of them if a profile listens.
    pub(crate) fn time_launch(
        self: &Arc<Self>,
        function: &Arc<Function>,
        launch: &TimedLaunch<'_>,
    ) {
        let profiled = tracing::enabled!(target: "halite::device", tracing::Level::TRACE);
        let devices = if profiled { usize::MAX } else { 1 };
        // The events of the devices come on other threads, and belong to the span of this launch.
        let span = if profiled {
            Span::current()
        } else {
            Span::none()
        };
        for (position, outputs) in launch.outputs.iter().take(devices).enumerate() {
            if let Some(output) = outputs.first() {
                self.time_on_device(function, launch, position, output, span.clone());
            }
        }
    }

    /// Requests a notification when `output`, on the device at `position`, is ready.
    fn time_on_device(
        self: &Arc<Self>,
        function: &Arc<Function>,
        launch: &TimedLaunch<'_>,
        position: usize,
        output: &DeviceBuffer,
        span: Span,
    ) {
        let Ok(ready) = output.ready() else { return };
        let (number, device) = (launch.number, output.placement().device.0);
        if position == 0 {
            let mut timed = lock(&self.clock.timed);
            let is_second = number > 0 && timed.last == Some(number - 1);
            timed.last = Some(number);
            if is_second {
                let due = self.clock.nanos(launch.queued) + DeviceClock::PERIOD.as_nanos() as u64;
                self.clock.due.store(due, Relaxed);
            }
        }
        // A launch that is done when it returns was run by the call itself.
        let begun = if ready.is_ready() {
            launch.started
        } else {
            launch.queued
        };
        let (metrics, function) = (self.clone(), function.clone());
        ready.notify_when_ready(Box::new(move |result| {
            let end = Instant::now();
            let before = lock(&metrics.clock.timed).end(position, number, end);
            let is_previous = |before: &(u64, Instant)| number > 0 && before.0 == number - 1;
            let Some((_, before)) = before.filter(is_previous) else {
                return;
            };
            if result.is_err() {
                return;
            }
            let took = end.saturating_duration_since(before.max(begun));
            if position == 0 {
                metrics.clock.long.store(took > DeviceClock::LONG, Relaxed);
                metrics.timer(Metric::Execute).add_at(end, took);
                function.executed(took);
            }
            tracing::trace!(
                target: "halite::device",
                parent: &span,
                program = &*function.name,
                device,
                nanos = took.as_nanos() as u64,
                "execute"
            );
        }));
    }
}
