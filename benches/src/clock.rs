//! The clock of the benchmarks.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

/// How long a clock waits for the other threads to sleep, before it reads their times.
const PAUSE: Duration = Duration::from_micros(500);

/// Measures the processor time of all threads of this process together, which a busy machine
/// changes less than the time that passes. Where the system does not say it as Linux does, it is
/// that time.
#[derive(Debug)]
pub struct ProcessorClock(HashMap<OsString, f64>);

impl ProcessorClock {
    /// Starts. Work that was queued should be done.
    pub fn start() -> Self {
        ProcessorClock(times())
    }

    /// Seconds since the start. Of a thread that has ended meanwhile, such as one that compiled,
    /// nothing counts.
    pub fn seconds(&self) -> f64 {
        let since = |(thread, time)| time - self.0.get(&thread).copied().unwrap_or(0.0);
        times().into_iter().map(since).sum()
    }
}

/// Seconds that each thread ran.
fn times() -> HashMap<OsString, f64> {
    // The time that the system reports for a running thread is that of its last tick, milliseconds
    // ago.
    thread::sleep(PAUSE);
    let of_thread = |task: fs::DirEntry| -> Option<(OsString, f64)> {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
        Some((task.file_name(), 1e-9 * nanoseconds))
    };
    match fs::read_dir("/proc/self/task") {
        Ok(tasks) => tasks.flatten().filter_map(of_thread).collect(),
        Err(_) => {
            static START: LazyLock<Instant> = LazyLock::new(Instant::now);
            HashMap::from([(OsString::new(), START.elapsed().as_secs_f64())])
        }
    }
}
