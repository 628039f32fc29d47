//! NVIDIA's GPUs, by the names that their driver reports.

use super::DeviceSpec;

/// Published numbers of a GPU.
struct Board {
    /// Names in NVIDIA's driver, and in targets of plans.
    kinds: &'static [&'static str],
    /// TFLOP/s without sparsity: bf16 and TF32, if it has units for them, f16 with f32 accumulation,
    /// and f32.
    bf16: Option<f64>,
    f16: f64,
    tf32: Option<f64>,
    f32: f64,
    /// Memory in GB, which are GiB, and its bandwidth in GB/s.
    memory: u64,
    bandwidth: f64,
    /// NVLink or PCIe bandwidth in GB/s, both directions.
    links: f64,
    source: &'static str,
}

const A100: Board = Board {
    kinds: &["NVIDIA A100-SXM4-80GB"],
    bf16: Some(312.0),
    f16: 312.0,
    tf32: Some(156.0),
    f32: 19.5,
    memory: 80,
    bandwidth: 2039.0,
    links: 600.0,
    source: "NVIDIA A100 80GB SXM data sheet",
};

const H100: Board = Board {
    kinds: &["NVIDIA H100 80GB HBM3"],
    bf16: Some(989.5),
    f16: 989.5,
    tf32: Some(494.7),
    f32: 67.0,
    memory: 80,
    bandwidth: 3350.0,
    links: 900.0,
    source: "NVIDIA H100 SXM data sheet",
};

const V100: Board = Board {
    kinds: &["Tesla V100-SXM2-16GB"],
    bf16: None,
    f16: 125.0,
    tf32: None,
    f32: 15.7,
    memory: 16,
    bandwidth: 900.0,
    links: 300.0,
    source: "NVIDIA V100 SXM2 data sheet",
};

/// PCIe of the fourth generation with 16 lanes, both directions.
const PCIE_4: f64 = 64.0;

static BOARDS: [Board; 20] = [
    Board {
        kinds: &["NVIDIA B200"],
        bf16: Some(2250.0),
        f16: 2250.0,
        tf32: Some(1100.0),
        f32: 75.0,
        memory: 180,
        bandwidth: 7700.0,
        links: 1800.0,
        source: "NVIDIA Blackwell data sheet, HGX B200",
    },
    Board {
        kinds: &["NVIDIA H200", "NVIDIA H200 141GB HBM3e"],
        memory: 141,
        bandwidth: 4800.0,
        source: "NVIDIA H200 SXM data sheet",
        ..H100
    },
    H100,
    Board {
        kinds: &["NVIDIA H100 PCIe"],
        bf16: Some(756.5),
        f16: 756.5,
        tf32: Some(378.0),
        f32: 51.0,
        bandwidth: 2000.0,
        links: 600.0,
        source: "NVIDIA H100 PCIe data sheet",
        ..H100
    },
    Board {
        kinds: &["NVIDIA H100 NVL"],
        bf16: Some(835.5),
        f16: 835.5,
        tf32: Some(417.5),
        f32: 60.0,
        memory: 94,
        bandwidth: 3900.0,
        links: 600.0,
        source: "NVIDIA H100 NVL data sheet",
    },
    A100,
    Board {
        kinds: &["NVIDIA A100 80GB PCIe"],
        bandwidth: 1935.0,
        source: "NVIDIA A100 80GB PCIe data sheet",
        ..A100
    },
    Board {
        kinds: &["NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"],
        memory: 40,
        bandwidth: 1555.0,
        source: "NVIDIA A100 40GB SXM data sheet",
        ..A100
    },
    Board {
        kinds: &["NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"],
        memory: 40,
        bandwidth: 1555.0,
        source: "NVIDIA A100 40GB PCIe data sheet",
        ..A100
    },
    Board {
        kinds: &["NVIDIA A10"],
        bf16: Some(125.0),
        f16: 125.0,
        tf32: Some(62.5),
        f32: 31.2,
        memory: 24,
        bandwidth: 600.0,
        links: PCIE_4,
        source: "NVIDIA A10 data sheet",
    },
    Board {
        kinds: &["NVIDIA A10G"],
        bf16: Some(70.0),
        f16: 70.0,
        tf32: Some(35.0),
        f32: 35.0,
        memory: 24,
        bandwidth: 600.0,
        links: PCIE_4,
        source: "NVIDIA A10G data sheet for AWS",
    },
    Board {
        kinds: &["NVIDIA L4"],
        bf16: Some(121.0),
        f16: 121.0,
        tf32: Some(60.0),
        f32: 30.3,
        memory: 24,
        bandwidth: 300.0,
        links: PCIE_4,
        source: "NVIDIA L4 data sheet",
    },
    Board {
        kinds: &["NVIDIA L40S"],
        bf16: Some(362.0),
        f16: 362.0,
        tf32: Some(183.0),
        f32: 91.6,
        memory: 48,
        bandwidth: 864.0,
        links: PCIE_4,
        source: "NVIDIA L40S data sheet",
    },
    Board {
        kinds: &["NVIDIA GeForce RTX 3090"],
        bf16: Some(71.0),
        f16: 71.0,
        tf32: Some(35.6),
        f32: 35.6,
        memory: 24,
        bandwidth: 936.0,
        links: 112.5,
        source: "NVIDIA Ampere GA102 white paper, GeForce RTX 3090",
    },
    Board {
        kinds: &["NVIDIA GeForce RTX 4090"],
        bf16: Some(165.2),
        f16: 165.2,
        tf32: Some(82.6),
        f32: 82.6,
        memory: 24,
        bandwidth: 1008.0,
        links: PCIE_4,
        source: "NVIDIA Ada white paper, GeForce RTX 4090",
    },
    V100,
    Board {
        kinds: &["Tesla V100-SXM2-32GB"],
        memory: 32,
        ..V100
    },
    Board {
        kinds: &["Tesla V100-PCIE-16GB"],
        f16: 112.0,
        f32: 14.0,
        links: 32.0,
        source: "NVIDIA V100 PCIe data sheet",
        ..V100
    },
    Board {
        kinds: &["Tesla V100-PCIE-32GB"],
        f16: 112.0,
        f32: 14.0,
        memory: 32,
        links: 32.0,
        source: "NVIDIA V100 PCIe data sheet",
        ..V100
    },
    Board {
        kinds: &["Tesla T4", "NVIDIA T4"],
        bf16: None,
        f16: 65.0,
        tf32: None,
        f32: 8.1,
        memory: 16,
        bandwidth: 320.0,
        links: 32.0,
        source: "NVIDIA T4 data sheet",
    },
];

impl Board {
    fn spec(&self) -> DeviceSpec {
        DeviceSpec {
            bf16_flops: self.bf16.unwrap_or(self.f32) * 1e12,
            f16_flops: Some(self.f16 * 1e12),
            f32_flops: self.tf32.unwrap_or(self.f32) * 1e12,
            f32_highest_flops: self.f32 * 1e12,
            memory: self.memory << 30,
            memory_bandwidth: self.bandwidth * 1e9,
            interconnect_bandwidth: self.links * 1e9 / 2.0,
            source: self.source,
        }
    }
}

/// The specification of a GPU by the whole of its name: boards of similar names have other numbers.
pub(super) fn of_kind(kind: &str) -> Option<DeviceSpec> {
    let has = |board: &&Board| board.kinds.contains(&kind);
    BOARDS.iter().find(has).map(Board::spec)
}

#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = DeviceSpec> {
    BOARDS.iter().map(Board::spec)
}
