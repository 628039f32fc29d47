//! Vendors' specifications of devices, for roofline estimates.

use super::{Gpu, TpuGeneration};

/// The vendor's specification of one device as the compiler counts devices: half a chip where each
/// of two cores is a device.
///
/// The numbers are peaks that programs approach. The size of the memory is reported by the compiler
/// instead (`OpenTarget::memory_per_device`).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceSpec {
    /// Peak FLOP/s of dense bf16 matrix multiplications with f32 accumulation, as published.
    pub bf16_flops: f64,
    /// Peak FLOP/s in f32 at the compiler's default precision. GPUs round to TF32, as published.
    /// TPUs round to bf16; not published, equal to bf16.
    pub f32_flops: f64,
    /// Peak FLOP/s in f32 at full precision (`HIGHEST`). CUDA cores of GPUs, as published. Not
    /// published for TPUs; estimated as a sixth of bf16, because XLA uses six bf16 products for
    /// one.
    pub f32_highest_flops: f64,
    /// Memory bandwidth in bytes/s, as published.
    pub memory_bandwidth: f64,
    /// Interconnect bandwidth in bytes/s over all links in one direction: ICI of TPUs, NVLink of
    /// GPUs. Half of the published number, which counts both directions. Networks between slices or
    /// hosts are slower and not included.
    pub interconnect_bandwidth: f64,
    /// Source of the numbers.
    pub source: &'static str,
}

/// Published numbers of a TPU chip.
struct Chip {
    /// TFLOP/s in bf16.
    bf16: f64,
    /// Memory bandwidth in GB/s.
    memory: f64,
    /// Interconnect bandwidth in GB/s, both directions.
    links: f64,
    source: &'static str,
}

/// Published numbers of a GPU.
struct Board {
    /// TFLOP/s in bf16, TF32 and f32 without sparsity; data sheets list the first two with
    /// sparsity, which doubles them.
    bf16: f64,
    tf32: f64,
    f32: f64,
    /// Memory bandwidth in TB/s.
    memory: f64,
    /// NVLink bandwidth in GB/s, both directions.
    links: f64,
    source: &'static str,
}

impl DeviceSpec {
    /// The specification of one of the `devices` of a chip.
    pub(super) fn of_tpu(generation: TpuGeneration, devices: usize) -> Self {
        let chip = match generation {
            // The documentation has no link bandwidth for v2 to v4; the papers do.
            TpuGeneration::V2 => Chip {
                bf16: 45.0,
                memory: 700.0,
                links: 2.0 * 4.0 * 62.0,
                source: "Google Cloud documentation, TPU v2; links: Jouppi et al. 2020, 4 of 496 Gbit/s in each direction",
            },
            TpuGeneration::V3 => Chip {
                bf16: 123.0,
                memory: 900.0,
                links: 2.0 * 4.0 * 82.0,
                source: "Google Cloud documentation, TPU v3; links: Jouppi et al. 2020, 4 of 656 Gbit/s in each direction",
            },
            TpuGeneration::V4 => Chip {
                bf16: 275.0,
                memory: 1200.0,
                links: 2.0 * 6.0 * 50.0,
                source: "Google Cloud documentation, TPU v4; links: Jouppi et al. 2023, 6 of 50 GB/s in each direction",
            },
            TpuGeneration::V5e => Chip {
                bf16: 197.0,
                memory: 819.0,
                links: 400.0,
                source: "Google Cloud documentation, TPU v5e",
            },
            TpuGeneration::V5p => Chip {
                bf16: 459.0,
                memory: 2765.0,
                links: 1200.0,
                source: "Google Cloud documentation, TPU v5p",
            },
            TpuGeneration::V6e => Chip {
                bf16: 918.0,
                memory: 1638.0,
                links: 800.0,
                source: "Google Cloud documentation, TPU v6e",
            },
            TpuGeneration::Tpu7x => Chip {
                bf16: 2307.0,
                memory: 7380.0,
                links: 1200.0,
                source: "Google Cloud documentation, TPU7x",
            },
        };
        let share = 1.0 / devices as f64;
        let bf16_flops = chip.bf16 * 1e12 * share;
        DeviceSpec {
            bf16_flops,
            f32_flops: bf16_flops,
            f32_highest_flops: bf16_flops / 6.0,
            memory_bandwidth: chip.memory * 1e9 * share,
            interconnect_bandwidth: chip.links * 1e9 / 2.0 * share,
            source: chip.source,
        }
    }

    /// The specification of a device that is present, by its kind as the driver spells it:
    /// `NVIDIA H100 80GB HBM3`, `TPU v5 lite`. `None` for devices whose numbers are not known, and
    /// for boards with other numbers, as those for PCIe.
    pub fn of_kind(kind: &str) -> Option<Self> {
        let words: Vec<String> = kind.split([' ', '-']).map(str::to_lowercase).collect();
        let has = |word: &str| words.iter().any(|one| one == word);
        if has("nvidia") {
            let gpu = Gpu::ALL.into_iter().find(|gpu| has(gpu.name()));
            return gpu.filter(|_| !has("pcie")).map(DeviceSpec::of_gpu);
        }
        let generation = match words.join(" ").as_str() {
            "tpu v2" => TpuGeneration::V2,
            "tpu v3" => TpuGeneration::V3,
            "tpu v4" => TpuGeneration::V4,
            "tpu v5 lite" => TpuGeneration::V5e,
            "tpu v5" | "tpu v5p" => TpuGeneration::V5p,
            "tpu v6 lite" => TpuGeneration::V6e,
            "tpu7x" => TpuGeneration::Tpu7x,
            _ => return None,
        };
        // The two cores of a v4 chip are one device, unless they are asked to be two.
        let devices = match generation {
            TpuGeneration::V4 => 1,
            other => other.devices_per_chip(),
        };
        Some(DeviceSpec::of_tpu(generation, devices))
    }

    pub(super) fn of_gpu(gpu: Gpu) -> Self {
        let hopper = |memory, source| Board {
            bf16: 989.5,
            tf32: 494.7,
            f32: 67.0,
            memory,
            links: 900.0,
            source,
        };
        let board = match gpu {
            Gpu::A100 => Board {
                bf16: 312.0,
                tf32: 156.0,
                f32: 19.5,
                memory: 2.039,
                links: 600.0,
                source: "NVIDIA A100 80GB SXM data sheet",
            },
            Gpu::H100 => hopper(3.35, "NVIDIA H100 SXM data sheet"),
            Gpu::H200 => hopper(4.8, "NVIDIA H200 SXM data sheet"),
            Gpu::B200 => Board {
                bf16: 2250.0,
                tf32: 1100.0,
                f32: 75.0,
                memory: 7.7,
                links: 1800.0,
                source: "NVIDIA Blackwell data sheet, HGX B200",
            },
        };
        DeviceSpec {
            bf16_flops: board.bf16 * 1e12,
            f32_flops: board.tf32 * 1e12,
            f32_highest_flops: board.f32 * 1e12,
            memory_bandwidth: board.memory * 1e12,
            interconnect_bandwidth: board.links * 1e9 / 2.0,
            source: board.source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_devices_have_their_specification() {
        for (kind, bf16_flops) in [
            ("NVIDIA H100 80GB HBM3", Some(989.5e12)),
            ("NVIDIA A100-SXM4-80GB", Some(312e12)),
            ("NVIDIA H100 PCIe", None),
            ("NVIDIA GH200 480GB", None),
            ("TPU v5 lite", Some(197e12)),
            ("TPU v4", Some(275e12)),
            ("TPU v3", Some(61.5e12)),
            ("cpu", None),
        ] {
            let found = DeviceSpec::of_kind(kind).map(|spec| spec.bf16_flops);
            assert_eq!(found, bf16_flops, "{kind}");
        }
    }
}
