//! Google's TPUs, by the names that libtpu reports.

use super::DeviceSpec;

/// Published numbers of a TPU chip.
struct Chip {
    /// Names in libtpu.
    kinds: &'static [&'static str],
    /// Devices of a chip: its cores, where they do not work as one. The two cores of a v4 chip are one
    /// device, unless they are asked to be two.
    devices: u32,
    /// TFLOP/s in bf16.
    bf16: f64,
    /// Memory in GiB, and its bandwidth in GB/s.
    memory: u64,
    bandwidth: f64,
    /// Interconnect bandwidth in GB/s, both directions.
    links: f64,
    source: &'static str,
}

// The documentation has no link bandwidth for v2 to v4; the papers do.
static CHIPS: [Chip; 7] = [
    Chip {
        kinds: &["TPU v2"],
        devices: 2,
        bf16: 45.0,
        memory: 16,
        bandwidth: 700.0,
        links: 2.0 * 4.0 * 62.0,
        source: "Google Cloud documentation, TPU v2; links: Jouppi et al. 2020, 4 of 496 Gbit/s in each direction",
    },
    Chip {
        kinds: &["TPU v3"],
        devices: 2,
        bf16: 123.0,
        memory: 32,
        bandwidth: 900.0,
        links: 2.0 * 4.0 * 82.0,
        source: "Google Cloud documentation, TPU v3; links: Jouppi et al. 2020, 4 of 656 Gbit/s in each direction",
    },
    Chip {
        kinds: &["TPU v4"],
        devices: 1,
        bf16: 275.0,
        memory: 32,
        bandwidth: 1200.0,
        links: 2.0 * 6.0 * 50.0,
        source: "Google Cloud documentation, TPU v4; links: Jouppi et al. 2023, 6 of 50 GB/s in each direction",
    },
    Chip {
        kinds: &["TPU v5 lite", "TPU v5e"],
        devices: 1,
        bf16: 197.0,
        memory: 16,
        bandwidth: 819.0,
        links: 400.0,
        source: "Google Cloud documentation, TPU v5e",
    },
    Chip {
        kinds: &["TPU v5", "TPU v5p"],
        devices: 1,
        bf16: 459.0,
        memory: 95,
        bandwidth: 2765.0,
        links: 1200.0,
        source: "Google Cloud documentation, TPU v5p",
    },
    Chip {
        kinds: &["TPU v6 lite", "TPU v6e"],
        devices: 1,
        bf16: 918.0,
        memory: 32,
        bandwidth: 1638.0,
        links: 800.0,
        source: "Google Cloud documentation, TPU v6e",
    },
    Chip {
        kinds: &["TPU7x"],
        devices: 2,
        bf16: 2307.0,
        memory: 192,
        bandwidth: 7380.0,
        links: 1200.0,
        source: "Google Cloud documentation, TPU7x",
    },
];

impl Chip {
    /// The specification of one of its devices.
    fn spec(&self) -> DeviceSpec {
        let bf16_flops = self.bf16 * 1e12;
        let chip = DeviceSpec {
            bf16_flops,
            f16_flops: None,
            f32_flops: bf16_flops,
            f32_highest_flops: bf16_flops / 6.0,
            memory: self.memory << 30,
            memory_bandwidth: self.bandwidth * 1e9,
            interconnect_bandwidth: self.links * 1e9 / 2.0,
            source: self.source,
        };
        chip.part_of(self.devices)
    }
}

/// The specification of a TPU device by the whole of its name.
pub(super) fn of_kind(kind: &str) -> Option<DeviceSpec> {
    let has = |chip: &&Chip| chip.kinds.contains(&kind);
    CHIPS.iter().find(has).map(Chip::spec)
}
