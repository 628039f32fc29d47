//! Deadlines of an installation. Nothing here waits.

use std::time::Duration;

use crate::package::Package;

/// Deadlines of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For the download and unpacking of one archive, over all runs of its client.
    pub download: Duration,
    /// For a client without progress: one that writes nothing to disk.
    pub stall: Duration,
    /// For another process that installs the same package. `None` means the longest time that it
    /// may take: `download` for each of the package's archives, and five minutes.
    pub lock: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        Self {
            download: minutes(30),
            stall: minutes(3),
            lock: None,
        }
    }
}

impl Limits {
    /// Longest time that another process may hold the lock of a package.
    pub(crate) fn longest_wait(&self, package: &Package) -> Duration {
        // To write and sync the download.
        const BESIDES: Duration = Duration::from_secs(5 * 60);
        let archives = u32::try_from(package.archives().count()).unwrap_or(u32::MAX);
        self.lock.unwrap_or_else(|| {
            self.download
                .saturating_mul(archives)
                .saturating_add(BESIDES)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::tests::PART;

    #[test]
    fn waiting_lasts_as_long_as_the_work() {
        let limits = Limits::default();
        let wait = limits.longest_wait(&Package {
            parts: &[PART, PART],
            ..PART
        });
        assert!(wait > 3 * limits.download, "{wait:?}");
    }
}
