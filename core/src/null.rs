//! A backend that does nothing, for measuring the overhead of everything around it and for examples
//! in documentation.

use std::sync::Arc;

use crate::{
    AlignedBytes, Arg, Backend, Buffer, CompileOptions, Device, DeviceId, Error, ErrorKind, Event,
    Executable, HostBytes, Launch, Launched, MemoryStats, OnFetched, OnReady, PinnedMemory,
    Placement, Platform, Program, Result, Signature, TensorType,
};

/// A backend whose buffers hold zeros, and whose programs return zeros at once.
#[derive(Debug)]
pub struct Null {
    platform: Platform,
    devices: Vec<NullDevice>,
}

impl Null {
    /// A backend with `devices` devices.
    pub fn new(devices: u32) -> Self {
        let devices = (0..devices).map(|id| NullDevice(DeviceId(id))).collect();
        Null {
            platform: Platform {
                name: Arc::from("null"),
                version: env!("CARGO_PKG_VERSION").to_string(),
            },
            devices,
        }
    }

    fn check(&self, device: DeviceId, op: &'static str) -> Result<()> {
        if self.devices.iter().any(|known| known.0 == device) {
            return Ok(());
        }
        Err(Error::invalid(
            op,
            format!(
                "unknown device {}; expected 0 to {}",
                device.0,
                self.devices.len() as i64 - 1
            ),
        )
        .on(&self.platform.name))
    }
}

impl Backend for Null {
    type Device = NullDevice;
    type Buffer = NullBuffer;
    type Executable = NullExecutable;
    type Event = NullEvent;

    fn platform(&self) -> &Platform {
        &self.platform
    }

    fn devices(&self) -> &[NullDevice] {
        &self.devices
    }

    fn upload(&self, _: HostBytes<'_>, ty: &TensorType, to: Placement) -> Result<NullBuffer> {
        self.check(to.device, "upload")?;
        Ok(NullBuffer {
            ty: ty.clone(),
            placement: to,
        })
    }

    /// Memory of the heap.
    fn pinned_memory(&self, bytes: usize) -> Result<Option<Box<dyn PinnedMemory>>> {
        Ok(Some(Box::new(AlignedBytes::try_zeroed(bytes)?)))
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<NullExecutable> {
        let mut devices = options.devices.clone();
        if devices.is_empty() {
            devices = self
                .devices
                .iter()
                .take(program.devices())
                .map(|device| device.0)
                .collect();
        }
        if devices.len() != program.devices() {
            let message = format!(
                "`{}` needs {} devices, got {}",
                program.name,
                program.devices(),
                devices.len()
            );
            return Err(Error::invalid("compile", message).on(&self.platform.name));
        }
        devices
            .iter()
            .try_for_each(|&device| self.check(device, "compile"))?;
        Ok(NullExecutable {
            devices,
            signature: program.signature.clone(),
        })
    }
}

/// A device of [`Null`].
#[derive(Debug)]
pub struct NullDevice(DeviceId);

impl Device for NullDevice {
    fn id(&self) -> DeviceId {
        self.0
    }
    fn kind(&self) -> &str {
        "null"
    }
    fn memory(&self) -> Result<MemoryStats> {
        Ok(MemoryStats::default())
    }
}

/// A buffer of [`Null`]: a type and a placement.
#[derive(Debug)]
pub struct NullBuffer {
    ty: TensorType,
    placement: Placement,
}

impl Buffer for NullBuffer {
    type Event = NullEvent;

    fn tensor_type(&self) -> &TensorType {
        &self.ty
    }
    fn placement(&self) -> Placement {
        self.placement
    }
    fn ready(&self) -> Result<NullEvent> {
        Ok(NullEvent)
    }
    fn copy_to(&self, place: Placement) -> Result<Self> {
        Ok(NullBuffer {
            ty: self.ty.clone(),
            placement: place,
        })
    }
    fn read(&self, into: &mut [u8]) -> Result<()> {
        into.fill(0);
        Ok(())
    }
    fn fetch(&self, then: OnFetched) {
        then(zeros(self.ty.bytes()));
    }
}

/// Allocates zero bytes.
fn zeros(length: usize) -> Result<Vec<u8>> {
    let no_memory = |_| {
        Error::new(
            ErrorKind::OutOfMemory,
            "fetch",
            format!("the host has no memory for {length} bytes"),
        )
        .of_host()
    };
    bytemuck::allocation::try_zeroed_vec(length).map_err(no_memory)
}

/// An event of [`Null`], which is always ready.
#[derive(Debug)]
pub struct NullEvent;

impl Event for NullEvent {
    fn is_ready(&self) -> bool {
        true
    }
    fn wait(&self) -> Result<()> {
        Ok(())
    }
    fn on_ready(&self, then: OnReady) {
        then(Ok(()));
    }
}

/// A program of [`Null`]: its signature and devices.
#[derive(Debug)]
pub struct NullExecutable {
    devices: Vec<DeviceId>,
    signature: Signature,
}

impl Executable<Null> for NullExecutable {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    fn launch(&self, launch: Launch<'_, NullBuffer>) -> Result<Launched<NullBuffer>> {
        fn types<'a>(row: &'a [Arg<'_, NullBuffer>]) -> impl Iterator<Item = &'a TensorType> {
            row.iter().map(|arg| &arg.buffer().ty)
        }
        let fits = |row: &Vec<Arg<'_, NullBuffer>>| types(row).eq(&self.signature.inputs);
        if launch.args.len() != self.devices.len() || !launch.args.iter().all(fits) {
            let given: Vec<Vec<_>> = (launch.args.iter())
                .map(|row| types(row).collect())
                .collect();
            let message = format!(
                "got arguments {given:?}, expected {:?} on each of {} devices",
                self.signature.inputs,
                self.devices.len()
            );
            return Err(Error::invalid("launch", message));
        }
        let outputs = |&device: &DeviceId| {
            self.signature
                .outputs
                .iter()
                .map(|ty| NullBuffer {
                    ty: ty.clone(),
                    placement: device.into(),
                })
                .collect()
        };
        Ok(Launched {
            outputs: self.devices.iter().map(outputs).collect(),
        })
    }
}
