//! Buffers: arrays in device memory, how they are made, read, copied and deleted.

use std::ffi::{c_char, c_void};

use crate::base::PJRT_NamedValue;
use crate::client::PJRT_Client;
use crate::device::PJRT_Device;
use crate::error::PJRT_Error_Code;
use crate::event::PJRT_Event;
use crate::macros::{c_enum, c_structs, opaque};
use crate::memory::PJRT_Memory;

opaque! {
    /// An array on a device, freed by the receiver.
    PJRT_Buffer
}

opaque! {
    /// Completes a placeholder buffer.
    PJRT_FulfillAliasBufferCallback
}

c_enum! {
    /// The element types of buffers.
    PJRT_Buffer_Type {
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
        BF16 = 13,
        C64 = 14,
        C128 = 15,
        F8E5M2 = 16,
        F8E4M3FN = 17,
        F8E4M3B11FNUZ = 18,
        F8E5M2FNUZ = 19,
        F8E4M3FNUZ = 20,
        S4 = 21,
        U4 = 22,
        TOKEN = 23,
        S2 = 24,
        U2 = 25,
        F8E4M3 = 26,
        F8E3M4 = 27,
        F8E8M0FNU = 28,
        F4E2M1FN = 29,
        S1 = 30 [since 94],
        U1 = 31 [since 94],
        F6E2M3FN = 32 [since 114],
        F6E3M2FN = 33 [since 114],
    }
}

c_enum! {
    /// Duration for which the caller keeps host bytes alive and unchanged.
    PJRT_HostBufferSemantics {
        /// During the call only: the plugin copies before it returns.
        kImmutableOnlyDuringCall = 0,
        /// Until `done_with_host_buffer` is ready.
        kImmutableUntilTransferCompletes = 1,
        /// While the buffer lives: it may be the host memory itself, read only.
        kImmutableZeroCopy = 2,
        /// The same, and programs may write into it.
        kMutableZeroCopy = 3,
    }
}

c_enum! {
    /// Tag of the union in a [`PJRT_Buffer_MemoryLayout`].
    PJRT_Buffer_MemoryLayout_Type {
        Tiled = 0,
        Strides = 1,
    }
}

/// The layout in a [`PJRT_Buffer_MemoryLayout`].
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)] // which field is valid is said elsewhere
pub union PJRT_Buffer_MemoryLayout_Value {
    /// For `Tiled`.
    pub tiled: PJRT_Buffer_MemoryLayout_Tiled,
    /// For `Strides`.
    pub strides: PJRT_Buffer_MemoryLayout_Strides,
}

c_structs! {
    /// A layout by order of dimensions and tiles.
    extensible PJRT_Buffer_MemoryLayout_Tiled {
        /// Logical dimensions, fastest varying first.
        minor_to_major: *const i64,
        minor_to_major_size: usize,
        tile_dims: *const i64,
        tile_dim_sizes: *const usize,
        num_tiles: usize,
    }

    /// A layout by the distance in bytes between neighbours, per dimension.
    extensible PJRT_Buffer_MemoryLayout_Strides {
        byte_strides: *const i64,
        num_byte_strides: usize,
    }

    /// A layout of either kind.
    extensible PJRT_Buffer_MemoryLayout {
        value: PJRT_Buffer_MemoryLayout_Value,
        r#type: PJRT_Buffer_MemoryLayout_Type,
    }

    /// Makes a buffer whose contents are undefined.
    extensible PJRT_Client_CreateUninitializedBuffer_Args {
        client: *mut PJRT_Client,
        shape_dims: *const i64,
        shape_num_dims: usize,
        shape_element_type: PJRT_Buffer_Type,
        shape_layout: *mut PJRT_Buffer_MemoryLayout,
        device: *mut PJRT_Device,
        memory: *mut PJRT_Memory,
        buffer: *mut PJRT_Buffer,
    }

    /// Makes a placeholder that another buffer fulfils later.
    extensible PJRT_Client_CreateAliasBuffer_Args {
        client: *mut PJRT_Client,
        memory: *mut PJRT_Memory,
        shape_dims: *const i64,
        shape_num_dims: usize,
        shape_element_type: PJRT_Buffer_Type,
        shape_layout: *mut PJRT_Buffer_MemoryLayout,
        alias_buffer: *mut PJRT_Buffer,
        fulfill_alias_buffer_cb: *mut PJRT_FulfillAliasBufferCallback,
    }

    /// Fulfils a placeholder with a buffer or an error.
    extensible PJRT_Client_FulfillAliasBuffer_Args {
        client: *mut PJRT_Client,
        buffer: *mut PJRT_Buffer,
        status_code: PJRT_Error_Code,
        error_message: *const c_char,
        error_message_size: usize,
        fulfill_alias_buffer_cb: *mut PJRT_FulfillAliasBufferCallback,
    }

    /// Copies (or aliases) host bytes into a new buffer.
    extensible PJRT_Client_BufferFromHostBuffer_Args {
        client: *mut PJRT_Client,
        data: *const c_void,
        r#type: PJRT_Buffer_Type,
        dims: *const i64,
        num_dims: usize,
        /// Empty for dense row-major bytes.
        byte_strides: *const i64,
        num_byte_strides: usize,
        host_buffer_semantics: PJRT_HostBufferSemantics,
        device: *mut PJRT_Device,
        /// Null for the default memory of `device`.
        memory: *mut PJRT_Memory,
        /// Null for row-major.
        device_layout: *mut PJRT_Buffer_MemoryLayout,
        /// Out: ready when `data` is no longer read.
        done_with_host_buffer: *mut PJRT_Event,
        /// Out.
        buffer: *mut PJRT_Buffer,
    }

    /// Wraps device memory that the caller owns.
    extensible PJRT_Client_CreateViewOfDeviceBuffer_Args {
        client: *mut PJRT_Client,
        device_buffer_ptr: *mut c_void,
        dims: *const i64,
        num_dims: usize,
        element_type: PJRT_Buffer_Type,
        layout: *mut PJRT_Buffer_MemoryLayout,
        device: *mut PJRT_Device,
        on_delete_callback: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
        on_delete_callback_arg: *mut c_void,
        stream: isize,
        buffer: *mut PJRT_Buffer,
        memory: *mut PJRT_Memory,
    }

    /// Deletes a buffer and frees the handle; null is allowed.
    extensible PJRT_Buffer_Destroy_Args {
        buffer: *mut PJRT_Buffer,
    }

    /// The element type of a buffer.
    extensible PJRT_Buffer_ElementType_Args {
        buffer: *mut PJRT_Buffer,
        r#type: PJRT_Buffer_Type,
    }

    /// The dimensions of a buffer; they live as long as it.
    extensible PJRT_Buffer_Dimensions_Args {
        buffer: *mut PJRT_Buffer,
        dims: *const i64,
        num_dims: usize,
    }

    /// The dimensions without the padding of dynamic ones.
    extensible PJRT_Buffer_UnpaddedDimensions_Args {
        buffer: *mut PJRT_Buffer,
        unpadded_dims: *const i64,
        num_dims: usize,
    }

    /// Returns the indices of dynamic dimensions.
    extensible PJRT_Buffer_DynamicDimensionIndices_Args {
        buffer: *mut PJRT_Buffer,
        dynamic_dim_indices: *const usize,
        num_dynamic_dims: usize,
    }

    /// Deprecated: the layout of a buffer on its device.
    extensible PJRT_Buffer_GetMemoryLayout_Args {
        buffer: *mut PJRT_Buffer,
        layout: PJRT_Buffer_MemoryLayout,
    }

    /// Copies a buffer to host memory; a null `dst` asks for the size.
    extensible PJRT_Buffer_ToHostBuffer_Args {
        src: *mut PJRT_Buffer,
        /// Null for the layout the buffer has on its device, which need not be row-major.
        host_layout: *mut PJRT_Buffer_MemoryLayout,
        dst: *mut c_void,
        /// In: the room in `dst`. Out, when `dst` is null: the size needed.
        dst_size: usize,
        event: *mut PJRT_Event,
    }

    /// The bytes a buffer takes on its device.
    extensible PJRT_Buffer_OnDeviceSizeInBytes_Args {
        buffer: *mut PJRT_Buffer,
        on_device_size_in_bytes: usize,
    }

    /// Drops the device memory, keeping the handle.
    extensible PJRT_Buffer_Delete_Args {
        buffer: *mut PJRT_Buffer,
    }

    /// Returns whether a buffer was deleted or donated.
    extensible PJRT_Buffer_IsDeleted_Args {
        buffer: *mut PJRT_Buffer,
        is_deleted: bool,
    }

    /// Copies a range of raw bytes to the host.
    extensible PJRT_Buffer_CopyRawToHost_Args {
        buffer: *mut PJRT_Buffer,
        dst: *mut c_void,
        offset: i64,
        transfer_size: i64,
        event: *mut PJRT_Event,
    }

    /// Copies a buffer to another device of the client.
    extensible PJRT_Buffer_CopyToDevice_Args {
        buffer: *mut PJRT_Buffer,
        dst_device: *mut PJRT_Device,
        dst_buffer: *mut PJRT_Buffer,
    }

    /// Copies a buffer to another memory of the client.
    extensible PJRT_Buffer_CopyToMemory_Args {
        buffer: *mut PJRT_Buffer,
        dst_memory: *mut PJRT_Memory,
        dst_buffer: *mut PJRT_Buffer,
    }

    /// Returns whether the bytes are in host memory.
    extensible PJRT_Buffer_IsOnCpu_Args {
        buffer: *mut PJRT_Buffer,
        is_on_cpu: bool,
    }

    /// The device of a buffer.
    extensible PJRT_Buffer_Device_Args {
        buffer: *mut PJRT_Buffer,
        device: *mut PJRT_Device,
    }

    /// The memory of a buffer.
    extensible PJRT_Buffer_Memory_Args {
        buffer: *mut PJRT_Buffer,
        memory: *mut PJRT_Memory,
    }

    /// An event for the contents of a buffer; the caller frees it.
    extensible PJRT_Buffer_ReadyEvent_Args {
        buffer: *mut PJRT_Buffer,
        event: *mut PJRT_Event,
    }

    /// A number that is often the device address.
    extensible PJRT_Buffer_UnsafePointer_Args {
        buffer: *mut PJRT_Buffer,
        buffer_pointer: usize,
    }

    /// Keeps the memory in place while it is read from outside.
    extensible PJRT_Buffer_IncreaseExternalReferenceCount_Args {
        buffer: *mut PJRT_Buffer,
    }

    /// Undoes one increase.
    extensible PJRT_Buffer_DecreaseExternalReferenceCount_Args {
        buffer: *mut PJRT_Buffer,
    }

    /// The device address, valid while the external count is above 0.
    extensible PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args {
        buffer: *mut PJRT_Buffer,
        device_memory_ptr: *mut c_void,
    }

    /// Makes a buffer that is ready with an error.
    extensible PJRT_Client_CreateErrorBuffer_Args [since 82] {
        client: *mut PJRT_Client,
        error_code: PJRT_Error_Code,
        error_message: *const c_char,
        error_message_size: usize,
        shape_dims: *const i64,
        shape_num_dims: usize,
        shape_element_type: PJRT_Buffer_Type,
        shape_layout: *mut PJRT_Buffer_MemoryLayout,
        memory: *mut PJRT_Memory,
        buffer: *mut PJRT_Buffer,
        payload: *const PJRT_NamedValue [since 103],
        num_payload: usize [since 103],
    }

    /// The same, to a destination that is known later.
    extensible PJRT_Buffer_CopyRawToHostFuture_Args [since 84] {
        buffer: *mut PJRT_Buffer,
        offset: i64,
        transfer_size: i64,
        event: *mut PJRT_Event,
        callback_data: *mut c_void,
        future_ready_callback: Option<unsafe extern "C" fn(*mut PJRT_Buffer_CopyRawToHostFuture_Callback_Args)>,
    }

    /// Arguments of the callback with which the caller passes the destination.
    sized PJRT_Buffer_CopyRawToHostFuture_Callback_Args [since 84] {
        callback_data: *mut c_void,
        error_code: PJRT_Error_Code,
        error_message: *const c_char,
        error_message_size: usize,
        dst: *mut c_void,
    }

    /// Makes a new handle that is ready only after a dependency of the caller.
    extensible PJRT_Buffer_DonateWithControlDependency_Args [since 88] {
        buffer: *mut PJRT_Buffer,
        callback_data: *mut c_void,
        dependency_ready_callback: Option<unsafe extern "C" fn(*mut PJRT_Buffer_DonateWithControlDependency_Callback_Args)>,
        out_buffer: *mut PJRT_Buffer,
    }

    /// Arguments of the callback with which the caller reports that the dependency is ready.
    sized PJRT_Buffer_DonateWithControlDependency_Callback_Args [since 88] {
        callback_data: *mut c_void,
        error_code: PJRT_Error_Code,
        error_message: *const c_char,
        error_message_size: usize,
    }

    /// The same bytes as another type, shape and layout.
    extensible PJRT_Buffer_Bitcast_Args [since 98] {
        buffer: *mut PJRT_Buffer,
        element_type: PJRT_Buffer_Type,
        dims: *const i64,
        num_dims: usize,
        device_layout: *mut PJRT_Buffer_MemoryLayout,
        out_buffer: *mut PJRT_Buffer,
    }
}
