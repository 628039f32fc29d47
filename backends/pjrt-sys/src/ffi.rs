//! XLA's FFI: calls of a program into functions of the caller, its *handlers*
//! (`xla/ffi/api/c_api.h` of OpenXLA, API 0.3).
//!
//! Handlers are registered with the extension
//! [`PJRT_FFI_Extension`](crate::extension::PJRT_FFI_Extension). The structs only grow at their
//! end, so a field exists if `struct_size` covers it. The offsets were compared with the header of
//! API 0.3, and verified by calls of plugins with API 0.2 and 0.3.

use std::ffi::{c_char, c_int, c_void};

use crate::macros::{c_enum, c_structs, opaque};

opaque! {
    /// Error of a handler. Made by [`XLA_FFI_Api::error_create`], and owned by the caller of the
    /// handler that returns it.
    XLA_FFI_Error
}

opaque! {
    /// The execution that a call belongs to: device, stream, thread pool.
    XLA_FFI_ExecutionContext
}

/// A handler: runs one call, and returns null or an error.
pub type XLA_FFI_Handler = unsafe extern "C" fn(*mut XLA_FFI_CallFrame) -> *mut XLA_FFI_Error;

/// A function of XLA that makes an error.
pub type XLA_FFI_Error_Create =
    unsafe extern "C-unwind" fn(*mut XLA_FFI_Error_Create_Args) -> *mut XLA_FFI_Error;

c_enum! {
    /// Type of an entry of the extension list.
    XLA_FFI_Extension_Type {
        Metadata = 1,
    }
}

c_enum! {
    /// Codes of errors, those of `absl::StatusCode`.
    XLA_FFI_Error_Code {
        CANCELLED = 1,
        UNKNOWN = 2,
        INVALID_ARGUMENT = 3,
        DEADLINE_EXCEEDED = 4,
        RESOURCE_EXHAUSTED = 8,
        UNIMPLEMENTED = 12,
        INTERNAL = 13,
        UNAVAILABLE = 14,
        DATA_LOSS = 15,
    }
}

c_enum! {
    /// Element types. The numbers are those of XLA's `PrimitiveType`, not of `PJRT_Buffer_Type`.
    XLA_FFI_DataType {
        INVALID = 0,
        PRED = 1,
        S8 = 2,
        S16 = 3,
        S32 = 4,
        S64 = 5,
        U8 = 6,
        U16 = 7,
        U32 = 8,
        U64 = 9,
        F16 = 10,
        F32 = 11,
        F64 = 12,
        C64 = 15,
        BF16 = 16,
        TOKEN = 17,
        C128 = 18,
        F8E5M2 = 19,
        F8E4M3FN = 20,
        S4 = 21,
        U4 = 22,
        F8E4M3B11FNUZ = 23,
        F8E5M2FNUZ = 24,
        F8E4M3FNUZ = 25,
        S2 = 26,
        U2 = 27,
        F8E4M3 = 28,
        F8E3M4 = 29,
        S1 = 30,
        U1 = 31,
        F4E2M1FN = 32,
        F8E8M0FNU = 33,
    }
}

c_enum! {
    /// Type of an argument or a result.
    XLA_FFI_ArgType {
        BUFFER = 1,
    }
}

c_enum! {
    /// Type of an attribute.
    XLA_FFI_AttrType {
        ARRAY = 1,
        DICTIONARY = 2,
        SCALAR = 3,
        STRING = 4,
    }
}

c_enum! {
    /// Stages in which XLA calls a handler.
    XLA_FFI_ExecutionStage {
        INSTANTIATE = 0,
        PREPARE = 1,
        INITIALIZE = 2,
        EXECUTE = 3,
    }
}

c_structs! {
    /// Header of every extension of a call: a list through `next`, told apart by `type`.
    sized XLA_FFI_Extension_Base {
        r#type: XLA_FFI_Extension_Type,
        next: *mut XLA_FFI_Extension_Base,
    }

    /// A version of the FFI.
    sized XLA_FFI_Api_Version {
        extension_start: *mut XLA_FFI_Extension_Base,
        major_version: c_int,
        minor_version: c_int,
    }

    /// The version and traits of a handler, which the handler writes. Newer versions have further
    /// fields.
    sized XLA_FFI_Metadata {
        api_version: XLA_FFI_Api_Version,
        traits: u32,
    }

    /// Asks a handler for its metadata, in place of a call. Extension type 1.
    plain XLA_FFI_Metadata_Extension {
        extension_base: XLA_FFI_Extension_Base,
        metadata: *mut XLA_FFI_Metadata,
    }

    /// The functions of XLA that a handler may call; those after the first are not declared.
    sized XLA_FFI_Api {
        extension_start: *mut XLA_FFI_Extension_Base,
        api_version: XLA_FFI_Api_Version,
        internal_api: *const c_void,
        error_create: Option<XLA_FFI_Error_Create>,
    }

    /// Makes an error. The message ends with NUL, and is copied.
    sized XLA_FFI_Error_Create_Args {
        extension_start: *mut XLA_FFI_Extension_Base,
        message: *const c_char,
        errc: XLA_FFI_Error_Code,
    }

    /// A dense, row-major tensor in the memory of the device.
    sized XLA_FFI_Buffer {
        extension_start: *mut XLA_FFI_Extension_Base,
        dtype: XLA_FFI_DataType,
        data: *mut c_void,
        rank: i64,
        /// `rank` sizes.
        dims: *const i64,
    }

    /// Bytes of a string, without NUL.
    plain XLA_FFI_ByteSpan {
        ptr: *const c_char,
        len: usize,
    }

    /// A number.
    plain XLA_FFI_Scalar {
        dtype: XLA_FFI_DataType,
        value: *const c_void,
    }

    /// The arguments of a call.
    sized XLA_FFI_Args {
        extension_start: *mut XLA_FFI_Extension_Base,
        size: i64,
        /// `size` types.
        types: *const XLA_FFI_ArgType,
        /// `size` pointers, to an [`XLA_FFI_Buffer`] each.
        args: *const *mut c_void,
    }

    /// The results of a call, which the handler writes.
    sized XLA_FFI_Rets {
        extension_start: *mut XLA_FFI_Extension_Base,
        size: i64,
        /// `size` types, numbered as those of arguments.
        types: *const XLA_FFI_ArgType,
        /// `size` pointers, to an [`XLA_FFI_Buffer`] each.
        rets: *const *mut c_void,
    }

    /// The attributes of a call.
    sized XLA_FFI_Attrs {
        extension_start: *mut XLA_FFI_Extension_Base,
        size: i64,
        /// `size` types.
        types: *const XLA_FFI_AttrType,
        /// `size` pointers to names.
        names: *const *const XLA_FFI_ByteSpan,
        /// `size` pointers, to what the type says.
        attrs: *const *const c_void,
    }

    /// One call of a handler. Newer versions have further fields.
    sized XLA_FFI_CallFrame {
        extension_start: *mut XLA_FFI_Extension_Base,
        api: *const XLA_FFI_Api,
        ctx: *mut XLA_FFI_ExecutionContext,
        stage: XLA_FFI_ExecutionStage,
        args: XLA_FFI_Args,
        rets: XLA_FFI_Rets,
        attrs: XLA_FFI_Attrs,
    }
}

/// The layouts of the FFI's structs, which are not in PJRT's header.
pub const FFI_LAYOUTS: &[crate::Layout] = LAYOUTS;
