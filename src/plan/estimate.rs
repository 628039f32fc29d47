//! How long a step takes at best: a roofline of three roofs.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::backends::DeviceSpec;

/// How long a step takes at best, from the vendor's numbers for arithmetic, memory and links, each
/// as if it were always reached (Williams, Waterman and Patterson, "Roofline", 2009, with the
/// network as a third roof). A real step is slower.
///
/// Assumed: contractions divide evenly among devices and run at the peak for their types; memory is
/// met by the operands and results of contractions, and once by all arguments and outputs; devices
/// send on all links at once, in rings; work between contractions takes no time, nor does beginning
/// a collective, which is most of it in a small model. Links are those of a slice or a machine:
/// what crosses the data centre's network, between slices or machines, is slower than said here,
/// and of several slices not counted, since the compiled program is that of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Seconds of arithmetic.
    pub compute_seconds: f64,
    /// Seconds to and from each device's memory.
    pub memory_seconds: f64,
    /// Seconds of collectives.
    pub network_seconds: f64,
    /// Seconds of a step if all three overlap: the longest.
    pub step_seconds: f64,
    /// Seconds of a step if nothing overlaps: the sum.
    pub step_seconds_without_overlap: f64,
    /// Model FLOPs utilization (Chowdhery et al., "PaLM", 2022): the part of the peak that goes
    /// into the model's own contractions, if all overlaps. Recomputed ones count too where it is
    /// not known which they are.
    pub mfu: f64,
    /// The same if nothing overlaps.
    pub mfu_without_overlap: f64,
    /// The peak it is a part of, floating point operations a second of one device.
    pub peak_flops: f64,
    /// Where the vendor's numbers are from.
    pub source: Cow<'static, str>,
}

impl Estimate {
    pub(super) fn of(plan: &Plan, spec: Option<DeviceSpec>) -> Option<Self> {
        let (spec, memory, collectives) = (spec?, plan.memory?, plan.collectives.as_ref()?);
        let work = &plan.work;
        let devices = plan.devices as f64;
        let in_32_bits = work.contractions - work.contractions_in_16_bits;
        let compute_seconds = (work.contractions_in_16_bits / spec.bf16_flops
            + in_32_bits / spec.f32_flops)
            / devices;
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
                spec.bf16_flops
            } else {
                spec.f32_flops
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

    /// Which roof is the lowest.
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
