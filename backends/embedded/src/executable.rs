//! Executables: launches on the queues of their devices.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering::Relaxed, mpsc},
};

use halite_core::{
    Arg, DeviceId, Error, Executable, HloSharding, Interpreted, Launch, Launched, ProgramMemory,
    Result, Signature, TensorType,
};
use halite_stablehlo::{Attribute, RankedType, Type};

use crate::{
    Embedded, EmbeddedBuffer, EmbeddedDevice,
    client::Client,
    launch::{Job, Outputs},
    node::Owners,
    oracle::{World, cost},
    ready::Ready,
    slot::Slot,
    source::{self, Source},
};

/// A program that is ready to run on its devices.
pub struct EmbeddedExecutable {
    pub(crate) client: Arc<Client>,
    pub(crate) program: Arc<Ready>,
    /// Whether a launch takes less time than to wake another thread for it.
    pub(crate) is_short: bool,
    /// Whether it has custom calls, which others may observe.
    pub(crate) has_effects: bool,
    pub(crate) signature: Signature,
    /// Those of this process.
    pub(crate) devices: Vec<DeviceId>,
    /// The process of each partition, if it runs on devices of several.
    pub(crate) owners: Option<Owners>,
    pub(crate) source: Source,
}

impl Executable<Embedded> for EmbeddedExecutable {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    fn launch(&self, launch: Launch<'_, EmbeddedBuffer>) -> Result<Launched<EmbeddedBuffer>> {
        self.check(&launch).map_err(|message| {
            let message = format!("`{}`: {message}", self.source.name);
            self.client.on(Error::invalid("launch", message))
        })?;
        let program = &self.program;
        let _order = self.client.launching();
        let spanning = (self.owners.as_ref()).zip(self.client.peers.as_ref());
        let mut spanning = spanning.map(|(owners, peers)| peers.launch(owners));
        let world = Arc::new(World::new(
            program.replicas,
            program.partitions,
            match &spanning {
                Some(spanning) => spanning.number,
                None => self.client.launches.fetch_add(1, Relaxed),
            },
            self.client.cancelled.clone(),
        ));
        let (mut args, mut devices) = (launch.args.into_iter(), self.devices.iter());
        let mut outputs = Vec::with_capacity(self.devices.len());
        for replicas in program.jobs() {
            let count = match &self.owners {
                Some(_) => self.devices.len(),
                None => replicas.len() * program.partitions,
            };
            let (mut of_job, mut on) = (Vec::with_capacity(count), Vec::with_capacity(count));
            for &id in devices.by_ref().take(count) {
                let device = self.client.device("launch", id.into())?;
                let (buffers, promises): (Vec<_>, Vec<_>) = (self.signature.outputs.iter())
                    .map(|ty| EmbeddedBuffer::pending(&self.client, ty, id.into()))
                    .unzip();
                outputs.push(buffers);
                of_job.push(Outputs {
                    promises,
                    memory: device.memory.clone(),
                });
                on.push(device);
            }
            let slots = |args: Vec<_>| args.into_iter().map(slot).collect();
            let job = Job {
                program: program.clone(),
                world: world.clone(),
                replicas,
                is_short: self.is_short,
                spanning: spanning.take(),
                inputs: args.by_ref().take(count).map(slots).collect(),
                outputs: of_job,
                running: self.client.running.clone(),
            };
            self.start(job, &on);
        }
        Ok(Launched { outputs })
    }

    fn serialize(&self) -> Result<Vec<u8>> {
        Ok(source::write(&self.source))
    }

    /// Sizes of arguments and results. Temporary memory is that of all intermediate values of
    /// `main`, an upper bound of those that exist at a time.
    fn memory(&self) -> Result<ProgramMemory> {
        let main = self.program.module.main()?;
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
            code: self.program.module.size(),
            peak: None,
        })
    }

    fn output_shardings(&self) -> Result<Vec<Option<HloSharding>>> {
        let replicas = self.program.replicas;
        let over_all = |sharding: &HloSharding| {
            let of_device = sharding.of_device.repeat(replicas).into();
            Some(HloSharding {
                parts: sharding.parts.clone(),
                of_device,
            })
        };
        Ok(self
            .program
            .partitioning
            .outputs
            .iter()
            .map(over_all)
            .collect())
    }

    fn interpreted(&self) -> Vec<Interpreted> {
        self.program.interpreted.clone()
    }

    fn cost(&self) -> Result<Vec<(String, f64)>> {
        Ok(cost(&self.program.module))
    }
}

/// The sum of sizes in bytes, or the largest number if it overflows.
fn total(sizes: impl Iterator<Item = usize>) -> u64 {
    sizes.fold(0, |sum, size| sum.saturating_add(size as u64))
}

impl EmbeddedExecutable {
    /// Runs a job at once if it is short and nothing else runs on its devices, else on the queue of
    /// the first one.
    fn start(&self, job: Job, devices: &[&EmbeddedDevice]) {
        let Some((first, others)) = devices.split_first() else {
            return;
        };
        if job.is_short && devices.iter().all(|device| device.is_idle()) && job.has_inputs() {
            return job.run();
        }
        let mut done = Vec::new();
        if self.has_effects {
            // Effects have the order of the launches on every device.
            for other in others {
                let (running, ended) = mpsc::channel::<()>();
                done.push(running);
                other.enqueue(move || {
                    let _ = ended.recv();
                });
            }
        }
        first.enqueue(move || {
            job.run();
            drop(done);
        });
    }

    /// Checks the arguments of a launch.
    fn check(&self, launch: &Launch<'_, EmbeddedBuffer>) -> Result<(), String> {
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

impl fmt::Debug for EmbeddedExecutable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "EmbeddedExecutable({} on {:?})",
            self.source.name, self.devices
        )
    }
}

/// The slot of an argument. That of a donated one has no other holder.
fn slot(arg: Arg<'_, EmbeddedBuffer>) -> Arc<Slot> {
    match arg {
        Arg::Borrow(buffer) => buffer.slot.clone(),
        Arg::Donate(buffer) => buffer.slot,
    }
}
