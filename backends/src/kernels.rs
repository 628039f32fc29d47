//! halite's kernels as functions that programs call: the targets of
//! [`Capabilities::kernels`](halite_core::Capabilities::kernels).

mod attention;
mod convolution;
mod few_rows;

use std::{
    collections::HashMap,
    env,
    hash::Hash,
    num::NonZero,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    thread,
};

use halite_core::{Error, ErrorKind, Kernels, Processor, Result, custom_call, warning};
use halite_kernels::Threads;

/// Most prepared kernels of a kind.
const MOST_PREPARED: usize = 256;

/// What programs for XLA's CPU plugin leave to halite, unless the environment says otherwise: with
/// kernels that are not `optimized`, nothing, because XLA's own code is faster.
pub(crate) fn used(optimized: bool) -> Kernels {
    match optimized {
        true => Kernels::On,
        false => Kernels::Off,
    }
}

/// Registers the kernels, once in a process. If that fails, it warns and returns false.
pub(crate) fn register() -> bool {
    static REGISTERED: LazyLock<bool> = LazyLock::new(|| {
        let registered = convolution::KERNELS.into_iter().try_for_each(|kernel| {
            custom_call::register(kernel.target, move |call| kernel.call(call))
        });
        let registered = registered
            .and_then(|()| custom_call::register("halite_attention", attention::forward))
            .and_then(|()| custom_call::register("halite_attention_gradient", attention::backward))
            .and_then(|()| custom_call::register("halite_few_rows", few_rows::call));
        registered
            .inspect_err(|error| warning!("programs do not call halite's kernels: {error}"))
            .is_ok()
    });
    *REGISTERED
}

/// Kernels of one kind that were prepared before, by their sizes.
struct Prepared<S, K>(LazyLock<Mutex<HashMap<S, Arc<K>>>>);

impl<S: Clone + Eq + Hash, K> Prepared<S, K> {
    const fn new() -> Self {
        Prepared(LazyLock::new(Mutex::default))
    }

    /// The kernel of these sizes, which `prepare` makes if there is none.
    fn get(&self, sizes: S, prepare: impl FnOnce(S) -> Result<K>) -> Result<Arc<K>> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&sizes) {
            return Ok(known.clone());
        }
        let new = Arc::new(prepare(sizes.clone())?);
        let mut all = lock();
        if all.len() == MOST_PREPARED {
            all.clear();
        }
        all.insert(sizes, new.clone());
        Ok(new)
    }
}

/// The processor that the kernels use.
pub(crate) fn processor() -> Processor {
    Processor {
        vector_bits: halite_kernels::vector_bits(),
        threads: thread_count(),
    }
}

/// Number of threads of the kernels.
fn thread_count() -> usize {
    let chosen = ["PJRT_NPROC", "NPROC"].map(|name| env::var(name).ok()?.trim().parse().ok());
    let available = || thread::available_parallelism().map_or(1, NonZero::get);
    let count = chosen.into_iter().flatten().find(|&count| count > 0);
    count.unwrap_or_else(available)
}

/// The threads of all kernels of the process, whatever the number of its devices: as many as XLA's
/// plugin starts for its own code.
fn threads() -> Result<&'static Threads> {
    static THREADS: LazyLock<Result<Threads, String>> = LazyLock::new(|| {
        let count = thread_count();
        Threads::new(count)
            .map_err(|error| format!("the system cannot start {count} threads: {error}"))
    });
    THREADS
        .as_ref()
        .map_err(|message| Error::new(ErrorKind::Unavailable, "kernels", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unoptimized_kernels_are_not_used() {
        assert_eq!(used(false), Kernels::Off);
        assert_eq!(used(true), Kernels::On);
    }

    #[test]
    fn profile_of_the_package_decides() {
        // The workspace's `Cargo.toml` compiles the kernels with optimization in debug builds, too.
        assert_eq!(used(halite_kernels::OPTIMIZED), Kernels::On);
    }
}
