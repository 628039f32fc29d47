//! What the launches of an executable share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use halite_core::Interpreted;
use halite_kernels::Threads;
use halite_stablehlo::Module;

use crate::{fast::Plan, oracle::Partitioning};

/// Nanoseconds in the oracle from which on a program is worth a warning.
const WORTH_A_WARNING: u64 = 100_000_000;

/// What the launches of an executable share.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) module: Arc<Module>,
    /// The plan of the fast mode, and the threads that run its kernels.
    pub(crate) fast: Option<(Plan, Arc<Threads>)>,
    pub(crate) partitioning: Partitioning,
    pub(crate) replicas: usize,
    pub(crate) partitions: usize,
    pub(crate) name: Arc<str>,
    /// Start of the digest of its code: a program that is loaded has another name.
    pub(crate) digest: [u8; 8],
    /// Operations of the fast mode that the oracle computes.
    pub(crate) interpreted: Vec<Interpreted>,
    pub(crate) slowness: Slowness,
}

/// Whether a warning about interpreted operations is due.
#[derive(Debug, Default)]
pub(crate) struct Slowness {
    /// Nanoseconds of all jobs so far.
    spent: AtomicU64,
    is_reported: AtomicBool,
}

impl Ready {
    /// The warning that the oracle computes much of what took `took` and the jobs before, once.
    pub(crate) fn slow_warning(&self, took: Duration) -> Option<String> {
        let took = took.as_nanos() as u64;
        let spent = self.slowness.spent.fetch_add(took, Relaxed) + took;
        let nanoseconds = |it: &Interpreted| it.nanoseconds.load(Relaxed);
        let slow: u64 = self.interpreted.iter().map(nanoseconds).sum();
        if slow < WORTH_A_WARNING
            || slow < spent / 10
            || self.slowness.is_reported.swap(true, Relaxed)
        {
            return None;
        }
        let mut operations: Vec<_> = self.interpreted.iter().collect();
        operations.sort_by_key(|it| std::cmp::Reverse(nanoseconds(it)));
        let percent = |part: u64| (100.0 * part as f64 / spent.max(1) as f64).min(100.0);
        let named: Vec<_> = (operations.iter().take(5))
            .map(|it| format!("{it} ({:.0} %)", percent(nanoseconds(it))))
            .collect();
        Some(format!(
            "`{}` spends {:.0} % of its time in the exact interpreter, as the embedded executor \
             has no kernel for {}; see docs/how-to-find-what-is-wrong.md",
            self.name,
            percent(slow),
            named.join(", ")
        ))
    }
}
