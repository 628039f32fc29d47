//! What callers ask of executables.

use std::sync::Arc;

use halite_pjrt_sys::executable::*;

use super::{Compiled, Executable, Instance, Kinds, LoadedExecutable};
use crate::{
    abi::{Function, Given, as_bytes, getters, list, nested, write_program},
    client::{Client, Topology},
    handle::{find, publish, take},
    options::NamedValues,
    serialized::Bytes,
    status::{Outcome, Status, drop_logged},
    text,
    value::Value,
};

fn publish_loaded(instance: Arc<Instance>) -> *mut PJRT_LoadedExecutable {
    publish(Arc::new(LoadedExecutable(instance)))
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
        let instance = find::<Executable>(args.executable)?.0.clone();
        let options = as_bytes(list!(args, compile_options, compile_options_size)?);
        let same = Arc::ptr_eq(&client, &instance.client)
            && (options.is_empty() || options == instance.options);
        // Each loaded executable is deleted alone.
        out.loaded_executable = publish_loaded(if same {
            Instance::new(instance.compiled.clone(), instance.loaded()?)
        } else {
            Compiled::load(&client, &instance.serialize()?, options)?
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

getters! {
    PJRT_Executable_Serialize_Args(executable: Executable) => |out| {
        let bytes = Bytes::publish(executable.serialize()?);
        (out.serialized_bytes, out.serialized_bytes_size) = (bytes.start, bytes.length);
        out.serialized_executable = bytes.handle;
        out.serialized_executable_deleter = bytes.deleter;
    };
    PJRT_Executable_GetCompileOptions_Args(executable: Executable) => |out| {
        let bytes = Bytes::publish(executable.options.clone());
        (out.serialized_bytes, out.serialized_bytes_size) = (bytes.start, bytes.length);
        out.serialized_compile_options = bytes.handle;
        out.serialized_compile_options_deleter = bytes.deleter;
    };
    PJRT_LoadedExecutable_GetDeviceAssignment_Args(executable: LoadedExecutable) => |out| {
        let bytes = Bytes::publish(executable.compilation.device_assignment());
        (out.serialized_bytes, out.serialized_bytes_size) = (bytes.start, bytes.length);
        out.serialized_device_assignment = bytes.handle;
        out.serialized_device_assignment_deleter = bytes.deleter;
    };
}

impl Function for PJRT_Executable_Destroy_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        drop_logged(take::<Executable>(args.executable)?);
        Ok(())
    }
}

impl Function for PJRT_LoadedExecutable_Destroy_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        drop_logged(take::<LoadedExecutable>(args.executable)?);
        Ok(())
    }
}

impl Function for PJRT_LoadedExecutable_Delete_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        find::<LoadedExecutable>(args.executable)?.delete();
        Ok(())
    }
}

getters! {
    PJRT_LoadedExecutable_IsDeleted_Args(executable: LoadedExecutable) =>
        |out| out.is_deleted = executable.is_deleted();
    PJRT_LoadedExecutable_GetExecutable_Args(loaded_executable: LoadedExecutable) => |out| {
        let instance = loaded_executable.0.clone();
        out.executable = publish(Arc::new(Executable(instance)));
    };
    PJRT_LoadedExecutable_AddressableDevices_Args(executable: LoadedExecutable) => |out| {
        let devices = &executable.lists.devices.0;
        out.addressable_devices = devices.as_ptr();
        out.num_addressable_devices = devices.len();
    };
    PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args(executable: LoadedExecutable) => |out| {
        let ids = &executable.lists.logical_ids;
        out.addressable_device_logical_ids = ids.as_ptr();
        out.num_addressable_device_logical_ids = ids.len();
    };
    PJRT_LoadedExecutable_Fingerprint_Args(executable: LoadedExecutable) => |out| {
        let fingerprint = text(&executable.fingerprint);
        (out.executable_fingerprint, out.executable_fingerprint_size) = fingerprint;
    };
    PJRT_Executable_Fingerprint_Args(executable: Executable) => |out| {
        let fingerprint = text(&executable.fingerprint);
        (out.executable_fingerprint, out.executable_fingerprint_size) = fingerprint;
    };
    PJRT_Executable_Name_Args(executable: Executable) =>
        |out| (out.executable_name, out.executable_name_size) = text(&executable.name);
    PJRT_Executable_NumReplicas_Args(executable: Executable) =>
        |out| out.num_replicas = executable.compilation.replicas;
    PJRT_Executable_NumPartitions_Args(executable: Executable) =>
        |out| out.num_partitions = executable.compilation.partitions;
    PJRT_Executable_NumOutputs_Args(executable: Executable) =>
        |out| out.num_outputs = executable.signature.outputs.len();
    PJRT_Executable_OutputElementTypes_Args(executable: Executable) => |out| {
        let types = &executable.lists.output_types;
        (out.output_types, out.num_output_types) = (types.as_ptr().cast_mut(), types.len());
    };
    PJRT_Executable_OutputDimensions_Args(executable: Executable) => |out| {
        out.num_outputs = executable.lists.output_ranks.len();
        out.dims = executable.lists.output_dims.as_ptr();
        out.dim_sizes = executable.lists.output_ranks.as_ptr();
    };
    PJRT_Executable_OutputMemoryKinds_Args(executable: Executable) => |out| {
        let Kinds { names, sizes } = &executable.lists.output_kinds;
        out.num_outputs = sizes.len();
        (out.memory_kinds, out.memory_kind_sizes) = (names.0.as_ptr(), sizes.as_ptr());
    };
    PJRT_Executable_ParameterMemoryKinds_Args(executable: Executable) => |out| {
        let Kinds { names, sizes } = &executable.lists.parameter_kinds;
        out.num_parameters = sizes.len();
        (out.memory_kinds, out.memory_kind_sizes) = (names.0.as_ptr(), sizes.as_ptr());
    };
    PJRT_Executable_SizeOfGeneratedCodeInBytes_Args(executable: Executable) =>
        |out| out.size_in_bytes = bytes(executable.loaded()?.memory()?.code);
    PJRT_Executable_GetCostAnalysis_Args(executable: Executable) => |out| {
        let cost = executable.cost.get_or_init(|| {
            let cost = executable.loaded()?.cost()?;
            let value = |(name, value): (String, f64)| (name, Value::Float(value as f32));
            Ok(NamedValues::new(cost.into_iter().map(value)))
        });
        (out.properties, out.num_properties) = cost.as_ref().map_err(Clone::clone)?.raw();
    };
}

fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Function for PJRT_Executable_GetCompiledMemoryStats_Args {
    fn call(args: &Given<Self>, out: &mut Self) -> Outcome {
        let memory = find::<Executable>(args.executable)?.loaded()?.memory()?;
        let peak = memory.peak.unwrap_or_else(|| {
            let sizes = [memory.arguments, memory.outputs, memory.temporary];
            sizes.into_iter().fold(0, u64::saturating_add)
        });
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

impl Function for PJRT_Executable_OptimizedProgram_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let executable = find::<Executable>(args.executable)?;
        let optimized = executable
            .optimized
            .get_or_init(|| Ok(executable.loaded()?.optimized()?));
        let (format, code) = optimized.as_ref().map_err(Clone::clone)?;
        write_program(args, format, code)
    }
}
