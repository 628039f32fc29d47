//! Capabilities and quirks of plugins, by platform and version of the API: the one place that
//! compares platform names and versions to decide how a plugin is used.

use halite_core::{Capabilities, DTypePolicy, Faults, Narrowing, Platform};

/// Capabilities and quirks of a platform in one version of the API.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Quirks {
    /// Programs are machine code for the host's processor.
    pub(crate) runs_on_host: bool,
    /// Device memory is host memory, so that an upload can use the caller's bytes in place.
    pub(crate) shares_host_memory: bool,
    /// The most launches in flight on a device, of those over several. XLA's CPU client has places
    /// for 32 per device and deadlocks when launches with collectives fill them; eight keep devices
    /// busy.
    pub(crate) max_launches: Option<usize>,
    /// A launch allocates its temporary memory while the one before it still has its own, and the
    /// system clears what it allocates: a program with at least this many bytes is launched when
    /// the launch before it on its devices is done.
    pub(crate) large_temporary: Option<u64>,
    /// The compiler may read `LIBTPU_INIT_ARGS`.
    pub(crate) reads_libtpu_args: bool,
    /// `minimum` and `maximum` drop NaN unless `xla_cpu_enable_fast_min_max` is off.
    pub(crate) min_max_drops_nan: bool,
    /// Leaves out a conversion to a narrower float and back within a fusion, unless
    /// `xla_allow_excess_precision` is off.
    pub(crate) keeps_excess_precision: bool,
    /// Fuses dots of `bf16` with the YNN library, as `xla_cpu_experimental_ynn_fusion_type` sets.
    pub(crate) fuses_with_ynn: bool,
    /// Compiles a call with the attribute `xla_cpu_small_call` as one function.
    pub(crate) compiles_functions: bool,
    /// Processes that compile for devices of all share what they measure of a program's kernels, so
    /// that each waits for the others, and must not take the program from a cache.
    pub(crate) compiles_together: bool,
    /// Reads a result back row-major whatever its layout on the device.
    pub(crate) reads_row_major: bool,
    /// What programs are lowered to.
    pub(crate) capabilities: Capabilities,
    /// The devices that multiply `bf16` faster than `f32`.
    bf16: Bf16Units,
}

/// The devices of a platform that have units for `bf16`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Bf16Units {
    None,
    All,
    /// NVIDIA devices of at least this compute capability. All if a driver does not report it.
    Since {
        compute_capability: u32,
    },
}

/// The oldest API version whose CPU plugins have the flag for fusions with YNN.
const FUSES_WITH_YNN: (i32, i32) = (0, 115);
/// The oldest API version seen to compile functions. 0.106 was seen to fail.
const COMPILES_FUNCTIONS: (i32, i32) = (0, 115);
/// The oldest API version seen to read results in the requested order. 0.81 was seen not to.
const READS_ROW_MAJOR: (i32, i32) = (0, 106);

/// An estimate of the bytes that take longer to clear, some milliseconds, than it takes to wait for
/// a launch and queue the next one.
const LARGE_TEMPORARY: u64 = 32 << 20;

/// A GPT of 24 layers, forward and backward. Without loops, XLA's CUDA plugin runs a step as one
/// CUDA graph.
const MOST_UNROLLED: usize = 4096;

/// Loops over `bf16` convert to `f32` and back on the host: only operands of contractions are worth
/// casting.
const ON_HOST: Capabilities = {
    let mut host = Capabilities::UNKNOWN;
    host.narrowing = Narrowing::Contractions;
    host.rounds_products = false;
    host
};

/// Faults of every version of XLA's CPU plugin so far. All were seen in 0.115, the last version, and
/// some in 0.106: tests of the suite `plugin_faults` fail in a version without one of them, which is
/// then a row here.
const CPU_FAULTS: Faults = {
    let mut faults = Faults::NONE;
    faults.negative_padding = true;
    faults.split_windows = true;
    faults.split_products = true;
    faults.arc_tangent = true;
    faults.swapped_operands = true;
    faults.integer_power = true;
    faults.nested_slices = true;
    faults
};

/// Faults of XLA's plugins for GPUs.
const GPU_FAULTS: Faults = {
    let mut faults = Faults::NONE;
    faults.integer_power = true;
    faults.nested_slices = true;
    faults.integer_convolutions = true;
    faults.reversed_kernels = true;
    faults.equal_indices = true;
    faults
};

/// A platform without quirks whose programs run on a device.
const DEVICE: Quirks = Quirks {
    runs_on_host: false,
    shares_host_memory: false,
    max_launches: None,
    large_temporary: None,
    reads_libtpu_args: true,
    min_max_drops_nan: false,
    keeps_excess_precision: false,
    fuses_with_ynn: false,
    compiles_functions: false,
    compiles_together: false,
    reads_row_major: true,
    capabilities: Capabilities::UNKNOWN,
    bf16: Bf16Units::None,
};
const ROCM: Quirks = Quirks {
    reads_libtpu_args: false,
    keeps_excess_precision: true,
    compiles_together: true,
    capabilities: {
        let mut gpu = Capabilities::UNKNOWN;
        gpu.faults = GPU_FAULTS;
        gpu
    },
    ..DEVICE
};
const CUDA: Quirks = Quirks {
    capabilities: {
        let mut cuda = ROCM.capabilities;
        cuda.unrolled = MOST_UNROLLED;
        cuda.narrow_convolutions = true;
        cuda
    },
    bf16: Bf16Units::Since {
        compute_capability: 8,
    },
    ..ROCM
};
const CPU: Quirks = Quirks {
    runs_on_host: true,
    shares_host_memory: true,
    max_launches: Some(8),
    large_temporary: Some(LARGE_TEMPORARY),
    reads_libtpu_args: false,
    min_max_drops_nan: true,
    fuses_with_ynn: true,
    compiles_functions: true,
    capabilities: {
        let mut cpu = ON_HOST;
        cpu.faults = CPU_FAULTS;
        cpu
    },
    ..DEVICE
};
const TPU: Quirks = Quirks {
    capabilities: {
        let mut tpu = Capabilities::UNKNOWN;
        // XLA leaves the order of updates open on all devices that compute in parallel.
        tpu.faults.equal_indices = true;
        tpu
    },
    bf16: Bf16Units::All,
    ..DEVICE
};
/// An unknown platform may compile for the host.
const UNKNOWN: Quirks = Quirks {
    runs_on_host: true,
    ..DEVICE
};

/// The embedded executor, exported as a plugin. As a backend, it states the same itself.
const EMBEDDED: Quirks = Quirks {
    capabilities: {
        let mut embedded = ON_HOST;
        embedded.narrow_matrices = true;
        embedded
    },
    ..UNKNOWN
};

/// Quirks by platform name, in the newest version of the API.
const PLATFORMS: [(&str, Quirks); 7] = [
    ("cpu", CPU),
    ("cuda", CUDA),
    ("embedded", EMBEDDED),
    ("metal", DEVICE),
    ("rocm", ROCM),
    ("sycl", DEVICE),
    ("tpu", TPU),
];

impl Quirks {
    /// The quirks of a platform in a version of the API, as (major, minor).
    pub(crate) fn of(platform: &str, api_version: (i32, i32)) -> Self {
        let newest = Self::newest(platform);
        Quirks {
            fuses_with_ynn: newest.fuses_with_ynn && api_version >= FUSES_WITH_YNN,
            compiles_functions: newest.compiles_functions && api_version >= COMPILES_FUNCTIONS,
            reads_row_major: newest.reads_row_major && api_version >= READS_ROW_MAJOR,
            ..newest
        }
    }

    fn newest(platform: &str) -> Self {
        let platform = Platform::current_name(platform);
        let row = (PLATFORMS.iter()).find(|(name, _)| platform.eq_ignore_ascii_case(name));
        row.map_or(UNKNOWN, |(_, quirks)| *quirks)
    }
}

/// What decides how programs for the plugin of a [`Platform::name`](halite_core::Platform) are
/// lowered, if they call no function of this process.
pub fn capabilities(platform: &str) -> Capabilities {
    Quirks::newest(platform).capabilities
}

/// The default policy of a device of a [`Platform::name`](halite_core::Platform): `bf16-mixed` on
/// TPUs and on GPUs with units for it (compute capability 8.0 and newer), else `f32`. `attributes`
/// are [`Device::attributes`](halite_core::Device::attributes), of which `compute_capability` is
/// read.
///
/// The CPU stays at `f32`, so that comparisons with other frameworks there compare equal arithmetic.
pub fn default_policy(platform: &str, attributes: &[(String, String)]) -> DTypePolicy {
    let has_units = match Quirks::newest(platform).bf16 {
        Bf16Units::None => false,
        Bf16Units::All => true,
        Bf16Units::Since { compute_capability } => {
            let attribute = attributes
                .iter()
                .find(|(name, _)| name == "compute_capability");
            let major = attribute.and_then(|(_, value)| value.split('.').next()?.parse().ok());
            major.is_none_or(|major: u32| major >= compute_capability)
        }
    };
    if has_units {
        DTypePolicy::BF16_MIXED
    } else {
        DTypePolicy::F32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_platforms_compile_for_the_host() {
        let runs_on_host = |platform| Quirks::of(platform, (0, 115)).runs_on_host;
        assert!(
            ["cpu", "interpreter", "my_host_cpu"]
                .into_iter()
                .all(runs_on_host)
        );
        assert!(!["tpu", "cuda", "METAL"].into_iter().any(runs_on_host));
    }

    #[test]
    fn versions_gate_quirks() {
        assert!(Quirks::of("cpu", (0, 115)).fuses_with_ynn);
        assert!(!Quirks::of("cpu", (0, 114)).fuses_with_ynn);
        assert!(!Quirks::of("tpu", (0, 116)).fuses_with_ynn);
        assert!(Quirks::of("cpu", (0, 115)).compiles_functions);
        assert!(!Quirks::of("cpu", (0, 114)).compiles_functions);
        assert!(!Quirks::of("tpu", (0, 105)).reads_row_major);
        assert!(Quirks::of("tpu", (0, 106)).reads_row_major);
    }

    #[test]
    fn default_policy_follows_units_for_bf16() {
        for (platform, compute_capability, name) in [
            ("tpu", None, "bf16-mixed"),
            ("cuda", Some("10.0"), "bf16-mixed"),
            ("cuda", Some("9.0"), "bf16-mixed"),
            ("cuda", Some("8.6"), "bf16-mixed"),
            ("cuda", Some("7.5"), "f32"),
            ("cuda", None, "bf16-mixed"),
            ("cpu", None, "f32"),
            ("null", None, "f32"),
        ] {
            let attribute = |value: &str| ("compute_capability".to_owned(), value.to_owned());
            let attributes: Vec<_> = compute_capability.map(attribute).into_iter().collect();
            let policy = default_policy(platform, &attributes).to_string();
            assert_eq!(policy, name, "{platform} {compute_capability:?}");
        }
    }

    #[test]
    fn products_of_the_host_have_full_precision() {
        for platform in ["cpu", "embedded", "halite"] {
            let host = capabilities(platform);
            assert_eq!(host.narrowing, Narrowing::Contractions, "{platform}");
            assert!(!host.rounds_products, "{platform}");
        }
        for platform in ["cuda", "tpu", "rocm", "someone's"] {
            assert!(capabilities(platform).rounds_products, "{platform}");
        }
        assert_eq!(capabilities("someone's"), Capabilities::UNKNOWN);
    }
}
