//! Hosts of processes.

use std::{fs, time::Duration};

use halite_core::{Collective, Result};

/// The name that the system has for this host.
pub(super) fn name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// The hosts of all processes, by rank. Two machines may have one name, but not one name and one boot.
pub(super) struct Hosts(Vec<(String, String)>);

/// # Errors
/// If a process does not tell its host within the deadline.
pub(super) fn all(group: &dyn Collective, patience: Duration) -> Result<Hosts> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mine = format!("{}\n{}", name(), boot.trim());
    let all = group.all_gather("hosts", mine.as_bytes(), patience)?;
    let split = |host: Vec<u8>| {
        let host = String::from_utf8_lossy(&host).into_owned();
        let (name, boot) = host.split_once('\n').unwrap_or((&host, ""));
        (name.to_owned(), boot.to_owned())
    };
    Ok(Hosts(all.into_iter().map(split).collect()))
}

impl Hosts {
    /// Index of process `rank` among those of its host.
    pub(super) fn local_rank(&self, rank: usize) -> usize {
        let before = self.0.iter().take(rank);
        before.filter(|host| **host == self.0[rank]).count()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }
}
