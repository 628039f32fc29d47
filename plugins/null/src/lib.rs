//! A PJRT plugin without arithmetic: buffers are real, programs return zeros.
//!
//! It is the smallest complete example of `halite-plugin`, and what its tests and benchmarks run
//! on. Options of its client: `devices` (default 1) and `platform_name` (default `null`).
#![forbid(unsafe_code)]

mod buffer;
mod executable;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use halite_core::{
    AlignedBytes, Backend, CompileOptions, Device, DeviceId, Error, HostBytes, MemoryStats,
    Placement, Platform, Program, Result, Signature, TensorType,
};
use halite_plugin::{Options, check};

pub use self::{
    buffer::{Memory, Ready},
    executable::Zeros,
};

halite_plugin::export_plugin!(Null::open);

/// A backend whose devices store buffers in host memory, and whose programs return zeros.
#[derive(Debug)]
pub struct Null {
    platform: Platform,
    devices: Arc<[NullDevice]>,
}

/// A device of [`Null`].
#[derive(Debug)]
pub struct NullDevice {
    id: DeviceId,
    in_use: AtomicU64,
}

impl Null {
    /// Opens `devices` devices, at most 64, under the name `platform_name`.
    ///
    /// # Errors
    /// If an option has another type or is out of range.
    pub fn open(options: &mut Options) -> Result<Self> {
        let devices = options.int("devices")?.unwrap_or(1);
        let name = options.text("platform_name")?;
        let count = u32::try_from(devices)
            .ok()
            .filter(|count| (1..=64).contains(count));
        let count = count.ok_or_else(|| {
            let message = format!("option `devices` is {devices}; expected 1 to 64");
            Error::invalid("create client", message)
        })?;
        let device = |id| NullDevice {
            id: DeviceId(id),
            in_use: AtomicU64::new(0),
        };
        Ok(Null {
            platform: Platform {
                name: name.as_deref().unwrap_or("null").into(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            devices: (0..count).map(device).collect(),
        })
    }

    /// The index of the device of a placement.
    fn device(&self, op: &'static str, place: Placement) -> Result<usize> {
        check::device(&self.devices, op, place).map_err(|error| error.on(&self.platform.name))
    }

    fn executable(
        &self,
        op: &'static str,
        name: &Arc<str>,
        signature: &Signature,
        devices: &[DeviceId],
    ) -> Result<Zeros> {
        for &device in devices {
            self.device(op, device.into())?;
        }
        Zeros::new(&self.devices, name, signature, devices)
    }
}

impl Backend for Null {
    type Device = NullDevice;
    type Buffer = Memory;
    type Executable = Zeros;
    type Event = Ready;

    fn platform(&self) -> &Platform {
        &self.platform
    }

    fn devices(&self) -> &[NullDevice] {
        &self.devices
    }

    fn upload(&self, bytes: HostBytes<'_>, ty: &TensorType, to: Placement) -> Result<Memory> {
        let device = self.device("upload", to)?;
        check::upload(bytes.as_ref(), ty).map_err(|error| error.on(&self.platform.name))?;
        let bytes = AlignedBytes::try_copy_of(bytes.as_ref())?;
        Ok(Memory::new(&self.devices, device, ty.clone(), bytes))
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<Zeros> {
        let devices = check::assignment(&self.devices, program, options)
            .map_err(|error| error.on(&self.platform.name))?;
        self.executable("compile", &program.name, &program.signature, &devices)
    }

    fn load(
        &self,
        serialized: &[u8],
        name: &Arc<str>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<Zeros> {
        let saved = executable::saved_devices(serialized, signature).ok_or_else(|| {
            let message = "the bytes are not a serialized program of this signature";
            Error::invalid("load", message).on(&self.platform.name)
        })?;
        let devices = if options.devices.is_empty() {
            saved
        } else {
            options.devices.clone()
        };
        self.executable("load", name, signature, &devices)
    }
}

impl Device for NullDevice {
    fn id(&self) -> DeviceId {
        self.id
    }
    fn kind(&self) -> &str {
        "null"
    }
    fn memory(&self) -> Result<MemoryStats> {
        Ok(MemoryStats {
            in_use: self.in_use.load(Relaxed),
            ..MemoryStats::default()
        })
    }
}
