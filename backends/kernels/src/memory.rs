//! Memory of kernels, which is allocated with an error.

use std::{fs, panic::resume_unwind, sync::OnceLock};

/// The host has too little memory.
///
/// The payload of the unwinding that ends a kernel then: a kernel runs on several threads, and what
/// they do returns nothing. The panic hook is not called: it is not a mistake of the program.
/// Callers catch it with [`std::panic::catch_unwind`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CannotAllocate {
    /// Size of the allocation that failed.
    pub bytes: usize,
}

/// Makes room in a vector for `count` elements in all.
///
/// # Errors
/// If the host has too little memory. Systems reserve more than they have, and end the process when
/// it is written to: more than all of the host's memory is refused here.
pub fn reserve<T>(values: &mut Vec<T>, count: usize) -> Result<(), CannotAllocate> {
    let bytes = count.saturating_mul(size_of::<T>());
    let missing = count.saturating_sub(values.len());
    if bytes > host_memory() || values.try_reserve_exact(missing).is_err() {
        return Err(CannotAllocate { bytes });
    }
    Ok(())
}

/// Makes a vector `count` long, if it is shorter, with copies of `value`. Unwinds with
/// [`CannotAllocate`].
pub fn grow<T: Clone>(values: &mut Vec<T>, count: usize, value: T) {
    reserve(values, count).unwrap_or_else(|error| resume_unwind(Box::new(error)));
    values.resize(values.len().max(count), value);
}

/// Bytes of the host's memory, swap included, or of what a container may use; no limit where the
/// system does not say it as Linux does.
pub fn host_memory() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let container = read("/sys/fs/cgroup/memory.max").trim().parse();
        total_memory(&read("/proc/meminfo"))
            .unwrap_or(usize::MAX)
            .min(container.unwrap_or(usize::MAX))
    })
}

/// Memory and swap by the lines of `/proc/meminfo`: `MemTotal:  16384 kB`.
fn total_memory(text: &str) -> Option<usize> {
    let bytes = |name: &str| -> Option<usize> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kilobytes.checked_mul(1024)
    };
    bytes("MemTotal:")?.checked_add(bytes("SwapTotal:").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn impossible_size_is_the_payload() {
        let bytes = (isize::MAX as usize) & !7;
        let unwound = catch_unwind(|| grow(&mut Vec::new(), bytes / 8, 0u64)).unwrap_err();
        assert_eq!(unwound.downcast_ref(), Some(&CannotAllocate { bytes }));
    }

    #[test]
    fn more_than_all_memory_is_refused() {
        let text = "MemTotal:       16384 kB\nMemFree: 1 kB\nSwapTotal:          16 kB\n";
        assert_eq!(total_memory(text), Some(16400 * 1024));
        assert_eq!(total_memory("MemTotal: many kB"), None);
        if cfg!(target_os = "linux") {
            let count = host_memory() / 8 + 1;
            assert!(reserve(&mut Vec::<u64>::new(), count).is_err());
        }
    }

    #[test]
    fn longer_vector_stays() {
        let mut values = vec![1, 2, 3];
        grow(&mut values, 2, 7);
        assert_eq!(values, [1, 2, 3]);
        grow(&mut values, 5, 7);
        assert_eq!(values, [1, 2, 3, 7, 7]);
    }
}
