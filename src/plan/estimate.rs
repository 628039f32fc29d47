//! Lower bound of the step time: a roofline model with three roofs.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::core::{DType, DTypePolicy, DeviceSpec};

/// Lower bound of the step time, from the vendor's peak numbers for arithmetic, memory and links
/// (Williams, Waterman and Patterson, "Roofline", 2009, with the network as a third roof). A real
/// step is slower.
///
/// Assumptions: contractions divide evenly among devices and run at the peak for their types; memory
/// traffic is the operands and results of contractions, and once all arguments and outputs; devices
/// send on all links at once, in rings; other operations take no time, nor does the latency of
/// collectives, which dominates in a small model. Links are those of a slice or a machine: traffic
/// over the data center's network, between slices or machines, is slower than estimated here, and
/// between slices not counted, since the compiled program is that of one slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Seconds of arithmetic.
    pub compute_seconds: f64,
    /// Seconds of memory traffic of each device.
    pub memory_seconds: f64,
    /// Seconds of collectives.
    pub network_seconds: f64,
    /// Seconds of a step if all three overlap: the maximum.
    pub step_seconds: f64,
    /// Seconds of a step if nothing overlaps: the sum.
    pub step_seconds_without_overlap: f64,
    /// Model FLOPs utilization (Chowdhery et al., "PaLM", 2022): the fraction of the peak used by the
    /// model's contractions, if all overlaps. Rematerialized ones are included if it is not known
    /// which they are.
    pub mfu: f64,
    /// Model FLOPs utilization if nothing overlaps.
    pub mfu_without_overlap: f64,
    /// Peak of one device that MFU refers to, in FLOP per second.
    pub peak_flops: f64,
    /// Source of the vendor's numbers.
    pub source: Cow<'static, str>,
}

impl Estimate {
    pub(super) fn of(plan: &Plan, spec: Option<DeviceSpec>, policy: &DTypePolicy) -> Option<Self> {
        let (spec, memory, collectives) = (spec?, plan.memory?, plan.collectives.as_ref()?);
        let work = &plan.work;
        let devices = plan.devices as f64;
        let in_32_bits = work.contractions - work.contractions_in_16_bits;
        let (of_16_bits, of_32_bits) = peaks(&spec, policy);
        let compute_seconds =
            (work.contractions_in_16_bits / of_16_bits + in_32_bits / of_32_bits) / devices;
        let bytes = work.contraction_bytes / devices + (memory.arguments + memory.outputs) as f64;
        let memory_seconds = bytes / spec.memory_bandwidth;
        // An empty sum of floats is -0.
        let sent = collectives
            .iter()
            .fold(0.0, |sum, collective| sum + collective.sent);
        let network_seconds = sent / spec.interconnect_bandwidth;
        let mut estimate = Estimate {
            compute_seconds,
            memory_seconds,
            network_seconds,
            step_seconds: compute_seconds.max(memory_seconds).max(network_seconds),
            step_seconds_without_overlap: compute_seconds + memory_seconds + network_seconds,
            mfu: 0.0,
            mfu_without_overlap: 0.0,
            peak_flops: if 2.0 * work.contractions_in_16_bits >= work.contractions {
                of_16_bits
            } else {
                of_32_bits
            },
            source: spec.source.into(),
        };
        estimate.set_model_flops(work.contractions, plan.devices);
        Some(estimate)
    }

    pub(super) fn set_model_flops(&mut self, flops: f64, devices: usize) {
        let ideal = flops / (self.peak_flops * devices as f64);
        let part = |seconds: f64| if seconds > 0.0 { ideal / seconds } else { 0.0 };
        self.mfu = part(self.step_seconds);
        self.mfu_without_overlap = part(self.step_seconds_without_overlap);
    }

    /// The resource that bounds the step time.
    pub fn bound(&self) -> &'static str {
        if self.step_seconds == self.compute_seconds {
            "arithmetic"
        } else if self.step_seconds == self.memory_seconds {
            "memory"
        } else {
            "network"
        }
    }
}

/// Peak FLOP/s of contractions of 16-bit and of 32-bit operands under a policy.
fn peaks(spec: &DeviceSpec, policy: &DTypePolicy) -> (f64, f64) {
    let of_16_bits = match policy.compute {
        DType::F16 => spec.f16_flops.unwrap_or(spec.bf16_flops),
        _ => spec.bf16_flops,
    };
    let of_32_bits = if policy.fast_products {
        spec.f32_flops
    } else {
        spec.f32_highest_flops
    };
    (of_16_bits, of_32_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_those_that_a_run_is_compared_with() {
        let spec = DeviceSpec::of_kind("NVIDIA H100 80GB HBM3").unwrap();
        for (name, is_narrow) in [
            ("f32", false),
            ("tf32", false),
            ("bf16-mixed", true),
            ("f16-mixed", true),
        ] {
            let policy: DTypePolicy = name.parse().unwrap();
            let (of_16_bits, of_32_bits) = peaks(&spec, &policy);
            let used = if is_narrow { of_16_bits } else { of_32_bits };
            assert_eq!(Some(used), spec.peak_flops(&policy), "{name}");
        }
    }
}
