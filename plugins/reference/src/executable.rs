//! Executables: launches on the queues of their devices.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use halite_core::{
    Arg, DeviceId, Error, Executable, HloSharding, Launch, Launched, ProgramMemory, Result,
    Signature, TensorType,
};
use halite_kernels::Threads;
use halite_stablehlo::{Attribute, Module, RankedType, Type};

use crate::{
    Reference, ReferenceBuffer,
    backend::Client,
    compile::Source,
    failure::Failure,
    fast::{self, Plan},
    oracle::{LAUNCH, Partitioning, Tensor, Value, World, cost, guarded, run_main, run_partition},
    serialized,
    slot::{Promise, Slot},
};

/// Estimated nanoseconds of a launch below which the caller's thread runs it.
const SHORT: usize = 50_000;

/// A program that is ready to run on its devices.
pub struct ReferenceExecutable {
    pub(crate) client: Arc<Client>,
    pub(crate) module: Arc<Module>,
    /// The plan of the fast mode.
    pub(crate) plan: Option<Arc<Plan>>,
    pub(crate) partitioning: Arc<Partitioning>,
    pub(crate) signature: Signature,
    pub(crate) devices: Vec<DeviceId>,
    pub(crate) source: Source,
}

impl Executable<Reference> for ReferenceExecutable {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    fn launch(&self, launch: Launch<'_, ReferenceBuffer>) -> Result<Launched<ReferenceBuffer>> {
        self.check(&launch).map_err(|message| {
            let message = format!("`{}`: {message}", self.source.name);
            self.client.on(Error::invalid("launch", message))
        })?;
        let Source {
            replicas,
            partitions,
            ..
        } = self.source;
        let world = Arc::new(World::new(
            replicas,
            partitions,
            self.client.launches.fetch_add(1, Relaxed),
            self.client.cancelled.clone(),
        ));
        let _order = self.client.launching();
        let rows = self.devices.iter().zip(launch.args).enumerate();
        let outputs = rows.map(|(number, (&device, args))| {
            let (outputs, promises): (Vec<_>, Vec<_>) = (self.signature.outputs.iter())
                .map(|ty| ReferenceBuffer::pending(&self.client, ty, device.into()))
                .unzip();
            let run = Run {
                module: self.module.clone(),
                fast: self.plan.clone().zip(self.client.threads.clone()),
                partitioning: self.partitioning.clone(),
                world: world.clone(),
                process: number,
                partitions,
                is_short: self.is_short(),
                is_alone: self.devices.len() == 1,
                inputs: args.into_iter().map(slot).collect(),
            };
            let device = self.client.device("launch", device.into())?;
            let memory = device.memory.clone();
            let is_short = run.is_short && device.is_idle() && run.has_inputs();
            let job = move || {
                run.run(promises, |promise, result| {
                    promise.fulfill(result, |bytes| memory.charge(bytes));
                });
            };
            if is_short {
                job();
            } else {
                device.enqueue(job);
            }
            Ok(outputs)
        });
        Ok(Launched {
            outputs: outputs.collect::<Result<_>>()?,
        })
    }

    fn serialize(&self) -> Result<Vec<u8>> {
        Ok(serialized::write(&self.source))
    }

    /// Sizes of arguments and results. Temporary memory is that of all intermediate values of
    /// `main`, an upper bound of those that exist at a time.
    fn memory(&self) -> Result<ProgramMemory> {
        let main = self.module.main()?;
        let bytes = |ty: &Type| ty.as_tensor().map_or(0, RankedType::bytes);
        let ends = main.body.arguments.iter().chain(&main.body.results);
        let ends = total(ends.map(|&id| bytes(main.ty(id))));
        let all = total(main.types.iter().map(bytes));
        let aliased = main.input_attributes.iter().filter_map(|attributes| {
            match attributes.get("tf.aliasing_output") {
                Some(&Attribute::Int(output, _)) => usize::try_from(output).ok(),
                _ => None,
            }
        });
        let outputs = &self.signature.outputs;
        Ok(ProgramMemory {
            arguments: total(self.signature.inputs.iter().map(TensorType::bytes)),
            outputs: total(outputs.iter().map(TensorType::bytes)),
            aliased: total(
                aliased
                    .filter_map(|at| outputs.get(at))
                    .map(TensorType::bytes),
            ),
            temporary: all.saturating_sub(ends),
            code: self.source.code.len() as u64,
            peak: None,
        })
    }

    fn output_shardings(&self) -> Result<Vec<Option<HloSharding>>> {
        let replicas = self.source.replicas;
        let over_all = |sharding: &HloSharding| {
            let of_device = sharding.of_device.repeat(replicas).into();
            Some(HloSharding {
                parts: sharding.parts.clone(),
                of_device,
            })
        };
        Ok(self.partitioning.outputs.iter().map(over_all).collect())
    }

    fn cost(&self) -> Result<Vec<(String, f64)>> {
        Ok(cost(&self.module))
    }
}

/// The sum of sizes in bytes, or the largest number if it overflows.
fn total(sizes: impl Iterator<Item = usize>) -> u64 {
    sizes.fold(0, |sum, size| sum.saturating_add(size as u64))
}

impl ReferenceExecutable {
    /// Returns whether a launch takes less time than to wake another thread for it.
    fn is_short(&self) -> bool {
        let nanoseconds = self.plan.as_ref().and_then(|plan| plan.nanoseconds);
        self.devices.len() == 1 && nanoseconds.is_some_and(|it| it < SHORT)
    }

    /// Checks the arguments of a launch.
    fn check(&self, launch: &Launch<'_, ReferenceBuffer>) -> Result<(), String> {
        let (rows, devices) = (launch.args.len(), self.devices.len());
        if rows != devices {
            return Err(format!(
                "arguments for {rows} devices given, it runs on {devices}"
            ));
        }
        for (row, device) in launch.args.iter().zip(&self.devices) {
            let wanted = &self.signature.inputs;
            if row.len() != wanted.len() {
                let (given, count, id) = (row.len(), wanted.len(), device.0);
                return Err(format!(
                    "{given} arguments given for device {id}, it has {count}"
                ));
            }
            for (number, (arg, ty)) in row.iter().zip(wanted).enumerate() {
                let buffer = arg.buffer();
                let (given, at) = (&buffer.ty, buffer.placement.device);
                if !Arc::ptr_eq(&buffer.client, &self.client) {
                    return Err(format!("argument {number} belongs to another client"));
                }
                if given != ty {
                    return Err(format!("argument {number} is {given}, it needs {ty}"));
                }
                if at != *device {
                    let (at, device) = (at.0, device.0);
                    return Err(format!(
                        "argument {number} is on device {at}, not on {device}"
                    ));
                }
                if matches!(arg, Arg::Donate(_)) && !self.signature.donated.contains(&number) {
                    let donated = &self.signature.donated;
                    return Err(format!(
                        "argument {number} cannot be donated; the signature donates {donated:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ReferenceExecutable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ReferenceExecutable({} on {:?})",
            self.source.name, self.devices
        )
    }
}

/// The slot of an argument. That of a donated one has no other holder.
fn slot(arg: Arg<'_, ReferenceBuffer>) -> Arc<Slot> {
    match arg {
        Arg::Borrow(buffer) => buffer.slot.clone(),
        Arg::Donate(buffer) => buffer.slot,
    }
}

/// The part of a launch that runs on one device.
struct Run {
    module: Arc<Module>,
    fast: Option<(Arc<Plan>, Arc<Threads>)>,
    partitioning: Arc<Partitioning>,
    world: Arc<World>,
    /// Number of the process, replicas outermost.
    process: usize,
    partitions: usize,
    /// Whether it takes less time than to wake another thread.
    is_short: bool,
    /// Whether it is all of the launch, and so never waits for other devices.
    is_alone: bool,
    inputs: Vec<Arc<Slot>>,
}

impl Run {
    /// Runs it, and delivers the results or the error.
    fn run(self, promises: Vec<Promise>, deliver: impl Fn(Promise, Result<Tensor, Failure>)) {
        let (world, process) = (self.world.clone(), self.process);
        let result = guarded(|| self.evaluate()).map_err(Failure::from);
        let ended = result.as_ref().map(|_| ()).map_err(Clone::clone);
        world.end(&LAUNCH, process, ended);
        match result {
            Ok(tensors) => {
                promises
                    .into_iter()
                    .zip(tensors)
                    .for_each(|(promise, it)| deliver(promise, Ok(it)));
            }
            Err(failure) => {
                promises
                    .into_iter()
                    .for_each(|promise| deliver(promise, Err(failure.clone())));
            }
        }
    }

    /// Returns whether all inputs are there.
    fn has_inputs(&self) -> bool {
        self.inputs.iter().all(|slot| slot.is_delivered())
    }

    fn evaluate(self) -> Result<Vec<Tensor>> {
        let inputs = self.inputs.iter().map(|slot| slot.wait());
        let inputs: Vec<_> = inputs.collect::<Result<_>>()?;
        // The program alone holds what was donated, or dropped since the launch.
        drop(self.inputs);
        if let Some((plan, threads)) = &self.fast {
            let (module, world, replica) = (&self.module, &self.world, self.process);
            let launch = fast::Launch {
                module,
                world,
                replica,
                threads,
            };
            // The kernels' threads are woken once, unless one would wait for another launch.
            return if self.is_alone && !self.is_short {
                threads.run(|| plan.run(&launch, inputs))
            } else {
                plan.run(&launch, inputs)
            };
        }
        let inputs = inputs.into_iter().map(Value::Tensor).collect();
        let process = [
            self.process / self.partitions,
            self.process % self.partitions,
        ];
        let results = if self.partitions == 1 {
            run_main(&self.module, &self.world, process, inputs)?
        } else {
            run_partition(
                &self.module,
                &self.world,
                process,
                &self.partitioning,
                inputs,
            )?
        };
        results
            .into_iter()
            .map(|value| value.tensor().cloned())
            .collect()
    }
}
