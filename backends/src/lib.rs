//! Find, install, probe and open accelerators.
#![forbid(unsafe_code)]

mod locate;
mod plugins;

pub use locate::{Located, Search, Source, install};
pub use plugins::{KnownPlugin, PLUGINS, plugin};
