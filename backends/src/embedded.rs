//! The executor that is part of halite.

use halite_core::Result;

use crate::accelerator::Opened;

/// Opens it with `devices` virtual devices.
#[cfg(feature = "embedded")]
pub(crate) fn open(devices: u32) -> Result<Opened> {
    use halite_core::Client;
    use halite_reference::{Options, Reference};

    let backend = Reference::new(&Options {
        devices,
        ..Options::default()
    })?;
    Ok(Opened {
        client: Client::new(backend),
        driver: crate::Driver::Embedded,
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
