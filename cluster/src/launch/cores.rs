//! Division of the cores of this machine among processes.

use std::ops::Range;

/// The cores of process `rank` of `size`, as indices of the usable ones: a part of them, or one
/// that several share, or as many as `threads` says.
pub(super) fn part(cores: usize, rank: usize, size: usize, threads: Option<usize>) -> Vec<usize> {
    let cores = cores.max(1);
    let own: Range<usize> = match threads {
        Some(threads) => {
            let threads = threads.min(cores);
            rank * threads..(rank + 1) * threads
        }
        None if size <= cores => rank * cores / size..(rank + 1) * cores / size,
        None => rank..rank + 1,
    };
    let mut own: Vec<usize> = own.map(|core| core % cores).collect();
    own.sort_unstable();
    own.dedup();
    own
}

/// Runs `start` on these of the usable cores, which processes that it starts inherit.
#[cfg(target_os = "linux")]
pub(super) fn within<T>(
    rank: usize,
    size: usize,
    threads: Option<usize>,
    start: impl FnOnce() -> T,
) -> T {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    let Ok(all) = sched_getaffinity(None) else {
        return start();
    };
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&core| all.is_set(core))
        .collect();
    let mut own = CpuSet::new();
    for index in part(usable.len(), rank, size, threads) {
        own.set(usable[index]);
    }
    // Where it is not allowed, processes share all cores.
    let limited = sched_setaffinity(None, &own).is_ok();
    let result = start();
    if limited {
        _ = sched_setaffinity(None, &all);
    }
    result
}

#[cfg(not(target_os = "linux"))]
pub(super) fn within<T>(_: usize, _: usize, _: Option<usize>, start: impl FnOnce() -> T) -> T {
    start()
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn cores_are_divided() {
        let parts = |cores, size, threads| -> Vec<Vec<usize>> {
            (0..size)
                .map(|rank| part(cores, rank, size, threads))
                .collect()
        };
        assert_eq!(parts(4, 2, None), [vec![0, 1], vec![2, 3]]);
        assert_eq!(parts(5, 2, None), [vec![0, 1], vec![2, 3, 4]]);
        assert_eq!(parts(2, 3, None), [vec![0], vec![1], vec![0]]);
        assert_eq!(parts(4, 2, Some(1)), [vec![0], vec![1]]);
        assert_eq!(parts(2, 2, Some(2)), [vec![0, 1], vec![0, 1]]);
        assert_eq!(parts(2, 2, Some(usize::MAX)), [vec![0, 1], vec![0, 1]]);
    }
}
