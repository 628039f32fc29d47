//! Programs: invalid arguments are rejected with an explanation before they reach the plugin;
//! donation by address; topologies. The conformance suite has the requirements of every backend;
//! these tests are specific to PJRT.

mod compiling;
mod launches;
mod pinned;
mod saved;
