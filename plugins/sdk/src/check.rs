//! Checks that every backend makes before it queues work, with the errors that users see.

use halite_core::{
    Arg, Buffer, CompileOptions, Device, DeviceId, Error, Launch, Placement, Program, Result,
    Signature, TensorType,
};

/// Index in `devices` of the device of a placement.
///
/// # Errors
/// If there is no such device, or it has no memory of this kind.
pub fn device(devices: &[impl Device], op: &'static str, place: Placement) -> Result<usize> {
    let Placement { device: id, memory } = place;
    let Some(index) = devices.iter().position(|device| device.id() == id) else {
        let known: Vec<_> = devices.iter().map(|device| device.id().0).collect();
        let message = format!("unknown device {}; expected one of {known:?}", id.0);
        return Err(Error::invalid(op, message));
    };
    let memories = devices[index].memories();
    if !memories.contains(&memory) {
        let message = format!(
            "device {} has no memory {memory:?}; expected one of {memories:?}",
            id.0
        );
        return Err(Error::invalid(op, message));
    }
    Ok(index)
}

/// Checks that `bytes` are as many as a tensor of type `ty` has.
///
/// # Errors
/// If they are not, or the number overflows.
pub fn upload(bytes: &[u8], ty: &TensorType) -> Result<()> {
    let (given, needed) = (bytes.len(), ty.checked_bytes()?);
    if given == needed {
        return Ok(());
    }
    let message = format!("{given} bytes given, {ty} needs {needed}");
    Err(Error::invalid("upload", message))
}

/// The devices of a program, replicas outermost: those of the options, or the first ones.
///
/// # Errors
/// If they are not as many as the program needs, do not exist, or are listed twice.
pub fn assignment(
    devices: &[impl Device],
    program: &Program,
    options: &CompileOptions,
) -> Result<Vec<DeviceId>> {
    const OP: &str = "compile";
    let needed = program.replicas.saturating_mul(program.partitions);
    let ids = if options.devices.is_empty() {
        devices.iter().map(Device::id).take(needed).collect()
    } else {
        options.devices.clone()
    };
    if ids.len() != needed || needed == 0 {
        let message = format!(
            "`{}`: {} replicas of {} partitions need as many devices, got {}",
            program.name,
            program.replicas,
            program.partitions,
            ids.len()
        );
        return Err(Error::invalid(OP, message));
    }
    for (index, &id) in ids.iter().enumerate() {
        device(devices, OP, id.into())?;
        if ids[..index].contains(&id) {
            let message = format!("`{}`: device {} is listed twice", program.name, id.0);
            return Err(Error::invalid(OP, message));
        }
    }
    Ok(ids)
}

/// Checks the compiler flags for a backend that has none.
///
/// # Errors
/// If there are any.
pub fn no_flags(options: &CompileOptions) -> Result<()> {
    let Some((name, _)) = options.flags.first() else {
        return Ok(());
    };
    let message = format!("unknown compiler flag `{name}`; this backend has no flags");
    Err(Error::invalid("compile", message))
}

/// Checks the arguments of a launch of the program `name` on `devices`. `is_own` returns whether a
/// buffer belongs to the client of the program.
///
/// # Errors
/// As those of [`Executable::launch`](halite_core::Executable::launch).
pub fn launch<B: Buffer>(
    name: &str,
    signature: &Signature,
    devices: &[DeviceId],
    launch: &Launch<'_, B>,
    is_own: impl Fn(&B) -> bool,
) -> Result<()> {
    let invalid = |message| Error::invalid("launch", format!("`{name}`: {message}"));
    if launch.args.len() != devices.len() {
        let (given, needed) = (launch.args.len(), devices.len());
        return Err(invalid(format!(
            "arguments for {given} devices given, expected {needed}"
        )));
    }
    for (args, &device) in launch.args.iter().zip(devices) {
        if args.len() != signature.inputs.len() {
            let (given, needed) = (args.len(), signature.inputs.len());
            return Err(invalid(format!(
                "{given} arguments given for device {}, expected {needed}",
                device.0
            )));
        }
        for (index, arg) in args.iter().enumerate() {
            let fault = if is_own(arg.buffer()) {
                argument(signature, index, arg, device)
            } else {
                Err("is a buffer of another client".to_owned())
            };
            fault.map_err(|message| invalid(format!("argument {index} {message}")))?;
        }
    }
    Ok(())
}

/// Checks one argument; errors are the end of "argument 0 ..".
fn argument(
    signature: &Signature,
    index: usize,
    arg: &Arg<'_, impl Buffer>,
    device: DeviceId,
) -> Result<(), String> {
    let (ty, at) = (arg.buffer().tensor_type(), arg.buffer().placement().device);
    let (needed, donated) = (&signature.inputs[index], &signature.donated);
    if ty != needed || at != device {
        return Err(format!(
            "is {ty} on device {}, expected {needed} on device {}",
            at.0, device.0
        ));
    }
    if matches!(arg, Arg::Donate(_)) && !donated.contains(&index) {
        return Err(format!(
            "cannot be donated; the program donates {donated:?}"
        ));
    }
    Ok(())
}
