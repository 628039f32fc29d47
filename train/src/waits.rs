//! Waits of a run for data, compilers and devices. Each has a name and a limit that follows what
//! was measured, and ends soon after the run was asked to stop.

use std::{
    task::Poll,
    time::{Duration, Instant},
};

use halite_core::{
    Error, Result,
    wait::{default_limit, wait_until},
};
use halite_data::{DeviceBatch, Prefetch};

/// How long to wait for one more of something (a step, a batch), by how long the others took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The user's choice, [`TrainerOptions::wait_limit`](crate::TrainerOptions::wait_limit).
    chosen: Option<Duration>,
    longest: Option<Duration>,
}

impl Limits {
    /// A step that takes this many times as long as the longest before is taken for one that never
    /// ends.
    const FACTOR: u32 = 20;
    /// Least limit: a suspended machine, a slow disk or other load can delay a step this long.
    const LEAST: Duration = Duration::from_secs(3600);
    /// What a run may use to come to the end of its steps once it is asked to stop. Schedulers
    /// often allow 30 s in all.
    const GRACE: Duration = Duration::from_secs(20);

    pub(crate) fn new(chosen: Option<Duration>) -> Self {
        Limits {
            chosen,
            longest: None,
        }
    }

    /// Takes into account one that `took` so long.
    pub(crate) fn measured(&mut self, took: Duration) {
        self.longest = self.longest.max(Some(took));
    }

    /// The longest wait for the next one. The first, of which nothing is known, may take a day.
    pub(crate) fn limit(&self) -> Duration {
        let measured = self.longest.map_or(default_limit(), |longest| {
            longest.saturating_mul(Self::FACTOR).max(Self::LEAST)
        });
        self.chosen.unwrap_or(measured)
    }

    /// The longest wait once the run was asked to stop.
    pub(crate) fn grace(&self) -> Duration {
        let twice = self
            .longest
            .map_or(Duration::ZERO, |longest| longest.saturating_mul(2));
        self.limit().min(twice.max(Self::GRACE))
    }
}

/// Waits for what a stop must not skip, such as the steps that are queued: as long as `limits` say,
/// and from a request to stop on only for the [grace](Limits::grace).
///
/// # Errors
/// [`DeadlineExceeded`](halite_core::ErrorKind::DeadlineExceeded), naming the wait.
pub(crate) fn wait_also_when_stopped<T>(
    name: impl Fn() -> String,
    limits: &Limits,
    stop: &dyn Fn() -> bool,
    mut poll: impl FnMut(Duration) -> Option<T>,
) -> Result<T> {
    if let Some(value) = wait(&name, limits, stop, &mut poll)? {
        return Ok(value);
    }
    tracing::info!(
        "asked to stop: waiting for {}, at most {:?}",
        name(),
        limits.grace()
    );
    let late = |error: Error| error.with_note("that was when the run had been asked to stop");
    let value = wait_until(name, limits.grace(), || false, poll).map_err(late)?;
    Ok(value.expect("this wait is not cancelled"))
}

/// Waits for one more of something; `None` if the run is asked to stop first.
///
/// # Errors
/// [`DeadlineExceeded`](halite_core::ErrorKind::DeadlineExceeded), naming the wait.
pub(crate) fn wait<T>(
    name: impl Fn() -> String,
    limits: &Limits,
    stop: &dyn Fn() -> bool,
    poll: impl FnMut(Duration) -> Option<T>,
) -> Result<Option<T>> {
    let late = |error: Error| {
        error.with_note("a longer wait can be asked for (`wait_limit`, --wait-limit)")
    };
    wait_until(name, limits.limit(), stop, poll).map_err(late)
}

/// Result of waiting for the next batch.
pub(crate) enum NextBatch {
    Batch(DeviceBatch),
    /// There are no more in this epoch.
    End,
    /// The run is asked to stop, and the batch is not there yet.
    Stopped,
}

/// Waits for the next batch of `data`, "training" or "validation".
///
/// # Errors
/// Why it cannot be had; [`DeadlineExceeded`](halite_core::ErrorKind::DeadlineExceeded), naming the
/// batch, if it is late.
pub(crate) fn next_batch(
    data: &'static str,
    prefetch: &mut Prefetch,
    limits: &mut Limits,
    stop: &dyn Fn() -> bool,
) -> Result<NextBatch> {
    let position = prefetch.next_position();
    let name = || {
        format!(
            "batch {} of epoch {} of the {data} data",
            position.batch, position.epoch
        )
    };
    let begun = Instant::now();
    let next = wait(name, limits, stop, |slice| {
        match prefetch.poll_next(slice) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        }
    })?;
    limits.measured(begun.elapsed());
    Ok(match next {
        None => NextBatch::Stopped,
        Some(None) => NextBatch::End,
        Some(Some(batch)) => NextBatch::Batch(batch?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn limits_follow_the_longest_step() {
        let mut limits = Limits::new(None);
        // The first step may be one of ten hours.
        assert!(limits.limit() >= 20 * HOUR);
        limits.measured(Duration::from_millis(3));
        assert_eq!(limits.limit(), HOUR);
        limits.measured(10 * HOUR);
        limits.measured(HOUR);
        assert_eq!(limits.limit(), 200 * HOUR);
        assert_eq!(limits.grace(), 20 * HOUR);
    }

    #[test]
    fn chosen_limit_is_the_limit() {
        let mut limits = Limits::new(Some(Duration::from_secs(7)));
        limits.measured(HOUR);
        assert_eq!(
            (limits.limit(), limits.grace()),
            (Duration::from_secs(7), Duration::from_secs(7))
        );
    }

    #[test]
    fn grace_is_short_where_steps_are() {
        let mut limits = Limits::new(None);
        limits.measured(Duration::from_millis(3));
        assert_eq!(limits.grace(), Limits::GRACE);
    }
}
