//! A caller of the C table, and a backend with a fault in one of its methods.
#![allow(unsafe_code)]

pub(crate) mod faulty;

use std::ffi::c_char;

use halite_core::{Client, Result};
use halite_pjrt_sys::{
    Call, PJRT_Api,
    base::{PJRT_NamedValue, PJRT_NamedValue_Type, PJRT_NamedValue_Value},
    buffer::*,
    client::*,
    device::*,
    error::*,
    event::*,
    executable::*,
    memory::PJRT_Memory,
};
use halite_plugin::{Options, Plugin};

/// An error of the table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: PJRT_Error_Code,
    pub(crate) message: String,
}

impl Failure {
    /// Checks code and a part of the message.
    #[track_caller]
    pub(crate) fn expect(&self, code: PJRT_Error_Code, part: &str) {
        assert!(
            self.code == code && self.message.contains(part),
            "{self:?}, not {part}"
        );
    }
}

/// The plugin of [`faulty::Faulty`].
pub(crate) struct Exported;

impl Plugin for Exported {
    fn open(options: &mut Options) -> Result<Client> {
        Ok(Client::new(faulty::Faulty::open(options)?))
    }
}

/// Calls the function of these arguments.
pub(crate) fn call<A: Call<Return = *mut PJRT_Error>>(args: &mut A) -> Result<(), Failure> {
    // SAFETY: tests keep what `args` points at.
    unsafe { call_at(args) }
}

/// Calls the function of a struct that may be shorter than `A`.
///
/// # Safety
///
/// * `args` is null, or has the bytes of its `struct_size`.
pub(crate) unsafe fn call_at<A: Call<Return = *mut PJRT_Error>>(
    args: *mut A,
) -> Result<(), Failure> {
    let table = halite_plugin::api::<Exported>().cast::<u8>();
    // SAFETY: the slot holds the function of these arguments.
    let error = unsafe {
        let slot = table.add(A::SLOT.offset);
        let slot = slot.cast::<Option<unsafe extern "C-unwind" fn(*mut A) -> *mut PJRT_Error>>();
        (*slot).expect("every slot is filled")(args)
    };
    if error.is_null() {
        Ok(())
    } else {
        Err(take(error))
    }
}

/// Reads and frees an error.
pub(crate) fn take(error: *mut PJRT_Error) -> Failure {
    // SAFETY: the table is constant.
    let table: &PJRT_Api = unsafe { &*halite_plugin::api::<Exported>() };
    let mut message = PJRT_Error_Message_Args {
        error,
        ..PJRT_Error_Message_Args::new()
    };
    let mut code = PJRT_Error_GetCode_Args {
        error,
        ..PJRT_Error_GetCode_Args::new()
    };
    let mut destroy = PJRT_Error_Destroy_Args {
        error,
        ..PJRT_Error_Destroy_Args::new()
    };
    // SAFETY: the error lives until the last call.
    unsafe {
        table.PJRT_Error_Message.unwrap()(&mut message);
        table.PJRT_Error_GetCode.unwrap()(&mut code);
        let text = std::slice::from_raw_parts(message.message.cast(), message.message_size);
        let message = String::from_utf8(text.to_vec()).unwrap();
        table.PJRT_Error_Destroy.unwrap()(&mut destroy);
        Failure {
            code: code.code,
            message,
        }
    }
}

/// An option with a text.
pub(crate) fn text_option(name: &'static str, text: &'static str) -> PJRT_NamedValue {
    PJRT_NamedValue {
        name: name.as_ptr().cast(),
        name_size: name.len(),
        r#type: PJRT_NamedValue_Type::kString,
        value: PJRT_NamedValue_Value {
            string_value: text.as_ptr().cast(),
        },
        value_size: text.len(),
        ..PJRT_NamedValue::new()
    }
}

/// A client whose backend has a fault in this method (none if it is empty).
pub(crate) fn client(fault: &'static str) -> Result<*mut PJRT_Client, Failure> {
    let options = [text_option("fault", fault)];
    let mut args = PJRT_Client_Create_Args {
        create_options: options.as_ptr(),
        num_options: options.len(),
        ..PJRT_Client_Create_Args::new()
    };
    call(&mut args)?;
    Ok(args.client)
}

/// The first device of a client.
pub(crate) fn first_device(client: *mut PJRT_Client) -> *mut PJRT_Device {
    let mut args = PJRT_Client_LookupDevice_Args {
        client,
        ..PJRT_Client_LookupDevice_Args::new()
    };
    call(&mut args).unwrap();
    args.device
}

/// The memory of the first device of a client.
pub(crate) fn first_memory(client: *mut PJRT_Client) -> *mut PJRT_Memory {
    let mut args = PJRT_Device_DefaultMemory_Args {
        device: first_device(client),
        ..PJRT_Device_DefaultMemory_Args::new()
    };
    call(&mut args).unwrap();
    args.memory
}

/// Uploads four floats.
pub(crate) fn upload(
    client: *mut PJRT_Client,
    values: &[f32; 4],
) -> Result<*mut PJRT_Buffer, Failure> {
    let dims = [4i64];
    let mut args = PJRT_Client_BufferFromHostBuffer_Args {
        client,
        data: values.as_ptr().cast(),
        r#type: PJRT_Buffer_Type::F32,
        dims: dims.as_ptr(),
        num_dims: 1,
        ..PJRT_Client_BufferFromHostBuffer_Args::new()
    };
    call(&mut args)?;
    destroy_event(args.done_with_host_buffer);
    Ok(args.buffer)
}

/// Starts to read four floats.
pub(crate) fn start_read(
    src: *mut PJRT_Buffer,
    into: &mut [f32; 4],
) -> Result<*mut PJRT_Event, Failure> {
    let mut args = PJRT_Buffer_ToHostBuffer_Args {
        src,
        dst: into.as_mut_ptr().cast(),
        dst_size: 16,
        ..PJRT_Buffer_ToHostBuffer_Args::new()
    };
    call(&mut args)?;
    Ok(args.event)
}

/// Reads four floats.
pub(crate) fn read(src: *mut PJRT_Buffer) -> Result<[f32; 4], Failure> {
    let mut values = [f32::NAN; 4];
    let event = start_read(src, &mut values)?;
    let outcome = wait(event);
    destroy_event(event);
    outcome.map(|()| values)
}

/// The event of the contents of a buffer.
pub(crate) fn ready(buffer: *mut PJRT_Buffer) -> *mut PJRT_Event {
    let mut args = PJRT_Buffer_ReadyEvent_Args {
        buffer,
        ..PJRT_Buffer_ReadyEvent_Args::new()
    };
    call(&mut args).unwrap();
    args.event
}

pub(crate) fn is_ready(event: *mut PJRT_Event) -> bool {
    let mut args = PJRT_Event_IsReady_Args {
        event,
        ..PJRT_Event_IsReady_Args::new()
    };
    call(&mut args).unwrap();
    args.is_ready
}

pub(crate) fn wait(event: *mut PJRT_Event) -> Result<(), Failure> {
    call(&mut PJRT_Event_Await_Args {
        event,
        ..PJRT_Event_Await_Args::new()
    })
}

pub(crate) fn destroy_event(event: *mut PJRT_Event) {
    call(&mut PJRT_Event_Destroy_Args {
        event,
        ..PJRT_Event_Destroy_Args::new()
    })
    .unwrap();
}

pub(crate) fn destroy_buffer(buffer: *mut PJRT_Buffer) -> Result<(), Failure> {
    call(&mut PJRT_Buffer_Destroy_Args {
        buffer,
        ..PJRT_Buffer_Destroy_Args::new()
    })
}

/// `(a, b) -> a` of four floats; `a` is donated.
pub(crate) const PROGRAM: &str = "module @first { func.func public @main(
    %a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32>) -> tensor<4xf32> {
    return %a : tensor<4xf32> } }";

/// Compiles a program for the first device.
pub(crate) fn compile(
    client: *mut PJRT_Client,
    code: &str,
) -> Result<*mut PJRT_LoadedExecutable, Failure> {
    let program = PJRT_Program {
        code: code.as_ptr().cast_mut().cast(),
        code_size: code.len(),
        format: "mlir".as_ptr().cast(),
        format_size: 4,
        ..PJRT_Program::new()
    };
    let mut args = PJRT_Client_Compile_Args {
        client,
        program: &program,
        compile_options: std::ptr::null::<c_char>(),
        ..PJRT_Client_Compile_Args::new()
    };
    call(&mut args)?;
    Ok(args.executable)
}

/// A launch on one device, without options.
pub(crate) fn launch(
    executable: *mut PJRT_LoadedExecutable,
    arguments: &[*mut PJRT_Buffer],
) -> Result<*mut PJRT_Buffer, Failure> {
    let mut output = std::ptr::null_mut();
    let mut event = std::ptr::null_mut();
    let rows = [arguments.as_ptr()];
    let outputs = [&raw mut output];
    let mut args = PJRT_LoadedExecutable_Execute_Args {
        executable,
        argument_lists: rows.as_ptr(),
        num_devices: 1,
        num_args: arguments.len(),
        output_lists: outputs.as_ptr(),
        device_complete_events: &mut event,
        ..PJRT_LoadedExecutable_Execute_Args::new()
    };
    call(&mut args)?;
    let outcome = wait(event);
    destroy_event(event);
    // A failed launch has results, too.
    outcome.map(|()| output)
}
