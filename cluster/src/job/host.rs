//! The host of a process.

use std::{fs, time::Duration};

use halite_core::{Collective, Result};

/// The name that the system has for this host.
pub(super) fn name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Index of this process among those of its host. Two machines may have one name, but not one name
/// and one boot.
pub(super) fn local_rank(group: &dyn Collective, patience: Duration) -> Result<usize> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mine = format!("{} {}", name(), boot.trim());
    let all = group.all_gather("hosts", mine.as_bytes(), patience)?;
    let before = all.iter().take(group.rank());
    Ok(before.filter(|host| **host == mine.as_bytes()).count())
}
