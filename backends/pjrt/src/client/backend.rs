//! The [`Backend`] of plugins, and the [`Executable`] of their programs: each function calls the
//! module that does the work.

use std::sync::Arc;

use halite_core::{
    Backend, Capabilities, CompileOptions, DeviceId, Executable, HloSharding, HostBytes, Launch,
    Launched, PinnedMemory, Placement, Platform, Program, ProgramKey, ProgramMemory, Result,
    Signature, TensorType,
};

use super::{Pjrt, pinned};
use crate::{
    PjrtBuffer, PjrtDevice, PjrtEvent, PjrtExecutable, at_exit,
    buffer::upload,
    compile::{compile, load},
    key::program_key,
};

impl Backend for Pjrt {
    type Device = PjrtDevice;
    type Buffer = PjrtBuffer;
    type Executable = PjrtExecutable;
    type Event = PjrtEvent;

    fn platform(&self) -> &Platform {
        self.shared.platform()
    }

    fn devices(&self) -> &[PjrtDevice] {
        self.shared.devices()
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.quirks().capabilities
    }

    fn upload(&self, bytes: HostBytes<'_>, ty: &TensorType, to: Placement) -> Result<PjrtBuffer> {
        at_exit::watch_thread();
        upload(&self.shared, bytes, ty, to)
    }

    /// Memory that is registered by `PJRT_Client_DmaMap`.
    fn pinned_memory(&self, bytes: usize) -> Result<Option<Box<dyn PinnedMemory>>> {
        at_exit::watch_thread();
        pinned::allocate(&self.shared, bytes)
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<PjrtExecutable> {
        compile(&self.shared, program, options)
    }

    fn load(
        &self,
        serialized: &[u8],
        name: &Arc<str>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<PjrtExecutable> {
        load(&self.shared, serialized, name, signature, options)
    }

    fn program_key(&self, program: &Program, options: &CompileOptions) -> Option<ProgramKey> {
        program_key(&self.shared, program, options)
    }
}

impl Executable<Pjrt> for PjrtExecutable {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn devices(&self) -> &[DeviceId] {
        &self.described.devices
    }

    fn launch(&self, launch: Launch<'_, PjrtBuffer>) -> Result<Launched<PjrtBuffer>> {
        self.launch_now(launch)
    }

    fn serialize(&self) -> Result<Vec<u8>> {
        self.serialized_bytes()
    }

    fn memory(&self) -> Result<ProgramMemory> {
        self.program().memory()
    }

    fn cost(&self) -> Result<Vec<(String, f64)>> {
        self.program().cost()
    }

    fn output_shardings(&self) -> Result<Vec<Option<HloSharding>>> {
        self.result_shardings()
    }

    fn optimized(&self) -> Result<(String, Vec<u8>)> {
        self.program().optimized()
    }
}
