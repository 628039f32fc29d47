//! Transfers in pieces: managers that fill buffers, streams that feed receive ops, pinned host
//! memory.

use std::ffi::{c_char, c_int, c_void};

use crate::base::PJRT_NamedValue;
use crate::buffer::{PJRT_Buffer, PJRT_Buffer_MemoryLayout, PJRT_Buffer_Type};
use crate::client::PJRT_Client;
use crate::device::PJRT_Device;
use crate::error::PJRT_Error_Code;
use crate::event::PJRT_Event;
use crate::macros::{c_structs, opaque};
use crate::memory::PJRT_Memory;

opaque! {
    /// Fills a set of buffers piece by piece.
    PJRT_AsyncHostToDeviceTransferManager
}

opaque! {
    /// Feeds a receive op.
    PJRT_CopyToDeviceStream
}

c_structs! {
    /// Pins host memory for direct transfers.
    extensible PJRT_Client_DmaMap_Args {
        client: *mut PJRT_Client,
        data: *mut c_void,
        size: usize,
    }

    /// Releases what `PJRT_Client_DmaMap` pinned.
    extensible PJRT_Client_DmaUnmap_Args {
        client: *mut PJRT_Client,
        data: *mut c_void,
    }

    /// Frees a transfer manager.
    extensible PJRT_AsyncHostToDeviceTransferManager_Destroy_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
    }

    /// Sends a piece of one buffer's bytes.
    extensible PJRT_AsyncHostToDeviceTransferManager_TransferData_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        data: *const c_void,
        offset: i64,
        transfer_size: i64,
        is_last_transfer: bool,
        done_with_h2d_transfer: *mut PJRT_Event,
    }

    /// Takes the buffer at an index, also before its bytes arrived.
    extensible PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        buffer_out: *mut PJRT_Buffer,
    }

    /// The device that a transfer manager feeds.
    extensible PJRT_AsyncHostToDeviceTransferManager_Device_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
        device_out: *mut PJRT_Device,
    }

    /// Returns the number of buffers of a transfer manager.
    extensible PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
        buffer_count: usize,
    }

    /// The size in bytes of one buffer.
    extensible PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        buffer_size: usize,
    }

    /// Completes one buffer with an error.
    extensible PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        error_code: PJRT_Error_Code,
        error_message: *const c_char,
        error_message_size: usize,
    }

    /// Attaches named values to the transfer.
    extensible PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
        transfer_metadata: *const PJRT_NamedValue,
        num_metadata: usize,
    }

    /// The shape of one buffer of an asynchronous transfer.
    extensible PJRT_ShapeSpec {
        dims: *const i64,
        num_dims: usize,
        element_type: PJRT_Buffer_Type,
    }

    /// Makes buffers that are filled piece by piece.
    extensible PJRT_Client_CreateBuffersForAsyncHostToDevice_Args {
        client: *mut PJRT_Client,
        shape_specs: *mut PJRT_ShapeSpec,
        num_shape_specs: usize,
        device_layouts: *mut *mut PJRT_Buffer_MemoryLayout,
        num_device_layouts: usize,
        memory: *mut PJRT_Memory,
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
    }

    /// A piece of bytes with its deleter.
    plain PJRT_Chunk {
        data: *mut c_void,
        size: usize,
        deleter: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
        deleter_arg: *mut c_void,
    }

    /// Frees a stream; null is allowed.
    extensible PJRT_CopyToDeviceStream_Destroy_Args {
        stream: *mut PJRT_CopyToDeviceStream,
    }

    /// Adds a piece; the plugin calls its deleter.
    extensible PJRT_CopyToDeviceStream_AddChunk_Args {
        stream: *mut PJRT_CopyToDeviceStream,
        chunk: *mut PJRT_Chunk,
        transfer_complete: *mut PJRT_Event,
    }

    /// Returns the number of bytes that the stream expects.
    extensible PJRT_CopyToDeviceStream_TotalBytes_Args {
        stream: *mut PJRT_CopyToDeviceStream,
        total_bytes: i64,
    }

    /// The size that pieces are multiples of.
    extensible PJRT_CopyToDeviceStream_GranuleSize_Args {
        stream: *mut PJRT_CopyToDeviceStream,
        granule_size_in_bytes: i64,
    }

    /// Returns the number of bytes added so far.
    extensible PJRT_CopyToDeviceStream_CurrentBytes_Args {
        stream: *mut PJRT_CopyToDeviceStream,
        current_bytes: i64,
    }

    /// Sends a whole array with its shape.
    extensible PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args [since 83] {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        data: *const c_void,
        shape_dims: *const i64,
        shape_num_dims: usize,
        shape_element_type: PJRT_Buffer_Type,
        shape_layout: *mut PJRT_Buffer_MemoryLayout,
        done_with_h2d_transfer: *mut PJRT_Event,
    }
}
