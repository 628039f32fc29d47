//! Compiling programs for the devices of a client, and loading serialized ones.

use std::{sync::Arc, time::Duration};

use halite_core::{
    CompileOptions, Device, Error, ErrorKind, Program, ProgramFacts, Result, Signature,
};
use halite_pjrt_sys::executable::*;

use crate::{
    PjrtExecutable,
    at_exit::Compiling,
    check::{assign, check_donated, check_program},
    custom_call, frame,
    handle::Handle,
    isolate::{self, Isolation},
    loaded::Loaded,
    options::{Assignment, encode, with_defaults},
    program_error::of_program,
    scan::facts_of,
    shared_client::Shared,
};

/// Compiles and loads.
pub(crate) fn compile(
    client: &Arc<Shared>,
    program: &Program,
    options: &CompileOptions,
) -> Result<PjrtExecutable> {
    const OP: &str = "compile";
    let facts = facts_of(program);
    let devices = devices_for(client, program, &facts, options)
        .map_err(|message| client.invalid(OP, format!("`{}`: {message}", program.name)))?;
    if facts.layout_modes && !client.quirks().reads_row_major {
        let (major, minor) = client.plugin().api_version();
        let message = format!(
            "`{}` chooses memory layouts of its results, which a plugin of PJRT {major}.{minor} \
             does not read back row-major; 0.106 and newer do",
            program.name
        );
        return Err(Error::new(ErrorKind::Unsupported, OP, message).on(client.platform_name()));
    }
    custom_call::prepare(client, program)?;
    let options = options_for(client, &facts, options, &devices);
    let compiled = compile_code(client, OP, program.code.bytes().to_vec(), options);
    let executable = compiled.map_err(|error| of_program(error, OP, &program.name))?;
    let loaded = Loaded {
        executable,
        client: client.clone(),
    };
    PjrtExecutable::new(
        OP,
        loaded,
        &program.name,
        &program.signature,
        Some(&devices.ids),
    )
}

/// The devices for a program, if nothing is found to be wrong with it.
pub(crate) fn devices_for(
    client: &Shared,
    program: &Program,
    facts: &ProgramFacts,
    options: &CompileOptions,
) -> Result<Assignment, String> {
    let local = (client.devices().iter())
        .filter(|device| device.is_local())
        .map(Device::id)
        .collect();
    let known: Vec<_> = client.devices().iter().map(Device::id).collect();
    check_program(program, facts, options)?;
    assign(
        program.replicas,
        program.partitions,
        &options.devices,
        local,
        &known,
    )
}

/// The serialized options of a program with these facts.
pub(crate) fn options_for(
    client: &Shared,
    facts: &ProgramFacts,
    options: &CompileOptions,
    devices: &Assignment,
) -> Vec<u8> {
    let flags = with_defaults(client.quirks(), facts, &options.flags);
    encode(devices, facts, &flags)
}

/// Loads what [`Executable::serialize`](halite_core::Executable::serialize) returned.
pub(crate) fn load(
    client: &Arc<Shared>,
    serialized: &[u8],
    name: &Arc<str>,
    signature: &Signature,
    options: &CompileOptions,
) -> Result<PjrtExecutable> {
    const OP: &str = "load";
    let platform = client.platform_name();
    let _compiling = Compiling::begin(OP).map_err(|error| error.on(platform))?;
    let framed = serialized;
    let serialized = frame::unwrap(OP, &client.plugin().identity(platform), serialized)
        .map_err(|error| error.on(platform))?;
    check_donated(signature).map_err(|message| client.invalid(OP, message))?;
    custom_call::register_targets(client)?;
    let loaded = deserialize(client, serialized, None)?;
    let wanted: Vec<u32> = options.devices.iter().map(|id| id.0).collect();
    if wanted.is_empty()
        || loaded
            .devices(OP)?
            .iter()
            .map(|id| id.0)
            .eq(wanted.iter().copied())
    {
        let executable = PjrtExecutable::new(OP, loaded, name, signature, None)?;
        return Ok(executable.with_serialized(framed.to_vec()));
    }
    // It runs on the devices it was compiled for; other devices need overriding options.
    let program = loaded.program(OP)?;
    let known: Vec<_> = client.devices().iter().map(Device::id).collect();
    let devices = assign(
        program.replicas()?,
        program.partitions()?,
        &options.devices,
        Vec::new(),
        &known,
    )
    .map_err(|message| client.invalid(OP, message))?;
    drop((program, loaded));
    // The compiler is done: no option depends on the code any more.
    let facts = ProgramFacts::default();
    let overriding = options_for(client, &facts, options, &devices);
    let loaded = deserialize(client, serialized, Some(&overriding))?;
    let executable = PjrtExecutable::new(OP, loaded, name, signature, Some(&devices.ids))?;
    Ok(executable.with_serialized(framed.to_vec()))
}

/// Hands over what a plugin serialized, out of its frame.
fn deserialize(
    client: &Arc<Shared>,
    serialized: &[u8],
    overriding: Option<&[u8]>,
) -> Result<Loaded> {
    const OP: &str = "load";
    let mut args = PJRT_Executable_DeserializeAndLoad_Args {
        client: client.raw(),
        serialized_executable: serialized.as_ptr().cast(),
        serialized_executable_size: serialized.len(),
        overridden_serialized_compile_options: overriding
            .map_or(std::ptr::null(), |bytes| bytes.as_ptr().cast()),
        overridden_serialized_compile_options_size: overriding.map_or(0, <[u8]>::len),
        ..PJRT_Executable_DeserializeAndLoad_Args::new()
    };
    // SAFETY: the client is alive; the bytes live during the call. The frame
    // proves that this build of the plugin wrote them: it does not validate them.
    unsafe { client.call(OP, &mut args)? };
    Ok(Loaded {
        executable: Handle::from_plugin(OP, args.loaded_executable)?,
        client: client.clone(),
    })
}

/// Compiles for the client's devices on a separate thread, so that exceptions of XLA's compiler
/// become errors.
///
/// # Errors
/// Errors of the compiler; [`ErrorKind::DeadlineExceeded`] after
/// [`compile_deadline`](isolate::compile_deadline).
pub(crate) fn compile_code(
    client: &Arc<Shared>,
    op: &'static str,
    mut code: Vec<u8>,
    options: Vec<u8>,
) -> Result<Handle<PJRT_LoadedExecutable>> {
    // Large programs take minutes, and users know which of theirs do.
    const NOTICE: Duration = Duration::from_secs(600);

    let deadline = isolate::compile_deadline().map_err(|error| error.on(client.platform_name()))?;
    let plugin = client.plugin().shown();
    let isolation = Isolation {
        thread: "pjrt-compile",
        op,
        plugin,
        deadline,
        notice: NOTICE,
    };
    let held = client.clone();
    let compiling = Compiling::begin(op).map_err(|error| error.on(client.platform_name()))?;
    let compiled = isolate::run(isolation, move || {
        // Until the compiler returns or throws, also if nobody waits for it any longer.
        isolate::hold(Box::new(compiling));
        let format = "mlir";
        let program = PJRT_Program {
            code: code.as_mut_ptr().cast(),
            code_size: code.len(),
            format: format.as_ptr().cast(),
            format_size: format.len(),
            ..PJRT_Program::new()
        };
        let mut args = PJRT_Client_Compile_Args {
            client: held.raw(),
            program: &program,
            compile_options: options.as_ptr().cast(),
            compile_options_size: options.len(),
            ..PJRT_Client_Compile_Args::new()
        };
        // SAFETY: the client is alive; program and options live during the call, and the options
        // have a replica and a partition, without which XLA aborts.
        unsafe { held.call(op, &mut args) }?;
        Handle::from_plugin(op, args.executable)
    });
    let late = || {
        let seconds = deadline.as_secs();
        let message = format!(
            "{plugin} has not compiled it after {seconds} s and was abandoned; \
             HALITE_COMPILE_DEADLINE=SECONDS raises the limit"
        );
        Err(Error::new(ErrorKind::DeadlineExceeded, op, message).on(client.platform_name()))
    };
    compiled.unwrap_or_else(late)
}
