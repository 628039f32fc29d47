//! This machine's processor.

use halite_core::{Error, Result};
use halite_fetch::{Cache, Progress};
use halite_pjrt::OptionValue;

use crate::{
    accelerator::{OpenOptions, Opened, load},
    locate::{Located, Search},
};

/// More threads than any machine has processors. XLA's plugin makes 4096 of them in a quarter of a
/// minute, and more in minutes.
const MOST_THREADS: u64 = 4096;

/// Opens the processor as so many virtual devices.
pub(crate) fn open(
    devices: u32,
    options: &OpenOptions,
    progress: &mut dyn Progress,
) -> Result<Opened> {
    check_threads()?;
    let cache = Cache::open(options.cache.as_deref())?;
    let search = Search::cpu(&cache);
    // What is found is tried in turn: a library may need something that this system lacks.
    let open = |located: Located| {
        // Plugins make four devices when they are not told.
        let client = [("cpu_device_count".to_string(), OptionValue::from(devices))];
        load(
            located,
            client
                .into_iter()
                .chain(options.client.iter().cloned())
                .collect(),
            &[],
            options.deadline,
        )
    };
    if options.offline {
        search.find_that(open)
    } else {
        search.ensure_that(progress, open)
    }
}

/// Refuses a number of threads, in the variables that XLA reads, with which its plugin would only
/// make threads.
fn check_threads() -> Result<()> {
    for name in ["NPROC", "PJRT_NPROC"] {
        let threads = std::env::var(name)
            .ok()
            .and_then(|number| number.trim().parse::<u64>().ok());
        if let Some(threads) = threads.filter(|&threads| threads > MOST_THREADS) {
            let message = format!(
                "{name}={threads} asks XLA for as many threads; at most {MOST_THREADS} are of any use"
            );
            return Err(Error::invalid("open", message));
        }
    }
    Ok(())
}
