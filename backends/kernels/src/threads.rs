//! Threads that share the work of one kernel.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use rayon::{
    ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder,
    iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator},
};

use crate::memory::grow;

/// Work in nanoseconds below which handing parts of it to other threads costs more than it saves.
const WORTHWHILE: usize = 40_000;

/// Items of work that are handed to the threads at once.
const MOST_ITEMS: usize = 1 << 16;

/// A pool of threads, and scratch memory that kernels keep between calls.
pub struct Threads {
    /// `None` for one thread: the caller's.
    pool: Option<ThreadPool>,
    scratch: Arc<Mutex<Vec<Vec<u64>>>>,
}

impl Threads {
    /// Starts `count` threads; for 1 or fewer, work stays on the calling thread.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub fn new(count: usize) -> Result<Self, ThreadPoolBuildError> {
        Threads::with_stack(count, 2 << 20)
    }

    /// Starts threads as [`new`](Self::new) does, each with a stack of this size in bytes.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub fn with_stack(count: usize, stack: usize) -> Result<Self, ThreadPoolBuildError> {
        let name = |index| format!("halite-kernel-{index}");
        let start = || {
            ThreadPoolBuilder::new()
                .num_threads(count)
                .thread_name(name)
                .stack_size(stack)
                .build()
        };
        let pool = if count > 1 { Some(start()?) } else { None };
        Ok(Threads {
            pool,
            scratch: Arc::default(),
        })
    }

    /// The calling thread alone, with the same scratch memory.
    pub(crate) fn serial(&self) -> Self {
        Threads {
            pool: None,
            scratch: self.scratch.clone(),
        }
    }

    /// Calls `work` on one of the threads, and waits for it.
    ///
    /// Kernels that `work` calls share their work with the other threads without waking this one:
    /// a sequence of kernels runs faster inside than one by one. `work` must not wait for work of
    /// other threads that call this method, because all threads may be busy.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// The number of threads.
    pub fn count(&self) -> usize {
        self.pool
            .as_ref()
            .map_or(1, ThreadPool::current_num_threads)
    }

    /// Calls `work` with every item. `cost` is an estimate of the whole work in nanoseconds.
    pub(crate) fn for_each<T: Send>(
        &self,
        cost: usize,
        mut items: impl Iterator<Item = T>,
        work: impl Fn(T) + Send + Sync,
    ) {
        match &self.pool {
            // Views make a few elements any number of items, so not all of them are collected.
            Some(pool) if cost >= WORTHWHILE => loop {
                let some: Vec<_> = (items.by_ref().take(MOST_ITEMS))
                    .map(|item| Mutex::new(Some(item)))
                    .collect();
                if some.is_empty() {
                    return;
                }
                for_each_index(pool, some.len(), &|index| {
                    let item = some[index]
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .take();
                    work(item.expect("each index comes once"));
                });
            },
            _ => items.for_each(work),
        }
    }

    /// Calls `work` with `length` floats of unspecified values.
    pub(crate) fn with_scratch<T>(&self, length: usize, work: impl FnOnce(&mut [f32]) -> T) -> T {
        self.with_words(length.div_ceil(2), |words| {
            work(&mut bytemuck::must_cast_slice_mut(words)[..length])
        })
    }

    /// Calls `work` with `length` words of unspecified values.
    pub(crate) fn with_words<T>(&self, length: usize, work: impl FnOnce(&mut [u64]) -> T) -> T {
        let lock = || self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = lock().pop().unwrap_or_default();
        grow(&mut scratch, length, 0);
        let result = work(&mut scratch[..length]);
        lock().push(scratch);
        result
    }
}

/// Calls `work` with the numbers below `count` on the threads of the pool. One function for all
/// kernels: compiled for each of them, rayon's code was a sixth of the embedded executor's.
fn for_each_index(pool: &ThreadPool, count: usize, work: &(dyn Fn(usize) + Sync)) {
    pool.install(|| (0..count).into_par_iter().with_max_len(1).for_each(work));
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", self.count())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn every_item_is_worked_on_once() {
        for count in [0, 1, MOST_ITEMS, 2 * MOST_ITEMS + 3] {
            let sum = AtomicUsize::new(0);
            let threads = Threads::new(2).expect("threads start");
            threads.for_each(usize::MAX, 0..count, |item| {
                sum.fetch_add(item + 1, Relaxed);
            });
            assert_eq!(sum.into_inner(), count * (count + 1) / 2);
        }
    }
}
