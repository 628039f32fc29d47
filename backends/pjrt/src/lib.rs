//! A halite backend over any PJRT plugin.
#![forbid(unsafe_code)]
