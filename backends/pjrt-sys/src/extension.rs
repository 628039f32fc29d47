//! Extensions: groups of functions that a plugin has or has not, found by walking the list at
//! `PJRT_Api::extension_start`.
//!
//! Each has a size of its own: an entry is read only if the extension's `struct_size` covers it.
//! The headers of extensions are not in the package the layout test compares with; the offsets were
//! verified against running plugins (0.81, 0.106, 0.115).

use std::ffi::{c_char, c_int, c_void};

use crate::base::PJRT_Extension_Base;
use crate::buffer::{PJRT_Buffer, PJRT_Buffer_Type};
use crate::client::PJRT_Client;
use crate::error::PJRT_Error;
use crate::executable::PJRT_Executable;
use crate::macros::{c_enum, c_structs, opaque};
use crate::topology::PJRT_TopologyDescription;

opaque! {
    /// A layout in XLA's own form, which can be serialized.
    PJRT_Layouts_MemoryLayout
}

opaque! {
    /// Backs the text of a layout.
    PJRT_Layouts_SerializedLayout
}

c_enum! {
    /// Traits of a custom-call handler.
    PJRT_FFI_Handler_TraitsBits {
        /// Calls may be recorded into a command buffer.
        COMMAND_BUFFER_COMPATIBLE = 1,
    }
}

opaque! {
    /// A run of a plugin's profiler.
    PLUGIN_Profiler
}

opaque! {
    /// An error of a plugin's profiler, which only the profiler's own functions read and free.
    PLUGIN_Profiler_Error
}

/// Function of a profiler: takes its arguments, returns null or an error.
pub type ProfilerEntry<A> =
    Option<unsafe extern "C-unwind" fn(*mut A) -> *mut PLUGIN_Profiler_Error>;

/// Entry of an extension: takes its arguments, returns null or an error.
pub type Entry<A> = Option<unsafe extern "C-unwind" fn(*mut A) -> *mut PJRT_Error>;

c_structs! {
    /// Layouts of buffers and executables. Extension type 4.
    plain PJRT_Layouts_Extension {
        base: PJRT_Extension_Base,
        memory_layout_destroy: Entry<PJRT_Layouts_MemoryLayout_Destroy_Args>,
        memory_layout_serialize: Entry<PJRT_Layouts_MemoryLayout_Serialize_Args>,
        client_get_default_layout: Entry<PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args>,
        buffer_memory_layout: Entry<PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args>,
        topology_get_default_layout: Entry<PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args>,
        /// These layouts belong to the executable: never destroy them.
        executable_get_output_layouts: Entry<PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args>,
        /// These layouts belong to the executable: never destroy them.
        executable_get_parameter_layouts: Entry<PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args> [since 93],
    }

    /// Frees a layout that the caller owns.
    extensible PJRT_Layouts_MemoryLayout_Destroy_Args {
        layout: *mut PJRT_Layouts_MemoryLayout,
    }

    /// A layout as text such as `{1,0}`, freed by the deleter.
    extensible PJRT_Layouts_MemoryLayout_Serialize_Args {
        layout: *mut PJRT_Layouts_MemoryLayout,
        serialized_bytes: *const c_char,
        serialized_bytes_size: usize,
        serialized_layout: *mut PJRT_Layouts_SerializedLayout,
        serialized_layout_deleter: Option<unsafe extern "C-unwind" fn(*mut PJRT_Layouts_SerializedLayout)>,
    }

    /// The layout a client gives to a type and shape; the caller owns it.
    extensible PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args {
        client: *mut PJRT_Client,
        r#type: PJRT_Buffer_Type,
        dims: *const i64,
        num_dims: usize,
        layout: *mut PJRT_Layouts_MemoryLayout,
    }

    /// The layout of a buffer; the caller owns it.
    extensible PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args {
        buffer: *mut PJRT_Buffer,
        layout: *mut PJRT_Layouts_MemoryLayout,
    }

    /// The layout a topology gives to a type and shape; the caller owns it.
    extensible PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args {
        topology_description: *mut PJRT_TopologyDescription,
        r#type: PJRT_Buffer_Type,
        dims: *const i64,
        num_dims: usize,
        layout: *mut PJRT_Layouts_MemoryLayout,
    }

    /// The layouts of an executable's outputs, owned by it.
    extensible PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args {
        executable: *mut PJRT_Executable,
        num_outputs: usize,
        layouts: *mut *mut PJRT_Layouts_MemoryLayout,
    }

    /// The layouts of an executable's parameters, owned by it.
    extensible PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args {
        executable: *mut PJRT_Executable,
        num_parameters: usize,
        layouts: *mut *mut PJRT_Layouts_MemoryLayout,
    }

    /// Shardings of a program's parameters and outputs. Extension type 19.
    plain PJRT_Shardings_Extension [since 91] {
        base: PJRT_Extension_Base,
        parameter_shardings: Entry<PJRT_Shardings_PJRT_Executable_ParameterShardings_Args>,
        output_shardings: Entry<PJRT_Shardings_PJRT_Executable_OutputShardings_Args>,
    }

    /// A serialized `OpSharding` per parameter; an empty one is replicated.
    extensible PJRT_Shardings_PJRT_Executable_ParameterShardings_Args [since 91] {
        executable: *mut PJRT_Executable,
        num_parameters: usize,
        shardings: *const *const c_char,
        sharding_sizes: *const usize,
    }

    /// A serialized `OpSharding` per output; an empty one is replicated.
    extensible PJRT_Shardings_PJRT_Executable_OutputShardings_Args [since 91] {
        executable: *mut PJRT_Executable,
        num_outputs: usize,
        shardings: *const *const c_char,
        sharding_sizes: *const usize,
    }

    /// Custom calls: handlers written by the caller. Extension type 5.
    plain PJRT_FFI_Extension {
        base: PJRT_Extension_Base,
        type_register: Option<unsafe extern "C-unwind" fn(*mut c_void) -> *mut PJRT_Error>,
        user_data_add: Option<unsafe extern "C-unwind" fn(*mut c_void) -> *mut PJRT_Error>,
        register_handler: Entry<PJRT_FFI_Register_Handler_Args>,
    }

    /// Registers a handler for a custom-call target on a platform. This struct has no
    /// `extension_start`.
    sized PJRT_FFI_Register_Handler_Args {
        target_name: *const c_char,
        target_name_size: usize,
        /// An `XLA_FFI_Handler`. Called once while registering, to ask for its API version.
        handler: *mut c_void,
        platform_name: *const c_char,
        platform_name_size: usize,
        traits: PJRT_FFI_Handler_TraitsBits,
    }

    /// The profiler of a plugin. Extension type 1; the same struct, without `profiler_api`, links
    /// host events to calls.
    plain PJRT_Profiler_Extension {
        base: PJRT_Extension_Base,
        /// Null where the plugin has the extension and no profiler.
        profiler_api: *mut PLUGIN_Profiler_Api,
        /// Not read of a plugin's extension. Older plugins end before it.
        traceme_context_id: i64,
    }

    /// The functions of a profiler (`xla/backends/profiler/plugin/profiler_c_api.h`, version 1).
    /// Its own `struct_size` says which there are.
    sized PLUGIN_Profiler_Api {
        r#priv: *mut c_void,
        error_destroy: Option<unsafe extern "C-unwind" fn(*mut PLUGIN_Profiler_Error_Destroy_Args)>,
        error_message: Option<unsafe extern "C-unwind" fn(*mut PLUGIN_Profiler_Error_Message_Args)>,
        error_get_code: ProfilerEntry<PLUGIN_Profiler_Error_GetCode_Args>,
        create: ProfilerEntry<PLUGIN_Profiler_Create_Args>,
        destroy: ProfilerEntry<PLUGIN_Profiler_Destroy_Args>,
        start: ProfilerEntry<PLUGIN_Profiler_Start_Args>,
        stop: ProfilerEntry<PLUGIN_Profiler_Stop_Args>,
        collect_data: ProfilerEntry<PLUGIN_Profiler_CollectData_Args>,
    }

    /// Frees an error.
    sized PLUGIN_Profiler_Error_Destroy_Args {
        r#priv: *mut c_void,
        error: *mut PLUGIN_Profiler_Error,
    }

    /// The words of an error, which live as long as it.
    sized PLUGIN_Profiler_Error_Message_Args {
        r#priv: *mut c_void,
        error: *const PLUGIN_Profiler_Error,
        message: *const c_char,
        message_size: usize,
    }

    /// The code of an error, numbered as `PJRT_Error_Code`.
    sized PLUGIN_Profiler_Error_GetCode_Args {
        r#priv: *mut c_void,
        error: *const PLUGIN_Profiler_Error,
        code: c_int,
    }

    /// Makes a profiler that is not running. The options are a serialized
    /// `tensorflow.ProfileOptions`.
    sized PLUGIN_Profiler_Create_Args {
        options: *const c_char,
        options_size: usize,
        profiler: *mut PLUGIN_Profiler,
    }

    /// Frees a profiler.
    sized PLUGIN_Profiler_Destroy_Args {
        profiler: *mut PLUGIN_Profiler,
    }

    /// Begins to record.
    sized PLUGIN_Profiler_Start_Args {
        profiler: *mut PLUGIN_Profiler,
    }

    /// Ends recording.
    sized PLUGIN_Profiler_Stop_Args {
        profiler: *mut PLUGIN_Profiler,
    }

    /// Returns the recording as a serialized `tensorflow.profiler.XSpace`. With a null `buffer`
    /// plugins say the size; today's also set `buffer` to bytes of their own, which live as long as
    /// the profiler.
    sized PLUGIN_Profiler_CollectData_Args {
        profiler: *mut PLUGIN_Profiler,
        buffer: *mut u8,
        buffer_size_in_bytes: usize,
    }
}
