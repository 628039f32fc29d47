//! What a plan reports of a step.

use halite_core::ProgramMemory;
use serde::{Deserialize, Serialize};

use super::Estimate;
use crate::ir::Cost;

/// Memory, work and communication of a training step on a target.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Plan {
    /// The target, as `--target` takes it: `tpu:v5e:4x4`.
    pub target: String,
    /// Device kind, as the vendor spells it.
    pub device: String,
    /// Number of devices that the step runs on.
    pub devices: usize,
    /// The mesh: `mesh(data=16)`.
    pub mesh: String,
    /// Strategy that shards parameters and batches.
    pub strategy: String,
    /// Precision policy: `bf16-mixed`.
    pub precision: String,
    /// Samples of one batch, over all devices. A step may accumulate several.
    pub batch_size: usize,
    /// Number of trained parameters.
    pub parameters: u64,
    /// Result of comparing the memory it needs with that of a device.
    pub fit: Fit,
    /// Bytes on one device, if it was compiled.
    pub memory: Option<Memory>,
    /// Bytes of the arguments on one device, from their shardings: state, batch, metrics,
    /// hyperparameters.
    pub arguments: u64,
    /// Work of one step over all devices.
    pub work: Work,
    /// Collectives of one step, if it was compiled.
    pub collectives: Option<Vec<Collective>>,
    /// Number of loops with collectives whose trip count the compiled program does not give; their
    /// collectives are counted once.
    pub collective_loops_counted_once: usize,
    /// Lower bound of the step time, if the vendor's numbers are known.
    pub estimate: Option<Estimate>,
    /// Bytes of the serialized executable, if the compiler can serialize it.
    pub executable: Option<u64>,
    /// Bytes of the StableHLO text. It does not grow with the number of scanned layers.
    pub stablehlo: usize,
    /// Seconds to trace and print.
    pub trace_seconds: f64,
    /// Seconds to compile.
    pub compile_seconds: f64,
    /// Suggestions if it does not fit, the most effective first.
    pub advice: Vec<String>,
}

/// Comparison of the memory a step needs with that of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Fit {
    /// It fits.
    Fits {
        /// Peak memory in bytes.
        peak: u64,
        /// Memory of a device in bytes; `None` if the compiler has no limit.
        available: Option<u64>,
    },
    /// It does not fit.
    TooLarge {
        /// Required memory in bytes, as far as the compiler counted it.
        required: u64,
        /// Memory of a device in bytes.
        available: u64,
        /// The part that is too large.
        what: Excess,
    },
}

/// The part of a step that is too large for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Excess {
    /// The arguments alone: state and batch.
    Arguments,
    /// What one loop keeps alone, such as the activations of all layers: a lower bound.
    Loop,
    /// The compiler ran out of memory.
    Compiler,
    /// The peak of the compiled program.
    Peak,
}

/// Bytes on one device, as the compiler reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// State, batch and metrics.
    pub arguments: u64,
    /// Next state and metrics.
    pub outputs: u64,
    /// Outputs that reuse memory of arguments.
    pub aliased: u64,
    /// Activations and other scratch memory.
    pub temporary: u64,
    /// Program code.
    pub code: u64,
    /// Peak memory of a step, without the program: arguments, outputs that reuse none of them, and
    /// temporary memory.
    pub peak: u64,
}

impl Memory {
    /// Memory of a program as its compiler reports it.
    pub(super) fn of(memory: ProgramMemory) -> Self {
        Memory {
            arguments: memory.arguments,
            outputs: memory.outputs,
            aliased: memory.aliased,
            temporary: memory.temporary,
            code: memory.code,
            peak: memory.required(),
        }
    }
}

/// Work of one step over all devices, counted on halite's graph, loop bodies times their trip counts;
/// see [`Cost`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Floating-point operations, without transcendental ones.
    pub flops: f64,
    /// Floating-point operations of matrix multiplications and convolutions (contractions).
    pub contractions: f64,
    /// Part of [`contractions`](Self::contractions) with 16-bit operands.
    pub contractions_in_16_bits: f64,
    /// Elements of transcendental operations.
    pub transcendentals: f64,
    /// Bytes that contractions read and write.
    pub contraction_bytes: f64,
    /// Bytes that all operations would read and write without fusion: an upper bound.
    pub unfused_bytes: f64,
    /// Arithmetic intensity of contractions, FLOP per byte.
    pub intensity: f64,
    /// Contractions without rematerialized ones, if known.
    pub model_flops: Option<f64>,
    /// Source lines of loops with unknown trip counts; their bodies are counted once.
    pub counted_once: Vec<String>,
}

impl Work {
    pub(super) fn of(cost: Cost) -> Self {
        let line = |origin: Option<&'static std::panic::Location<'static>>| {
            origin.map_or("unknown".to_string(), ToString::to_string)
        };
        Work {
            flops: cost.flops(),
            contractions: cost.contractions(),
            contractions_in_16_bits: cost.in_16_bits,
            transcendentals: cost.transcendental,
            contraction_bytes: cost.contraction_bytes,
            unfused_bytes: cost.unfused_bytes,
            intensity: cost.contractions() / cost.contraction_bytes.max(1.0),
            model_flops: None,
            counted_once: cost.counted_once.into_iter().map(line).collect(),
        }
    }
}

/// Collectives of one kind and group size, in one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collective {
    /// `all-reduce`, `all-gather`, ..
    pub kind: String,
    /// Number of devices in a group.
    pub group: usize,
    /// Number of collectives in one step.
    pub count: u64,
    /// Total bytes of the whole tensors.
    pub bytes: u64,
    /// Lower bound of the bytes that each device sends.
    pub sent: f64,
}

impl Plan {
    /// True if it fits.
    pub fn fits(&self) -> bool {
        matches!(self.fit, Fit::Fits { .. })
    }

    /// Peak memory on a device in bytes, as far as it was counted.
    pub fn required(&self) -> u64 {
        match self.fit {
            Fit::Fits { peak, .. } => peak,
            Fit::TooLarge { required, .. } => required,
        }
    }

    /// Sets the floating-point operations of the model itself, without rematerialization.
    pub fn with_model_flops(mut self, flops: f64) -> Self {
        self.work.model_flops = Some(flops);
        if let Some(estimate) = &mut self.estimate {
            estimate.set_model_flops(flops, self.devices);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_has_all_its_parts() {
        let reported = |peak| ProgramMemory {
            arguments: 160,
            outputs: 120,
            aliased: 100,
            temporary: 2490,
            code: 40,
            peak,
        };
        // libtpu reports 2460 for such a step.
        for peak in [None, Some(180), Some(2460)] {
            assert_eq!(Memory::of(reported(peak)).peak, 160 + 20 + 2490);
        }
        assert_eq!(Memory::of(reported(Some(3000))).peak, 3000);
    }
}
