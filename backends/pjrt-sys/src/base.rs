//! Common items: extension header, version, named values, and the plugin itself.

use std::ffi::c_char;
use std::ffi::c_int;

use crate::macros::{c_enum, c_structs};

c_enum! {
    /// Type of an entry of the extension list.
    PJRT_Extension_Type {
        Gpu_Custom_Call = 0,
        Profiler = 1,
        Custom_Partitioner = 2,
        Stream = 3,
        Layouts = 4,
        FFI = 5,
        MemoryDescriptions = 6,
        Triton = 7,
        RawBuffer = 8,
        PhaseCompile = 9,
        Example = 10,
        Unknown = 11,
        CrossHostTransfers = 12,
        ExecutableMetadata = 13,
        Callback = 14,
        HostAllocator = 15,
        TpuTopology = 16 [since 82],
        TpuExecutable = 17 [since 82],
        Megascale = 18 [since 82],
        Shardings = 19 [since 91],
        AbiVersion = 20 [since 114],
        Collectives = 21 [since 114],
        MultiSlice = 22 [since 114],
        HostMemoryAllocator = 23 [since 114],
        XlaTransform = 24 [since 114],
    }
}

c_enum! {
    /// Tag of the union in a [`PJRT_NamedValue`].
    PJRT_NamedValue_Type {
        kString = 0,
        kInt64 = 1,
        kInt64List = 2,
        kFloat = 3,
        kBool = 4,
    }
}

/// The value of a [`PJRT_NamedValue`].
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)] // which field is valid is said elsewhere
pub union PJRT_NamedValue_Value {
    /// Not necessarily terminated by NUL: the length is `value_size`.
    pub string_value: *const c_char,
    /// For `kInt64`.
    pub int64_value: i64,
    /// For `kInt64List`, `value_size` elements.
    pub int64_array_value: *const i64,
    /// For `kFloat`.
    pub float_value: f32,
    /// For `kBool`.
    pub bool_value: bool,
}

c_structs! {
    /// Header of every extension: a list through `next`, told apart by `type`.
    sized PJRT_Extension_Base {
        r#type: PJRT_Extension_Type,
        next: *mut PJRT_Extension_Base,
    }

    /// The version of the header that a plugin was compiled with.
    extensible PJRT_Api_Version {
        major_version: c_int,
        minor_version: c_int,
    }

    /// A named value: an option of the caller, or an attribute of the plugin.
    extensible PJRT_NamedValue {
        name: *const c_char,
        name_size: usize,
        r#type: PJRT_NamedValue_Type,
        /// The value, in the field that `type` names.
        value: PJRT_NamedValue_Value,
        /// Elements of a string or list, 1 for the others.
        value_size: usize,
    }

    /// One-time set-up, before any other call.
    extensible PJRT_Plugin_Initialize_Args {
    }

    /// The plugin's attributes, among them the StableHLO versions; they live as long as the
    /// process.
    extensible PJRT_Plugin_Attributes_Args {
        attributes: *const PJRT_NamedValue,
        num_attributes: usize,
    }
}
