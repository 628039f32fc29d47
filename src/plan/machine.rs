//! Devices to plan for, with their compiler: absent ones, or those of a trainer.

use super::Memory;
use crate::{
    CompileOptions, ErrorKind, Result,
    backends::{OpenTarget, pjrt::Collectives},
    core::{Client, DeviceSpec, MemoryStats, Program},
    train::Trainer,
};

/// Devices to plan for.
pub(super) enum Machine<'a> {
    /// Devices that need not be present.
    Target(&'a OpenTarget),
    /// The devices of a trainer.
    Present(&'a Trainer),
}

/// What a compiler reports of a program, as far as it does.
pub(super) struct Compiled {
    pub(super) memory: Option<Memory>,
    pub(super) collectives: Option<Collectives>,
    /// Bytes of the serialized executable.
    pub(super) executable: Option<u64>,
}

impl Machine<'_> {
    /// The target as `--target` takes it, or the platform and the number of its devices: `cuda:8`.
    pub(super) fn name(&self) -> String {
        match self {
            Machine::Target(target) => target.target().to_string(),
            Machine::Present(trainer) => {
                let platform = &trainer.client().platform().name;
                format!("{platform}:{}", trainer.mesh().size())
            }
        }
    }

    /// The model of the devices in the vendor's spelling.
    pub(super) fn device_kind(&self) -> String {
        match self {
            Machine::Target(target) => target.device_kind().to_string(),
            Machine::Present(trainer) => kind_of(trainer.client()),
        }
    }

    /// Bytes of memory that programs can use on one device, where it has a limit.
    pub(super) fn memory_per_device(&self) -> Option<u64> {
        match self {
            Machine::Target(target) => target.memory_per_device(),
            Machine::Present(trainer) => {
                let used = trainer.mesh().devices();
                let devices = trainer.client().devices().into_iter();
                let devices = devices.filter(|device| used.contains(&device.id()));
                let memory = devices.filter_map(|device| device.memory().ok());
                memory.filter_map(|MemoryStats { limit, .. }| limit).min()
            }
        }
    }

    /// The vendor's numbers of one device, where they are known.
    pub(super) fn spec(&self) -> Option<DeviceSpec> {
        match self {
            Machine::Target(target) => target.target().spec(),
            Machine::Present(trainer) => trainer.client().devices().first()?.spec(),
        }
    }

    /// Compiles a program, with the compile cache of a client that has one.
    pub(super) fn compile(&self, program: &Program) -> Result<Compiled> {
        match self {
            Machine::Target(target) => {
                let compiled = target.compile(program, &CompileOptions::default())?;
                Ok(Compiled {
                    memory: Some(Memory::of(compiled.memory()?)),
                    collectives: unless_unsupported(compiled.collectives())?,
                    executable: unless_unsupported(compiled.serialize())?
                        .map(|bytes| bytes.len() as u64),
                })
            }
            Machine::Present(trainer) => {
                let devices = trainer.mesh().devices().to_vec();
                let count = devices.len();
                let options = CompileOptions {
                    devices,
                    ..CompileOptions::default()
                };
                let compiled = trainer.client().compile(program, &options)?;
                let collectives = (compiled.optimized())
                    .and_then(|(format, code)| Collectives::read(&format, &code, count));
                Ok(Compiled {
                    memory: unless_unsupported(compiled.memory())?.map(Memory::of),
                    collectives: unless_unsupported(collectives)?,
                    executable: None,
                })
            }
        }
    }
}

fn kind_of(client: &Client) -> String {
    let devices = client.devices();
    (devices.first()).map_or_else(String::new, |device| device.kind().to_string())
}

fn unless_unsupported<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(error),
    }
}
