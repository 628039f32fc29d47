//! Executables: a compiled program on its devices.

use std::sync::Arc;

use halite_core::{
    Arg, DeviceId, Error, ErrorKind, Event, Executable, Launch, Launched, Result, Signature,
    TensorType,
};

use crate::{Toy, buffer::ToyBuffer, device::ToyDevice, memory::Block, program::Code};

/// A program, and the devices that it runs on.
#[derive(Debug)]
pub(crate) struct ToyExecutable {
    pub(crate) name: Arc<str>,
    pub(crate) code: Arc<Code>,
    pub(crate) signature: Signature,
    pub(crate) devices: Arc<[ToyDevice]>,
    /// Devices of a launch, by id and by index in `devices`.
    pub(crate) ids: Vec<DeviceId>,
    pub(crate) indices: Vec<usize>,
}

impl ToyExecutable {
    /// Queues the program on one device.
    fn launch_on(&self, device: usize, args: &[Arg<'_, ToyBuffer>]) -> Result<Vec<ToyBuffer>> {
        self.check(device, args)?;
        // The job of each result computes it from the arguments, whose blocks it keeps until then.
        let result = |(index, ty): (usize, &TensorType)| {
            let arguments: Vec<_> = args.iter().map(Arg::buffer).collect();
            let blocks = arguments
                .iter()
                .map(|buffer| (buffer.block.clone(), buffer.filled.clone()));
            let (code, blocks) = (self.code.clone(), blocks.collect::<Vec<_>>());
            let elements = ty.elements();
            ToyBuffer::fill(&self.devices, device, ty, move |target| {
                let floats = |(block, filled): &(Arc<Block>, _)| {
                    Event::wait(filled)?;
                    let bytes = block.read();
                    Ok(bytes
                        .as_chunks()
                        .0
                        .iter()
                        .map(|bytes| f32::from_ne_bytes(*bytes))
                        .collect())
                };
                let arguments = blocks
                    .iter()
                    .map(floats)
                    .collect::<Result<Vec<Vec<f32>>>>()?;
                let result = code.run(index, &arguments, elements);
                target.write(
                    &result
                        .into_iter()
                        .flat_map(f32::to_ne_bytes)
                        .collect::<Vec<u8>>(),
                );
                Ok(())
            })
        };
        self.signature
            .outputs
            .iter()
            .enumerate()
            .map(result)
            .collect()
    }

    fn check(&self, device: usize, args: &[Arg<'_, ToyBuffer>]) -> Result<()> {
        let Signature {
            inputs, donated, ..
        } = &self.signature;
        let refuse = |message: String| {
            Err(Error::invalid(
                "launch",
                format!("`{}`: {message}", self.name),
            ))
        };
        if args.len() != inputs.len() {
            return refuse(format!(
                "{} arguments, expected {}",
                args.len(),
                inputs.len()
            ));
        }
        for (index, (arg, ty)) in args.iter().zip(inputs).enumerate() {
            let buffer = arg.buffer();
            if buffer.ty != *ty || buffer.device != device {
                return refuse(format!(
                    "argument {index} is {} on device {}, expected {ty} on {device}",
                    buffer.ty, buffer.device
                ));
            }
            if !Arc::ptr_eq(&buffer.devices, &self.devices) {
                return refuse(format!("argument {index} is a buffer of another client"));
            }
            if matches!(arg, Arg::Donate(_)) && !donated.contains(&index) {
                return refuse(format!(
                    "argument {index} cannot be donated; the program donates {donated:?}"
                ));
            }
        }
        Ok(())
    }
}

impl Executable<Toy> for ToyExecutable {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn devices(&self) -> &[DeviceId] {
        &self.ids
    }

    fn launch(&self, launch: Launch<'_, ToyBuffer>) -> Result<Launched<ToyBuffer>> {
        let (given, needed) = (launch.args.len(), self.indices.len());
        if given != needed {
            let message = format!("`{}`: {given} devices, expected {needed}", self.name);
            return Err(Error::invalid("launch", message));
        }
        let rows = self.indices.iter().zip(&launch.args);
        let outputs = rows.map(|(&device, args)| self.launch_on(device, args));
        Ok(Launched {
            outputs: outputs.collect::<Result<_>>()?,
        })
    }

    fn serialize(&self) -> Result<Vec<u8>> {
        let message = "this backend does not serialize programs";
        Err(Error::new(ErrorKind::Unsupported, "serialize", message))
    }
}
