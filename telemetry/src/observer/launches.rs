//! The observer of one program's launches: counts them, times them on the host, and on the device
//! from the completion events of their results.

use std::{sync::Arc, time::Instant};

use halite_core::{DeviceBuffer, LaunchObserver, QueuedLaunch};
use tracing::Span;

use crate::{Metric, Metrics, Verbosity, console, function::Function};

/// The observer of one program's launches.
pub(super) struct FunctionLaunches {
    pub(super) metrics: Arc<Metrics>,
    pub(super) function: Arc<Function>,
    pub(super) inputs: u64,
    pub(super) outputs: u64,
}

impl LaunchObserver for FunctionLaunches {
    fn launched(&self, launch: &QueuedLaunch<'_>) {
        let FunctionLaunches {
            metrics, function, ..
        } = self;
        let number = metrics.counters.count_launch();
        let before = function.count_launch();
        let took = launch.queued - launch.started;
        metrics.timer(Metric::Launch).add_at(launch.queued, took);
        if metrics.clock.is_due(launch.queued) {
            self.time_launch(number, launch);
        }
        if metrics.options().verbosity >= Verbosity::Launches {
            console::print_launch(function, before, (self.inputs, self.outputs), launch);
        }
    }
}

impl FunctionLaunches {
    /// Times a launch, the client's `number`th, on its first device, and on all of them if a profile
    /// listens.
    fn time_launch(&self, number: u64, launch: &QueuedLaunch<'_>) {
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
            self.time_on_device(launch, &on_device, span.clone());
        }
    }

    /// Requests a notification when the launch completes on one device.
    fn time_on_device(&self, launch: &QueuedLaunch<'_>, on_device: &OnDevice<'_>, span: Span) {
        let &OnDevice {
            number,
            position,
            output,
        } = on_device;
        let Ok(ready) = output.ready() else { return };
        let device = output.placement().device.0;
        if position == 0 {
            self.metrics.clock.observed(number, launch.queued);
        }
        // A launch that is complete when the call returns was run by the call itself.
        let begun = if ready.is_ready() {
            launch.started
        } else {
            launch.queued
        };
        let (metrics, function) = (self.metrics.clone(), self.function.clone());
        ready.notify_when_ready(Box::new(move |result| {
            let end = Instant::now();
            let Some(previous_end) = metrics.clock.ended(position, number, end) else {
                return;
            };
            if result.is_err() {
                return;
            }
            let took = end.saturating_duration_since(previous_end.max(begun));
            if position == 0 {
                metrics.clock.took(took);
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
