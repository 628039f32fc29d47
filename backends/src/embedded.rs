//! The executor that is part of halite.

use halite_core::Result;

use crate::opened::Opened;

/// What a user sees once whose debug build compiles it without optimization.
#[cfg(feature = "embedded")]
const UNOPTIMIZED: &str = "\
the embedded executor is compiled without optimization, and 10 to 100 times slower; add to the \
Cargo.toml of your workspace:
[profile.dev.package.halite-kernels]
opt-level = 3
[profile.dev.package.halite-embedded]
opt-level = 3";

/// Opens it with `devices` virtual devices.
#[cfg(feature = "embedded")]
pub(crate) fn open(devices: u32) -> Result<Opened> {
    use halite_core::{Client, warning};
    use halite_embedded::{Embedded, Options};

    static WARNED: std::sync::Once = std::sync::Once::new();
    if !halite_kernels::OPTIMIZED {
        WARNED.call_once(|| warning!("{UNOPTIMIZED}"));
    }

    let backend = Embedded::new(&Options {
        devices,
        ..Options::default()
    })?;
    Ok(Opened {
        client: Client::new(backend),
        driver: crate::opened::Driver::Embedded,
        refused: Vec::new(),
    })
}

/// Returns that it is not there.
#[cfg(not(feature = "embedded"))]
pub(crate) fn open(_devices: u32) -> Result<Opened> {
    use halite_core::{Error, ErrorKind};

    Err(Error::new(
        ErrorKind::Unsupported,
        crate::environment::OPEN,
        "this build has no embedded executor; build it with the feature `embedded`",
    ))
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use super::*;

    /// Exported as a plugin, it can state nothing: programs for both must be the same.
    #[test]
    fn plugin_has_the_same_capabilities() {
        let client = open(1).unwrap().client;
        let (platform, device) = (&client.platform().name, client.devices()[0]);
        assert_eq!(client.capabilities(), halite_pjrt::capabilities(platform));
        let policy = halite_pjrt::default_policy(platform, &device.attributes());
        assert_eq!(device.default_policy(), policy);
    }
}
