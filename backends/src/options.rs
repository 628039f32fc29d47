//! Options for opening accelerators. Nothing here opens one.

mod cuda;
mod tpu;

use std::{path::PathBuf, sync::Arc, time::Duration};

use halite_core::ProcessGroup;
use halite_pjrt::{LoadOptions, OptionValue};
use halite_telemetry::TelemetryOptions;

pub use self::{
    cuda::{CudaAllocator, CudaOptions},
    tpu::TpuOptions,
};
use crate::{
    compile_cache::CompileCacheOptions,
    environment::{self, Environment},
};

/// Options for opening an accelerator.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Cache directory of plugins; by default that of [`Cache::open`](halite_fetch::Cache::open).
    pub cache: Option<PathBuf>,
    /// Takes a plugin of the Python environment whose digest is not known, with a warning; by
    /// default if `HALITE_TRUST_PYTHON` is 1.
    pub trust_python: bool,
    /// Fails if a plugin is missing, instead of installing it.
    pub offline: bool,
    /// Compile cache; by default that of `HALITE_COMPILE_CACHE`.
    pub compile_cache: Option<CompileCacheOptions>,
    /// Output of telemetry; by default as `HALITE_DEBUG`, `HALITE_DUMP_DIR`, `HALITE_METRICS_FILE`
    /// and `HALITE_SYNC` configure it.
    pub telemetry: Option<TelemetryOptions>,
    /// Options of the plugin's client, by name, in addition to those that the accelerator sets.
    pub client: Vec<(String, OptionValue)>,
    /// Options of NVIDIA GPUs.
    pub cuda: CudaOptions,
    /// Options of TPUs.
    pub tpu: TpuOptions,
    /// The processes of a job, each of which opens the same accelerator. Those that share a host
    /// divide its GPUs or chips. The client then has the devices of all processes, of which this
    /// one addresses its own; a CPU is each process' own.
    pub processes: Option<Arc<dyn ProcessGroup>>,
    /// Deadline for loading the plugin and finding its devices together: vendors' code may wait for
    /// servers and for other hosts. By default the seconds in `HALITE_PLUGIN_DEADLINE`, or 180.
    pub deadline: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            cache: None,
            trust_python: environment::trust_python(),
            offline: false,
            compile_cache: None,
            telemetry: None,
            client: Vec::new(),
            cuda: CudaOptions::default(),
            tpu: TpuOptions::default(),
            processes: None,
            // An invalid value is an error when something is opened.
            deadline: Environment::read()
                .ok()
                .and_then(|environment| environment.plugin_deadline)
                .unwrap_or(LoadOptions::default().deadline),
        }
    }
}
