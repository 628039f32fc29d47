//! Mistakes of a backend: panics and broken rules are INTERNAL errors that name the method.
#![allow(unsafe_code)]

use halite_pjrt_sys::{
    buffer::*, client::*, device::*, error::PJRT_Error_Code as Code, event::*, executable::*,
};

use crate::common::*;

/// A session with every kind of call: returns the first error.
fn session(fault: &'static str) -> Result<(), Failure> {
    let client = client(fault)?;
    let device = first_device(client);
    call(&mut PJRT_Device_MemoryStats_Args {
        device,
        ..PJRT_Device_MemoryStats_Args::new()
    })?;
    let [a, b] = [upload(client, &[1.0; 4])?, upload(client, &[2.0; 4])?];
    let loaded = compile(client, PROGRAM)?;
    let result = launch(loaded, &[a, b])?;
    let read = read(result)?;
    assert_eq!(read, [1.0; 4]);
    let mut lookup = PJRT_Client_LookupDevice_Args {
        client,
        id: 1,
        ..PJRT_Client_LookupDevice_Args::new()
    };
    call(&mut lookup)?;
    let mut copy = PJRT_Buffer_CopyToDevice_Args {
        buffer: b,
        dst_device: lookup.device,
        ..PJRT_Buffer_CopyToDevice_Args::new()
    };
    call(&mut copy)?;
    let mut executable = PJRT_LoadedExecutable_GetExecutable_Args {
        loaded_executable: loaded,
        ..PJRT_LoadedExecutable_GetExecutable_Args::new()
    };
    call(&mut executable)?;
    let executable = executable.executable;
    call(&mut PJRT_Executable_GetCostAnalysis_Args {
        executable,
        ..PJRT_Executable_GetCostAnalysis_Args::new()
    })?;
    let mut saved = PJRT_Executable_Serialize_Args {
        executable,
        ..PJRT_Executable_Serialize_Args::new()
    };
    call(&mut saved)?;
    let mut again = PJRT_Executable_DeserializeAndLoad_Args {
        client,
        serialized_executable: saved.serialized_bytes,
        serialized_executable_size: saved.serialized_bytes_size,
        ..PJRT_Executable_DeserializeAndLoad_Args::new()
    };
    call(&mut again)?;
    // SAFETY: the deleter is that of these bytes.
    unsafe { saved.serialized_executable_deleter.unwrap()(saved.serialized_executable) };
    for buffer in [a, b, result, copy.dst_buffer] {
        destroy_buffer(buffer)?;
    }
    call(&mut PJRT_Executable_Destroy_Args {
        executable,
        ..PJRT_Executable_Destroy_Args::new()
    })?;
    for executable in [again.loaded_executable, loaded] {
        call(&mut PJRT_LoadedExecutable_Destroy_Args {
            executable,
            ..PJRT_LoadedExecutable_Destroy_Args::new()
        })?;
    }
    call(&mut PJRT_Client_Destroy_Args {
        client,
        ..PJRT_Client_Destroy_Args::new()
    })
}

#[test]
fn backend_without_fault_works() {
    session("").unwrap();
}

#[test]
fn panic_in_any_method_is_internal() {
    for fault in [
        "open",
        "Backend::platform",
        "Backend::devices",
        "Device::id",
        "Device::memory",
        "Backend::upload",
        "Backend::compile",
        "Backend::load",
        "Buffer::ready",
        "Buffer::copy_to",
        "Buffer::fetch",
        "Buffer::drop",
        "Event::is_ready",
        "Event::wait",
        "Executable::launch",
        "Executable::serialize",
        "Executable::cost",
    ] {
        let failure = session(fault).expect_err(fault);
        failure.expect(
            Code::INTERNAL,
            &format!("panic in the plugin: fault in {fault}"),
        );
    }
}

/// JAX ends the process if a function that destroys an object returns an error.
#[test]
fn panic_in_a_destructor_is_no_error() {
    for fault in ["Backend::drop", "Executable::drop"] {
        session(fault).expect(fault);
    }
    let buffer = upload(client("Buffer::drop").unwrap(), &[0.0; 4]).unwrap();
    destroy_buffer(buffer).unwrap();
}

#[test]
fn broken_rule_names_the_method() {
    for (fault, words) in [
        (
            "device id twice",
            "`Backend::devices`: device 0 is listed twice; ids are unique",
        ),
        (
            "no device",
            "`Backend::devices`: no device is local; a client needs one",
        ),
        (
            "no memory",
            "`Backend::devices`: the memories of device 0 are []; the first is",
        ),
        (
            "upload to another type",
            "`Backend::upload` returned f32[] in",
        ),
        (
            "another signature",
            "`Executable::signature` after `Backend::compile` is",
        ),
        (
            "another device",
            "`Executable::devices` after `Backend::compile` is [DeviceId(1)]",
        ),
        (
            "too few results",
            "`Executable::launch` of `first` returned [0] results per device",
        ),
        (
            "too many devices",
            "`Executable::launch` of `first` returned [1, 0] results",
        ),
        (
            "result on another device",
            "`Executable::launch` returned f32[4] in Placement",
        ),
        (
            "copy stays",
            "`Buffer::copy_to` returned f32[4] in Placement",
        ),
        (
            "fetch drops its callback",
            "dropped a callback of `Buffer::fetch`",
        ),
        (
            "fetch returns too few bytes",
            "`Buffer::fetch` returned 1 bytes, the type has 16",
        ),
    ] {
        session(fault)
            .expect_err(fault)
            .expect(Code::INTERNAL, words);
    }
}

#[test]
fn error_of_work_is_that_of_the_event() {
    let failure = session("work fails").unwrap_err();
    failure.expect(Code::RESOURCE_EXHAUSTED, "compute: no memory left");
    assert!(failure.message.starts_with("compute"), "{failure:?}");
}

/// Registers a callback with the event of a buffer, and returns the errors it was called with.
fn on_ready(fault: &'static str) -> Vec<Failure> {
    extern "C" fn record(
        error: *mut halite_pjrt_sys::error::PJRT_Error,
        to: *mut std::ffi::c_void,
    ) {
        // SAFETY: the argument is the test's list.
        unsafe { &mut *to.cast::<Vec<Failure>>() }.push(take(error));
    }
    let buffer = upload(client(fault).unwrap(), &[0.0; 4]).unwrap();
    let mut called: Vec<Failure> = Vec::new();
    call(&mut PJRT_Event_OnReady_Args {
        event: ready(buffer),
        callback: Some(record),
        user_arg: (&raw mut called).cast(),
        ..PJRT_Event_OnReady_Args::new()
    })
    .unwrap();
    called
}

#[test]
fn dropped_callback_is_called_with_an_error() {
    let called = on_ready("event drops its callback");
    assert_eq!(called.len(), 1);
    called[0].expect(Code::INTERNAL, "dropped a callback of `Event::on_ready`");
}

#[test]
fn panic_in_on_ready_is_reported_once() {
    let called = on_ready("Event::on_ready");
    assert_eq!(called.len(), 1);
    called[0].expect(Code::INTERNAL, "the backend panicked in `Event::on_ready`");
}

#[test]
fn dropped_callback_fails_the_launch_event() {
    let client = client("event drops its callback").unwrap();
    let pair = "func.func public @main(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
        return %a, %a : tensor<4xf32>, tensor<4xf32> }";
    let loaded = compile(client, pair).unwrap();
    let arguments = [upload(client, &[1.0; 4]).unwrap()];
    let (mut outputs, mut event) = ([std::ptr::null_mut(); 2], std::ptr::null_mut());
    let (rows, room) = ([arguments.as_ptr()], [outputs.as_mut_ptr()]);
    let mut args = PJRT_LoadedExecutable_Execute_Args {
        executable: loaded,
        argument_lists: rows.as_ptr(),
        num_devices: 1,
        num_args: 1,
        output_lists: room.as_ptr(),
        device_complete_events: &mut event,
        ..PJRT_LoadedExecutable_Execute_Args::new()
    };
    call(&mut args).unwrap();
    wait(event)
        .unwrap_err()
        .expect(Code::INTERNAL, "dropped a callback of `Event::on_ready`");
}

#[test]
fn loaded_program_has_its_name_in_errors() {
    let client = client("").unwrap();
    let mut executable = PJRT_LoadedExecutable_GetExecutable_Args {
        loaded_executable: compile(client, PROGRAM).unwrap(),
        ..PJRT_LoadedExecutable_GetExecutable_Args::new()
    };
    call(&mut executable).unwrap();
    let mut saved = PJRT_Executable_Serialize_Args {
        executable: executable.executable,
        ..PJRT_Executable_Serialize_Args::new()
    };
    call(&mut saved).unwrap();
    let mut again = PJRT_Executable_DeserializeAndLoad_Args {
        client,
        serialized_executable: saved.serialized_bytes,
        serialized_executable_size: saved.serialized_bytes_size,
        ..PJRT_Executable_DeserializeAndLoad_Args::new()
    };
    call(&mut again).unwrap();
    launch(again.loaded_executable, &[])
        .unwrap_err()
        .expect(Code::INVALID_ARGUMENT, "`first`: 0 arguments on 1 devices");
}

#[test]
fn deleted_executable_is_freed() {
    let dropped = || faulty::DROPPED.load(std::sync::atomic::Ordering::Relaxed);
    let client = client("drops are counted").unwrap();
    let deleted = compile(client, PROGRAM).unwrap();
    let mut executable = PJRT_LoadedExecutable_GetExecutable_Args {
        loaded_executable: deleted,
        ..PJRT_LoadedExecutable_GetExecutable_Args::new()
    };
    call(&mut executable).unwrap();
    let executable = executable.executable;
    let mut other = PJRT_Client_Load_Args {
        client,
        executable,
        ..PJRT_Client_Load_Args::new()
    };
    call(&mut other).unwrap();
    let delete = |executable| {
        call(&mut PJRT_LoadedExecutable_Delete_Args {
            executable,
            ..PJRT_LoadedExecutable_Delete_Args::new()
        })
    };
    let arguments = [1.0, 2.0].map(|value| upload(client, &[value; 4]).unwrap());

    delete(deleted).unwrap();
    delete(deleted).unwrap();
    assert_eq!(dropped(), 0, "another loaded executable has it");
    launch(deleted, &arguments).unwrap_err().expect(
        Code::INVALID_ARGUMENT,
        "`first`: the executable was deleted",
    );
    launch(other.loaded_executable, &arguments).unwrap();

    delete(other.loaded_executable).unwrap();
    assert_eq!(dropped(), 1);
    let mut is_deleted = PJRT_LoadedExecutable_IsDeleted_Args {
        executable: deleted,
        ..PJRT_LoadedExecutable_IsDeleted_Args::new()
    };
    call(&mut is_deleted).unwrap();
    assert!(is_deleted.is_deleted);
    // Metadata outlives the program, its contents do not.
    let mut name = PJRT_Executable_Name_Args {
        executable,
        ..PJRT_Executable_Name_Args::new()
    };
    call(&mut name).unwrap();
    assert_eq!(name.executable_name_size, "first".len());
    call(&mut PJRT_Executable_Serialize_Args {
        executable,
        ..PJRT_Executable_Serialize_Args::new()
    })
    .unwrap_err()
    .expect(Code::INVALID_ARGUMENT, "was deleted");
}
