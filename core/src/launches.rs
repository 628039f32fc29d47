//! Launches that the processes of a job make together.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::ProcessGroup;

/// The processes of a job that launch the same programs in the same order, because a program
/// communicates with the other processes, and the number of launches of this process so far.
#[derive(Debug)]
pub struct Launches {
    group: Arc<dyn ProcessGroup>,
    count: AtomicU64,
}

impl Launches {
    /// Launches of the processes of `group`, none so far.
    pub fn new(group: Arc<dyn ProcessGroup>) -> Self {
        Launches {
            group,
            count: AtomicU64::new(0),
        }
    }

    /// The group on the hosts.
    pub fn group(&self) -> &Arc<dyn ProcessGroup> {
        &self.group
    }

    /// Counts a launch, and returns its number, from 1.
    pub fn next(&self) -> u64 {
        self.count.fetch_add(1, Relaxed) + 1
    }
}
