//! Work on numbered cases by several threads.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

/// Runs `work` on each number, in order, by this number of threads (at least one). Returns the
/// results in the order of the numbers.
///
/// # Panics
/// If `work` panics.
pub fn map<R: Send>(jobs: usize, numbers: Range<u64>, work: impl Fn(u64) -> R + Sync) -> Vec<R> {
    let next = AtomicU64::new(numbers.start);
    let results = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= numbers.end {
                return;
            }
            let result = work(number);
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            results.push((number, result));
        }
    };
    thread::scope(|scope| (0..jobs.max(1)).for_each(|_| _ = scope.spawn(worker)));
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}
