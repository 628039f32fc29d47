//! Capabilities and quirks of plugins, by platform and version of the API: the one place that
//! compares platform names and versions to decide how a plugin is used.

use halite_core::Faults;

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
    /// Faults of the compiler. Those of the CPU plugin were all seen in 0.115, the last version so
    /// far, and some in 0.106: tests of the suite `plugin_faults` fail in a version without one of
    /// them, which is then a row here.
    pub(crate) faults: Faults,
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
    faults: Faults::NONE,
};
const GPU: Quirks = Quirks {
    reads_libtpu_args: false,
    keeps_excess_precision: true,
    compiles_together: true,
    faults: Faults::GPU,
    ..DEVICE
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
    faults: Faults::CPU,
    ..DEVICE
};
const TPU: Quirks = Quirks {
    faults: Faults::TPU,
    ..DEVICE
};
/// An unknown platform may compile for the host.
const UNKNOWN: Quirks = Quirks {
    runs_on_host: true,
    ..DEVICE
};

/// Quirks by platform name, in the newest version of the API.
const PLATFORMS: [(&str, Quirks); 6] = [
    ("cpu", CPU),
    ("cuda", GPU),
    ("metal", DEVICE),
    ("rocm", GPU),
    ("sycl", DEVICE),
    ("tpu", TPU),
];

impl Quirks {
    /// The quirks of a platform in a version of the API, as (major, minor).
    pub(crate) fn of(platform: &str, api_version: (i32, i32)) -> Self {
        let row = (PLATFORMS.iter()).find(|(name, _)| platform.eq_ignore_ascii_case(name));
        let newest = row.map_or(UNKNOWN, |(_, quirks)| *quirks);
        Quirks {
            fuses_with_ynn: newest.fuses_with_ynn && api_version >= FUSES_WITH_YNN,
            compiles_functions: newest.compiles_functions && api_version >= COMPILES_FUNCTIONS,
            reads_row_major: newest.reads_row_major && api_version >= READS_ROW_MAJOR,
            ..newest
        }
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
        for platform in ["cpu", "cuda", "tpu", "metal"] {
            let faults = Quirks::of(platform, (0, 115)).faults;
            assert_eq!(faults, Faults::on(platform), "{platform}");
        }
    }
}
