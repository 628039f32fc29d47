//! Executables: compiling, loading, and what callers ask of a compiled program.

use std::{
    ffi::c_char,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use halite_core::{DType, Loaded, Program, Signature, TensorType};
use halite_pjrt_sys::{buffer::PJRT_Buffer_Type, device::PJRT_Device, executable::*};
use prost::Message;
use sha2::{Digest, Sha256};

use crate::{
    abi::{Function, Given, Shared, as_bytes, int, list, nested, text as text_of, write_program},
    client::Client,
    compile::Compilation,
    device::kind_name,
    dtype::{buffer_type, dims_of},
    handle::{find, objects, publish, take},
    options::{NamedValues, Value},
    program::{Described, describe},
    serialized::Bytes,
    status::{Outcome, Status, drop_guarded},
    text,
    topology::Topology,
};

/// A compiled program. The handles of executables share it.
pub(crate) struct Compiled {
    pub(crate) loaded: Loaded,
    pub(crate) signature: Signature,
    compilation: Compilation,
    /// The serialized options that it was compiled with.
    options: Vec<u8>,
    name: Arc<str>,
    fingerprint: String,
    lists: Lists,
    cost: OnceLock<Outcome<NamedValues>>,
    optimized: OnceLock<Outcome<(String, Vec<u8>)>>,
    pub(crate) client: Arc<Client>,
}

/// Lists that callers get.
struct Lists {
    devices: Shared<Box<[*mut PJRT_Device]>>,
    logical_ids: Shared<Box<[PJRT_LogicalDeviceIds]>>,
    output_types: Shared<Box<[PJRT_Buffer_Type]>>,
    /// The dimensions of all results, one after the other, and how many each has.
    output_dims: Box<[i64]>,
    output_ranks: Box<[usize]>,
    output_kinds: Kinds,
    parameter_kinds: Kinds,
}

/// Names of memory kinds, all of them device memory.
struct Kinds {
    names: Shared<Box<[*const c_char]>>,
    sizes: Box<[usize]>,
}

/// A program that is not bound to devices, for a caller.
pub(crate) struct Executable(Arc<Compiled>);

/// A program on its devices, for a caller.
pub(crate) struct LoadedExecutable {
    compiled: Arc<Compiled>,
    deleted: AtomicBool,
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
        program: &Given<PJRT_Program>,
        options: &[u8],
    ) -> Outcome<Arc<Self>> {
        let format = text_of!(program, format, format_size)?;
        if format != "mlir" {
            return Err(Status::unimplemented(format!(
                "programs in the format `{format}`; this plugin takes `mlir`"
            )));
        }
        let code: &[c_char] = list!(program, code, code_size)?;
        let code = as_bytes(code);
        let compilation = Compilation::decode(options, &client.local_devices())?;
        let Described {
            name,
            inputs,
            outputs,
            donated,
        } = describe(code)?;
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
        let program = Program {
            name: name.into(),
            code: code.into(),
            signature: Signature {
                inputs,
                outputs,
                donated,
            },
            partitions: compilation.partitions,
            replicas: compilation.replicas,
            facts: None,
        };
        let loaded = client.core.compile(&program, &compilation.options)?;
        let mut compiled = Compiled {
            loaded,
            lists: Lists::new(client, &program.signature, &compilation),
            signature: program.signature,
            compilation,
            options: options.to_vec(),
            name: program.name,
            fingerprint: halite_core::hex(&digest.finalize()),
            cost: OnceLock::new(),
            optimized: OnceLock::new(),
            client: client.clone(),
        };
        compiled.check("Backend::compile")?;
        Ok(Arc::new(compiled))
    }

    /// Loads what [`serialize`](Self::serialize) returned, with other options where they are given.
    fn load(client: &Arc<Client>, bytes: &[u8], overriding: &[u8]) -> Outcome<Arc<Self>> {
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
        if signature
            .donated
            .iter()
            .any(|&index| index >= signature.inputs.len())
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
        let mut compiled = Compiled {
            loaded,
            lists: Lists::new(client, &signature, &compilation),
            signature,
            compilation,
            options,
            name: saved.name.into(),
            fingerprint: saved.fingerprint,
            cost: OnceLock::new(),
            optimized: OnceLock::new(),
            client: client.clone(),
        };
        compiled.check("Backend::load")?;
        Ok(Arc::new(compiled))
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
            program: self.loaded.serialize()?,
        };
        Ok(saved.encode_to_vec())
    }

    /// Checks what the backend says of the executable that `method` returned.
    fn check(&mut self, method: &str) -> Outcome {
        let (real, wanted) = (self.loaded.signature(), &self.signature);
        if real.inputs != wanted.inputs || real.outputs != wanted.outputs {
            return Err(Status::internal(format!(
                "`Executable::signature` after `{method}` is {real:?}, the program has {wanted:?}"
            )));
        }
        let (real, wanted) = (self.loaded.devices(), &self.compilation.options.devices);
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
            logical_ids: Shared(logical_ids.into()),
            output_types: Shared(outputs.iter().map(|ty| buffer_type(ty.dtype())).collect()),
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

/// The program behind a handle of an executable.
fn executable(handle: *mut PJRT_Executable) -> Outcome<Arc<Compiled>> {
    Ok(find::<Executable>(handle)?.0.clone())
}

/// The program behind a handle of a loaded executable that is not deleted.
pub(crate) fn loaded(handle: *mut PJRT_LoadedExecutable) -> Outcome<Arc<Compiled>> {
    let executable = find::<LoadedExecutable>(handle)?;
    match executable.deleted.load(Relaxed) {
        true => Err(Status::invalid("the executable was deleted")),
        false => Ok(executable.compiled.clone()),
    }
}

fn publish_loaded(compiled: Arc<Compiled>) -> *mut PJRT_LoadedExecutable {
    publish(Arc::new(LoadedExecutable {
        compiled,
        deleted: AtomicBool::new(false),
    }))
}

impl Function for PJRT_Client_Compile_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        let program = nested!(args, program)?;
        let options = as_bytes(list!(args, compile_options, compile_options_size)?);
        out.executable = publish_loaded(Compiled::compile(&client, &program, options)?);
        Ok(())
    }
}

impl Function for PJRT_Compile_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = match args.client.is_null() {
            false => find::<Client>(args.client)?,
            true => find::<Topology>(args.topology.cast_mut())?
                .client()
                .ok_or_else(|| {
                    Status::unimplemented("this plugin compiles only for the topology of a client")
                })?,
        };
        let program = nested!(args, program)?;
        let options = as_bytes(list!(args, compile_options, compile_options_size)?);
        let compiled = Compiled::compile(&client, &program, options)?;
        out.executable = publish(Arc::new(Executable(compiled)));
        Ok(())
    }
}

impl Function for PJRT_Client_Load_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        let compiled = executable(args.executable)?;
        let options = as_bytes(list!(args, compile_options, compile_options_size)?);
        let same = Arc::ptr_eq(&client, &compiled.client)
            && (options.is_empty() || options == compiled.options);
        out.loaded_executable = publish_loaded(match same {
            true => compiled,
            false => Compiled::load(&client, &compiled.serialize()?, options)?,
        });
        Ok(())
    }
}

impl Function for PJRT_Executable_DeserializeAndLoad_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let client = find::<Client>(args.client)?;
        let bytes = list!(args, serialized_executable, serialized_executable_size)?;
        let overriding = list!(
            args,
            overridden_serialized_compile_options,
            overridden_serialized_compile_options_size
        )?;
        let compiled = Compiled::load(&client, as_bytes(bytes), as_bytes(overriding))?;
        out.loaded_executable = publish_loaded(compiled);
        Ok(())
    }
}

impl Function for PJRT_Executable_Serialize_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let bytes = Bytes::publish(executable(args.executable.cast_mut())?.serialize()?);
        (out.serialized_bytes, out.serialized_bytes_size) = (bytes.start, bytes.length);
        out.serialized_executable = bytes.handle;
        out.serialized_executable_deleter = bytes.deleter;
        Ok(())
    }
}

impl Function for PJRT_Executable_GetCompileOptions_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let bytes = Bytes::publish(executable(args.executable)?.options.clone());
        (out.serialized_bytes, out.serialized_bytes_size) = (bytes.start, bytes.length);
        out.serialized_compile_options = bytes.handle;
        out.serialized_compile_options_deleter = bytes.deleter;
        Ok(())
    }
}

impl Function for PJRT_LoadedExecutable_GetDeviceAssignment_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let compiled = loaded(args.executable)?;
        let bytes = Bytes::publish(compiled.compilation.device_assignment());
        (out.serialized_bytes, out.serialized_bytes_size) = (bytes.start, bytes.length);
        out.serialized_device_assignment = bytes.handle;
        out.serialized_device_assignment_deleter = bytes.deleter;
        Ok(())
    }
}

impl Function for PJRT_Executable_Destroy_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        drop_guarded(take::<Executable>(args.executable)?)
    }
}

impl Function for PJRT_LoadedExecutable_Destroy_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        drop_guarded(take::<LoadedExecutable>(args.executable)?)
    }
}

impl Function for PJRT_LoadedExecutable_Delete_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        find::<LoadedExecutable>(args.executable)?
            .deleted
            .store(true, Relaxed);
        Ok(())
    }
}

impl Function for PJRT_LoadedExecutable_IsDeleted_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        out.is_deleted = find::<LoadedExecutable>(args.executable)?
            .deleted
            .load(Relaxed);
        Ok(())
    }
}

impl Function for PJRT_LoadedExecutable_GetExecutable_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let compiled = find::<LoadedExecutable>(args.loaded_executable)?
            .compiled
            .clone();
        out.executable = publish(Arc::new(Executable(compiled)));
        Ok(())
    }
}

impl Function for PJRT_LoadedExecutable_AddressableDevices_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let executable = find::<LoadedExecutable>(args.executable)?;
        let devices = &executable.compiled.lists.devices.0;
        out.addressable_devices = devices.as_ptr();
        out.num_addressable_devices = devices.len();
        Ok(())
    }
}

impl Function for PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let executable = find::<LoadedExecutable>(args.executable)?;
        let ids = &executable.compiled.lists.logical_ids.0;
        out.addressable_device_logical_ids = ids.as_ptr();
        out.num_addressable_device_logical_ids = ids.len();
        Ok(())
    }
}

impl Function for PJRT_LoadedExecutable_Fingerprint_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let executable = find::<LoadedExecutable>(args.executable)?;
        (out.executable_fingerprint, out.executable_fingerprint_size) =
            text(&executable.compiled.fingerprint);
        Ok(())
    }
}

impl Function for PJRT_Executable_Fingerprint_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let compiled = executable(args.executable)?;
        (out.executable_fingerprint, out.executable_fingerprint_size) = text(&compiled.fingerprint);
        Ok(())
    }
}

impl Function for PJRT_Executable_Name_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        (out.executable_name, out.executable_name_size) = text(&executable(args.executable)?.name);
        Ok(())
    }
}

impl Function for PJRT_Executable_NumReplicas_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        out.num_replicas = executable(args.executable)?.compilation.replicas;
        Ok(())
    }
}

impl Function for PJRT_Executable_NumPartitions_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        out.num_partitions = executable(args.executable)?.compilation.partitions;
        Ok(())
    }
}

impl Function for PJRT_Executable_NumOutputs_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        out.num_outputs = executable(args.executable)?.signature.outputs.len();
        Ok(())
    }
}

impl Function for PJRT_Executable_OutputElementTypes_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let compiled = executable(args.executable)?;
        let types = &compiled.lists.output_types.0;
        (out.output_types, out.num_output_types) = (types.as_ptr().cast_mut(), types.len());
        Ok(())
    }
}

impl Function for PJRT_Executable_OutputDimensions_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let compiled = executable(args.executable)?;
        out.num_outputs = compiled.lists.output_ranks.len();
        out.dims = compiled.lists.output_dims.as_ptr();
        out.dim_sizes = compiled.lists.output_ranks.as_ptr();
        Ok(())
    }
}

impl Function for PJRT_Executable_OutputMemoryKinds_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let compiled = executable(args.executable)?;
        let kinds = &compiled.lists.output_kinds;
        out.num_outputs = kinds.sizes.len();
        (out.memory_kinds, out.memory_kind_sizes) = (kinds.names.0.as_ptr(), kinds.sizes.as_ptr());
        Ok(())
    }
}

impl Function for PJRT_Executable_ParameterMemoryKinds_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let compiled = executable(args.executable)?;
        let kinds = &compiled.lists.parameter_kinds;
        out.num_parameters = kinds.sizes.len();
        (out.memory_kinds, out.memory_kind_sizes) = (kinds.names.0.as_ptr(), kinds.sizes.as_ptr());
        Ok(())
    }
}

impl Function for PJRT_Executable_SizeOfGeneratedCodeInBytes_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        out.size_in_bytes = bytes(executable(args.executable)?.loaded.memory()?.code);
        Ok(())
    }
}

fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Function for PJRT_Executable_GetCompiledMemoryStats_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let memory = executable(args.executable)?.loaded.memory()?;
        let peak = memory
            .peak
            .unwrap_or(memory.arguments + memory.outputs + memory.temporary);
        *out = PJRT_Executable_GetCompiledMemoryStats_Args {
            struct_size: args.struct_size,
            extension_start: args.extension_start,
            executable: args.executable,
            generated_code_size_in_bytes: bytes(memory.code),
            argument_size_in_bytes: bytes(memory.arguments),
            output_size_in_bytes: bytes(memory.outputs),
            alias_size_in_bytes: bytes(memory.aliased),
            temp_size_in_bytes: bytes(memory.temporary),
            peak_memory_in_bytes: bytes(peak),
            total_size_in_bytes: bytes(peak),
            ..PJRT_Executable_GetCompiledMemoryStats_Args::new()
        };
        Ok(())
    }
}

impl Function for PJRT_Executable_GetCostAnalysis_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let compiled = executable(args.executable)?;
        let cost = compiled.cost.get_or_init(|| {
            let cost = compiled.loaded.cost()?;
            let value = |(name, value): (String, f64)| (name, Value::Float(value as f32));
            Ok(NamedValues::new(cost.into_iter().map(value)))
        });
        (out.properties, out.num_properties) = cost.as_ref().map_err(Clone::clone)?.raw();
        Ok(())
    }
}

impl Function for PJRT_Executable_OptimizedProgram_Args {
    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let compiled = executable(args.executable)?;
        let optimized = compiled
            .optimized
            .get_or_init(|| Ok(compiled.loaded.optimized()?));
        let (format, code) = optimized.as_ref().map_err(Clone::clone)?;
        write_program(args, format, code)
    }
}
