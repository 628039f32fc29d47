//! What the devices of a run are, as far as they and their vendor say.

use halite_core::{Client, DTypePolicy, DeviceId, format_bytes, format_flops};
use serde::{Deserialize, Serialize};

/// The device of a run; of several, the first, and the least memory.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DeviceReport {
    /// The model, as the vendor spells it: `NVIDIA H200`.
    pub kind: String,
    /// Bytes of memory that programs can use, or those of the vendor's specification where the driver
    /// reports none. `None` if neither is known.
    pub memory: Option<u64>,
    /// Published peak in FLOP/s of bf16 matrix multiplications, if it is known.
    pub bf16_flops: Option<f64>,
    /// Published peak in FLOP/s of the type that the run's precision multiplies in, if it is known.
    pub peak_flops: Option<f64>,
}

impl DeviceReport {
    /// Describes these devices of a client for programs under a precision policy.
    pub(crate) fn of(client: &Client, devices: &[DeviceId], policy: &DTypePolicy) -> Self {
        let all = client.devices();
        let used: Vec<_> = all
            .into_iter()
            .filter(|device| devices.contains(&device.id()))
            .collect();
        let Some(first) = used.first() else {
            return DeviceReport::default();
        };
        let spec = first.spec();
        let limits = used.iter().filter_map(|device| device.memory().ok()?.limit);
        DeviceReport {
            kind: first.kind().to_owned(),
            memory: limits.min().or(spec.map(|spec| spec.memory)),
            bf16_flops: spec.map(|spec| spec.bf16_flops),
            peak_flops: spec.and_then(|spec| spec.peak_flops(policy)),
        }
    }

    /// The line of the table; `None` of a device of which the plugin's name says as much.
    pub(super) fn line(&self) -> Option<String> {
        let memory = self
            .memory
            .map(|bytes| format!("{} of memory", format_bytes(bytes)));
        let peak = self
            .bf16_flops
            .map(|flops| format!("{} in bf16 at most", format_flops(flops)));
        let known: Vec<String> = memory.into_iter().chain(peak).collect();
        (!known.is_empty()).then(|| format!("{}, {}", self.kind, known.join(", ")))
    }
}
