//! The embedded executor on devices whose vendor publishes a peak: no plugin of a CPU has one.

use halite_core::{
    Backend, Capabilities, Client, CompileOptions, Device, DeviceId, DeviceSpec, Executable,
    HostBytes, Launch, Launched, MemoryStats, Placement, Platform, Program, Result, Signature,
    TensorType,
};
use halite_embedded::{Embedded, EmbeddedBuffer, EmbeddedEvent, EmbeddedExecutable, Options};

/// Peaks in FLOP/s that a small model has a visible part of: 1e9 in f32, 4e9 in TF32, 8e9 in bf16.
const SPEC: DeviceSpec = DeviceSpec {
    bf16_flops: 8e9,
    f16_flops: Some(8e9),
    f32_flops: 4e9,
    f32_highest_flops: 1e9,
    memory: 2 << 30,
    memory_bandwidth: 1e9,
    interconnect_bandwidth: 1e9,
    source: "this test",
};

#[derive(Debug)]
struct Specified {
    inner: Embedded,
    devices: Vec<SpecifiedDevice>,
}

/// A client of this many devices.
pub(crate) fn client(devices: u32) -> Client {
    let inner = Embedded::new(&Options {
        devices,
        ..Options::default()
    });
    let inner = inner.unwrap();
    let devices = Backend::devices(&inner).iter();
    let devices = devices.map(|device| SpecifiedDevice(device.id())).collect();
    Client::new(Specified { inner, devices })
}

#[derive(Debug)]
struct SpecifiedDevice(DeviceId);

impl Device for SpecifiedDevice {
    fn id(&self) -> DeviceId {
        self.0
    }
    fn kind(&self) -> &str {
        "Abacus 3"
    }
    fn spec(&self) -> Option<DeviceSpec> {
        Some(SPEC)
    }
    fn memory(&self) -> Result<MemoryStats> {
        Ok(MemoryStats::default())
    }
}

impl Backend for Specified {
    type Device = SpecifiedDevice;
    type Buffer = EmbeddedBuffer;
    type Executable = SpecifiedExecutable;
    type Event = EmbeddedEvent;

    fn platform(&self) -> &Platform {
        self.inner.platform()
    }
    fn devices(&self) -> &[SpecifiedDevice] {
        &self.devices
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn upload(
        &self,
        bytes: HostBytes<'_>,
        ty: &TensorType,
        to: Placement,
    ) -> Result<EmbeddedBuffer> {
        self.inner.upload(bytes, ty, to)
    }
    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<SpecifiedExecutable> {
        let inner = self.inner.compile(program, options)?;
        Ok(SpecifiedExecutable(inner))
    }
}

#[derive(Debug)]
struct SpecifiedExecutable(EmbeddedExecutable);

impl Executable<Specified> for SpecifiedExecutable {
    fn signature(&self) -> &Signature {
        Executable::<Embedded>::signature(&self.0)
    }
    fn devices(&self) -> &[DeviceId] {
        Executable::<Embedded>::devices(&self.0)
    }
    fn launch(&self, launch: Launch<'_, EmbeddedBuffer>) -> Result<Launched<EmbeddedBuffer>> {
        Executable::<Embedded>::launch(&self.0, launch)
    }
}
