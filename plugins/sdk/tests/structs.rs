//! Structs of callers of older and newer versions, and what a call writes to them.
#![allow(unsafe_code)]

use halite_pjrt_sys::{
    CStruct, buffer::*, client::*, device::*, error::PJRT_Error_Code as Code, event::*,
    executable::*,
};

use crate::common::*;

#[test]
fn null_struct_is_an_error() {
    // SAFETY: null is allowed.
    let failure = unsafe { call_at::<PJRT_Client_Create_Args>(std::ptr::null_mut()) }.unwrap_err();
    failure.expect(Code::INVALID_ARGUMENT, "PJRT_Client_Create_Args is null");
}

/// Structs of every length up to the whole, each in memory of exactly this length.
#[test]
fn truncated_structs_are_errors() {
    fn check<A: halite_pjrt_sys::Call<Return = *mut halite_pjrt_sys::error::PJRT_Error>>(args: A) {
        let needed = A::LAYOUT.end_at(81);
        for size in size_of::<usize>()..needed {
            let mut memory = vec![0u64; size.div_ceil(8)];
            // SAFETY: the memory has `size` bytes, and the struct at least as many.
            let failure = unsafe {
                std::ptr::copy_nonoverlapping(
                    (&raw const args).cast::<u8>(),
                    memory.as_mut_ptr().cast(),
                    size,
                );
                memory[0] = size as u64;
                call_at(memory.as_mut_ptr().cast::<A>()).unwrap_err()
            };
            failure.expect(Code::INVALID_ARGUMENT, &format!("a struct_size of {size}"));
        }
    }
    check(PJRT_Client_Create_Args::new());
    check(PJRT_Client_Compile_Args::new());
    check(PJRT_LoadedExecutable_Execute_Args::new());
    check(PJRT_Client_BufferFromHostBuffer_Args::new());
    check(PJRT_Buffer_ToHostBuffer_Args::new());
    check(PJRT_Event_IsReady_Args::new());
    check(PJRT_Device_MemoryStats_Args::new());
}

/// A caller of a newer version passes a longer struct, whose end stays untouched.
#[test]
fn longer_structs_are_accepted() {
    let device = first_device(client("").unwrap());
    let mut memory = [0x55u64; 40];
    let size = PJRT_Device_MemoryStats_Args::STRUCT_SIZE;
    let args = PJRT_Device_MemoryStats_Args {
        struct_size: 320,
        device,
        ..PJRT_Device_MemoryStats_Args::new()
    };
    // SAFETY: the memory is larger than the struct.
    let stats = unsafe {
        let start = memory.as_mut_ptr().cast::<PJRT_Device_MemoryStats_Args>();
        start.write(args);
        call_at(start).unwrap();
        start.read()
    };
    assert_eq!((stats.bytes_in_use, stats.peak_bytes_in_use), (3, 4));
    assert!(stats.peak_bytes_in_use_is_set && !stats.bytes_limit_is_set);
    assert!(
        memory[size.div_ceil(8)..]
            .iter()
            .all(|&word| word == 0x5555_5555_5555_5555 || word == 0x55)
    );
}

/// A newer struct may have a field where this one has padding.
#[test]
fn padding_stays_untouched() {
    let buffer = upload(client("").unwrap(), &[0.0; 4]).unwrap();
    let mut memory = [u64::MAX; 4];
    memory[..3].copy_from_slice(&[32, 0, buffer.addr() as u64]);
    // SAFETY: the memory is larger than the struct.
    unsafe { call_at(memory.as_mut_ptr().cast::<PJRT_Buffer_IsDeleted_Args>()) }.unwrap();
    assert_eq!(
        memory[3].to_ne_bytes(),
        [0, 255, 255, 255, 255, 255, 255, 255]
    );
}

/// A callback may free the struct of the call that runs it.
#[test]
fn struct_without_results_is_not_written() {
    extern "C" fn overwrite(
        _: *mut halite_pjrt_sys::error::PJRT_Error,
        args: *mut std::ffi::c_void,
    ) {
        // SAFETY: the argument is the test's struct.
        unsafe { (*args.cast::<PJRT_Event_OnReady_Args>()).callback = None };
    }
    let buffer = upload(client("").unwrap(), &[0.0; 4]).unwrap();
    let mut args = PJRT_Event_OnReady_Args {
        event: ready(buffer),
        callback: Some(overwrite),
        ..PJRT_Event_OnReady_Args::new()
    };
    let at = &raw mut args;
    // SAFETY: the struct lives until the end of the test.
    unsafe {
        (*at).user_arg = at.cast();
        call_at(at).unwrap();
        assert!((*at).callback.is_none());
    }
}

/// Result fields are not initialized by callers, booleans among them.
#[test]
fn results_may_be_uninitialized() {
    let buffer = upload(client("").unwrap(), &[0.0; 4]).unwrap();
    let mut memory = [u64::MAX; 4];
    memory[0] = PJRT_Buffer_IsDeleted_Args::STRUCT_SIZE as u64;
    memory[1] = 0;
    memory[2] = buffer.addr() as u64;
    // SAFETY: the memory is larger than the struct.
    unsafe { call_at(memory.as_mut_ptr().cast::<PJRT_Buffer_IsDeleted_Args>()) }.unwrap();
    assert_eq!(memory[3].to_ne_bytes()[0], 0, "not deleted");
}
