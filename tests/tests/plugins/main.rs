//! Plugins: the conformance suite, JAX on the plugins of this repository, faults of vendors' plugins,
//! files that are no plugin, and compiled programs that are kept.

mod bad_plugins;
mod compile_cache;
mod conformance;
mod environment;
mod exported_to_jax;
mod jax;
mod nodes;
mod plugin_faults;
mod vendor_profilers;
