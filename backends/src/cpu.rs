//! This machine's processor.

use halite_core::Result;
use halite_fetch::{Cache, Progress};
use halite_pjrt::OptionValue;

use crate::{
    accelerator::{OpenOptions, Opened, load},
    locate::{Located, Search},
};

/// Opens the processor as so many virtual devices.
pub(crate) fn open(devices: u32, options: &OpenOptions, progress: &mut dyn Progress) -> Result<Opened> {
    let cache = Cache::open(options.cache.as_deref())?;
    let search = Search::cpu(&cache);
    // What is found is tried in turn: a library may need something that this system lacks.
    let open = |located: Located| {
        // Plugins make four devices when they are not told.
        let client = [("cpu_device_count".to_string(), OptionValue::from(devices))];
        load(located, client.into_iter().chain(options.client.iter().cloned()).collect(), &[], options.deadline)
    };
    if options.offline { search.find_that(open) } else { search.ensure_that(progress, open) }
}
