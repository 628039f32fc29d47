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
mod report;
mod search;
mod text;

use std::time::{Duration, Instant};

use halite_core::{DTypePolicy, MeshShape};

use crate::{
    ErrorKind, Param, Result, TensorType,
    backends::OpenTarget,
    data::Dataset,
    ir::{Graph, Op, Remat, cost},
    nn::Optimizer,
    train::{LowerOptions, LoweredStep, Strategy, Task, Trainer, lower_step},
    tree::{Family, Tree},
};

use self::machine::{Compiled, Machine};
pub use self::{
    estimate::Estimate,
    report::{Collective, Excess, Fit, Memory, Plan, Work},
    search::{Candidate, Planned, Search, candidates, fastest},
};

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
) -> Result<LoweredStep> {
    let options = LowerOptions {
        capabilities: target.target().capabilities()?,
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
) -> Result<Plan> {
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
) -> Result<Plan> {
    let facts = StepFacts {
        mesh: trainer.mesh(),
        strategy: trainer.strategy(),
        precision: trainer.precision(),
        batch_size: trainer.options().batch_size,
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
        stablehlo: lowered.program.code.bytes().len(),
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
    plan.estimate = Estimate::of(&plan, machine.spec(), &step.precision);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backends::Accelerator,
        data,
        models::{Classify, Mlp},
        nn::Adam,
    };

    #[test]
    fn batch_of_accumulated_steps_is_one() {
        let client = Accelerator::embedded().open().unwrap();
        let trainer = Trainer::builder(&client).batch_size(32);
        let trainer = trainer.accumulate_grad_batches(4).quiet(true);
        let (task, model) = (Classify::<Mlp<()>>::new(), Mlp::new(&[64, 16, 10]));
        let (trainer, images) = (trainer.build().unwrap(), data::digits::train().unwrap());
        let plan = plan_on(&trainer, task, model, Adam::new(1e-3), images).unwrap();
        assert_eq!(plan.batch_size, 32);
    }
}
