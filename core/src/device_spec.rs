//! Vendors' specifications of devices: the one table that plans, model FLOPs utilization, reports
//! and `halite devices` share. Nothing here asks a device.

mod gpus;
mod tpus;

use crate::{DType, DTypePolicy};

/// The vendor's specification of one device, as the driver counts devices: half a chip where each
/// of two cores is a device.
///
/// The numbers are peaks that programs approach, of dense operands: data sheets that list a rate
/// with sparsity list twice the rate here.
///
/// ```
/// use halite_core::{DTypePolicy, DeviceSpec};
///
/// let spec = DeviceSpec::of_kind("NVIDIA H200").expect("it is in the table");
/// assert_eq!(spec.peak_flops(&DTypePolicy::BF16_MIXED), Some(989.5e12));
/// assert_eq!(spec.peak_flops(&DTypePolicy::F32), Some(67e12));
/// assert_eq!(DeviceSpec::of_kind("cpu"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceSpec {
    /// Peak FLOP/s of bf16 matrix multiplications with f32 accumulation, as published. GPUs without
    /// units for bf16 compute in f32; the rate is that of f32.
    pub bf16_flops: f64,
    /// Peak FLOP/s of f16 matrix multiplications with f32 accumulation, as published; `None` for
    /// TPUs, for which no rate is published.
    pub f16_flops: Option<f64>,
    /// Peak FLOP/s in f32 at the compiler's default precision. GPUs with units for it round to
    /// TF32, as published. TPUs round to bf16; not published, equal to bf16.
    pub f32_flops: f64,
    /// Peak FLOP/s in f32 at full precision (`HIGHEST`). CUDA cores of GPUs, as published. Not
    /// published for TPUs; estimated as a sixth of bf16, because XLA uses six bf16 products for
    /// one.
    pub f32_highest_flops: f64,
    /// Bytes of memory, as published; a GB of a data sheet is a GiB. Programs can use less, see
    /// [`MemoryStats::limit`](crate::MemoryStats).
    pub memory: u64,
    /// Memory bandwidth in bytes/s, as published.
    pub memory_bandwidth: f64,
    /// Interconnect bandwidth in bytes/s over all links in one direction: ICI of TPUs, NVLink of
    /// GPUs, PCIe of GPUs without it. Half of the published number, which counts both directions.
    /// Networks between slices or hosts are slower and not included.
    pub interconnect_bandwidth: f64,
    /// Source of the numbers.
    pub source: &'static str,
}

impl DeviceSpec {
    /// The specification of a device by its kind as the driver spells it: `NVIDIA H100 80GB HBM3`,
    /// `TPU v5 lite`. `None` for devices whose numbers are not known: CPUs, boards that are not in
    /// the table, and parts of a GPU (MIG).
    pub fn of_kind(kind: &str) -> Option<Self> {
        gpus::of_kind(kind).or_else(|| tpus::of_kind(kind))
    }

    /// Peak FLOP/s of the matrix multiplications of programs under a precision policy, by the type
    /// that it multiplies in. `None` where the vendor publishes no such rate.
    ///
    /// For `f32` it is the rate at full precision, for `tf32` the rate of products whose operands
    /// the device rounds.
    pub fn peak_flops(&self, policy: &DTypePolicy) -> Option<f64> {
        match policy.compute {
            DType::Bf16 => Some(self.bf16_flops),
            DType::F16 => self.f16_flops,
            DType::F32 if policy.fast_products => Some(self.f32_flops),
            DType::F32 => Some(self.f32_highest_flops),
            _ => None,
        }
    }

    /// The specification of one of `parts` equal parts of the device, such as the cores of a chip
    /// that are devices of their own.
    pub fn part_of(self, parts: u32) -> Self {
        let share = 1.0 / f64::from(parts.max(1));
        DeviceSpec {
            bf16_flops: self.bf16_flops * share,
            f16_flops: self.f16_flops.map(|flops| flops * share),
            f32_flops: self.f32_flops * share,
            f32_highest_flops: self.f32_highest_flops * share,
            memory: self.memory / u64::from(parts.max(1)),
            memory_bandwidth: self.memory_bandwidth * share,
            interconnect_bandwidth: self.interconnect_bandwidth * share,
            source: self.source,
        }
    }
}

/// Formats a rate: `989.5 TFLOP/s`.
#[doc(hidden)]
pub fn format_flops(flops: f64) -> String {
    format!("{:.1} TFLOP/s", flops / 1e12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_devices_have_their_specification() {
        for (kind, tflops, gibibytes) in [
            ("NVIDIA H100 80GB HBM3", 989.5, 80),
            ("NVIDIA H100 PCIe", 756.5, 80),
            ("NVIDIA H200", 989.5, 141),
            ("NVIDIA H200 141GB HBM3e", 989.5, 141),
            ("NVIDIA A100-SXM4-80GB", 312.0, 80),
            ("NVIDIA A100-PCIE-40GB", 312.0, 40),
            ("NVIDIA L4", 121.0, 24),
            ("NVIDIA L40S", 362.0, 48),
            ("NVIDIA GeForce RTX 4090", 165.2, 24),
            ("Tesla T4", 8.1, 16),
            ("TPU v5 lite", 197.0, 16),
            ("TPU v4", 275.0, 32),
            ("TPU v3", 61.5, 16),
            ("TPU v6 lite", 918.0, 32),
            ("TPU7x", 1153.5, 96),
        ] {
            let spec = DeviceSpec::of_kind(kind).unwrap_or_else(|| panic!("{kind}"));
            assert_eq!(spec.bf16_flops, tflops * 1e12, "{kind}");
            assert_eq!(spec.memory, gibibytes << 30, "{kind}");
        }
    }

    #[test]
    fn unknown_devices_have_no_specification() {
        for kind in [
            "",
            "cpu",
            "embedded",
            "null",
            "NVIDIA",
            "NVIDIA GH200 480GB",
            "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
            "NVIDIA GeForce RTX 3090 Ti",
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "TPU v9",
        ] {
            assert_eq!(DeviceSpec::of_kind(kind), None, "{kind}");
        }
    }

    #[test]
    fn peak_is_that_of_the_type_that_is_multiplied() {
        let peaks = |kind| {
            let spec = DeviceSpec::of_kind(kind).unwrap();
            ["f32", "tf32", "bf16-mixed", "f16-mixed", "bf16"].map(|name| {
                let policy = name.parse::<DTypePolicy>().unwrap();
                spec.peak_flops(&policy).map(|flops| flops / 1e12)
            })
        };
        let a100 = [19.5, 156.0, 312.0, 312.0, 312.0].map(Some);
        assert_eq!(peaks("NVIDIA A100-SXM4-80GB"), a100);
        // Without units for TF32 and bf16.
        assert_eq!(peaks("Tesla T4"), [8.1, 8.1, 8.1, 65.0, 8.1].map(Some));
        let v4 = [
            Some(275.0 / 6.0),
            Some(275.0),
            Some(275.0),
            None,
            Some(275.0),
        ];
        assert_eq!(peaks("TPU v4"), v4);
    }

    #[test]
    fn parts_of_a_device_share_its_rates() {
        let whole = DeviceSpec::of_kind("TPU v4").unwrap();
        let half = whole.part_of(2);
        assert_eq!(half.bf16_flops, 137.5e12);
        assert_eq!((half.memory, half.source), (16 << 30, whole.source));
        assert_eq!(whole.part_of(1), whole);
    }

    #[test]
    fn no_rate_exceeds_a_faster_type() {
        for spec in gpus::all() {
            assert!(spec.f32_highest_flops <= spec.f32_flops, "{spec:?}");
            assert!(spec.f32_flops <= spec.bf16_flops, "{spec:?}");
            assert!(spec.f16_flops >= Some(spec.bf16_flops), "{spec:?}");
            let intensity = spec.bf16_flops / spec.memory_bandwidth;
            assert!((8.0..1000.0).contains(&intensity), "{spec:?}");
        }
    }
}
