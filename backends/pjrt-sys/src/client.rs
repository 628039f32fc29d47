//! Clients, the key-value store they may need, and what they know of other processes.

use std::ffi::{c_char, c_int, c_void};

use crate::base::PJRT_NamedValue;
use crate::device::PJRT_Device;
use crate::error::{PJRT_CallbackError, PJRT_Error};
use crate::macros::{c_enum, c_structs, opaque};
use crate::memory::PJRT_Memory;
use crate::topology::PJRT_TopologyDescription;

opaque! {
    /// A connection to the devices of one platform.
    PJRT_Client
}

c_enum! {
    /// State of another process.
    PJRT_ProcessState {
        kUnspecified = 0,
        kUninitialized = 1,
        kDisconnected = 2,
        kConnected = 3,
        kError = 4,
    }
}

/// Frees a value that a lookup returned.
pub type PJRT_KeyValueGetCallback_ValueDeleter = Option<unsafe extern "C" fn(value: *mut c_char)>;
/// Frees a value that a non-blocking lookup returned.
pub type PJRT_KeyValueTryGetCallback_ValueDeleter =
    Option<unsafe extern "C" fn(value: *mut c_char)>;
/// Blocks until the key is there or the time is over. Called from any thread.
pub type PJRT_KeyValueGetCallback =
    Option<unsafe extern "C" fn(args: *mut PJRT_KeyValueGetCallback_Args) -> *mut PJRT_Error>;
/// Fails at once with `NOT_FOUND` when the key is missing. Called from any thread.
pub type PJRT_KeyValueTryGetCallback =
    Option<unsafe extern "C" fn(args: *mut PJRT_KeyValueTryGetCallback_Args) -> *mut PJRT_Error>;
/// Keeps a value. Called from any thread.
pub type PJRT_KeyValuePutCallback =
    Option<unsafe extern "C" fn(args: *mut PJRT_KeyValuePutCallback_Args) -> *mut PJRT_Error>;

c_structs! {
    /// Arguments of the caller's blocking key-value lookup.
    extensible PJRT_KeyValueGetCallback_Args {
        key: *const c_char,
        key_size: usize,
        timeout_in_ms: c_int,
        callback_error: *mut PJRT_CallbackError,
        user_arg: *mut c_void,
        value: *mut c_char,
        value_size: usize,
        value_deleter_callback: PJRT_KeyValueGetCallback_ValueDeleter,
    }

    /// Arguments of the caller's non-blocking lookup, which fails with `NOT_FOUND`.
    extensible PJRT_KeyValueTryGetCallback_Args {
        key: *const c_char,
        key_size: usize,
        callback_error: *mut PJRT_CallbackError,
        user_arg: *mut c_void,
        value: *mut c_char,
        value_size: usize,
        value_deleter_callback: PJRT_KeyValueTryGetCallback_ValueDeleter,
    }

    /// Arguments of the caller's key-value insertion.
    extensible PJRT_KeyValuePutCallback_Args {
        key: *const c_char,
        key_size: usize,
        value: *const c_char,
        value_size: usize,
        callback_error: *mut PJRT_CallbackError,
        user_arg: *mut c_void,
    }

    /// Creates a client with typed options and, for many processes, a key-value store.
    extensible PJRT_Client_Create_Args {
        create_options: *const PJRT_NamedValue,
        num_options: usize,
        kv_get_callback: PJRT_KeyValueGetCallback,
        kv_get_user_arg: *mut c_void,
        kv_put_callback: PJRT_KeyValuePutCallback,
        kv_put_user_arg: *mut c_void,
        client: *mut PJRT_Client,
        kv_try_get_callback: PJRT_KeyValueTryGetCallback,
        kv_try_get_user_arg: *mut c_void,
    }

    /// Shuts a client down and frees it; null is allowed.
    extensible PJRT_Client_Destroy_Args {
        client: *mut PJRT_Client,
    }

    /// The platform's name, `cpu`, `cuda` or `tpu`; lives as long as the client.
    extensible PJRT_Client_PlatformName_Args {
        client: *mut PJRT_Client,
        platform_name: *const c_char,
        platform_name_size: usize,
    }

    /// The index of this client's process, 0 when there is one.
    extensible PJRT_Client_ProcessIndex_Args {
        client: *mut PJRT_Client,
        process_index: c_int,
    }

    /// Version text for people; lives as long as the client.
    extensible PJRT_Client_PlatformVersion_Args {
        client: *mut PJRT_Client,
        platform_version: *const c_char,
        platform_version_size: usize,
    }

    /// The topology the client runs on; owned by the client.
    extensible PJRT_Client_TopologyDescription_Args {
        client: *mut PJRT_Client,
        topology: *mut PJRT_TopologyDescription,
    }

    /// All devices of the job, those of other processes too.
    extensible PJRT_Client_Devices_Args {
        client: *mut PJRT_Client,
        devices: *const *mut PJRT_Device,
        num_devices: usize,
    }

    /// The devices this client can give commands to.
    extensible PJRT_Client_AddressableDevices_Args {
        client: *mut PJRT_Client,
        addressable_devices: *const *mut PJRT_Device,
        num_addressable_devices: usize,
    }

    /// The device with a global id.
    extensible PJRT_Client_LookupDevice_Args {
        client: *mut PJRT_Client,
        id: c_int,
        device: *mut PJRT_Device,
    }

    /// The device with a local hardware id.
    extensible PJRT_Client_LookupAddressableDevice_Args {
        client: *mut PJRT_Client,
        local_hardware_id: c_int,
        addressable_device: *mut PJRT_Device,
    }

    /// Information on another process of the job.
    sized PJRT_ProcessInfo {
        task_id: c_int,
        /// Changes when a process restarts.
        incarnation_id: u64,
        state: PJRT_ProcessState,
        error_code: c_int,
        error_message: *const c_char,
        error_message_size: usize,
    }

    /// Tells the client which processes are alive.
    extensible PJRT_Client_UpdateGlobalProcessInfo_Args {
        client: *mut PJRT_Client,
        process_infos: *mut PJRT_ProcessInfo,
        num_process_infos: usize,
    }

    /// All memories this client can address.
    extensible PJRT_Client_AddressableMemories_Args {
        client: *mut PJRT_Client,
        addressable_memories: *const *mut PJRT_Memory,
        num_addressable_memories: usize,
    }

    /// The default assignment of devices to replicas and partitions.
    extensible PJRT_Client_DefaultDeviceAssignment_Args {
        client: *mut PJRT_Client,
        num_replicas: c_int,
        num_partitions: c_int,
        default_assignment_size: usize,
        default_assignment: *mut c_int,
    }
}
