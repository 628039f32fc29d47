//! Launches: arguments, donation, results and their events; contexts of launches.

use std::sync::Arc;

use halite_core::{Arg, DeviceBuffers, DeviceId, Loaded, Placement, TensorType};
use halite_pjrt_sys::{buffer::PJRT_Buffer, executable::*};

use crate::{
    abi::{Function, Given, LaunchRows, launch_rows, list, nested},
    buffer::{Buffer, Content},
    device::Device,
    event::Event,
    executable::{Compiled, LoadedExecutable},
    handle::{find, objects, publish, take},
    status::{Outcome, Status, drop_logged},
};

/// Data for custom calls. The contract has none, so that it is only a handle.
pub(crate) struct Context;

objects!(Context => PJRT_ExecuteContext);

impl Function for PJRT_ExecuteContext_Create_Args {
    fn call(_: &Given<Self>, out: &mut Self) -> Outcome {
        out.context = publish(Arc::new(Context));
        Ok(())
    }
}

impl Function for PJRT_ExecuteContext_Destroy_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        drop_logged(take::<Context>(args.context)?);
        Ok(())
    }
}

impl Function for PJRT_LoadedExecutable_Execute_Args {
    const HAS_RESULTS: bool = false;

    fn call(args: &Given<Self>, _: &mut Self) -> Outcome {
        let program = find::<LoadedExecutable>(args.executable)?;
        let loaded = program.loaded()?;
        check_counts(args, &program)?;
        let rows = launch_rows(args, program.signature.outputs.len())?;
        let kept = options(args)?;
        let outputs = match find_arguments(&program, &rows, &kept)? {
            Ok(arguments) => launch(&program, &loaded, arguments)?,
            Err(status) => failed_outputs(&program, &status),
        };
        let events = if args.device_complete_events.is_null() {
            Vec::new()
        } else {
            outputs
                .iter()
                .map(|row| Event::all(row.iter().map(|buffer| buffer.ready()).collect()))
                .collect()
        };
        for (room, row) in rows.results.iter().zip(outputs) {
            room.write(row.into_iter().map(publish));
        }
        rows.events
            .write(events.into_iter().map(Event::into_handle));
        Ok(())
    }
}

fn check_counts(args: &Given<PJRT_LoadedExecutable_Execute_Args>, program: &Compiled) -> Outcome {
    let (devices, inputs) = (&*program.devices, program.signature.inputs.len());
    if (args.num_devices, args.num_args) != (devices.len(), inputs) {
        return Err(Status::invalid(format!(
            "`{}`: {} arguments on {} devices given, expected {inputs} on {}",
            program.name,
            args.num_args,
            args.num_devices,
            devices.len()
        )));
    }
    if !args.execute_device.is_null() {
        let device = find::<Device>(args.execute_device)?.id;
        if devices != [device] {
            return Err(Status::unimplemented(format!(
                "`{}` is compiled for devices {:?}, a launch on {} needs another compilation",
                program.name,
                devices.iter().map(|device| device.0).collect::<Vec<_>>(),
                device.0
            )));
        }
    }
    Ok(())
}

/// The arguments that must not be donated.
fn options(args: &Given<PJRT_LoadedExecutable_Execute_Args>) -> Outcome<Vec<i64>> {
    if args.options.is_null() {
        return Ok(Vec::new());
    }
    let options = nested!(args, options)?;
    if options.num_send_ops > 0 || options.num_recv_ops > 0 {
        return Err(Status::unimplemented("send and receive callbacks"));
    }
    let kept: &[i64] = list!(
        &options,
        non_donatable_input_indices,
        num_non_donatable_input_indices
    )?;
    Ok(kept.to_vec())
}

/// The arguments of a launch.
struct Arguments {
    /// By device and input.
    held: Vec<Vec<Held>>,
    /// Those that the launch donates.
    donated: Vec<Donated>,
}

/// An argument that is donated: its place, and the caller's buffer.
struct Donated {
    row: usize,
    index: usize,
    buffer: Arc<Buffer>,
}

/// Looks the arguments up, and checks their types and devices; those in `kept` are not donated. The
/// inner error is that of the first argument whose contents failed.
fn find_arguments(
    program: &Compiled,
    rows: &LaunchRows<'_>,
    kept: &[i64],
) -> Outcome<Result<Arguments, Status>> {
    let mut donates = vec![false; program.signature.inputs.len()];
    for &index in &program.signature.donated {
        donates[index] = true;
    }
    for &index in kept {
        // An index of no argument has no effect, as in XLA.
        if let Some(donates) = usize::try_from(index)
            .ok()
            .and_then(|at| donates.get_mut(at))
        {
            *donates = false;
        }
    }
    let (mut failed, mut donated) = (None, Vec::new());
    let mut held = Vec::with_capacity(rows.arguments.len());
    let devices = rows.arguments.iter().zip(&program.devices);
    for (row, (handles, &device)) in devices.enumerate() {
        let mut contents = Vec::with_capacity(handles.len());
        for (index, &handle) in handles.iter().enumerate() {
            let buffer = check_argument(program, index, device, handle)?;
            match buffer.content() {
                Content::Failed(status) => failed = failed.or(Some(status)),
                _ => contents.push(Held::Shared(buffer.here()?)),
            }
            if donates[index] {
                donated.push(Donated { row, index, buffer });
            }
        }
        held.push(contents);
    }
    Ok(match failed {
        Some(status) => Err(status),
        None => Ok(Arguments { held, donated }),
    })
}

/// The buffer of an argument, if the program takes it.
fn check_argument(
    program: &Compiled,
    index: usize,
    device: DeviceId,
    handle: *mut PJRT_Buffer,
) -> Outcome<Arc<Buffer>> {
    let refuse = |why: &str| {
        Status::invalid(format!(
            "`{}`: argument {index} for device {} {why}",
            program.name, device.0
        ))
    };
    let buffer = find::<Buffer>(handle)
        .map_err(|status| refuse(&format!("is unknown: {}", status.message)))?;
    let expected = &program.signature.inputs[index];
    if !Arc::ptr_eq(&buffer.client, &program.client) {
        return Err(refuse("is a buffer of another client"));
    }
    if buffer.ty != *expected {
        return Err(refuse(&format!("is {}, expected {expected}", buffer.ty)));
    }
    if buffer.place.device != device {
        return Err(refuse(&format!("is on device {}", buffer.place.device.0)));
    }
    Ok(buffer)
}

/// Results of a launch with a failed argument: they fail with its error.
fn failed_outputs(program: &Compiled, status: &Status) -> Vec<Vec<Arc<Buffer>>> {
    let outputs = |&device: &DeviceId| {
        let content = || Content::Failed(status.clone());
        let buffer =
            |ty: &TensorType| Buffer::new(&program.client, ty.clone(), device.into(), content());
        program.signature.outputs.iter().map(buffer).collect()
    };
    program.devices.iter().map(outputs).collect()
}

/// Launches, after marking the donated arguments as deleted. Nothing is donated if an argument is
/// refused.
fn launch(
    program: &Compiled,
    loaded: &Loaded,
    arguments: Arguments,
) -> Outcome<Vec<Vec<Arc<Buffer>>>> {
    Buffer::delete_all(arguments.donated.iter().map(|it| &*it.buffer).collect())?;
    let mut held = arguments.held;
    for Donated { row, index, .. } in arguments.donated {
        held[row][index].own();
    }
    let mut rows: Vec<_> = held.iter_mut().map(|row| row.iter_mut()).collect();
    let mut args = Vec::new();
    for _ in 0..program.signature.inputs.len() {
        args.extend(rows.iter_mut().filter_map(Iterator::next).map(Held::arg));
    }
    let outputs = loaded.launch(args);
    held.into_iter().flatten().for_each(drop_logged);
    check_outputs(program, outputs?)
}

/// The backend's buffer of an argument.
enum Held {
    /// Also held by the caller's buffer, an alias or another launch.
    Shared(Arc<DeviceBuffers>),
    /// Donated; `None` once it is passed.
    Owned(Option<DeviceBuffers>),
}

impl Held {
    /// Makes the buffer a donated one. One with another holder is lent to the launch
    /// instead, and freed by the last holder.
    fn own(&mut self) {
        if let Held::Shared(content) = std::mem::replace(self, Held::Owned(None)) {
            *self = match Arc::try_unwrap(content) {
                Ok(owned) => Held::Owned(Some(owned)),
                Err(content) => Held::Shared(content),
            };
        }
    }

    fn arg(&mut self) -> Arg<'_, DeviceBuffers> {
        match self {
            Held::Shared(content) => Arg::Borrow(content),
            Held::Owned(content) => {
                Arg::Donate(content.take().expect("each argument is passed once"))
            }
        }
    }
}

/// Checks the types and devices of the results of the backend, and returns them by device.
fn check_outputs(
    program: &Compiled,
    outputs: Vec<DeviceBuffers>,
) -> Outcome<Vec<Vec<Arc<Buffer>>>> {
    const METHOD: &str = "Executable::launch";
    let client = &program.client;
    let mut rows: Vec<_> = (program.devices.iter())
        .map(|&device| (device, Vec::with_capacity(outputs.len())))
        .collect();
    for (output, ty) in outputs.into_iter().zip(&program.signature.outputs) {
        for ((device, row), buffer) in rows.iter_mut().zip(output.split()) {
            let place = Placement {
                device: *device,
                ..buffer.first().placement()
            };
            row.push(Buffer::of_backend(client, METHOD, buffer, ty, place)?);
        }
    }
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}
