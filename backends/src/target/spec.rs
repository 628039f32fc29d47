//! What the vendors say that their devices can do, for estimates.

use super::{Gpu, TpuGeneration};

/// The vendor's numbers for one device, as the compiler counts devices: half a chip where its cores are two.
///
/// They are limits that programs come near to, not what they reach.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceSpec {
    /// Floating point operations a second in matrix multiplications of bf16, with f32 sums, of dense matrices.
    pub bf16_flops: f64,
    /// The same of f32 at the compilers' default precision: a TPU rounds to bf16, a GPU to TF32.
    pub f32_flops: f64,
    /// The same of f32 at full precision (`HIGHEST`): six passes in bf16 on a TPU, the ordinary units on a GPU.
    pub f32_highest_flops: f64,
    /// Bytes a second to and from the device's memory.
    pub memory_bandwidth: f64,
    /// Bytes a second that the device can send to its neighbours on all links at once, in one direction: ICI on a TPU, NVLink
    /// on a GPU.
    pub interconnect_bandwidth: f64,
    /// Where the numbers are from.
    pub source: &'static str,
}

impl DeviceSpec {
    /// Of one of the `devices` that a chip is.
    pub(super) fn of_tpu(generation: TpuGeneration, devices: usize) -> Self {
        // TFLOPs in bf16, GB/s of memory, GB/s of interconnect in both directions together.
        let (tflops, memory, interconnect, source) = match generation {
            TpuGeneration::V2 => {
                (45.0, 700.0, 496.0, "Google Cloud documentation, TPU v2; links: Jouppi et al. 2020 (4 x 496 Gbit/s)")
            }
            TpuGeneration::V3 => {
                (123.0, 900.0, 656.0, "Google Cloud documentation, TPU v3; links: Jouppi et al. 2020 (4 x 656 Gbit/s)")
            }
            TpuGeneration::V4 => {
                (275.0, 1200.0, 600.0, "Google Cloud documentation, TPU v4; links: Jouppi et al. 2023 (6 x 50 GB/s)")
            }
            TpuGeneration::V5e => (197.0, 819.0, 400.0, "Google Cloud documentation, TPU v5e"),
            TpuGeneration::V5p => (459.0, 2765.0, 1200.0, "Google Cloud documentation, TPU v5p"),
            TpuGeneration::V6e => (918.0, 1638.0, 800.0, "Google Cloud documentation, TPU v6e"),
            TpuGeneration::Tpu7x => (2307.0, 7380.0, 1200.0, "Google Cloud documentation, TPU7x"),
        };
        let share = 1.0 / devices as f64;
        let bf16_flops = tflops * 1e12 * share;
        DeviceSpec {
            bf16_flops,
            f32_flops: bf16_flops,
            f32_highest_flops: bf16_flops / 6.0,
            memory_bandwidth: memory * 1e9 * share,
            interconnect_bandwidth: interconnect * 1e9 / 2.0 * share,
            source,
        }
    }

    pub(super) fn of_gpu(gpu: Gpu) -> Self {
        // TFLOPs without sparsity: bf16, TF32, f32; TB/s of memory; GB/s of NVLink in both directions together.
        let (bf16, tf32, f32, memory, interconnect, source) = match gpu {
            Gpu::A100 => (312.0, 156.0, 19.5, 2.039, 600.0, "NVIDIA A100 80GB SXM data sheet"),
            Gpu::H100 => (989.5, 494.7, 67.0, 3.35, 900.0, "NVIDIA H100 SXM data sheet"),
            Gpu::H200 => (989.5, 494.7, 67.0, 4.8, 900.0, "NVIDIA H200 SXM data sheet"),
            Gpu::B200 => (2250.0, 1100.0, 80.0, 8.0, 1800.0, "NVIDIA Blackwell architecture technical brief, HGX B200"),
        };
        DeviceSpec {
            bf16_flops: bf16 * 1e12,
            f32_flops: tf32 * 1e12,
            f32_highest_flops: f32 * 1e12,
            memory_bandwidth: memory * 1e12,
            interconnect_bandwidth: interconnect * 1e9 / 2.0,
            source,
        }
    }
}
