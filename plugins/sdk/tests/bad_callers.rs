//! Mistakes of a caller: each is an error, and nothing of it remains.
#![allow(unsafe_code)]

use halite_pjrt_sys::{
    SLOTS, buffer::*, client::*, device::*, error::PJRT_Error_Code as Code, event::*,
    executable::*, topology::*, transfer::*,
};

use crate::common::*;

#[test]
fn every_slot_is_filled() {
    let table = halite_plugin::api::<Exported>().cast::<u8>();
    for slot in SLOTS {
        // SAFETY: the table has all slots, each the size of a pointer.
        let entry = unsafe { table.add(slot.offset).cast::<Option<fn()>>().read() };
        assert!(entry.is_some(), "{}", slot.name);
    }
    // SAFETY: the table begins with its size.
    let size = unsafe { table.cast::<usize>().read() };
    assert_eq!(size, SLOTS[SLOTS.len() - 1].offset + size_of::<usize>());
}

#[test]
fn null_handles_are_errors() {
    macro_rules! all {
        ($($args:ident)*) => {$(
            let failure = call(&mut $args::new()).expect_err(stringify!($args));
            failure.expect(Code::INVALID_ARGUMENT, "null");
            assert!(failure.message.starts_with(stringify!($args).trim_end_matches("_Args")));
        )*};
    }
    all! {
        PJRT_Client_PlatformName_Args PJRT_Client_Devices_Args PJRT_Client_Compile_Args
        PJRT_Client_BufferFromHostBuffer_Args PJRT_Client_TopologyDescription_Args
        PJRT_Device_GetDescription_Args PJRT_Device_DefaultMemory_Args
        PJRT_Device_MemoryStats_Args PJRT_DeviceDescription_Id_Args
        PJRT_Buffer_ElementType_Args PJRT_Buffer_Delete_Args PJRT_Buffer_ToHostBuffer_Args
        PJRT_Buffer_ReadyEvent_Args PJRT_Buffer_CopyToDevice_Args PJRT_Buffer_CopyToMemory_Args
        PJRT_Event_IsReady_Args PJRT_Event_Await_Args PJRT_Event_Error_Args
        PJRT_Event_OnReady_Args PJRT_LoadedExecutable_Execute_Args PJRT_Executable_Serialize_Args
        PJRT_Executable_NumOutputs_Args PJRT_LoadedExecutable_GetExecutable_Args
        PJRT_TopologyDescription_PlatformName_Args PJRT_TopologyDescription_Serialize_Args
        PJRT_AsyncHostToDeviceTransferManager_TransferData_Args
        PJRT_Client_DmaMap_Args PJRT_Client_DmaUnmap_Args
    }
}

#[test]
fn null_may_be_destroyed() {
    macro_rules! all {
        ($($args:ident)*) => {$( call(&mut $args::new()).expect(stringify!($args)); )*};
    }
    all! {
        PJRT_Event_Destroy_Args PJRT_Client_Destroy_Args PJRT_Buffer_Destroy_Args
        PJRT_Executable_Destroy_Args PJRT_LoadedExecutable_Destroy_Args
        PJRT_ExecuteContext_Destroy_Args PJRT_TopologyDescription_Destroy_Args
        PJRT_AsyncHostToDeviceTransferManager_Destroy_Args
    }
    // SAFETY: the table is constant, and null is allowed.
    unsafe {
        let table = &*halite_plugin::api::<Exported>();
        let mut args = halite_pjrt_sys::error::PJRT_Error_Destroy_Args::new();
        table.PJRT_Error_Destroy.unwrap()(&mut args);
    }
}

#[test]
fn use_after_destroy_is_an_error() {
    let client = client("").unwrap();
    let buffer = upload(client, &[0.0; 4]).unwrap();
    destroy_buffer(buffer).unwrap();
    for failure in [destroy_buffer(buffer), read(buffer).map(drop)] {
        failure
            .unwrap_err()
            .expect(Code::INVALID_ARGUMENT, "it was destroyed");
    }
    let buffer = upload(client, &[5.0; 4]).unwrap();
    let device = first_device(client);
    call(&mut PJRT_Client_Destroy_Args {
        client,
        ..PJRT_Client_Destroy_Args::new()
    })
    .unwrap();
    upload(client, &[0.0; 4])
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "not a PJRT_Client");
    // Buffers keep what they need of their client.
    assert_eq!(read(buffer).unwrap(), [5.0; 4]);
    destroy_buffer(buffer).unwrap();
    let mut args = PJRT_Device_IsAddressable_Args {
        device,
        ..PJRT_Device_IsAddressable_Args::new()
    };
    call(&mut args)
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "not a PJRT_Device");
}

#[test]
fn handle_of_another_type_is_an_error() {
    let client = client("").unwrap();
    let failure = destroy_buffer(client.cast()).unwrap_err();
    failure.expect(
        Code::INVALID_ARGUMENT,
        "is not a PJRT_Buffer of this plugin",
    );
    let failure = destroy_buffer(std::ptr::without_provenance_mut(7)).unwrap_err();
    failure.expect(Code::INVALID_ARGUMENT, "0x7 is not a PJRT_Buffer");
}

#[test]
fn unknown_options_are_refused() {
    let options = [text_option("fault", ""), text_option("devises", "2")];
    let mut args = PJRT_Client_Create_Args {
        create_options: options.as_ptr(),
        num_options: 2,
        ..PJRT_Client_Create_Args::new()
    };
    let failure = call(&mut args).unwrap_err();
    failure.expect(
        Code::INVALID_ARGUMENT,
        "unknown option `devises` = \"2\"; this plugin has fault",
    );
    args.create_options = std::ptr::null();
    call(&mut args)
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "`create_options` is 0x0");
}

#[test]
fn donated_buffer_is_deleted() {
    let client = client("").unwrap();
    let loaded = compile(client, PROGRAM).unwrap();
    let [a, b] = [1.0, 2.0].map(|value| upload(client, &[value; 4]).unwrap());
    let sum = launch(loaded, &[a, b]).unwrap();
    read(a).unwrap_err().expect(
        Code::INVALID_ARGUMENT,
        "f32[4] buffer was deleted or donated",
    );
    launch(loaded, &[a, b])
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "deleted or donated");
    // A buffer that is donated and borrowed by one launch stays until its end.
    assert_eq!(
        read(launch(loaded, &[sum, sum]).unwrap()).unwrap(),
        [1.0; 4]
    );
    assert_eq!(read(b).unwrap(), [2.0; 4]);
}

#[test]
fn wrong_arguments_are_refused() {
    let ours = client("").unwrap();
    let loaded = compile(ours, PROGRAM).unwrap();
    let a = upload(ours, &[1.0; 4]).unwrap();
    let foreign = upload(client("").unwrap(), &[1.0; 4]).unwrap();
    for (arguments, words) in [
        (
            &[a][..],
            "`first`: 1 arguments on 1 devices given, expected 2 on 1",
        ),
        (
            &[a, std::ptr::null_mut()],
            "argument 1 for device 0 is unknown: null was passed",
        ),
        (
            &[a, foreign],
            "argument 1 for device 0 is a buffer of another client",
        ),
    ] {
        launch(loaded, arguments)
            .unwrap_err()
            .expect(Code::INVALID_ARGUMENT, words);
    }
    assert_eq!(
        read(a).unwrap(),
        [1.0; 4],
        "a refused launch donates nothing"
    );
}

#[test]
fn invalid_programs_are_refused() {
    let client = client("").unwrap();
    for (code, expected, words) in [
        ("", Code::INVALID_ARGUMENT, "no function `main`"),
        ("ML\u{0}", Code::INVALID_ARGUMENT, "line 1, column 1"),
        (
            "func.func @main(%a: tensor<*xf32>) {",
            Code::UNIMPLEMENTED,
            "not supported",
        ),
    ] {
        compile(client, code).unwrap_err().expect(expected, words);
    }
}

#[test]
fn missing_functions_are_unimplemented() {
    let failure = call(&mut PJRT_Buffer_UnsafePointer_Args::new()).unwrap_err();
    failure.expect(
        Code::UNIMPLEMENTED,
        "PJRT_Buffer_UnsafePointer: not implemented by this plugin",
    );
}

#[test]
fn handle_of_another_client_is_an_error() {
    let ours = client("").unwrap();
    let (theirs, values) = (client("").unwrap(), [1.0f32]);
    let mut args = PJRT_Client_BufferFromHostBuffer_Args {
        client: ours,
        data: values.as_ptr().cast(),
        r#type: PJRT_Buffer_Type::F32,
        device: first_device(theirs),
        ..PJRT_Client_BufferFromHostBuffer_Args::new()
    };
    call(&mut args).unwrap_err().expect(
        Code::INVALID_ARGUMENT,
        "device 0 of another client or process was passed",
    );
    args.memory = first_memory(theirs);
    call(&mut args).unwrap_err().expect(
        Code::INVALID_ARGUMENT,
        "a memory of device 0 of another client or process was passed",
    );
    let mut copy = PJRT_Buffer_CopyToMemory_Args {
        buffer: upload(ours, &[1.0; 4]).unwrap(),
        dst_memory: first_memory(theirs),
        ..PJRT_Buffer_CopyToMemory_Args::new()
    };
    call(&mut copy)
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "of another client");
    let mut copy = PJRT_Buffer_CopyToDevice_Args {
        buffer: copy.buffer,
        ..PJRT_Buffer_CopyToDevice_Args::new()
    };
    call(&mut copy)
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "null was passed");
}

/// JAX ends the process if the function that returns the event fails.
#[test]
fn deleted_buffer_has_a_failed_event() {
    let buffer = upload(client("").unwrap(), &[0.0; 4]).unwrap();
    call(&mut PJRT_Buffer_Delete_Args {
        buffer,
        ..PJRT_Buffer_Delete_Args::new()
    })
    .unwrap();
    wait(ready(buffer))
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "was deleted or donated");
}

#[test]
fn buffer_cannot_be_donated_twice() {
    let client = client("").unwrap();
    let both = PROGRAM.replace(
        "%b: tensor<4xf32>",
        "%b: tensor<4xf32> {jax.buffer_donor = true}",
    );
    let loaded = compile(client, &both).unwrap();
    let a = upload(client, &[1.0; 4]).unwrap();
    launch(loaded, &[a, a])
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "deleted or donated");
    assert_eq!(
        read(a).unwrap(),
        [1.0; 4],
        "a refused launch donates nothing"
    );
}

#[test]
fn failed_argument_fails_the_results() {
    let client = client("").unwrap();
    let loaded = compile(client, PROGRAM).unwrap();
    let dims = [4i64];
    let mut failed = PJRT_Client_CreateErrorBuffer_Args {
        client,
        error_code: Code::DATA_LOSS,
        error_message: "lost".as_ptr().cast(),
        error_message_size: 4,
        shape_dims: dims.as_ptr(),
        shape_num_dims: 1,
        shape_element_type: PJRT_Buffer_Type::F32,
        memory: first_memory(client),
        ..PJRT_Client_CreateErrorBuffer_Args::new()
    };
    call(&mut failed).unwrap();
    let b = upload(client, &[0.0; 4]).unwrap();
    let failure = launch(loaded, &[failed.buffer, b]).unwrap_err();
    assert_eq!((failure.code, &*failure.message), (Code::DATA_LOSS, "lost"));
}
