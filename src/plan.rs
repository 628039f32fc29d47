//! Plans: what the training step of a model needs and does on devices that need not be here.
//!
//! The whole step, forward, backward, collectives and the optimizer's update, is compiled by the
//! vendor's own compiler for a [`Target`](crate::backends::Target). The model is only described:
//! nothing of its size is ever made. `halite plan` is a thin layer over this.
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

mod estimate;
mod text;

use std::time::{Duration, Instant};

use halite_core::Narrowing;
use serde::{Deserialize, Serialize};

use crate::{
    Error, ErrorKind, Param, Result, TensorType,
    backends::OpenTarget,
    ir::{Cost, Graph, Op, Remat, cost},
    nn::Optimizer,
    train::{LowerOptions, LoweredStep, Task, lower_step},
    tree::{Family, Tree},
};

pub use estimate::Estimate;

/// What a training step needs and does on a target.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Plan {
    /// As it is written: `tpu:v5e:4x4`.
    pub target: String,
    /// The model of the devices, as the vendor spells it.
    pub device: String,
    /// How many of them the step runs on.
    pub devices: usize,
    /// The axes they are arranged along: `mesh(data=16)`.
    pub mesh: String,
    /// How parameters and batches lie over them.
    pub strategy: String,
    /// The policy by which it computes: `bf16-mixed`.
    pub precision: String,
    /// Samples of one step, over all devices.
    pub batch_size: usize,
    /// Numbers that are trained.
    pub parameters: u64,
    /// Whether it fits, and by how much.
    pub fit: Fit,
    /// Bytes on one device, where it was compiled.
    pub memory: Option<Memory>,
    /// Bytes of what one device is given, as the layouts say: state, batch, metrics,
    /// hyperparameters.
    pub arguments: u64,
    /// Operations of one step over all devices.
    pub work: Work,
    /// What the devices send each other in one step, where it was compiled.
    pub collectives: Option<Vec<Collective>>,
    /// Loops with collectives in them whose turns the compiled program does not tell: what is in
    /// them is counted once.
    pub collective_loops_counted_once: usize,
    /// How long a step takes at best, where the vendor's numbers are known.
    pub estimate: Option<Estimate>,
    /// Bytes of the serialized program, where the compiler gives it.
    pub executable: Option<u64>,
    /// Bytes of the program as it was given to the compiler. It does not grow with scanned layers.
    pub stablehlo: usize,
    /// Seconds to trace and print.
    pub trace_seconds: f64,
    /// Seconds to compile.
    pub compile_seconds: f64,
    /// What would help, most first, where it does not fit.
    pub advice: Vec<String>,
}

/// Whether a step fits the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Fit {
    /// At its peak it uses so many bytes.
    Fits {
        /// The most in use at once.
        peak: u64,
        /// What a device has; `None` where the compiler knows no limit.
        available: Option<u64>,
    },
    /// It would need more than there is.
    TooLarge {
        /// Bytes that are needed, as far as the compiler counted.
        required: u64,
        /// Bytes that a device has.
        available: u64,
        /// What alone is so large already.
        what: Excess,
    },
}

/// What is too large for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Excess {
    /// State and batch, before anything runs.
    Arguments,
    /// The compiler gave up.
    Compiler,
    /// The compiled program at its peak.
    Peak,
}

/// Bytes on one device, as the compiler says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// State, batch and metrics.
    pub arguments: u64,
    /// The next state, and metrics.
    pub outputs: u64,
    /// Outputs that reuse the memory of arguments.
    pub aliased: u64,
    /// Activations and other scratch memory.
    pub temporary: u64,
    /// The program.
    pub code: u64,
    /// The most in use at once.
    pub peak: u64,
}

/// Operations of one step over all devices, counted on halite's own graph with loops multiplied
/// out; see [`Cost`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Floating point operations, transcendental ones apart.
    pub flops: f64,
    /// Those of matrix multiplications and convolutions.
    pub contractions: f64,
    /// Those of them whose operands have 16 bits.
    pub contractions_in_16_bits: f64,
    /// Elements of exponentials, roots and the like.
    pub transcendentals: f64,
    /// Bytes that matrix multiplications and convolutions read and write.
    pub contraction_bytes: f64,
    /// Bytes that all operations would read and write if nothing were fused: an upper bound.
    pub unfused_bytes: f64,
    /// Floating point operations for each byte of contractions.
    pub intensity: f64,
    /// Contractions without those that are computed again to save memory, if that is known.
    pub model_flops: Option<f64>,
    /// Loops of unknown turns, whose bodies count once, by the line that made them.
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

/// Collectives of one kind over groups of one size, in one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collective {
    /// `all-reduce`, `all-gather`, ..
    pub kind: String,
    /// How many devices take part together.
    pub group: usize,
    /// How many there are in one step.
    pub count: u64,
    /// Bytes of the whole that each is about, summed.
    pub bytes: u64,
    /// Bytes that each device sends, at least.
    pub sent: f64,
}

impl Plan {
    /// Whether it fits.
    pub fn fits(&self) -> bool {
        matches!(self.fit, Fit::Fits { .. })
    }

    /// Bytes that a device needs at its peak, as far as they were counted.
    pub fn required(&self) -> u64 {
        match self.fit {
            Fit::Fits { peak, .. } => peak,
            Fit::TooLarge { required, .. } => required,
        }
    }

    /// Says how many of its floating point operations the model needs, without those computed again
    /// to save memory.
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
/// options.
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
        capabilities: Narrowing::on(target.target().platform()),
        ..options.clone()
    };
    lower_step(task, model, optimizer, batch, &options)
}

/// Plans the training step of `task` for `model` with `optimizer` on `target`: lowers it as
/// [`lower_step`] does, compiles it, and reads what the compiler says. `batch` are the types of the
/// fields of a batch over all devices.
///
/// What a device is given is added up first: if that alone is too much, nothing is compiled.
///
/// It compiles in this process, which a vendor's compiler can end on some programs. What must go on
/// whatever happens runs it in a process of its own, as `halite plan` does with each layout: a
/// [`Plan`] is written and read by `serde`.
///
/// # Errors
/// As [`lower_step`]; what the compiler says, except that it does not fit, which is a [`Plan`] too.
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
    // Types that nothing can hold are refused by `lower_step`.
    let trained = model
        .leaves()
        .into_iter()
        .filter(|param| param.trainable && param.ty.checked_bytes().is_ok());
    let parameters = trained.fold(0u64, |sum, param| {
        sum.saturating_add(param.ty.elements() as u64)
    });
    let batch_size = batch
        .first()
        .and_then(|ty| ty.dims().first())
        .copied()
        .unwrap_or(0);
    let lowered = lower(target, task, model, optimizer, batch, options)?;
    let mut plan = Plan {
        target: target.target().to_string(),
        device: target.device_kind().to_string(),
        devices: options.mesh.size(),
        mesh: options.mesh.to_string(),
        strategy: options.strategy.to_string(),
        precision: options.precision.to_string(),
        batch_size,
        parameters,
        fit: Fit::Fits {
            peak: 0,
            available: target.memory_per_device(),
        },
        memory: None,
        arguments: lowered
            .program
            .signature
            .inputs
            .iter()
            .fold(0, |sum: u64, ty| sum.saturating_add(ty.bytes() as u64)),
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
    plan.fit = match target.memory_per_device() {
        Some(available) if plan.arguments > available => Fit::TooLarge {
            required: plan.arguments,
            available,
            what: Excess::Arguments,
        },
        available => plan.compile(target, &lowered, available)?,
    };
    plan.estimate = Estimate::of(&plan, target.target().spec());
    plan.advice = text::advice(&plan, recomputed(&lowered.graph));
    Ok(plan)
}

impl Plan {
    /// Compiles, and fills in what that tells.
    fn compile(
        &mut self,
        target: &OpenTarget,
        lowered: &LoweredStep,
        available: Option<u64>,
    ) -> Result<Fit> {
        let started = Instant::now();
        let compiled = target.compile(&lowered.program, &Default::default());
        self.compile_seconds = started.elapsed().as_secs_f64();
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                let Some(shortage) = error.shortage() else {
                    return Err(error);
                };
                let (required, available) = (shortage.required, shortage.available);
                return Ok(Fit::TooLarge {
                    required,
                    available,
                    what: Excess::Compiler,
                });
            }
            Err(error) => return Err(error),
        };
        let memory = compiled.memory()?;
        let own = memory.outputs.saturating_sub(memory.aliased);
        let sum = memory
            .arguments
            .saturating_add(own)
            .saturating_add(memory.temporary);
        // XLA's CPU plugin says a peak that leaves out what is temporary.
        let peak = memory
            .peak
            .filter(|_| target.target().platform() != "cpu")
            .unwrap_or(sum);
        self.memory = Some(Memory {
            arguments: memory.arguments,
            outputs: memory.outputs,
            aliased: memory.aliased,
            temporary: memory.temporary,
            code: memory.code,
            peak,
        });
        // Some compilers do not show what they made of it; the rest of the plan stands.
        if let Some(found) = unless_unsupported(compiled.collectives())? {
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
        self.executable = unless_unsupported(compiled.serialize())?.map(|bytes| bytes.len() as u64);
        Ok(match available {
            Some(available) if peak > available => Fit::TooLarge {
                required: peak,
                available,
                what: Excess::Peak,
            },
            available => Fit::Fits { peak, available },
        })
    }

    /// How long tracing, printing and compiling took together.
    pub fn took(&self) -> Duration {
        Duration::from_secs_f64(self.trace_seconds + self.compile_seconds)
    }
}

/// What gradients compute again in `graph`: the least of its checkpoints, `None` if it has none.
fn recomputed(graph: &Graph) -> Option<Remat> {
    let of = |op: &Op| match op {
        Op::Checkpoint { remat, .. } => Some(*remat),
        other => other.regions().into_iter().find_map(recomputed),
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
