//! Age of this process.

use std::{fs, time::Duration};

/// Time since this process was started, to a hundredth of a second, program loading included.
/// `None` where the system does not provide it (other than Linux).
pub(crate) fn since_start() -> Option<Duration> {
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

    #[test]
    fn process_age_follows_the_clock() {
        let before = since_start().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let grown = since_start().unwrap() - before;
        assert!(
            before < Duration::from_secs(3600) && grown >= Duration::from_millis(30),
            "{before:?} {grown:?}"
        );
    }
}
