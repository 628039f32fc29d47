//! Memories that devices can address.

use std::ffi::{c_char, c_int};

use crate::device::PJRT_Device;
use crate::macros::{c_structs, opaque};

opaque! {
    /// A memory space; owned by the client.
    PJRT_Memory
}

c_structs! {
    /// The id of a memory.
    extensible PJRT_Memory_Id_Args {
        memory: *mut PJRT_Memory,
        id: c_int,
    }

    /// The kind of a memory: `device`, `pinned_host`, ...; lives as long as the memory.
    extensible PJRT_Memory_Kind_Args {
        memory: *mut PJRT_Memory,
        kind: *const c_char,
        kind_size: usize,
    }

    /// The kind of a memory as a number of the platform.
    extensible PJRT_Memory_Kind_Id_Args {
        memory: *mut PJRT_Memory,
        kind_id: c_int,
    }

    /// A long description for logs.
    extensible PJRT_Memory_DebugString_Args {
        memory: *mut PJRT_Memory,
        debug_string: *const c_char,
        debug_string_size: usize,
    }

    /// A short description for people.
    extensible PJRT_Memory_ToString_Args {
        memory: *mut PJRT_Memory,
        to_string: *const c_char,
        to_string_size: usize,
    }

    /// The devices that can address a memory.
    extensible PJRT_Memory_AddressableByDevices_Args {
        memory: *mut PJRT_Memory,
        devices: *const *mut PJRT_Device,
        num_devices: usize,
    }
}
