//! Waits with a name, a limit and progress warnings.
//!
//! A long wait is a loop of short ones: between two of them it can be cancelled, and it logs what
//! it waits for. Only time in which the process runs counts, so that a process that was stopped for
//! a day (SIGSTOP, a suspended virtual machine) does not exceed its deadlines when it continues.

use std::{
    sync::{
        Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{Error, ErrorKind, Result};

/// Longest single sleep of [`wait_until`], and so the latency of a cancellation.
pub const SLICE: Duration = Duration::from_millis(200);

/// The default limit, a day: longer than any reasonable queue of work.
const A_DAY: Duration = Duration::from_secs(24 * 3600);

static DEFAULT_LIMIT: Limit = Limit::new(A_DAY);

/// The default limit of waits in this process: a day, unless [`set_default_limit`] changed it.
pub fn default_limit() -> Duration {
    DEFAULT_LIMIT.get()
}

/// Sets the default limit of waits in this process. Clients that exist already keep theirs.
pub fn set_default_limit(limit: Duration) {
    DEFAULT_LIMIT.set(limit);
}

/// Work that waits may wait for, such as the launches of a backend.
pub trait Work: Send + Sync {
    /// What it does now; `None` if nothing. Called by any thread, and never blocks for long.
    fn progress(&self) -> Option<String>;
}

static WORK: Mutex<Vec<Weak<dyn Work>>> = Mutex::new(Vec::new());

/// Adds what `work` does to the warnings of all long waits in this process, until it is dropped.
pub fn explain_with(work: Weak<dyn Work>) {
    let mut all = WORK.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|work| work.strong_count() > 0);
    all.push(work);
}

/// What the work of this process does, as the end of a sentence.
fn progress() -> String {
    let all = WORK.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let now: Vec<_> = all
        .iter()
        .filter_map(|work| work.upgrade()?.progress())
        .collect();
    if now.is_empty() {
        return String::new();
    }
    format!("; {}", now.join("; "))
}

/// A limit of waits that several threads read and change.
#[derive(Debug)]
pub struct Limit(AtomicU64);

impl Limit {
    /// A limit that starts as `limit`.
    pub const fn new(limit: Duration) -> Self {
        Limit(AtomicU64::new(whole_nanos(limit)))
    }

    /// The limit.
    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }

    /// Replaces the limit; 584 years or more are stored as 584 years.
    pub fn set(&self, limit: Duration) {
        self.0.store(whole_nanos(limit), Relaxed);
    }
}

const fn whole_nanos(time: Duration) -> u64 {
    let nanos = time.as_nanos();
    if nanos > u64::MAX as u128 {
        u64::MAX
    } else {
        nanos as u64
    }
}

/// Time after which a wait first logs a warning. Later warnings come at doubled times, at most an
/// hour apart.
const FIRST_REPORT: Duration = Duration::from_secs(60);

/// Longest time between two warnings.
const REPORT_EVERY: Duration = Duration::from_secs(3600);

/// A wait: its name, its duration so far and its limit.
///
/// ```
/// use halite_core::{ErrorKind, wait::Wait};
/// use std::time::Duration;
///
/// let mut wait = Wait::new("step 12", Duration::from_secs(1));
/// wait.slept(Duration::from_millis(200)).unwrap();
/// let error = (0..10).find_map(|_| wait.slept(Duration::from_millis(200)).err()).unwrap();
/// assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
/// assert_eq!(error.to_string(), "wait: step 12 was not ready within 1 s");
/// ```
#[derive(Debug)]
pub struct Wait {
    name: String,
    limit: Duration,
    waited: Duration,
    report_at: Duration,
    silent: bool,
}

impl Wait {
    /// A wait for `name` ("step 12", "batch 3 of epoch 1") that may take `limit`.
    pub fn new(name: impl Into<String>, limit: Duration) -> Self {
        Wait {
            name: name.into(),
            limit,
            waited: Duration::ZERO,
            report_at: FIRST_REPORT,
            silent: false,
        }
    }

    /// Disables the progress warnings, where the caller logs its own.
    pub fn silent(self) -> Self {
        Wait {
            silent: true,
            ..self
        }
    }

    /// The duration so far.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Adds a sleep that was meant to last at most [`SLICE`], and logs a warning when one is due.
    ///
    /// # Errors
    /// [`ErrorKind::DeadlineExceeded`], naming the wait, when the limit is reached.
    pub fn slept(&mut self, slept: Duration) -> Result<()> {
        if let Some(lasting) = self.count(slept)?
            && !self.silent
        {
            halite_core::warning!(
                "still waiting for {} after {} s{}",
                self.name,
                lasting.as_secs(),
                progress()
            );
        }
        Ok(())
    }

    /// Adds a sleep, and returns the duration so far when a warning is due.
    fn count(&mut self, slept: Duration) -> Result<Option<Duration>> {
        // A sleep that took much longer is one in which the process did not run.
        self.waited += slept.min(2 * SLICE);
        if self.waited >= self.limit {
            let message = format!("{} was not ready within {}", self.name, seconds(self.limit));
            return Err(Error::new(ErrorKind::DeadlineExceeded, "wait", message));
        }
        if self.waited < self.report_at {
            return Ok(None);
        }
        self.report_at += self.report_at.min(REPORT_EVERY);
        Ok(Some(self.waited))
    }
}

/// Calls `poll` with the time that it may block until it returns a value. Returns `None` when
/// `cancelled` returns true. `name` describes the wait in warnings and errors.
///
/// # Errors
/// [`ErrorKind::DeadlineExceeded`] after `limit`.
pub fn wait_until<T>(
    name: impl FnOnce() -> String,
    limit: Duration,
    cancelled: impl Fn() -> bool,
    mut poll: impl FnMut(Duration) -> Option<T>,
) -> Result<Option<T>> {
    let mut begun = Instant::now();
    if let Some(value) = poll(SLICE.min(limit)) {
        return Ok(Some(value));
    }
    let mut wait = Wait::new(name(), limit);
    loop {
        if cancelled() {
            return Ok(None);
        }
        wait.slept(begun.elapsed())?;
        begun = Instant::now();
        if let Some(value) = poll(SLICE.min(limit - wait.waited())) {
            return Ok(Some(value));
        }
    }
}

/// `90 s`, `0.5 s`.
fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_between_warnings_double() {
        let mut wait = Wait::new("a step of a day", A_DAY);
        let mut reports = Vec::new();
        while let Ok(report) = wait.count(SLICE) {
            reports.extend(report.map(|lasting| lasting.as_secs()));
        }
        assert_eq!(reports[..8], [60, 120, 240, 480, 960, 1920, 3840, 7440]);
        assert!(reports.len() < 32, "{reports:?}");
        assert_eq!(wait.waited(), A_DAY);
    }

    #[test]
    fn time_of_a_stopped_process_does_not_count() {
        let mut wait = Wait::new("a batch", Duration::from_secs(10));
        wait.slept(Duration::from_secs(86_400)).unwrap();
        assert!(wait.waited() < Duration::from_secs(1));
    }

    #[test]
    fn limit_saturates_at_584_years() {
        let limit = Limit::new(A_DAY);
        assert_eq!(limit.get(), A_DAY);
        limit.set(Duration::MAX);
        assert_eq!(limit.get(), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn warnings_say_what_runs() {
        struct Sorts;
        impl Work for Sorts {
            fn progress(&self) -> Option<String> {
                Some("`step` sorts".to_owned())
            }
        }
        let sorts: std::sync::Arc<dyn Work> = std::sync::Arc::new(Sorts);
        explain_with(std::sync::Arc::downgrade(&sorts));
        assert_eq!(progress(), "; `step` sorts");
        drop(sorts);
        assert_eq!(progress(), "");
    }

    #[test]
    fn cancellation_ends_a_wait() {
        let waited = wait_until(|| "nothing".into(), A_DAY, || true, |_| None::<()>);
        assert_eq!(waited.unwrap(), None);
    }
}
