//! Find, install, probe and open accelerators.
#![forbid(unsafe_code)]
