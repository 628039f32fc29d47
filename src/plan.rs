//! Plans: memory, work and communication of a training step on devices that need not be present.
//!
//! The whole step, forward, backward, collectives and the optimizer's update, is compiled by the
//! vendor's own compiler for a [`Target`](crate::backends::Target). Nothing of the model's size is
//! ever allocated. `halite plan` is a thin layer over this.
//!
//! ```no_run
//! // no_run: installs libtpu (205 MB) where it is missing.
//! use halite::{
//!     backends::{OpenOptions, Target},
//!     fetch::Bar,
//!     models::{Classify, Mlp},
//!     nn::Adam,
//!     plan::plan,
//!     prelude::*,
//!     train::{LowerOptions, Strategy},
//! };
//!
//! # fn main() -> Result<()> {
//! let target = "tpu:v5e:4x4".parse::<Target>()?.open(&OpenOptions::default(), &mut Bar::default())?;
//! let options = LowerOptions::new(&target.mesh([("data", 16)])?, Strategy::fsdp());
//! let batch = [TensorType::new(DType::U8, [2048, 28, 28]), TensorType::new(DType::U8, [2048])];
//! let plan = plan(&target, Classify::<Mlp<()>>::new(), Mlp::new(&[784, 512, 10]), Adam::new(1e-3), &batch, &options)?;
//! println!("{plan}");
//! assert!(plan.fits());
//! # Ok(())
//! # }
//! ```

mod advice;
mod bounds;
mod estimate;
mod machine;
mod search;
mod text;

use std::time::{Duration, Instant};

use halite_core::{Capabilities, DTypePolicy, MeshShape, ProgramMemory};
use serde::{Deserialize, Serialize};

use crate::{
    Error, ErrorKind, Param, Result, TensorType,
    backends::OpenTarget,
    data::Dataset,
    ir::{Cost, Graph, Op, Remat, cost},
    nn::Optimizer,
    train::{LowerOptions, LoweredStep, Strategy, Task, Trainer, lower_step},
    tree::{Family, Tree},
};

use self::machine::{Compiled, Machine};
pub use self::{
    estimate::Estimate,
    search::{Candidate, Planned, Search, candidates, fastest},
};

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
    /// Batch size: samples of one step, over all devices.
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
    fn of(memory: ProgramMemory) -> Self {
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
    fn of(cost: Cost) -> Self {
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

/// Lowers the training step of `task` for `model` with `optimizer` as [`lower_step`] does, with the
/// capabilities of `target`: the program that a trainer compiles on such devices with these
/// options. For the CPU, whose programs may call kernels of their process, it calls none.
///
/// # Errors
/// As [`lower_step`].
pub fn lower<K: Task, O: Optimizer>(
    target: &OpenTarget,
    task: K,
    model: <K::Model as Family>::Of<Param>,
    optimizer: O,
    batch: &[TensorType],
    options: &LowerOptions,
) -> Result<LoweredStep>
where
    <K::Model as Family>::Of<Param>: Send + Sync,
{
    let options = LowerOptions {
        capabilities: Capabilities::on(target.target().platform()),
        ..options.clone()
    };
    lower_step(task, model, optimizer, batch, &options)
}

/// Plans the training step of `task` for `model` with `optimizer` on `target`: [lowers](lower) it,
/// compiles it, and reads the compiler's report. `batch` has the types of the fields of a batch over
/// all devices.
///
/// If the arguments alone exceed the memory of a device, or what one loop keeps is many times that,
/// nothing is compiled. It is an error if one value exceeds what any device can address, or where
/// the memory of a device is not known, if a loop keeps more than a large machine has.
///
/// It compiles in this process, which a vendor's compiler can abort on some programs. To survive
/// that, run it in a child process, as `halite plan` does for each strategy: a [`Plan`] is
/// serializable.
///
/// # Errors
/// As [`lower`]; [`ErrorKind::InvalidArgument`] if a value of the step has more than 2^47 bytes on
/// each device, or a loop keeps more than 2^43 where a device has no known memory; errors of the compiler, except that the step does not fit, which is a [`Plan`].
pub fn plan<K: Task, O: Optimizer>(
    target: &OpenTarget,
    task: K,
    model: <K::Model as Family>::Of<Param>,
    optimizer: O,
    batch: &[TensorType],
    options: &LowerOptions,
) -> Result<Plan>
where
    <K::Model as Family>::Of<Param>: Send + Sync,
{
    let first = batch.first().and_then(|ty| ty.dims().first());
    let facts = StepFacts {
        mesh: &options.mesh,
        strategy: &options.strategy,
        precision: options.precision,
        batch_size: first.copied().unwrap_or(0),
        parameters: trained_parameters(&model),
    };
    let lowered = lower(target, task, model, optimizer, batch, options)?;
    of_lowered(&Machine::Target(target), &facts, &lowered)
}

/// Plans the step that this trainer compiles, on its devices: [`plan`] for devices that are present.
///
/// # Errors
/// Those of [`Trainer::lower_step`] and of [`plan`].
pub fn plan_on<K: Task, O: Optimizer>(
    trainer: &Trainer,
    task: K,
    model: <K::Model as Family>::Of<Param>,
    optimizer: O,
    train: impl Dataset + 'static,
) -> Result<Plan>
where
    <K::Model as Family>::Of<Param>: Send + Sync,
{
    let facts = StepFacts {
        mesh: trainer.mesh(),
        strategy: trainer.strategy(),
        precision: trainer.precision(),
        batch_size: trainer.options().samples_per_step(),
        parameters: trained_parameters(&model),
    };
    let lowered = trainer.lower_step(task, model, optimizer, train)?;
    of_lowered(&Machine::Present(trainer), &facts, &lowered)
}

/// What a plan says of a step besides its program.
struct StepFacts<'a> {
    mesh: &'a MeshShape,
    strategy: &'a Strategy,
    precision: DTypePolicy,
    batch_size: usize,
    parameters: u64,
}

/// Plans a lowered step.
fn of_lowered(machine: &Machine<'_>, step: &StepFacts<'_>, lowered: &LoweredStep) -> Result<Plan> {
    let (devices, available) = (step.mesh.size(), machine.memory_per_device());
    bounds::check_addressable(&lowered.graph, devices)?;
    let hopeless = bounds::hopeless(&lowered.graph, devices, available)?;
    let arguments = lowered.program.signature.inputs.iter();
    let arguments = arguments.fold(0, |sum: u64, ty| sum.saturating_add(ty.bytes() as u64));
    let mut plan = Plan {
        target: machine.name(),
        device: machine.device_kind(),
        devices,
        mesh: step.mesh.to_string(),
        strategy: step.strategy.to_string(),
        precision: step.precision.to_string(),
        batch_size: step.batch_size,
        parameters: step.parameters,
        fit: Fit::Fits { peak: 0, available },
        memory: None,
        arguments,
        work: Work::of(cost(&lowered.graph)),
        collectives: None,
        collective_loops_counted_once: 0,
        estimate: None,
        executable: None,
        stablehlo: lowered.program.code.len(),
        trace_seconds: lowered.stages.total().as_secs_f64(),
        compile_seconds: 0.0,
        advice: Vec::new(),
    };
    plan.fit = match available {
        Some(available) if plan.arguments > available => Fit::TooLarge {
            required: plan.arguments,
            available,
            what: Excess::Arguments,
        },
        available => match hopeless {
            Some(too_large) => too_large,
            None => plan.compile(machine, lowered, available)?,
        },
    };
    plan.estimate = Estimate::of(&plan, machine.spec());
    plan.advice = advice::advice(&plan, rematerialization(&lowered.graph));
    Ok(plan)
}

/// Number of trained parameters. Types whose size overflows, which lowering rejects, do not count.
fn trained_parameters(model: &impl Tree<Leaf = Param>) -> u64 {
    let trained = (model.leaves().into_iter())
        .filter(|param| param.trainable && param.ty.checked_bytes().is_ok());
    trained.fold(0, |sum, param| {
        sum.saturating_add(param.ty.elements() as u64)
    })
}

impl Plan {
    /// Compiles the step, and fills in the compiler's report.
    fn compile(
        &mut self,
        machine: &Machine<'_>,
        lowered: &LoweredStep,
        available: Option<u64>,
    ) -> Result<Fit> {
        let started = Instant::now();
        let compiled = machine.compile(&lowered.program);
        self.compile_seconds = started.elapsed().as_secs_f64();
        let Compiled {
            memory,
            collectives,
            executable,
        } = match compiled {
            Ok(compiled) => compiled,
            Err(error) => {
                let shortage = error.shortage();
                let shortage = shortage.filter(|_| error.kind() == ErrorKind::OutOfMemory);
                return match shortage {
                    Some(shortage) => Ok(Fit::TooLarge {
                        required: shortage.required,
                        available: shortage.available,
                        what: Excess::Compiler,
                    }),
                    None => Err(error),
                };
            }
        };
        (self.memory, self.executable) = (memory, executable);
        // Some compilers do not return the optimized program; the rest of the plan is valid.
        if let Some(found) = collectives {
            self.collective_loops_counted_once = found.loops_counted_once;
            let uses = found.uses.into_iter().map(|one| Collective {
                kind: one.kind.to_string(),
                group: one.group,
                count: one.count,
                bytes: one.bytes,
                sent: one.sent(),
            });
            self.collectives = Some(uses.collect());
        }
        let peak = memory.map_or(self.arguments, |memory| memory.peak);
        Ok(match available {
            Some(available) if peak > available => Fit::TooLarge {
                required: peak,
                available,
                what: Excess::Peak,
            },
            available => Fit::Fits { peak, available },
        })
    }

    /// Total time of tracing, printing and compiling.
    pub fn took(&self) -> Duration {
        Duration::from_secs_f64(self.trace_seconds + self.compile_seconds)
    }
}

/// The least rematerialization among the checkpoints of `graph`; `None` if it has none.
fn rematerialization(graph: &Graph) -> Option<Remat> {
    let of = |op: &Op| match op {
        Op::Checkpoint { remat, .. } => Some(*remat),
        other => other.regions().into_iter().find_map(rematerialization),
    };
    let found: Vec<Remat> = graph
        .nodes()
        .iter()
        .filter_map(|node| of(&node.op))
        .collect();
    if found.contains(&Remat::SaveDots) {
        Some(Remat::SaveDots)
    } else {
        found.first().copied()
    }
}

fn unless_unsupported<T>(result: Result<T, Error>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(error),
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
