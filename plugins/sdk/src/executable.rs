//! Executables: compiling, loading and serializing programs.

mod functions;

use std::{
    ffi::c_char,
    ops::Deref,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use halite_core::{DType, DeviceId, Loaded, Signature, TensorType};
use halite_pjrt_sys::{
    buffer::PJRT_Buffer_Type, device::PJRT_Device, executable::*,
    extension::PJRT_Layouts_MemoryLayout,
};
use prost::Message;
use sha2::{Digest, Sha256};

use crate::{
    abi::{Given, Shared, as_bytes, int, list, text as text_of},
    client::Client,
    compile::Compilation,
    device::kind_name,
    device_layout::of_executables,
    dtype::{buffer_type, dims_of},
    handle::objects,
    options::NamedValues,
    program,
    shardings::Shardings,
    status::{Outcome, Status, drop_logged},
    text,
};

/// A compiled program. The handles of executables share it.
pub(crate) struct Compiled {
    pub(crate) signature: Signature,
    /// The local devices that it runs on.
    pub(crate) devices: Box<[DeviceId]>,
    compilation: Compilation,
    /// The serialized options that it was compiled with.
    options: Vec<u8>,
    pub(crate) name: Arc<str>,
    fingerprint: String,
    lists: Lists,
    pub(crate) parameter_shardings: Shardings,
    pub(crate) output_shardings: Shardings,
    pub(crate) parameter_layouts: Layouts,
    pub(crate) output_layouts: Layouts,
    cost: OnceLock<Outcome<NamedValues>>,
    optimized: OnceLock<Outcome<(String, Vec<u8>)>>,
    pub(crate) client: Arc<Client>,
}

/// Lists that callers get.
struct Lists {
    devices: Shared<Box<[*mut PJRT_Device]>>,
    logical_ids: Box<[PJRT_LogicalDeviceIds]>,
    output_types: Box<[PJRT_Buffer_Type]>,
    /// The dimensions of all results, one after the other, and how many each has.
    output_dims: Box<[i64]>,
    output_ranks: Box<[usize]>,
    output_kinds: Kinds,
    parameter_kinds: Kinds,
}

type Layouts = Shared<Box<[*mut PJRT_Layouts_MemoryLayout]>>;

/// Names of memory kinds, all of them device memory.
struct Kinds {
    names: Shared<Box<[*const c_char]>>,
    sizes: Box<[usize]>,
}

/// A compiled program with the backend's executable, until a caller deletes it.
pub(crate) struct Instance {
    compiled: Arc<Compiled>,
    loaded: RwLock<Option<Arc<Loaded>>>,
}

/// A program that is not bound to devices, for a caller.
pub(crate) struct Executable(Arc<Instance>);

/// A program on its devices, for a caller.
pub(crate) struct LoadedExecutable(Arc<Instance>);

impl Deref for Instance {
    type Target = Compiled;

    fn deref(&self) -> &Compiled {
        &self.compiled
    }
}

impl Deref for Executable {
    type Target = Instance;

    fn deref(&self) -> &Instance {
        &self.0
    }
}

impl Deref for LoadedExecutable {
    type Target = Instance;

    fn deref(&self) -> &Instance {
        &self.0
    }
}

objects! {
    Executable => PJRT_Executable,
    LoadedExecutable => PJRT_LoadedExecutable,
}

/// The serialized form of an executable: what `Backend::load` needs besides its own bytes.
#[derive(Clone, PartialEq, Message)]
struct ExecutableProto {
    #[prost(string, tag = "1")]
    platform: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(message, repeated, tag = "4")]
    inputs: Vec<TypeProto>,
    #[prost(message, repeated, tag = "5")]
    outputs: Vec<TypeProto>,
    #[prost(uint64, repeated, tag = "6")]
    donated: Vec<u64>,
    #[prost(bytes = "vec", tag = "7")]
    options: Vec<u8>,
    #[prost(string, tag = "8")]
    fingerprint: String,
    #[prost(bytes = "vec", tag = "9")]
    program: Vec<u8>,
    /// One for each argument.
    #[prost(bytes = "vec", repeated, tag = "10")]
    parameter_shardings: Vec<Vec<u8>>,
    /// One for each result; one if there are none.
    #[prost(bytes = "vec", repeated, tag = "11")]
    output_shardings: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeProto {
    #[prost(string, tag = "1")]
    dtype: String,
    #[prost(uint64, repeated, tag = "2")]
    dims: Vec<u64>,
}

impl TypeProto {
    fn of(ty: &TensorType) -> Self {
        TypeProto {
            dtype: ty.dtype().name().to_owned(),
            dims: ty.dims().iter().map(|&dim| dim as u64).collect(),
        }
    }

    fn tensor_type(&self) -> Option<TensorType> {
        let dims: Option<Vec<_>> = self.dims.iter().map(|&dim| dim.try_into().ok()).collect();
        let ty = TensorType::new(DType::from_name(&self.dtype)?, dims?);
        ty.checked_bytes().is_ok().then_some(ty)
    }
}

impl Compiled {
    /// Compiles a program of a caller for the devices that the options name.
    fn compile(
        client: &Arc<Client>,
        given: &Given<PJRT_Program>,
        options: &[u8],
    ) -> Outcome<Arc<Instance>> {
        let format = text_of!(given, format, format_size)?;
        if format != "mlir" {
            return Err(Status::unimplemented(format!(
                "programs in the format `{format}`; this plugin takes `mlir`"
            )));
        }
        let code: &[c_char] = list!(given, code, code_size)?;
        let code = as_bytes(code);
        let compilation = Compilation::decode(options, &client.local_devices())?;
        let interface = program::read(code, compilation.replicas, compilation.partitions)?;
        let program = interface.program(code);
        let mut digest = Sha256::new();
        for part in [
            client.platform().as_bytes(),
            client.version().as_bytes(),
            options,
            code,
        ] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        let loaded = client.core.compile(&program, &compilation.options)?;
        let compiled = Compiled {
            devices: loaded.devices().into(),
            lists: Lists::new(client, &program.signature, &compilation),
            parameter_shardings: Shardings::of_inputs(&interface.inputs),
            output_shardings: Shardings::of_outputs(&interface.outputs),
            parameter_layouts: of_executables(&program.signature.inputs),
            output_layouts: of_executables(&program.signature.outputs),
            signature: program.signature,
            compilation,
            options: options.to_vec(),
            name: program.name,
            fingerprint: halite_core::hex(&digest.finalize()),
            cost: OnceLock::new(),
            optimized: OnceLock::new(),
            client: client.clone(),
        };
        compiled.check("Backend::compile", loaded.signature())?;
        Ok(Instance::new(Arc::new(compiled), Arc::new(loaded)))
    }

    /// Loads what [`Instance::serialize`] returned, with other options where they are given.
    fn load(client: &Arc<Client>, bytes: &[u8], overriding: &[u8]) -> Outcome<Arc<Instance>> {
        let not_one = || Status::invalid("the bytes are not a serialized executable");
        let saved = ExecutableProto::decode(bytes).map_err(|_| not_one())?;
        if saved.platform.is_empty() {
            return Err(not_one());
        }
        if (&*saved.platform, &*saved.version) != (client.platform(), client.version()) {
            return Err(Status::invalid(format!(
                "the executable is of {} {}, this is {} {}",
                saved.platform,
                saved.version,
                client.platform(),
                client.version()
            )));
        }
        let types = |types: &[TypeProto]| types.iter().map(TypeProto::tensor_type).collect();
        let inputs: Option<Vec<_>> = types(&saved.inputs);
        let outputs: Option<Vec<_>> = types(&saved.outputs);
        let signature = Signature {
            inputs: inputs.ok_or_else(not_one)?,
            outputs: outputs.ok_or_else(not_one)?,
            donated: saved.donated.iter().map(|&index| index as usize).collect(),
        };
        let (inputs, outputs) = (signature.inputs.len(), signature.outputs.len());
        if saved.parameter_shardings.len() != inputs
            || saved.output_shardings.len() != outputs.max(1)
            || signature.donated.iter().any(|&index| index >= inputs)
        {
            return Err(not_one());
        }
        let options = if overriding.is_empty() {
            saved.options
        } else {
            overriding.to_vec()
        };
        let compilation = Compilation::decode(&options, &client.local_devices())?;
        let loaded = client
            .core
            .load(&saved.program, &signature, &compilation.options)?;
        let compiled = Compiled {
            devices: loaded.devices().into(),
            lists: Lists::new(client, &signature, &compilation),
            parameter_shardings: Shardings::new(saved.parameter_shardings),
            output_shardings: Shardings::new(saved.output_shardings),
            parameter_layouts: of_executables(&signature.inputs),
            output_layouts: of_executables(&signature.outputs),
            signature,
            compilation,
            options,
            name: saved.name.into(),
            fingerprint: saved.fingerprint,
            cost: OnceLock::new(),
            optimized: OnceLock::new(),
            client: client.clone(),
        };
        compiled.check("Backend::load", loaded.signature())?;
        Ok(Instance::new(Arc::new(compiled), Arc::new(loaded)))
    }

    /// Checks what the backend says of the executable that `method` returned.
    fn check(&self, method: &str, real: &Signature) -> Outcome {
        let wanted = &self.signature;
        if real.inputs != wanted.inputs || real.outputs != wanted.outputs {
            return Err(Status::internal(format!(
                "`Executable::signature` after `{method}` is {real:?}, the program has {wanted:?}"
            )));
        }
        let (real, wanted) = (&self.devices, &self.compilation.options.devices);
        let local = wanted
            .iter()
            .filter(|id| self.client.device(**id).is_some_and(|it| it.local));
        if !real.iter().eq(local) {
            return Err(Status::internal(format!(
                "`Executable::devices` after `{method}` is {real:?}, `CompileOptions::devices` has \
                 {wanted:?}"
            )));
        }
        Ok(())
    }
}

impl Instance {
    fn new(compiled: Arc<Compiled>, loaded: Arc<Loaded>) -> Arc<Self> {
        Arc::new(Instance {
            compiled,
            loaded: RwLock::new(Some(loaded)),
        })
    }

    /// The backend's executable.
    ///
    /// # Errors
    /// INVALID_ARGUMENT after [`delete`](Self::delete).
    pub(crate) fn loaded(&self) -> Outcome<Arc<Loaded>> {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        let deleted = || Status::invalid(format!("`{}`: the executable was deleted", self.name));
        loaded.clone().ok_or_else(deleted)
    }

    /// Frees the backend's executable after the launches that are being queued.
    fn delete(&self) {
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        let taken = loaded.take();
        drop(loaded);
        drop_logged(taken);
    }

    fn is_deleted(&self) -> bool {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded.is_none()
    }

    fn serialize(&self) -> Outcome<Vec<u8>> {
        let types = |types: &[TensorType]| types.iter().map(TypeProto::of).collect();
        let saved = ExecutableProto {
            platform: self.client.platform().to_owned(),
            version: self.client.version().to_owned(),
            name: self.name.to_string(),
            inputs: types(&self.signature.inputs),
            outputs: types(&self.signature.outputs),
            donated: self
                .signature
                .donated
                .iter()
                .map(|&index| index as u64)
                .collect(),
            options: self.options.clone(),
            fingerprint: self.fingerprint.clone(),
            program: self.loaded()?.serialize()?,
            parameter_shardings: self.parameter_shardings.serialized.to_vec(),
            output_shardings: self.output_shardings.serialized.to_vec(),
        };
        Ok(saved.encode_to_vec())
    }
}

impl Lists {
    fn new(client: &Client, signature: &Signature, compilation: &Compilation) -> Self {
        let local = compilation
            .options
            .devices
            .iter()
            .enumerate()
            .filter_map(|(index, id)| {
                let device = client.device(*id).filter(|device| device.local)?;
                let logical = PJRT_LogicalDeviceIds {
                    replica: int(index / compilation.partitions),
                    partition: int(index % compilation.partitions),
                };
                Some((device.handle(), logical))
            });
        let (devices, logical_ids): (Vec<_>, Vec<_>) = local.unzip();
        let outputs = &signature.outputs;
        Lists {
            devices: Shared(devices.into()),
            logical_ids: logical_ids.into(),
            output_types: outputs.iter().map(|ty| buffer_type(ty.dtype())).collect(),
            output_dims: outputs.iter().flat_map(dims_of).collect(),
            output_ranks: outputs.iter().map(TensorType::rank).collect(),
            output_kinds: Kinds::new(outputs.len()),
            parameter_kinds: Kinds::new(signature.inputs.len()),
        }
    }
}

impl Kinds {
    fn new(count: usize) -> Self {
        let (start, size) = text(kind_name(halite_core::MemoryKind::Device));
        Kinds {
            names: Shared(vec![start; count].into()),
            sizes: vec![size; count].into(),
        }
    }
}
