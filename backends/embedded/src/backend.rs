//! The client as a backend: uploads, compilation, and loading of serialized programs.

use std::sync::Arc;

use halite_core::{
    AlignedBytes, Backend, Capabilities, CompileOptions, Error, HostBytes, Narrowing, PinnedMemory,
    Placement, Platform, Program, ProgramKey, Result, Signature, TensorType,
};
use halite_stablehlo::RankedType;

use crate::{
    Embedded, EmbeddedBuffer, EmbeddedDevice, EmbeddedEvent, EmbeddedExecutable,
    compile::program_key,
    oracle::{Tensor, allocate},
    slot::Slot,
    source::{self, Source},
};

/// Kernels compute in `f32`: only operands of contractions are worth casting, and products of a few
/// rows read a matrix of `bf16` as it is.
const CAPABILITIES: Capabilities = {
    let mut own = Capabilities::UNKNOWN;
    own.narrowing = Narrowing::Contractions;
    own.narrow_matrices = true;
    own.rounds_products = false;
    own
};

impl Backend for Embedded {
    type Device = EmbeddedDevice;
    type Buffer = EmbeddedBuffer;
    type Executable = EmbeddedExecutable;
    type Event = EmbeddedEvent;

    fn platform(&self) -> &Platform {
        &self.0.platform
    }

    fn devices(&self) -> &[EmbeddedDevice] {
        &self.0.devices
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    /// Copies the data before it returns.
    fn upload(
        &self,
        bytes: HostBytes<'_>,
        ty: &TensorType,
        to: Placement,
    ) -> Result<EmbeddedBuffer> {
        const OP: &str = "upload";
        let client = &self.0;
        let device = client.device(OP, to)?;
        let (bytes, needed) = (
            bytes.as_ref(),
            ty.checked_bytes().map_err(|e| client.on(e))?,
        );
        if bytes.len() != needed {
            let message = format!("{} bytes given, {ty} needs {needed}", bytes.len());
            return Err(client.on(Error::invalid(OP, message)));
        }
        let mut copy = allocate(needed).map_err(|error| client.on(error))?;
        copy.extend_from_slice(bytes);
        let tensor = Tensor::new(RankedType::from(ty), copy);
        Ok(EmbeddedBuffer {
            client: client.clone(),
            ty: ty.clone(),
            placement: to,
            slot: Slot::ready(tensor, device.memory.charge(needed as u64)),
        })
    }

    /// Memory of the host, which devices read directly.
    fn pinned_memory(&self, bytes: usize) -> Result<Option<Box<dyn PinnedMemory>>> {
        let memory = AlignedBytes::try_zeroed(bytes).map_err(|error| self.0.on(error))?;
        Ok(Some(Box::new(memory)))
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<EmbeddedExecutable> {
        let source = Source {
            name: program.name.clone(),
            code: program.code.clone(),
            replicas: program.replicas,
            partitions: program.partitions,
        };
        source.load("compile", &self.0, &program.signature, options)
    }

    fn load(
        &self,
        serialized: &[u8],
        name: &Arc<str>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<EmbeddedExecutable> {
        let source = source::read(serialized, name).map_err(|error| self.0.on(error))?;
        source.load("load", &self.0, signature, options)
    }

    fn program_key(&self, program: &Program, options: &CompileOptions) -> Option<ProgramKey> {
        Some(program_key(program, options, &self.0.platform.version))
    }
}
