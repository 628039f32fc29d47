//! A PJRT plugin for a toy accelerator.
//!
//! The accelerator has a memory of its own, whose addresses mean nothing to the host, and runs
//! elementwise programs on `f32`. Replace, file by file: `memory` and `device` by calls of your
//! driver, `program` by your compiler, `buffer` and `executable` where yours differ.
#![forbid(unsafe_code)]

mod buffer;
mod device;
mod executable;
mod memory;
mod program;

use std::sync::Arc;

use halite_core::{
    Backend, CompileOptions, DType, DeviceId, Error, ErrorKind, HostBytes, Placement, Platform,
    Program, Result, Signature, TensorType,
};
use halite_plugin::{Options, SignalEvent, Traced};

use crate::{
    buffer::{ToyBuffer, find},
    device::ToyDevice,
    executable::ToyExecutable,
    program::Code,
};

halite_plugin::export_plugin!(open);

/// Opens the plugin, with a log of every call at the level `debug` of `tracing`.
fn open(options: &mut Options) -> Result<Traced<Toy>> {
    Toy::open(options).map(Traced::new)
}

/// The backend: all devices of the accelerator.
#[derive(Debug)]
struct Toy {
    platform: Platform,
    devices: Arc<[ToyDevice]>,
}

impl Toy {
    /// Options: `devices` (1 to 8, default 1), `memory_bytes` of each (default 256 MiB).
    fn open(options: &mut Options) -> Result<Self> {
        let count = options.int("devices")?.unwrap_or(1);
        let bytes = options.int("memory_bytes")?.unwrap_or(256 << 20);
        let (true, Ok(bytes)) = ((1..=8).contains(&count), u64::try_from(bytes)) else {
            let message = format!(
                "{count} devices of {bytes} bytes; expected 1 to 8 devices, and 0 bytes or more"
            );
            return Err(Error::invalid("create client", message));
        };
        let devices = (0..count as u32).map(|id| ToyDevice::open(DeviceId(id), bytes));
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
        let device = find(&self.devices, "upload", to)?;
        let (given, needed) = (bytes.as_ref().len(), ty.checked_bytes()?);
        if given != needed {
            let message = format!("{given} bytes given, {ty} needs {needed}");
            return Err(Error::invalid("upload", message));
        }
        ToyBuffer::upload(&self.devices, device, bytes, ty)
    }

    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<ToyExecutable> {
        let unsupported = |message: String| {
            let message = format!("`{}`: {message}", program.name);
            Error::new(ErrorKind::Unsupported, "compile", message)
        };
        if program.partitions > 1 {
            return Err(unsupported("more than one partition".to_owned()));
        }
        let Signature {
            inputs, outputs, ..
        } = &program.signature;
        let mut types = inputs.iter().chain(outputs);
        if let Some(other) = types.find(|ty| ty.dtype() != DType::F32) {
            return Err(unsupported(format!(
                "{other}; this accelerator computes in f32"
            )));
        }
        let first = self
            .devices
            .iter()
            .map(|device| device.id)
            .take(program.replicas);
        let ids: Vec<_> = match options.devices.is_empty() {
            true => first.collect(),
            false => options.devices.clone(),
        };
        if ids.len() != program.replicas {
            let message = format!("{} devices for {} replicas", ids.len(), program.replicas);
            return Err(Error::invalid("compile", message));
        }
        let index = |&id: &DeviceId| find(&self.devices, "compile", id.into());
        Ok(ToyExecutable {
            name: program.name.clone(),
            code: Arc::new(Code::parse(&program.code, outputs.len())?),
            signature: program.signature.clone(),
            devices: self.devices.clone(),
            indices: ids.iter().map(index).collect::<Result<_>>()?,
            ids,
        })
    }

    fn load(
        &self,
        _: &[u8],
        _: &Arc<str>,
        _: &Signature,
        _: &CompileOptions,
    ) -> Result<ToyExecutable> {
        let message = "this backend does not serialize programs";
        Err(Error::new(ErrorKind::Unsupported, "load", message))
    }
}

#[cfg(test)]
mod tests {
    use halite_backends::conformance::{self, Subject};
    use halite_core::Client;

    use super::*;

    /// Runs the cases of the suite whose names contain `only`, on two devices.
    fn check(only: &str) {
        let open = || {
            let mut options = Options::new([("devices".to_owned(), 2i64.into())]);
            Ok(Client::new(open(&mut options)?))
        };
        let outcome = conformance::run(&Subject::opened_by(open).unwrap(), only);
        assert!(outcome.failed.is_empty(), "{outcome}");
        assert!(!outcome.passed.is_empty(), "{outcome}");
    }

    #[test]
    fn transfers_conform() {
        check("transfers");
    }

    #[test]
    fn donation_conforms() {
        check("donation");
    }

    #[test]
    fn handles_conform() {
        check("threads::handles_outlive_their_client");
    }

    #[test]
    fn unknown_operation_is_named() {
        let code = b"func.func @main(%a: tensor<f32>) -> tensor<f32> {
            %0 = stablehlo.cosine %a : tensor<f32>
            return %0 : tensor<f32> }";
        let error = Code::parse(code, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("stablehlo.cosine"), "{error}");
    }
}
