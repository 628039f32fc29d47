//! The CPU of this machine.

use halite_core::{Error, Result};
use halite_fetch::{Cache, Progress};
use halite_pjrt::OptionValue;

use crate::{
    load::load,
    locate::{Failure, Located, Search},
    opened::Opened,
    options::OpenOptions,
};

/// Maximum number of threads, more than any machine has processors. XLA's plugin takes 15 s to
/// create 4096 of them, and minutes for more.
const MOST_THREADS: u64 = 4096;

/// Opens the CPU as `devices` virtual devices.
pub(crate) fn open(
    devices: u32,
    options: &OpenOptions,
    progress: &mut dyn Progress,
) -> Result<Opened, Failure> {
    check_threads()?;
    let cache = Cache::open(options.cache.as_deref()).map_err(Error::from)?;
    let search = Search {
        trust_python: options.trust_python,
        ..Search::cpu(&cache)
    };
    // The libraries found are tried in turn: one may need something that this system lacks.
    let open = |located: Located| {
        // The plugin's default is four devices.
        let client = [("cpu_device_count".to_string(), OptionValue::from(devices))];
        load(
            located,
            client
                .into_iter()
                .chain(options.client.iter().cloned())
                .collect(),
            &[],
            options.deadline,
            None,
        )
    };
    if options.offline {
        search.find_that(open)
    } else {
        search.ensure_that(progress, open)
    }
}

/// Rejects a number of threads in the variables that XLA reads with which its plugin would only
/// create threads.
fn check_threads() -> Result<()> {
    for name in ["NPROC", "PJRT_NPROC"] {
        let threads = std::env::var(name)
            .ok()
            .and_then(|number| number.trim().parse::<u64>().ok());
        if let Some(threads) = threads.filter(|&threads| threads > MOST_THREADS) {
            let message = format!(
                "{name}={threads} sets the number of XLA's threads; expected at most {MOST_THREADS}"
            );
            return Err(Error::invalid("open", message));
        }
    }
    Ok(())
}
