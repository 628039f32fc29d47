//! NVIDIA devices by name.

use std::{fmt, str::FromStr};

use halite_pjrt::{OptionValue, Options};

use super::sizes;

/// A model of GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "their names")]
pub enum Gpu {
    /// A100 SXM, 80 GB.
    A100,
    /// H100 SXM, 80 GB.
    H100,
    /// H200 SXM, 141 GB.
    H200,
    /// B200, 180 GB.
    B200,
}

impl Gpu {
    /// Every model, oldest first.
    pub const ALL: [Gpu; 4] = [Self::A100, Self::H100, Self::H200, Self::B200];

    /// The name in a target: `h200`.
    pub fn name(self) -> &'static str {
        match self {
            Self::A100 => "a100",
            Self::H100 => "h100",
            Self::H200 => "h200",
            Self::B200 => "b200",
        }
    }

    /// The compute capability, as drivers write it: `9.0`.
    pub(super) fn compute_capability(self) -> String {
        format!("{}.0", self.facts().compute_capability)
    }

    /// The name that the driver reports.
    pub(super) fn kind(self) -> &'static str {
        self.facts().name
    }

    fn facts(self) -> Facts {
        let a100 = Facts {
            name: "NVIDIA A100-SXM4-80GB",
            compute_capability: 8,
            accelerated: false,
            cores: 108,
            units_per_core: 64,
            clock_ghz: "1.41",
            shared_memory_per_core: 167_936,
            shared_memory_per_block: 166_912,
            second_level_cache: 41_943_040,
            memory: 85_100_068_864,
            memory_bandwidth: 2_039_040_000_000,
        };
        let h100 = Facts {
            name: "NVIDIA H100 80GB HBM3",
            compute_capability: 9,
            accelerated: true,
            cores: 132,
            units_per_core: 128,
            clock_ghz: "1.98",
            shared_memory_per_core: 233_472,
            shared_memory_per_block: 232_448,
            second_level_cache: 52_428_800,
            memory: 84_942_979_072,
            memory_bandwidth: 3_352_320_000_000,
        };
        match self {
            Self::A100 => a100,
            Self::H100 => h100,
            Self::H200 => Facts {
                name: "NVIDIA H200 141GB HBM3e",
                memory: 151_397_597_184,
                memory_bandwidth: 4_800_000_000_000,
                ..h100
            },
            Self::B200 => Facts {
                name: "NVIDIA B200",
                compute_capability: 10,
                cores: 148,
                clock_ghz: "1.965",
                second_level_cache: 132_644_864,
                memory: 191_514_411_008,
                memory_bandwidth: 7_672_320_000_000,
                ..h100
            },
        }
    }
}

/// Properties of a device that XLA needs to compile for it. Sizes in bytes. (XLA has such
/// descriptions in `xla/backends/gpu/target_config/specs`.)
struct Facts {
    name: &'static str,
    /// The major number; the minor one is 0 for all of these.
    compute_capability: u32,
    /// True for architecture-specific instructions (`sm_90a`).
    accelerated: bool,
    cores: u32,
    units_per_core: u32,
    clock_ghz: &'static str,
    shared_memory_per_core: u64,
    shared_memory_per_block: u64,
    second_level_cache: u64,
    memory: u64,
    memory_bandwidth: u64,
}

impl Facts {
    /// A `GpuTargetConfigProto`, as text.
    fn config(&self) -> String {
        let Facts {
            name,
            compute_capability,
            cores,
            units_per_core,
            clock_ghz,
            memory,
            memory_bandwidth,
            ..
        } = self;
        let Facts {
            shared_memory_per_core,
            shared_memory_per_block,
            second_level_cache,
            ..
        } = self;
        let extension = if self.accelerated {
            "ACCELERATED_FEATURES"
        } else {
            "NONE"
        };
        format!(
            "gpu_device_info {{ threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048 \
             thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64 \
             block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 \
             registers_per_core_limit: 65536 registers_per_block_limit: 65536 \
             shared_memory_per_block: 49152 shared_memory_per_block_optin: {shared_memory_per_block} \
             shared_memory_per_core: {shared_memory_per_core} core_count: {cores} fpus_per_core: {units_per_core} \
             clock_rate_ghz: {clock_ghz} l2_cache_size: {second_level_cache} device_memory_size: {memory} \
             memory_bandwidth: {memory_bandwidth} device_vendor: \"NVIDIA Corporation\" name: \"{name}\" \
             cuda_compute_capability {{ major: {compute_capability} feature_extension: {extension} }} }} \
             platform_name: \"CUDA\" dnn_version_info {{ major: 9 minor: 10 patch: 0 }} device_description_str: \"{name}\""
        )
    }
}

/// NVIDIA devices of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CudaTarget {
    /// The model.
    pub gpu: Gpu,
    /// Number of hosts.
    pub hosts: u32,
    /// Number of devices of each host.
    pub devices_per_host: u32,
}

/// Maximum number of hosts, more than clusters have; the compiler creates all their devices.
const MOST_HOSTS: u32 = 4096;
/// Devices of the largest host, a DGX-2 style board of two halves.
const MOST_PER_HOST: u32 = 16;

impl CudaTarget {
    pub(super) fn device_count(&self) -> usize {
        self.hosts as usize * self.devices_per_host as usize
    }

    pub(super) fn options(&self) -> Options {
        let shape = format!("1x{}x{}", self.hosts, self.devices_per_host);
        vec![
            ("topology".to_owned(), OptionValue::Str(shape)),
            (
                "target_config".to_owned(),
                OptionValue::Str(self.gpu.facts().config()),
            ),
        ]
    }
}

/// `h200:2x8`
impl fmt::Display for CudaTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}x{}",
            self.gpu.name(),
            self.hosts,
            self.devices_per_host
        )
    }
}

impl FromStr for CudaTarget {
    /// The error is a message without the target.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, shape) = text
            .split_once(':')
            .map_or((text, None), |(name, shape)| (name, Some(shape)));
        let gpu = Gpu::ALL
            .into_iter()
            .find(|known| known.name() == name)
            .ok_or_else(|| {
                let known: Vec<_> = Gpu::ALL.iter().map(|known| known.name()).collect();
                format!("unknown GPU `{name}`; expected one of {}", known.join(", "))
            })?;
        let (hosts, devices_per_host) = match shape.map(|shape| (shape, sizes(shape))) {
            None => (1, 1),
            Some((_, Some(sizes))) if sizes.len() == 2 => (sizes[0], sizes[1]),
            Some((shape, _)) => {
                return Err(format!(
                    "invalid shape `{shape}`; expected hosts x devices per host, as in cuda:{name}:1x8"
                ));
            }
        };
        if hosts > MOST_HOSTS || devices_per_host > MOST_PER_HOST {
            let most = format!("at most {MOST_HOSTS} hosts of at most {MOST_PER_HOST} devices");
            return Err(format!(
                "{hosts} hosts of {devices_per_host} devices; expected {most}, as in cuda:{name}:2x8"
            ));
        }
        Ok(CudaTarget {
            gpu,
            hosts,
            devices_per_host,
        })
    }
}
