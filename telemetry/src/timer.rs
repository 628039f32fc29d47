//! Lock-free timers.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Number of samples that a [`Timer`] keeps.
const CAPACITY: usize = 1024;

/// The percentiles of a report.
pub const PERCENTILES: [u32; 9] = [1, 5, 10, 20, 50, 80, 90, 95, 99];

/// A timer: the count and sum of all samples, and the newest 1024 samples.
///
/// Adding a sample is four atomic stores and takes no lock. A reader that meets a writer may see
/// the time of one sample with the value of another.
///
/// ```
/// use halite_telemetry::Timer;
/// use std::time::Duration;
///
/// let timer = Timer::new();
/// for millis in 1..=100 {
///     timer.add(Duration::from_millis(millis));
/// }
/// let timing = timer.timing();
/// assert_eq!((timing.count, timing.total), (100, Duration::from_millis(5050)));
/// assert_eq!(timing.percentile(50), Some(Duration::from_millis(50)));
/// ```
pub struct Timer {
    epoch: Instant,
    count: AtomicU64,
    nanos: AtomicU64,
    /// A ring: sample `n` is at `n % CAPACITY`.
    samples: Box<[Slot]>,
}

#[derive(Default)]
struct Slot {
    at: AtomicU64,
    nanos: AtomicU64,
}

/// The state of a [`Timer`] at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timing {
    /// Number of all samples.
    pub count: u64,
    /// Their sum.
    pub total: Duration,
    /// The newest samples, oldest first: the end, since the timer was created, and the duration.
    pub samples: Vec<(Duration, Duration)>,
}

impl Timer {
    /// A timer without samples.
    pub fn new() -> Self {
        Timer::since(Instant::now())
    }

    /// A timer whose samples' ends are relative to `epoch`.
    pub(crate) fn since(epoch: Instant) -> Self {
        let samples = std::iter::repeat_with(Slot::default)
            .take(CAPACITY)
            .collect();
        Timer {
            epoch,
            count: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            samples,
        }
    }

    /// Adds a sample that ends now.
    pub fn add(&self, took: Duration) {
        self.add_at(Instant::now(), took);
    }

    /// Adds the time from `started` to now, and returns it.
    pub fn add_since(&self, started: Instant) -> Duration {
        let now = Instant::now();
        let took = now.saturating_duration_since(started);
        self.add_at(now, took);
        took
    }

    /// Adds a sample that ended at `now`.
    pub fn add_at(&self, now: Instant, took: Duration) {
        let nanos = took.as_nanos() as u64;
        let slot = &self.samples[self.count.fetch_add(1, Relaxed) as usize % CAPACITY];
        self.nanos.fetch_add(nanos, Relaxed);
        slot.at.store(
            now.saturating_duration_since(self.epoch).as_nanos() as u64,
            Relaxed,
        );
        slot.nanos.store(nanos, Relaxed);
    }

    /// Runs `work` and adds its duration.
    pub fn time<R>(&self, work: impl FnOnce() -> R) -> R {
        let started = Instant::now();
        let result = work();
        self.add_since(started);
        result
    }

    /// Removes all samples.
    pub fn clear(&self) {
        self.count.store(0, Relaxed);
        self.nanos.store(0, Relaxed);
    }

    /// The state now.
    pub fn timing(&self) -> Timing {
        let count = self.count.load(Relaxed);
        let len = (count as usize).min(CAPACITY);
        let newest =
            (count as usize - len..count as usize).map(|index| &self.samples[index % CAPACITY]);
        let sample = |slot: &Slot| {
            (
                Duration::from_nanos(slot.at.load(Relaxed)),
                Duration::from_nanos(slot.nanos.load(Relaxed)),
            )
        };
        Timing {
            count,
            total: Duration::from_nanos(self.nanos.load(Relaxed)),
            samples: newest.map(sample).collect(),
        }
    }
}

impl Default for Timer {
    fn default() -> Self {
        Timer::new()
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Timer({} samples, {:?})",
            self.count.load(Relaxed),
            Duration::from_nanos(self.nanos.load(Relaxed))
        )
    }
}

impl Timing {
    /// Mean of all samples; zero without samples.
    pub fn mean(&self) -> Duration {
        self.total
            .checked_div(u32::try_from(self.count).unwrap_or(u32::MAX))
            .unwrap_or_default()
    }

    /// The smallest of the newest samples that at least `percent` of them do not exceed.
    pub fn percentile(&self, percent: u32) -> Option<Duration> {
        self.percentiles([percent]).map(|[value]| value)
    }

    /// Several percentiles at once.
    pub fn percentiles<const N: usize>(&self, percents: [u32; N]) -> Option<[Duration; N]> {
        let mut values: Vec<Duration> = self.samples.iter().map(|(_, took)| *took).collect();
        values.sort_unstable();
        let rank = |percent: u32| {
            (values.len() * percent.min(100) as usize)
                .div_ceil(100)
                .max(1)
                - 1
        };
        (!values.is_empty()).then(|| percents.map(|percent| values[rank(percent)]))
    }

    /// Samples per second, over the time that the newest span; `None` with fewer than two.
    pub fn rate(&self) -> Option<f64> {
        let (first, last) = (self.samples.first()?, self.samples.last()?);
        // The first sample began before it ended.
        let span = (last.0.saturating_sub(first.0) + first.1).as_secs_f64();
        (self.samples.len() > 1 && span > 0.0).then(|| self.samples.len() as f64 / span)
    }

    /// Sum of durations per second, over the time that the newest samples span; `None` with fewer
    /// than two.
    pub fn value_rate(&self) -> Option<f64> {
        let mean = self
            .samples
            .iter()
            .map(|(_, took)| took.as_secs_f64())
            .sum::<f64>()
            / self.samples.len() as f64;
        self.rate().map(|rate| rate * mean)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn percentiles_are_those_of_the_newest_samples() {
        let timer = Timer::new();
        assert_eq!(timer.timing().percentile(50), None);
        for millis in 1..=100 {
            timer.add(Duration::from_millis(millis));
        }
        let percentiles = timer.timing().percentiles(PERCENTILES).unwrap();
        assert_eq!(
            percentiles.map(|value| value.as_millis() as u32),
            PERCENTILES
        );
        for _ in 0..2 * CAPACITY {
            timer.add(Duration::from_secs(1));
        }
        let timing = timer.timing();
        assert_eq!(timing.count, 100 + 2 * CAPACITY as u64);
        assert_eq!(timing.samples.len(), CAPACITY);
        assert_eq!(
            timing.percentile(1),
            Some(Duration::from_secs(1)),
            "the old samples are gone"
        );
        timer.clear();
        assert_eq!(timer.timing(), Timing::default());
    }

    #[test]
    fn rates_cover_the_time_span_of_the_samples() {
        let start = Instant::now();
        let timer = Timer::since(start);
        for second in 1..=10 {
            timer.add_at(
                start + Duration::from_secs(second),
                Duration::from_millis(500),
            );
        }
        let timing = timer.timing();
        // Ten samples from 0.5 s to 10 s.
        assert!((timing.rate().unwrap() - 10.0 / 9.5).abs() < 1e-9);
        assert!((timing.value_rate().unwrap() - 5.0 / 9.5).abs() < 1e-9);
    }

    #[test]
    fn samples_of_concurrent_threads_are_all_counted() {
        let timer = Arc::new(Timer::new());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let timer = timer.clone();
                std::thread::spawn(move || {
                    (0..1000).for_each(|_| timer.add(Duration::from_nanos(3)))
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(
            (timer.timing().count, timer.timing().total),
            (4000, Duration::from_nanos(12_000))
        );
    }
}
