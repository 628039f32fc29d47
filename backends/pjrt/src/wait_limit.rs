//! The wait limit of a client.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use halite_core::{Result, wait::limit_of_environment};

/// Deadline of every wait of a client, from the start of the wait.
#[derive(Debug)]
pub(crate) struct WaitLimit {
    nanos: AtomicU64,
}

impl WaitLimit {
    /// The seconds in `HALITE_WAIT_LIMIT`, or a day.
    ///
    /// # Errors
    /// If the variable is no positive number.
    pub(crate) fn of_environment() -> Result<Self> {
        limit_of_environment().map(Self::new)
    }

    fn new(limit: Duration) -> Self {
        let this = WaitLimit {
            nanos: AtomicU64::new(0),
        };
        this.set(limit);
        this
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Relaxed))
    }

    pub(crate) fn set(&self, limit: Duration) {
        self.nanos
            .store(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::with_override;

    #[test]
    fn wait_limit_comes_from_the_environment() {
        assert_eq!(
            WaitLimit::of_environment().unwrap().get(),
            Duration::from_secs(86_400)
        );
        let of = |text: &str| {
            with_override("HALITE_WAIT_LIMIT", text.as_bytes(), || {
                WaitLimit::of_environment().map(|limit| limit.get())
            })
        };
        assert_eq!(of("90").unwrap(), Duration::from_secs(90));
        assert_eq!(of(" 0.5 ").unwrap(), Duration::from_millis(500));
        assert_eq!(of("1e15").unwrap(), Duration::from_nanos(u64::MAX));
        assert_eq!(of("").unwrap(), Duration::from_secs(86_400));
        for wrong in ["0", "-1", "ten", "inf", "NaN", "1e30"] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(
                error.contains(&format!(
                    "HALITE_WAIT_LIMIT={wrong}: expected a number of seconds"
                )),
                "{error}"
            );
        }
    }
}
