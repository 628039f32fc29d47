//! The table of functions.
#![allow(unsafe_code)]

use halite_pjrt_sys::{
    API_MINOR, PJRT_Api, base::PJRT_Api_Version, buffer::*, client::*, device::*, error::*,
    event::*, topology::*, transfer::*,
};

use crate::{
    Plugin,
    abi::{Function, Shared, entry, run, run_infallible},
    client::create,
    error::{destroy, message},
    extensions::FIRST,
};

/// The table of a plugin, which is constant and lives as long as the process.
pub fn api<P: Plugin>() -> *const PJRT_Api {
    &Table::<P>::TABLE.0
}

struct Table<P>(P);

/// Unimplemented functions, which return UNIMPLEMENTED.
macro_rules! unimplemented_functions {
    ($($args:ident)*) => { $(impl Function for $args {})* };
}

unimplemented_functions! {
    PJRT_Buffer_UnsafePointer_Args
    PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args
    PJRT_Buffer_IncreaseExternalReferenceCount_Args
    PJRT_Buffer_DecreaseExternalReferenceCount_Args
    PJRT_CopyToDeviceStream_Destroy_Args
    PJRT_CopyToDeviceStream_AddChunk_Args
    PJRT_CopyToDeviceStream_TotalBytes_Args
    PJRT_CopyToDeviceStream_GranuleSize_Args
    PJRT_CopyToDeviceStream_CurrentBytes_Args
    PJRT_Client_CreateViewOfDeviceBuffer_Args
    PJRT_Client_UpdateGlobalProcessInfo_Args
    PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args
    PJRT_Buffer_CopyRawToHostFuture_Args
    PJRT_Device_PoisonExecution_Args
    PJRT_Device_CreateAsyncTrackingEvent_Args
    PJRT_AsyncTrackingEvent_Destroy_Args
    PJRT_Buffer_DonateWithControlDependency_Args
    PJRT_Buffer_Bitcast_Args
    PJRT_Device_ClearMemoryStats_Args
    PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args
    PJRT_TopologyDescription_GetMemorySpaceKindIds_Args
}

/// A table with the entry of each function, which the type of its slot selects.
macro_rules! table {
    ({ $($special:ident = $function:expr,)* } $($slot:ident)*) => {
        PJRT_Api {
            struct_size: PJRT_Api::STRUCT_SIZE,
            extension_start: (&raw const FIRST.0).cast_mut().cast(),
            pjrt_api_version: PJRT_Api_Version {
                major_version: 0,
                minor_version: API_MINOR,
                ..PJRT_Api_Version::new()
            },
            $($special: Some($function),)*
            $($slot: Some(entry::<_>),)*
        }
    };
}

impl<P: Plugin> Table<P> {
    const TABLE: &'static Shared<PJRT_Api> = &Shared(table! {
        {
            PJRT_Error_Destroy = error_destroy,
            PJRT_Error_Message = error_message,
            PJRT_Client_Create = client_create::<P>,
        }
        PJRT_Error_GetCode
        PJRT_Plugin_Initialize
        PJRT_Plugin_Attributes
        PJRT_Event_Destroy
        PJRT_Event_IsReady
        PJRT_Event_Error
        PJRT_Event_Await
        PJRT_Event_OnReady
        PJRT_Client_Destroy
        PJRT_Client_PlatformName
        PJRT_Client_ProcessIndex
        PJRT_Client_PlatformVersion
        PJRT_Client_Devices
        PJRT_Client_AddressableDevices
        PJRT_Client_LookupDevice
        PJRT_Client_LookupAddressableDevice
        PJRT_Client_AddressableMemories
        PJRT_Client_Compile
        PJRT_Client_DefaultDeviceAssignment
        PJRT_Client_BufferFromHostBuffer
        PJRT_DeviceDescription_Id
        PJRT_DeviceDescription_ProcessIndex
        PJRT_DeviceDescription_Attributes
        PJRT_DeviceDescription_Kind
        PJRT_DeviceDescription_DebugString
        PJRT_DeviceDescription_ToString
        PJRT_Device_GetDescription
        PJRT_Device_IsAddressable
        PJRT_Device_LocalHardwareId
        PJRT_Device_AddressableMemories
        PJRT_Device_DefaultMemory
        PJRT_Device_MemoryStats
        PJRT_Memory_Id
        PJRT_Memory_Kind
        PJRT_Memory_DebugString
        PJRT_Memory_ToString
        PJRT_Memory_AddressableByDevices
        PJRT_Executable_Destroy
        PJRT_Executable_Name
        PJRT_Executable_NumReplicas
        PJRT_Executable_NumPartitions
        PJRT_Executable_NumOutputs
        PJRT_Executable_SizeOfGeneratedCodeInBytes
        PJRT_Executable_GetCostAnalysis
        PJRT_Executable_OutputMemoryKinds
        PJRT_Executable_OptimizedProgram
        PJRT_Executable_Serialize
        PJRT_LoadedExecutable_Destroy
        PJRT_LoadedExecutable_GetExecutable
        PJRT_LoadedExecutable_AddressableDevices
        PJRT_LoadedExecutable_Delete
        PJRT_LoadedExecutable_IsDeleted
        PJRT_LoadedExecutable_Execute
        PJRT_Executable_DeserializeAndLoad
        PJRT_LoadedExecutable_Fingerprint
        PJRT_Buffer_Destroy
        PJRT_Buffer_ElementType
        PJRT_Buffer_Dimensions
        PJRT_Buffer_UnpaddedDimensions
        PJRT_Buffer_DynamicDimensionIndices
        PJRT_Buffer_GetMemoryLayout
        PJRT_Buffer_OnDeviceSizeInBytes
        PJRT_Buffer_Device
        PJRT_Buffer_Memory
        PJRT_Buffer_Delete
        PJRT_Buffer_IsDeleted
        PJRT_Buffer_CopyToDevice
        PJRT_Buffer_ToHostBuffer
        PJRT_Buffer_IsOnCpu
        PJRT_Buffer_ReadyEvent
        PJRT_Buffer_UnsafePointer
        PJRT_Buffer_IncreaseExternalReferenceCount
        PJRT_Buffer_DecreaseExternalReferenceCount
        PJRT_Buffer_OpaqueDeviceMemoryDataPointer
        PJRT_CopyToDeviceStream_Destroy
        PJRT_CopyToDeviceStream_AddChunk
        PJRT_CopyToDeviceStream_TotalBytes
        PJRT_CopyToDeviceStream_GranuleSize
        PJRT_CopyToDeviceStream_CurrentBytes
        PJRT_TopologyDescription_Create
        PJRT_TopologyDescription_Destroy
        PJRT_TopologyDescription_PlatformName
        PJRT_TopologyDescription_PlatformVersion
        PJRT_TopologyDescription_GetDeviceDescriptions
        PJRT_TopologyDescription_Serialize
        PJRT_TopologyDescription_Attributes
        PJRT_Compile
        PJRT_Executable_OutputElementTypes
        PJRT_Executable_OutputDimensions
        PJRT_Buffer_CopyToMemory
        PJRT_Client_CreateViewOfDeviceBuffer
        PJRT_Executable_Fingerprint
        PJRT_Client_TopologyDescription
        PJRT_Executable_GetCompiledMemoryStats
        PJRT_Memory_Kind_Id
        PJRT_ExecuteContext_Create
        PJRT_ExecuteContext_Destroy
        PJRT_Buffer_CopyRawToHost
        PJRT_AsyncHostToDeviceTransferManager_Destroy
        PJRT_AsyncHostToDeviceTransferManager_TransferData
        PJRT_Client_CreateBuffersForAsyncHostToDevice
        PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer
        PJRT_AsyncHostToDeviceTransferManager_Device
        PJRT_AsyncHostToDeviceTransferManager_BufferCount
        PJRT_AsyncHostToDeviceTransferManager_BufferSize
        PJRT_AsyncHostToDeviceTransferManager_SetBufferError
        PJRT_AsyncHostToDeviceTransferManager_AddMetadata
        PJRT_Client_DmaMap
        PJRT_Client_DmaUnmap
        PJRT_Client_CreateUninitializedBuffer
        PJRT_Client_UpdateGlobalProcessInfo
        PJRT_TopologyDescription_Deserialize
        PJRT_Client_CreateAliasBuffer
        PJRT_Client_FulfillAliasBuffer
        PJRT_LoadedExecutable_GetDeviceAssignment
        PJRT_Client_CreateErrorBuffer
        PJRT_AsyncHostToDeviceTransferManager_TransferLiteral
        PJRT_Buffer_CopyRawToHostFuture
        PJRT_Device_PoisonExecution
        PJRT_Device_CreateAsyncTrackingEvent
        PJRT_AsyncTrackingEvent_Destroy
        PJRT_Executable_GetCompileOptions
        PJRT_Buffer_DonateWithControlDependency
        PJRT_Event_Create
        PJRT_Event_Set
        PJRT_Device_GetAttributes
        PJRT_Client_Load
        PJRT_LoadedExecutable_AddressableDeviceLogicalIds
        PJRT_Buffer_Bitcast
        PJRT_Error_ForEachPayload
        PJRT_TopologyDescription_Fingerprint
        PJRT_Executable_ParameterMemoryKinds
        PJRT_Device_ClearMemoryStats
        PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace
        PJRT_TopologyDescription_GetMemorySpaceKindIds
    });
}

/// # Safety
///
/// * As for [`entry`].
unsafe extern "C-unwind" fn client_create<P: Plugin>(
    args: *mut PJRT_Client_Create_Args,
) -> *mut PJRT_Error {
    // SAFETY: this function's condition.
    unsafe { run(args, true, create::<P>) }
}

/// # Safety
///
/// * As for [`entry`].
unsafe extern "C-unwind" fn error_destroy(args: *mut PJRT_Error_Destroy_Args) {
    // SAFETY: this function's condition.
    unsafe { run_infallible(args, false, |args, _| destroy(args)) }
}

/// # Safety
///
/// * As for [`entry`].
unsafe extern "C-unwind" fn error_message(args: *mut PJRT_Error_Message_Args) {
    // SAFETY: this function's condition.
    unsafe { run_infallible(args, true, |_, out| message(out)) }
}
