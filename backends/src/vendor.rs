//! Accelerators of vendors whose plugins halite knows as data alone: AMD, Intel and Tenstorrent.

use halite_core::{Error, Result};
use halite_fetch::{Cache, Progress};

use crate::{
    load::load_in_job,
    locate::{Located, Search},
    opened::Opened,
    options::OpenOptions,
    plugins::{KnownPlugin, PLUGINS},
};

/// The default plugins of the platforms that [`Accelerator::Vendor`](crate::Accelerator::Vendor)
/// names.
pub(crate) fn defaults() -> impl Iterator<Item = &'static KnownPlugin> {
    let own = ["cpu", "cuda", "tpu"];
    let named = PLUGINS
        .iter()
        .filter(|plugin| plugin.name == plugin.platform);
    named.filter(move |plugin| !own.contains(&plugin.platform))
}

/// Opens all devices of a platform.
pub(crate) fn open(
    platform: &str,
    options: &OpenOptions,
    progress: &mut dyn Progress,
) -> Result<Opened> {
    let cache = Cache::open(options.cache.as_deref())?;
    let search = Search::platform(platform, &cache).ok_or_else(|| {
        let names: Vec<_> = defaults().map(|plugin| plugin.platform).collect();
        let names = names.join(", ");
        Error::invalid(
            "open",
            format!("unknown platform `{platform}`; expected one of {names}"),
        )
    })?;
    let search = Search {
        trust_python: options.trust_python,
        ..search
    };
    let open = |located: Located| load_in_job(located, options);
    let opened = if options.offline {
        search.find_that(open)
    } else {
        search.ensure_that(progress, open)
    };
    opened.map_err(Into::into)
}
