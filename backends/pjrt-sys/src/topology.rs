//! Topologies: which devices there are and how they are wired, with or without having them.

use std::ffi::{c_char, c_int};

use crate::base::PJRT_NamedValue;
use crate::buffer::{PJRT_Buffer_MemoryLayout, PJRT_Buffer_Type};
use crate::device::PJRT_DeviceDescription;
use crate::macros::{c_structs, opaque};

opaque! {
    /// A description of devices; freed by the caller only if the caller made it.
    PJRT_TopologyDescription
}

opaque! {
    /// Backs the bytes of a serialized topology.
    PJRT_SerializedTopology
}

c_structs! {
    /// Describes devices by name and options, with or without having them.
    extensible PJRT_TopologyDescription_Create_Args {
        topology_name: *const c_char,
        topology_name_size: usize,
        create_options: *const PJRT_NamedValue,
        num_options: usize,
        topology: *mut PJRT_TopologyDescription,
    }

    /// Frees a topology that the caller made; null is allowed.
    extensible PJRT_TopologyDescription_Destroy_Args {
        topology: *mut PJRT_TopologyDescription,
    }

    /// Version text for people; lives as long as the topology.
    extensible PJRT_TopologyDescription_PlatformVersion_Args {
        topology: *mut PJRT_TopologyDescription,
        platform_version: *const c_char,
        platform_version_size: usize,
    }

    /// The platform's name; lives as long as the topology.
    extensible PJRT_TopologyDescription_PlatformName_Args {
        topology: *const PJRT_TopologyDescription,
        platform_name: *const c_char,
        platform_name_size: usize,
    }

    /// All devices of a topology; they live as long as it.
    extensible PJRT_TopologyDescription_GetDeviceDescriptions_Args {
        topology: *const PJRT_TopologyDescription,
        descriptions: *const *mut PJRT_DeviceDescription,
        num_descriptions: usize,
    }

    /// The topology as bytes, freed by the deleter.
    extensible PJRT_TopologyDescription_Serialize_Args {
        topology: *mut PJRT_TopologyDescription,
        serialized_bytes: *const c_char,
        serialized_bytes_size: usize,
        serialized_topology: *mut PJRT_SerializedTopology,
        serialized_topology_deleter: Option<unsafe extern "C-unwind" fn(*mut PJRT_SerializedTopology)>,
    }

    /// A topology from bytes.
    extensible PJRT_TopologyDescription_Deserialize_Args {
        serialized_topology: *const c_char,
        serialized_topology_size: usize,
        topology: *mut PJRT_TopologyDescription,
    }

    /// Attributes of a topology; they live as long as it.
    extensible PJRT_TopologyDescription_Attributes_Args {
        topology: *mut PJRT_TopologyDescription,
        attributes: *const PJRT_NamedValue,
        num_attributes: usize,
    }

    /// A number that is equal for equal topologies.
    extensible PJRT_TopologyDescription_Fingerprint_Args [since 101] {
        topology: *const PJRT_TopologyDescription,
        fingerprint: u64,
    }

    /// The shape a value takes in a kind of memory.
    extensible PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args [since 111] {
        topology: *const PJRT_TopologyDescription,
        memory_space_kind_id: c_int,
        dims: *const i64,
        num_dims: usize,
        element_type: PJRT_Buffer_Type,
        layout: *mut PJRT_Buffer_MemoryLayout,
        serialized_shape: *const c_char,
        serialized_shape_size: usize,
        serialized_shape_deleter: Option<unsafe extern "C-unwind" fn(*const c_char)>,
    }

    /// The kinds of memory a topology has.
    extensible PJRT_TopologyDescription_GetMemorySpaceKindIds_Args [since 111] {
        topology: *const PJRT_TopologyDescription,
        memory_space_kind_ids: *const c_int,
        num_memory_space_kind_ids: usize,
    }
}
