//! An open accelerator: its client, and what drives its devices.

use std::fmt;

use halite_core::Client;
use halite_pjrt::Plugin;

use crate::locate::Located;

/// An open accelerator.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Client of its devices.
    pub client: Client,
    /// Driver of its devices.
    pub driver: Driver,
    /// Accelerators that [`Accelerator::Auto`](crate::Accelerator::Auto) prefers, each with the reason why it did not open.
    pub refused: Vec<String>,
}

/// Driver of the devices of an open accelerator.
#[derive(Clone, Debug)]
pub enum Driver {
    /// A PJRT plugin.
    Plugin {
        /// The plugin.
        plugin: &'static Plugin,
        /// File that it was loaded from, and how it was found.
        located: Located,
    },
    /// The executor that is part of halite.
    Embedded,
}

impl Driver {
    /// Returns the plugin, if it is one.
    pub fn plugin(&self) -> Option<&'static Plugin> {
        match self {
            Driver::Plugin { plugin, .. } => Some(plugin),
            Driver::Embedded => None,
        }
    }
}

/// The file of a plugin and how it was found, or `embedded`.
impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Driver::Plugin { located, .. } => located.fmt(f),
            Driver::Embedded => f.write_str("embedded"),
        }
    }
}
