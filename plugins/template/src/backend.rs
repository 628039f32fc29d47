//! The backend: the devices of the accelerator, and programs that run on them.

use std::sync::Arc;

use halite_core::{
    Arg, Backend, CompileOptions, DeviceId, Error, ErrorKind, Event, Executable, HostBytes, Launch,
    Launched, Placement, Platform, Program, Result, Signature, TensorType,
};
use halite_plugin::{Options, SignalEvent, check, parse};

use crate::{buffer::ToyBuffer, device::ToyDevice, program::Code};

/// All devices of the accelerator.
#[derive(Debug)]
pub(crate) struct Toy {
    platform: Platform,
    devices: Arc<[ToyDevice]>,
}

impl Toy {
    /// Options: `devices` (1 to 8, default 1), `memory_bytes` of each (default 256 MiB).
    pub(crate) fn open(options: &mut Options) -> Result<Self> {
        let count = options.int("devices")?.unwrap_or(1);
        let bytes = options.int("memory_bytes")?.unwrap_or(256 << 20);
        let (1..=8, Ok(bytes)) = (count, u64::try_from(bytes)) else {
            let message = format!(
                "{count} devices of {bytes} bytes; expected 1 to 8 devices, and 0 bytes or more"
            );
            return Err(Error::invalid("create client", message));
        };
        let devices = (0..count as u32).map(|id| ToyDevice::open(id, bytes));
        Ok(Toy {
            // A name of its own: under that of another platform, JAX lowers programs for it.
            platform: Platform {
                name: "toy".into(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            devices: devices.collect::<Result<_>>()?,
        })
    }
}

impl Backend for Toy {
    type Device = ToyDevice;
    type Buffer = ToyBuffer;
    type Executable = ToyExecutable;
    type Event = SignalEvent;

    fn platform(&self) -> &Platform {
        &self.platform
    }

    fn devices(&self) -> &[ToyDevice] {
        &self.devices
    }

    fn upload(&self, bytes: HostBytes<'_>, ty: &TensorType, to: Placement) -> Result<ToyBuffer> {
        let device = check::device(&self.devices, "upload", to)?;
        check::upload(bytes.as_ref(), ty)?;
        ToyBuffer::upload(&self.devices, device, bytes, ty)
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<ToyExecutable> {
        if program.partitions > 1 {
            let message = format!("`{}` has {} partitions", program.name, program.partitions);
            return Err(Error::new(ErrorKind::Unsupported, "compile", message));
        }
        check::no_flags(options)?;
        let ids = check::assignment(&self.devices, program, options)?;
        let index = |&id: &DeviceId| check::device(&self.devices, "compile", id.into());
        Ok(ToyExecutable {
            name: program.name.clone(),
            code: Arc::new(Code::compile(
                &parse(program)?,
                self.devices[0].memory.limit(),
            )?),
            signature: program.signature.clone(),
            devices: self.devices.clone(),
            indices: ids.iter().map(index).collect::<Result<_>>()?,
            ids,
        })
    }
}

/// A program on the devices that it runs on.
#[derive(Debug)]
pub(crate) struct ToyExecutable {
    name: Arc<str>,
    code: Arc<Code>,
    signature: Signature,
    /// All devices of the client.
    devices: Arc<[ToyDevice]>,
    /// Devices of a launch, by id and by index in `devices`.
    ids: Vec<DeviceId>,
    indices: Vec<usize>,
}

impl Executable<Toy> for ToyExecutable {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn devices(&self) -> &[DeviceId] {
        &self.ids
    }

    fn launch(&self, launch: Launch<'_, ToyBuffer>) -> Result<Launched<ToyBuffer>> {
        let is_own = |buffer: &ToyBuffer| Arc::ptr_eq(&buffer.devices, &self.devices);
        check::launch(&self.name, &self.signature, &self.ids, &launch, is_own)?;
        let rows = self.indices.iter().zip(&launch.args);
        let outputs = rows.map(|(&device, args)| self.launch_on(device, args));
        Ok(Launched {
            outputs: outputs.collect::<Result<_>>()?,
        })
    }
}

impl ToyExecutable {
    /// Queues the program on one device. The job holds the blocks of its arguments and results.
    fn launch_on(&self, device: usize, args: &[Arg<'_, ToyBuffer>]) -> Result<Vec<ToyBuffer>> {
        let ToyDevice { memory, queue, .. } = &self.devices[device];
        let types = &self.signature.outputs;
        let allocate = |ty: &TensorType| memory.allocate(ty.bytes() as u64).map(Arc::new);
        let blocks = types.iter().map(allocate).collect::<Result<Vec<_>>>()?;
        let workspace = memory.allocate(self.code.workspace)?;
        let inputs = args.iter().map(Arg::buffer);
        let inputs: Vec<_> = inputs
            .map(|buffer| (buffer.block.clone(), buffer.filled.clone()))
            .collect();
        let (code, outputs) = (self.code.clone(), blocks.clone());
        let filled = queue.push(move || {
            inputs.iter().try_for_each(|(_, filled)| filled.wait())?;
            let results = code.run(inputs.iter().map(|(block, _)| block.read()).collect());
            outputs
                .iter()
                .zip(results)
                .for_each(|(block, bytes)| block.write(bytes));
            drop(workspace);
            Ok(())
        });
        let buffer = |(ty, block): (&TensorType, _)| ToyBuffer {
            devices: self.devices.clone(),
            device,
            ty: ty.clone(),
            block,
            filled: filled.clone(),
        };
        Ok(types.iter().zip(blocks).map(buffer).collect())
    }
}
