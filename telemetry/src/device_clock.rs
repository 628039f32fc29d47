//! Times of launches on the device, measured from the completion events of their results.
//!
//! A device runs its launches in order, so a launch has run since the previous one completed, or
//! since it was queued, whichever is later. An event's callback costs about a microsecond, which
//! tiny steps would notice: where launches are short, only two successive ones are observed every
//! 10 ms, which gives the time of the second.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use halite_core::{DeviceBuffer, QueuedLaunch};
use tracing::Span;

use crate::{
    Metric, Metrics,
    metrics::{Function, lock},
};

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

impl Timed {
    /// Records the end of a launch on the device at `position`; returns the launch before it there.
    fn end(&mut self, position: usize, number: u64, end: Instant) -> Option<(u64, Instant)> {
        if self.done.len() <= position {
            self.done.resize(position + 1, None);
        }
        self.done[position].replace((number, end))
    }
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
}

impl Metrics {
    /// Times a launch, the client's `number`th, on its first device, and on all of them if a profile
    /// listens.
    pub(crate) fn time_launch(
        self: &Arc<Self>,
        function: &Arc<Function>,
        number: u64,
        launch: &QueuedLaunch<'_>,
    ) {
        let profiled = tracing::enabled!(target: "halite::device", tracing::Level::TRACE);
        let devices = if profiled { usize::MAX } else { 1 };
        // The events of the devices come on other threads, and belong to the span of this launch.
        let span = if profiled {
            Span::current()
        } else {
            Span::none()
        };
        let Some(output) = launch.outputs.first() else {
            return;
        };
        for (position, output) in output.iter().take(devices).enumerate() {
            let on_device = OnDevice {
                number,
                position,
                output,
            };
            self.time_on_device(function, launch, &on_device, span.clone());
        }
    }

    /// Requests a notification when the launch completes on one device.
    fn time_on_device(
        self: &Arc<Self>,
        function: &Arc<Function>,
        launch: &QueuedLaunch<'_>,
        on_device: &OnDevice<'_>,
        span: Span,
    ) {
        let &OnDevice {
            number,
            position,
            output,
        } = on_device;
        let Ok(ready) = output.ready() else { return };
        let device = output.placement().device.0;
        if position == 0 {
            let mut timed = lock(&self.clock.timed);
            let is_second = number > 0 && timed.last == Some(number - 1);
            timed.last = Some(number);
            if is_second {
                let next = self.clock.nanos(launch.queued) + DeviceClock::PERIOD.as_nanos() as u64;
                self.clock.due.store(next, Relaxed);
            }
        }
        // A launch that is complete when the call returns was run by the call itself.
        let begun = if ready.is_ready() {
            launch.started
        } else {
            launch.queued
        };
        let (metrics, function) = (self.clone(), function.clone());
        ready.notify_when_ready(Box::new(move |result| {
            let end = Instant::now();
            let done = lock(&metrics.clock.timed).end(position, number, end);
            let previous = done.filter(|(previous, _)| number > 0 && *previous == number - 1);
            let Some((_, previous_end)) = previous else {
                return;
            };
            if result.is_err() {
                return;
            }
            let took = end.saturating_duration_since(previous_end.max(begun));
            if position == 0 {
                metrics.clock.long.store(took > DeviceClock::LONG, Relaxed);
                metrics.timer(Metric::Execute).add_at(end, took);
                function.add_execution(took);
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

/// A launch as one device runs it.
struct OnDevice<'a> {
    /// Number of the launch, over all programs of the client.
    number: u64,
    /// Position of the device among those of the launch.
    position: usize,
    /// A result on this device.
    output: DeviceBuffer<'a>,
}
