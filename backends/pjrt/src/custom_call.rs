//! Custom calls: the registered functions of the process as handlers of XLA's FFI.
//!
//! A handler is a C function without data of its own, so there is one for each position in the
//! order of registration ([`HANDLERS`]). Only plugins for the CPU get handlers: the functions are
//! given slices of the buffers, which must be host memory.

mod call_frame;
mod values;

use std::{ffi::c_void, mem::offset_of, sync::PoisonError};

use halite_core::{
    Code, Error, ErrorKind, Program, Result,
    custom_call::{self, MAX_TARGETS, Target},
};
use halite_pjrt_sys::{
    extension::{PJRT_FFI_Extension, PJRT_FFI_Register_Handler_Args},
    ffi::{XLA_FFI_CallFrame, XLA_FFI_Error, XLA_FFI_Handler},
};
use memchr::memmem;

use self::call_frame::handle;
use crate::shared_client::Shared;

const OP: &str = "custom call";

/// The name of XLA's platform for the CPU, in PJRT and for handlers.
const HOST: &str = "cpu";

/// Offset of the function that registers handlers in its extension.
const REGISTER: usize = offset_of!(PJRT_FFI_Extension, register_handler);

/// Registers what the compiler needs for the custom calls of a program.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the program calls a registered function, and the plugin cannot;
/// otherwise as [`register_targets`].
pub(crate) fn prepare(client: &Shared, program: &Program) -> Result<()> {
    let Some(obstacle) = obstacle(client) else {
        return register_targets(client);
    };
    let targets = custom_call::targets();
    let called = (targets.iter()).find(|target| calls(&program.code, target.name()));
    let Some(target) = called else {
        return Ok(());
    };
    let message = format!(
        "`{}` calls the Rust function `{}`, but {obstacle}; XLA's plugin for the CPU and the \
         embedded executor run such functions",
        program.name,
        target.name()
    );
    Err(Error::new(ErrorKind::Unsupported, "compile", message).on(client.platform_name()))
}

/// Returns whether programs of this client may call registered functions.
pub(crate) fn is_supported(client: &Shared) -> bool {
    obstacle(client).is_none()
}

/// Registers the targets of the process that the plugin of a client does not have yet. Programs
/// find them when they are compiled or loaded. Nothing is registered with a plugin that cannot run
/// them.
///
/// # Errors
/// Errors of the plugin, such as for the name of a target of its own.
pub(crate) fn register_targets(client: &Shared) -> Result<()> {
    if obstacle(client).is_some() {
        return Ok(());
    }
    let mut registered = (client.plugin().targets())
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for (target, handler) in custom_call::targets()
        .iter()
        .zip(HANDLERS)
        .skip(*registered)
    {
        register(client, target, handler)?;
        *registered += 1;
    }
    Ok(())
}

/// The reason why a plugin cannot call functions of this process, if it cannot.
fn obstacle(client: &Shared) -> Option<String> {
    let (table, platform) = (client.table(), client.platform_name());
    if table
        .extension_entry::<PJRT_FFI_Extension>(REGISTER)
        .is_none()
    {
        let (major, minor) = table.version;
        return Some(format!(
            "{} (PJRT {major}.{minor}) has no FFI extension",
            table.name()
        ));
    }
    (**platform != *HOST).then(|| format!("the buffers of {platform} are not in host memory"))
}

/// Returns whether a program calls a target.
fn calls(code: &Code, target: &str) -> bool {
    match code {
        Code::Module(module) => (module.facts().custom_calls.iter()).any(|called| called == target),
        Code::Bytes(bytes) => bytes_call(bytes, target),
    }
}

/// Returns whether text or bytecode calls a target.
fn bytes_call(code: &[u8], target: &str) -> bool {
    let has = |needle: String| memmem::find(code, needle.as_bytes()).is_some();
    if halite_core::program_text::is_bytecode(code) {
        return memmem::find(code, b"custom_call").is_some() && has(format!("{target}\0"));
    }
    has(format!("custom_call @{target}("))
        || has(format!("custom_call @{target:?}("))
        || has(format!("call_target_name = {target:?}"))
}

fn register(client: &Shared, target: &Target, handler: XLA_FFI_Handler) -> Result<()> {
    let name = target.name();
    let mut args = PJRT_FFI_Register_Handler_Args {
        target_name: name.as_ptr().cast(),
        target_name_size: name.len(),
        handler: handler as *mut c_void,
        platform_name: HOST.as_ptr().cast(),
        platform_name_size: HOST.len(),
        ..PJRT_FFI_Register_Handler_Args::new()
    };
    // SAFETY: the entry takes these arguments, whose strings live during the call; the handler has
    // the type of XLA's, and lives as long as the process.
    let registered = unsafe {
        (client.table()).call_extension::<PJRT_FFI_Extension, _>(OP, REGISTER, &mut args)
    };
    registered.map_err(|error| {
        let message = format!("the target `{name}`: {}", error.message());
        Error::new(error.kind(), OP, message).on(client.platform_name())
    })
}

/// Handler of the target that was registered as number `INDEX`.
///
/// # Safety
///
/// * As for [`handle`].
unsafe extern "C" fn handler<const INDEX: usize>(
    frame: *mut XLA_FFI_CallFrame,
) -> *mut XLA_FFI_Error {
    // SAFETY: this function's condition.
    unsafe { handle(INDEX, frame) }
}

macro_rules! handlers {
    ($($row:literal)*) => {
        [$(
            handler::<{ $row * 16 }>, handler::<{ $row * 16 + 1 }>,
            handler::<{ $row * 16 + 2 }>, handler::<{ $row * 16 + 3 }>,
            handler::<{ $row * 16 + 4 }>, handler::<{ $row * 16 + 5 }>,
            handler::<{ $row * 16 + 6 }>, handler::<{ $row * 16 + 7 }>,
            handler::<{ $row * 16 + 8 }>, handler::<{ $row * 16 + 9 }>,
            handler::<{ $row * 16 + 10 }>, handler::<{ $row * 16 + 11 }>,
            handler::<{ $row * 16 + 12 }>, handler::<{ $row * 16 + 13 }>,
            handler::<{ $row * 16 + 14 }>, handler::<{ $row * 16 + 15 }>,
        )*]
    };
}

/// Handlers by the position of their target in the order of registration.
static HANDLERS: [XLA_FFI_Handler; MAX_TARGETS] = handlers!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
