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
use halite_nn::Processes;

/// Least limit of a wait for processes that start or compile.
const START: Duration = Duration::from_secs(300);

/// Longest wait for processes that start or compile: longer where the user expects longer waits
/// within steps.
pub(crate) fn patience(processes: &Processes) -> Duration {
    processes.patience().max(START)
}

/// Limit of the wait for the next step or batch, derived from the time that others took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The user's choice, [`TrainerOptions::wait_limit`](crate::TrainerOptions::wait_limit).
    chosen: Option<Duration>,
    longest: Option<Duration>,
}

impl Limits {
    /// A step that takes this many times as long as the longest before is treated as hanging.
    const FACTOR: u32 = 20;
    /// Least limit: a suspended machine, a slow disk or other load can delay a step this long.
    const LEAST: Duration = Duration::from_secs(3600);
    /// Time that a run may use to complete its steps once it is asked to stop. Schedulers often
    /// allow 30 s in total.
    const GRACE: Duration = Duration::from_secs(20);

    pub(crate) fn new(chosen: Option<Duration>) -> Self {
        Limits {
            chosen,
            longest: None,
        }
    }

    /// Records a step or batch that `took` this long.
    pub(crate) fn measured(&mut self, took: Duration) {
        self.longest = self.longest.max(Some(took));
    }

    /// Longest wait for the next one. The first may take a day.
    pub(crate) fn limit(&self) -> Duration {
        let measured = self.longest.map_or(default_limit(), |longest| {
            longest.saturating_mul(Self::FACTOR).max(Self::LEAST)
        });
        self.chosen.unwrap_or(measured)
    }

    /// Longest wait once the run was asked to stop.
    pub(crate) fn grace(&self) -> Duration {
        let twice = self
            .longest
            .map_or(Duration::ZERO, |longest| longest.saturating_mul(2));
        self.limit().min(twice.max(Self::GRACE))
    }
}

/// Waits for work that a stop must not skip, such as queued steps: within `limits`, and after a
/// request to stop only for the [grace](Limits::grace) period.
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
    let late = |error: Error| error.with_note("the run had been asked to stop");
    let value = wait_until(name, limits.grace(), || false, poll).map_err(late)?;
    Ok(value.expect("this wait is not cancelled"))
}

/// Waits within `limits`; `None` if the run is asked to stop first.
///
/// # Errors
/// [`DeadlineExceeded`](halite_core::ErrorKind::DeadlineExceeded), naming the wait.
pub(crate) fn wait<T>(
    name: impl Fn() -> String,
    limits: &Limits,
    stop: &dyn Fn() -> bool,
    poll: impl FnMut(Duration) -> Option<T>,
) -> Result<Option<T>> {
    let late = |error: Error| error.with_note("set a longer limit with `wait_limit`, --wait-limit");
    wait_until(name, limits.limit(), stop, poll).map_err(late)
}

/// Result of waiting for the next batch.
pub(crate) enum NextBatch<B> {
    Batch(B),
    /// The epoch has no more batches.
    End,
    /// The run is asked to stop before the batch has arrived.
    Stopped,
}

/// Waits for the next batch of `data`, "training" or "validation".
///
/// # Errors
/// The error of reading or uploading it;
/// [`DeadlineExceeded`](halite_core::ErrorKind::DeadlineExceeded), naming the batch, if it is late.
pub(crate) fn next_batch(
    data: &'static str,
    prefetch: &mut Prefetch,
    limits: &mut Limits,
    stop: &dyn Fn() -> bool,
) -> Result<NextBatch<DeviceBatch>> {
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
        // The first step may take ten hours.
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
