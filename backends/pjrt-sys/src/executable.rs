//! Programs: compiled, loaded, executed, measured, serialized.

use std::ffi::{c_char, c_int, c_void};

use crate::base::PJRT_NamedValue;
use crate::buffer::{PJRT_Buffer, PJRT_Buffer_Type};
use crate::client::PJRT_Client;
use crate::device::PJRT_Device;
use crate::error::{PJRT_CallbackError, PJRT_Error};
use crate::event::PJRT_Event;
use crate::macros::{c_structs, opaque};
use crate::topology::PJRT_TopologyDescription;
use crate::transfer::{PJRT_Chunk, PJRT_CopyToDeviceStream};

opaque! {
    /// A compiled program, not bound to devices.
    PJRT_Executable
}

opaque! {
    /// A compiled program on the devices of a client.
    PJRT_LoadedExecutable
}

opaque! {
    /// Data that custom calls can read during an execution.
    PJRT_ExecuteContext
}

opaque! {
    /// Backs the bytes of a serialized executable.
    PJRT_SerializedExecutable
}

opaque! {
    /// Backs the bytes of serialized compile options.
    PJRT_SerializedCompileOptions
}

opaque! {
    /// Backs the bytes of a device assignment.
    PJRT_DeviceAssignmentSerialized
}

opaque! {
    /// Assignment of a program to slices.
    PJRT_MultiSlice_Config
}

/// Receives a piece sent by a program; must call the piece's deleter.
pub type PJRT_SendCallback = Option<
    unsafe extern "C" fn(
        chunk: *mut PJRT_Chunk,
        callback_error: *mut PJRT_CallbackError,
        total_size_in_bytes: usize,
        done: bool,
        user_arg: *mut c_void,
    ) -> *mut PJRT_Error,
>;
/// Owns the stream, and must free it when it has fed it.
pub type PJRT_RecvCallback =
    Option<unsafe extern "C" fn(stream: *mut PJRT_CopyToDeviceStream, user_arg: *mut c_void)>;

c_structs! {
    /// A program: bytes, and the name of their format.
    extensible PJRT_Program {
        code: *mut c_char,
        code_size: usize,
        /// `mlir` (text or bytecode), `hlo` or `hlo_with_config`.
        format: *const c_char,
        format_size: usize,
    }

    /// Compiles a program and loads it. The options are a serialized `CompileOptionsProto`.
    extensible PJRT_Client_Compile_Args {
        client: *mut PJRT_Client,
        program: *const PJRT_Program,
        /// A serialized `CompileOptionsProto`. An empty one aborts XLA plugins.
        compile_options: *const c_char,
        compile_options_size: usize,
        executable: *mut PJRT_LoadedExecutable,
    }

    /// Makes a context that custom calls can read during an execution.
    extensible PJRT_ExecuteContext_Create_Args {
        context: *mut PJRT_ExecuteContext,
    }

    /// Frees a context; null is allowed.
    extensible PJRT_ExecuteContext_Destroy_Args {
        context: *mut PJRT_ExecuteContext,
    }

    /// Frees an executable; null is allowed.
    extensible PJRT_Executable_Destroy_Args {
        executable: *mut PJRT_Executable,
    }

    /// Frees a loaded executable; null is allowed.
    extensible PJRT_LoadedExecutable_Destroy_Args {
        executable: *mut PJRT_LoadedExecutable,
    }

    /// The executable inside a loaded one; the caller frees it.
    extensible PJRT_LoadedExecutable_GetExecutable_Args {
        loaded_executable: *mut PJRT_LoadedExecutable,
        executable: *mut PJRT_Executable,
    }

    /// The serialized `DeviceAssignmentProto`, freed by the deleter.
    extensible PJRT_LoadedExecutable_GetDeviceAssignment_Args {
        executable: *mut PJRT_LoadedExecutable,
        serialized_bytes: *const c_char,
        serialized_bytes_size: usize,
        serialized_device_assignment: *mut PJRT_DeviceAssignmentSerialized,
        serialized_device_assignment_deleter: Option<unsafe extern "C-unwind" fn(*mut PJRT_DeviceAssignmentSerialized)>,
    }

    /// The name of an executable; lives as long as it.
    extensible PJRT_Executable_Name_Args {
        executable: *mut PJRT_Executable,
        executable_name: *const c_char,
        executable_name_size: usize,
    }

    /// Returns the number of replicas of a program.
    extensible PJRT_Executable_NumReplicas_Args {
        executable: *mut PJRT_Executable,
        num_replicas: usize,
    }

    /// Returns the number of partitions of a program.
    extensible PJRT_Executable_NumPartitions_Args {
        executable: *mut PJRT_Executable,
        num_partitions: usize,
    }

    /// The local devices that a loaded executable runs on, in launch order.
    extensible PJRT_LoadedExecutable_AddressableDevices_Args {
        executable: *mut PJRT_LoadedExecutable,
        addressable_devices: *const *mut PJRT_Device,
        num_addressable_devices: usize,
    }

    /// The optimized program: called once for the size, once for the bytes.
    extensible PJRT_Executable_OptimizedProgram_Args {
        executable: *mut PJRT_Executable,
        program: *mut PJRT_Program,
    }

    /// Drops the runtime object, keeping the handle.
    extensible PJRT_LoadedExecutable_Delete_Args {
        executable: *mut PJRT_LoadedExecutable,
    }

    /// Returns whether `PJRT_LoadedExecutable_Delete` was called.
    extensible PJRT_LoadedExecutable_IsDeleted_Args {
        executable: *mut PJRT_LoadedExecutable,
        is_deleted: bool,
    }

    /// A callback for one send op.
    plain PJRT_SendCallbackInfo {
        channel_id: i64,
        user_arg: *mut c_void,
        send_callback: PJRT_SendCallback,
    }

    /// A callback for one receive op.
    plain PJRT_RecvCallbackInfo {
        channel_id: i64,
        user_arg: *mut c_void,
        recv_callback: PJRT_RecvCallback,
    }

    /// Options of one execution.
    extensible PJRT_ExecuteOptions {
        send_callbacks: *mut *mut PJRT_SendCallbackInfo,
        recv_callbacks: *mut *mut PJRT_RecvCallbackInfo,
        num_send_ops: usize,
        num_recv_ops: usize,
        /// Non-zero for a launch over many devices or hosts.
        launch_id: c_int,
        /// Inputs that must not be donated although the program allows it.
        non_donatable_input_indices: *const i64,
        num_non_donatable_input_indices: usize,
        context: *mut PJRT_ExecuteContext,
        /// A C string, read during the call only.
        call_location: *const c_char,
        num_tasks: usize,
        task_ids: *mut c_int,
        incarnation_ids: *mut i64,
        multi_slice_config: *mut PJRT_MultiSlice_Config [since 97],
        /// First minor not established; present in 0.114.
        use_major_to_minor_data_layout_for_callbacks: bool [since 114],
        hlo_output_callbacks: *mut PJRT_HloOutputCallbackInfo [since 114],
        num_hlo_output_callbacks: usize [since 114],
    }

    /// Queues a program on its devices.
    extensible PJRT_LoadedExecutable_Execute_Args {
        executable: *mut PJRT_LoadedExecutable,
        options: *mut PJRT_ExecuteOptions,
        /// `[num_devices][num_args]`.
        argument_lists: *const *const *mut PJRT_Buffer,
        num_devices: usize,
        num_args: usize,
        /// `[num_devices][num_outputs]`, both levels allocated by the caller.
        output_lists: *const *mut *mut PJRT_Buffer,
        /// Null, or room for one event per device; untouched on error.
        device_complete_events: *mut *mut PJRT_Event,
        /// Null for the devices of the compilation.
        execute_device: *mut PJRT_Device,
    }

    /// Returns the number of outputs of a program per device.
    extensible PJRT_Executable_NumOutputs_Args {
        executable: *mut PJRT_Executable,
        num_outputs: usize,
    }

    /// The size of the machine code, where the platform knows it.
    extensible PJRT_Executable_SizeOfGeneratedCodeInBytes_Args {
        executable: *mut PJRT_Executable,
        size_in_bytes: i64,
    }

    /// A text that is equal for equal programs, options and compilers.
    extensible PJRT_Executable_Fingerprint_Args {
        executable: *mut PJRT_Executable,
        executable_fingerprint: *const c_char,
        executable_fingerprint_size: usize,
    }

    /// Named costs, such as `flops`; they live as long as the executable.
    extensible PJRT_Executable_GetCostAnalysis_Args {
        executable: *mut PJRT_Executable,
        num_properties: usize,
        properties: *const PJRT_NamedValue,
    }

    /// The memory one launch needs per device, in bytes.
    extensible PJRT_Executable_GetCompiledMemoryStats_Args {
        executable: *mut PJRT_Executable,
        generated_code_size_in_bytes: i64,
        argument_size_in_bytes: i64,
        output_size_in_bytes: i64,
        alias_size_in_bytes: i64,
        temp_size_in_bytes: i64,
        host_generated_code_size_in_bytes: i64,
        host_argument_size_in_bytes: i64,
        host_output_size_in_bytes: i64,
        host_alias_size_in_bytes: i64,
        host_temp_size_in_bytes: i64,
        peak_memory_in_bytes: i64,
        total_size_in_bytes: i64 [since 90],
        total_allocation_bytes: i64 [since 104],
        indefinite_allocations: i64 [since 104],
        peak_unpadded_heap_bytes: i64 [since 104],
    }

    /// The element type of each output; lives as long as the executable.
    extensible PJRT_Executable_OutputElementTypes_Args {
        executable: *mut PJRT_Executable,
        output_types: *mut PJRT_Buffer_Type,
        num_output_types: usize,
    }

    /// The dimensions of all outputs, concatenated, and how many each has.
    extensible PJRT_Executable_OutputDimensions_Args {
        executable: *mut PJRT_Executable,
        num_outputs: usize,
        dims: *const i64,
        dim_sizes: *const usize,
    }

    /// The memory kind of each output.
    extensible PJRT_Executable_OutputMemoryKinds_Args {
        executable: *mut PJRT_Executable,
        num_outputs: usize,
        memory_kinds: *const *const c_char,
        memory_kind_sizes: *const usize,
    }

    /// The executable as bytes, freed by the deleter.
    extensible PJRT_Executable_Serialize_Args {
        executable: *const PJRT_Executable,
        serialized_bytes: *const c_char,
        serialized_bytes_size: usize,
        serialized_executable: *mut PJRT_SerializedExecutable,
        serialized_executable_deleter: Option<unsafe extern "C-unwind" fn(*mut PJRT_SerializedExecutable)>,
    }

    /// Loads bytes of `PJRT_Executable_Serialize`, of the same platform and version.
    extensible PJRT_Executable_DeserializeAndLoad_Args {
        client: *mut PJRT_Client,
        serialized_executable: *const c_char,
        serialized_executable_size: usize,
        loaded_executable: *mut PJRT_LoadedExecutable,
        overridden_serialized_compile_options: *const c_char,
        overridden_serialized_compile_options_size: usize,
        load_options: *const PJRT_LoadOptions [since 111],
    }

    /// Deprecated: `PJRT_Executable_Fingerprint` says the same.
    extensible PJRT_LoadedExecutable_Fingerprint_Args {
        executable: *mut PJRT_LoadedExecutable,
        executable_fingerprint: *const c_char,
        executable_fingerprint_size: usize,
    }

    /// Compiles for a topology, without loading.
    extensible PJRT_Compile_Args {
        topology: *const PJRT_TopologyDescription,
        program: *const PJRT_Program,
        compile_options: *const c_char,
        compile_options_size: usize,
        client: *mut PJRT_Client,
        executable: *mut PJRT_Executable,
    }

    /// The serialized options a program was compiled with, freed by the deleter.
    extensible PJRT_Executable_GetCompileOptions_Args [since 87] {
        executable: *mut PJRT_Executable,
        serialized_bytes: *const c_char,
        serialized_bytes_size: usize,
        serialized_compile_options: *mut PJRT_SerializedCompileOptions,
        serialized_compile_options_deleter: Option<unsafe extern "C-unwind" fn(*mut PJRT_SerializedCompileOptions)>,
    }

    /// Loads an executable compiled for a topology.
    extensible PJRT_Client_Load_Args [since 95] {
        client: *mut PJRT_Client,
        executable: *mut PJRT_Executable,
        compile_options: *const c_char,
        compile_options_size: usize,
        loaded_executable: *mut PJRT_LoadedExecutable,
    }

    /// Returns the replica and partition of each addressable device.
    extensible PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args [since 96] {
        executable: *mut PJRT_LoadedExecutable,
        addressable_device_logical_ids: *const PJRT_LogicalDeviceIds,
        num_addressable_device_logical_ids: usize,
    }

    /// A replica and a partition.
    plain PJRT_LogicalDeviceIds [since 96] {
        replica: c_int,
        partition: c_int,
    }

    /// The memory kind of each parameter.
    extensible PJRT_Executable_ParameterMemoryKinds_Args [since 102] {
        executable: *mut PJRT_Executable,
        num_parameters: usize,
        memory_kinds: *const *const c_char,
        memory_kind_sizes: *const usize,
    }

    /// A callback for outputs read while a program runs.
    plain PJRT_HloOutputCallbackInfo [since 114] {
        user_arg: *mut c_void,
        callback: *mut c_void,
        callback_id: i64,
        num_operands: usize,
    }

    /// Options of loading an executable.
    sized PJRT_LoadOptions [since 111] {
        computation_origin: *const i32,
        computation_origin_size: usize,
        multi_slice_config: *mut PJRT_MultiSlice_Config,
    }
}
