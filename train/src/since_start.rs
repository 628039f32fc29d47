//! Age of this process.

use std::{
    env, fs,
    sync::OnceLock,
    time::{Duration, Instant},
};

static MAIN: OnceLock<Instant> = OnceLock::new();

/// Records the start of `main`, for reports of programs that `cargo run` started.
pub fn main_starts() {
    _ = MAIN.set(Instant::now());
}

/// Time since this program was started, to a hundredth of a second, program loading included.
/// `None` where the system does not provide it (other than Linux).
///
/// `cargo run` builds a program in the process that then executes it, so the process is older than
/// the program. It counts from `main` there, or is `None` if that is unknown.
pub(crate) fn since_start() -> Option<Duration> {
    match env::var_os("CARGO") {
        Some(_) => MAIN.get().map(Instant::elapsed),
        None => age_of_process(),
    }
}

fn age_of_process() -> Option<Duration> {
    // The kernel reports in hundredths of a second, whatever its own clock rate.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name is in parentheses, and may have any character in it. The start is the 22nd
    // field.
    let started: f64 = stat
        .rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()?;
    let now: f64 = fs::read_to_string("/proc/uptime")
        .ok()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    Duration::try_from_secs_f64(now - started / TICKS).ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Cargo sets its variable for tests too.
    #[test]
    fn program_that_cargo_runs_counts_from_main() {
        assert!(env::var_os("CARGO").is_some());
        assert_eq!(since_start(), None);
        std::thread::sleep(Duration::from_millis(100));
        main_starts();
        let since = since_start().unwrap();
        assert!(since < age_of_process().unwrap(), "{since:?}");
    }

    #[test]
    fn process_age_follows_the_clock() {
        let before = age_of_process().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let grown = age_of_process().unwrap() - before;
        assert!(
            before < Duration::from_secs(3600) && grown >= Duration::from_millis(30),
            "{before:?} {grown:?}"
        );
    }
}
