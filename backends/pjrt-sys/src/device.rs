//! Devices and their descriptions. A description also exists for a device that is not there.

use std::ffi::{c_char, c_int};

use crate::base::PJRT_NamedValue;
use crate::error::PJRT_Error_Code;
use crate::event::PJRT_AsyncTrackingEvent;
use crate::macros::{c_structs, opaque};
use crate::memory::PJRT_Memory;

opaque! {
    /// A device of a client; owned by the client.
    PJRT_Device
}

opaque! {
    /// Description of a device, owned by its device or topology.
    PJRT_DeviceDescription
}

opaque! {
    /// Backs the attributes of a live device.
    PJRT_Device_Attributes
}

c_structs! {
    /// The id of a device, unique among all processes.
    extensible PJRT_DeviceDescription_Id_Args {
        device_description: *mut PJRT_DeviceDescription,
        id: c_int,
    }

    /// The process that a device belongs to.
    extensible PJRT_DeviceDescription_ProcessIndex_Args {
        device_description: *mut PJRT_DeviceDescription,
        process_index: c_int,
    }

    /// Attributes such as `coords`; they live as long as the description.
    extensible PJRT_DeviceDescription_Attributes_Args {
        device_description: *mut PJRT_DeviceDescription,
        num_attributes: usize,
        attributes: *const PJRT_NamedValue,
    }

    /// The model of a device, as its vendor spells it.
    extensible PJRT_DeviceDescription_Kind_Args {
        device_description: *mut PJRT_DeviceDescription,
        device_kind: *const c_char,
        device_kind_size: usize,
    }

    /// A long description for logs.
    extensible PJRT_DeviceDescription_DebugString_Args {
        device_description: *mut PJRT_DeviceDescription,
        debug_string: *const c_char,
        debug_string_size: usize,
    }

    /// A short description for people.
    extensible PJRT_DeviceDescription_ToString_Args {
        device_description: *mut PJRT_DeviceDescription,
        to_string: *const c_char,
        to_string_size: usize,
    }

    /// The description of a device.
    extensible PJRT_Device_GetDescription_Args {
        device: *mut PJRT_Device,
        device_description: *mut PJRT_DeviceDescription,
    }

    /// Returns whether this client can give the device commands.
    extensible PJRT_Device_IsAddressable_Args {
        device: *mut PJRT_Device,
        is_addressable: bool,
    }

    /// The hardware's own number, -1 if it has none.
    extensible PJRT_Device_LocalHardwareId_Args {
        device: *mut PJRT_Device,
        local_hardware_id: c_int,
    }

    /// The memories a device can address; the list lives as long as the device.
    extensible PJRT_Device_AddressableMemories_Args {
        device: *mut PJRT_Device,
        memories: *const *mut PJRT_Memory,
        num_memories: usize,
    }

    /// The memory that data of a device lives in by default.
    extensible PJRT_Device_DefaultMemory_Args {
        device: *mut PJRT_Device,
        memory: *mut PJRT_Memory,
    }

    /// Counters of a device's allocator; most are optional and have a flag.
    extensible PJRT_Device_MemoryStats_Args {
        device: *mut PJRT_Device,
        bytes_in_use: i64,
        peak_bytes_in_use: i64,
        peak_bytes_in_use_is_set: bool,
        num_allocs: i64,
        num_allocs_is_set: bool,
        largest_alloc_size: i64,
        largest_alloc_size_is_set: bool,
        bytes_limit: i64,
        bytes_limit_is_set: bool,
        bytes_reserved: i64,
        bytes_reserved_is_set: bool,
        peak_bytes_reserved: i64,
        peak_bytes_reserved_is_set: bool,
        bytes_reservable_limit: i64,
        bytes_reservable_limit_is_set: bool,
        largest_free_block_bytes: i64,
        largest_free_block_bytes_is_set: bool,
        pool_bytes: i64,
        pool_bytes_is_set: bool,
        peak_pool_bytes: i64,
        peak_pool_bytes_is_set: bool,
        peak_allocated_bytes: i64 [since 114],
        peak_allocated_bytes_is_set: bool [since 114],
    }

    /// Makes an execution that is under way fail, for failure tests.
    extensible PJRT_Device_PoisonExecution_Args [since 85] {
        device: *mut PJRT_Device,
        launch_id: c_int,
        error_code: PJRT_Error_Code,
        error_message: *const c_char,
        error_message_size: usize,
        poisoned: bool,
        payload: *const PJRT_NamedValue [since 103],
        num_payload: usize [since 103],
    }

    /// Makes an event that marks host-side waiting in profiles.
    extensible PJRT_Device_CreateAsyncTrackingEvent_Args [since 86] {
        device: *mut PJRT_Device,
        description: *const c_char,
        description_size: usize,
        event: *mut PJRT_AsyncTrackingEvent,
    }

    /// Attributes of a live device, freed by `attributes_deleter`.
    extensible PJRT_Device_GetAttributes_Args [since 92] {
        device: *mut PJRT_Device,
        attributes: *const PJRT_NamedValue,
        num_attributes: usize,
        device_attributes: *mut PJRT_Device_Attributes,
        attributes_deleter: Option<unsafe extern "C-unwind" fn(*mut PJRT_Device_Attributes)>,
    }

    /// Resets the peak counters of a device.
    extensible PJRT_Device_ClearMemoryStats_Args [since 106] {
        device: *mut PJRT_Device,
    }
}
