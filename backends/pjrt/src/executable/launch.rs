//! Launches of a program: argument checks, the call, and the results.

use std::{
    cell::Cell,
    ptr::NonNull,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use halite_core::{Arg, Buffer, Error, ErrorKind, Launch, Launched, Placement, Result};
use halite_pjrt_sys::{buffer::PJRT_Buffer, event::PJRT_Event, executable::*};

use super::PjrtExecutable;
use crate::{
    PjrtBuffer,
    buffer::{Kind, is_shared},
    handle::Handle,
    in_flight::Permit,
    program_error::of_program,
};

const OP: &str = "launch";

impl PjrtExecutable {
    /// Checks the arguments, queues the program, and collects its results.
    pub(crate) fn launch_now(
        &self,
        launch: Launch<'_, PjrtBuffer>,
    ) -> Result<Launched<PjrtBuffer>> {
        let mut scratch = Scratch::take();
        let result = self
            .check_args(&launch.args, &mut scratch)
            .and_then(|()| self.execute(&mut scratch));
        // Donated handles are destroyed here, whether the launch took their memory or failed.
        drop(launch);
        let mut complete = true;
        let mut outputs = Vec::with_capacity(self.described.devices.len());
        if result.is_ok() {
            for (&device, pointers) in self
                .described
                .devices
                .iter()
                .zip(scratch.rows(self.outputs.len()))
            {
                let mut buffers = Vec::with_capacity(self.outputs.len());
                for (kind, pointer) in self.outputs.iter().zip(pointers) {
                    match NonNull::new(*pointer) {
                        Some(buffer) => {
                            buffers.push(PjrtBuffer::of(kind, Handle::new(buffer), device))
                        }
                        None => complete = false,
                    }
                }
                outputs.push(buffers);
            }
        }
        scratch.put_back();
        result?;
        if !complete {
            let message = format!(
                "`{}`: the plugin returned fewer results than the program has",
                self.described.name
            );
            return Err(
                Error::new(ErrorKind::Internal, OP, message).on(self.client.platform_name())
            );
        }
        Ok(Launched { outputs })
    }

    /// Checks the arguments and writes them to `scratch`.
    #[inline]
    fn check_args(&self, args: &[Vec<Arg<'_, PjrtBuffer>>], scratch: &mut Scratch) -> Result<()> {
        let inputs = self.inputs.len();
        if args.len() != self.described.devices.len() || args.iter().any(|row| row.len() != inputs)
        {
            return Err(self.refuse_counts(args));
        }
        for (row, (row_args, &device)) in args.iter().zip(&self.described.devices).enumerate() {
            for (index, (arg, input)) in row_args.iter().zip(&self.inputs).enumerate() {
                let buffer = arg.buffer();
                let borrowed = matches!(arg, Arg::Borrow(_));
                let fits = (Arc::ptr_eq(buffer.kind(), &input.kind)
                    || *buffer.kind() == input.kind)
                    && buffer.device() == device
                    && !buffer.is_deleted()
                    && (borrowed || input.donated);
                if !fits {
                    return Err(self.refuse(row, index, arg));
                }
                if borrowed && input.may_overwrite && !scratch.kept.contains(&(index as i64)) {
                    scratch.kept.push(index as i64);
                }
                scratch.args.push(buffer.raw());
            }
        }
        Ok(())
    }

    /// The error of an argument that cannot be passed.
    #[cold]
    fn refuse(&self, row: usize, index: usize, arg: &Arg<'_, PjrtBuffer>) -> Error {
        let buffer = arg.buffer();
        let Kind {
            ty: want, memory, ..
        } = &*self.inputs[index].kind;
        let at = Placement {
            device: self.described.devices[row],
            memory: *memory,
        };
        let message = if !Arc::ptr_eq(&buffer.kind().client, &self.client) {
            "is a buffer of another client; copy it to this one, as by `Array::reshard`".to_owned()
        } else if buffer.is_deleted() {
            format!("({want}) was deleted")
        } else if buffer.tensor_type() != want {
            format!("is {}, expected {want}", buffer.tensor_type())
        } else if buffer.placement() != at {
            let place = buffer.placement();
            format!(
                "({want}) is in {:?} memory of device {}, expected {:?} of {}",
                place.memory, place.device.0, at.memory, at.device.0
            )
        } else {
            format!(
                "({want}) cannot be donated; the program donates only {:?}",
                self.signature.donated
            )
        };
        self.client.invalid(
            OP,
            format!(
                "`{}`: argument {index} for device {} {message}",
                self.described.name, at.device.0
            ),
        )
    }

    #[cold]
    fn refuse_counts(&self, args: &[Vec<Arg<'_, PjrtBuffer>>]) -> Error {
        let given: Vec<_> = args.iter().map(Vec::len).collect();
        let (devices, inputs) = (self.described.devices.len(), self.inputs.len());
        self.client.invalid(
            OP,
            format!(
                "`{}`: got {given:?} arguments per device, expected {inputs} for each of \
                 {devices} devices",
                self.described.name
            ),
        )
    }

    /// Queues the program with the checked arguments and writes the results to `scratch`.
    #[inline]
    fn execute(&self, scratch: &mut Scratch) -> Result<()> {
        let (devices, inputs, outputs) = (
            self.described.devices.len(),
            self.inputs.len(),
            self.outputs.len(),
        );
        scratch.list_rows(devices, inputs, outputs);
        // Held until the launch is queued.
        let permit = if self.described.needs_permit() {
            Some(self.client.launch_permit(&self.described)?)
        } else {
            None
        };
        let wants_events = permit.as_ref().is_some_and(Permit::wants_events);
        if wants_events {
            scratch.done.resize(devices, std::ptr::null_mut());
        }
        let mut options = PJRT_ExecuteOptions {
            launch_id: if devices > 1 {
                self.client.next_launch()
            } else {
                0
            },
            non_donatable_input_indices: scratch.kept.as_ptr(),
            num_non_donatable_input_indices: scratch.kept.len(),
            ..PJRT_ExecuteOptions::new()
        };
        let mut args = PJRT_LoadedExecutable_Execute_Args {
            executable: self.loaded.executable.as_ptr(),
            options: &mut options,
            argument_lists: scratch.arg_rows.as_ptr(),
            num_devices: devices,
            num_args: inputs,
            output_lists: scratch.output_rows.as_ptr(),
            // Otherwise completion events come from the results, on request.
            device_complete_events: if wants_events {
                scratch.done.as_mut_ptr()
            } else {
                std::ptr::null_mut()
            },
            ..PJRT_LoadedExecutable_Execute_Args::new()
        };
        // SAFETY: every argument is alive, of this client, on the right device and of the right
        // type; the lists have the given lengths, the output lists room for what the program
        // returns, and the events for a device each.
        unsafe { self.client.call(OP, &mut args) }.map_err(|error| self.explain(error))?;
        if let Some(permit) = permit {
            permit.launched(&scratch.done);
        }
        // Plugins either always do this or never.
        if !self.results_checked.load(Relaxed) {
            self.check_results(scratch)?;
        }
        Ok(())
    }

    #[cold]
    fn check_results(&self, scratch: &Scratch) -> Result<()> {
        if is_shared(&scratch.outputs, &scratch.args) {
            // It is unknown which of them may be freed, so none is.
            let plugin = self.client.table().name();
            let message = format!(
                "`{}`: {plugin} returned the same buffer twice; use another build of it",
                self.name()
            );
            return Err(
                Error::new(ErrorKind::Internal, OP, message).on(self.client.platform_name())
            );
        }
        self.results_checked.store(true, Relaxed);
        Ok(())
    }

    #[cold]
    fn explain(&self, error: Error) -> Error {
        let error = of_program(error, OP, &self.described.name);
        if error.kind() == ErrorKind::OutOfMemory {
            self.client.with_memory(error, &self.described.devices)
        } else {
            error
        }
    }
}

/// Buffers of a launch, reused by the thread's next one.
#[derive(Default)]
struct Scratch {
    /// `[device][input]`, flat.
    args: Vec<*mut PJRT_Buffer>,
    arg_rows: Vec<*const *mut PJRT_Buffer>,
    /// `[device][output]`, flat.
    outputs: Vec<*mut PJRT_Buffer>,
    output_rows: Vec<*mut *mut PJRT_Buffer>,
    /// Inputs that must not be donated.
    kept: Vec<i64>,
    /// Completion events by device, where requested.
    done: Vec<*mut PJRT_Event>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

impl Scratch {
    /// A launch within a launch (from a callback that a plugin runs inline) finds empty lists, and
    /// makes its own.
    fn take() -> Scratch {
        SCRATCH.try_with(Cell::take).unwrap_or_default()
    }

    /// Makes room for the results, and lists the rows of arguments and of results.
    #[inline]
    fn list_rows(&mut self, devices: usize, inputs: usize, outputs: usize) {
        self.outputs.resize(devices * outputs, std::ptr::null_mut());
        // One pointer to each list, which nothing borrows again until the plugin is done with it.
        let (first_arg, first_output) = (self.args.as_ptr(), self.outputs.as_mut_ptr());
        for row in 0..devices {
            self.arg_rows.push(first_arg.wrapping_add(row * inputs));
            self.output_rows
                .push(first_output.wrapping_add(row * outputs));
        }
    }

    fn put_back(mut self) {
        self.args.clear();
        self.arg_rows.clear();
        self.outputs.clear();
        self.output_rows.clear();
        self.kept.clear();
        self.done.clear();
        // A thread that is ending has no place for it.
        let _ = SCRATCH.try_with(|place| place.set(self));
    }

    /// The results by device; empty rows for a program without results.
    fn rows(&self, width: usize) -> impl Iterator<Item = &[*mut PJRT_Buffer]> {
        (0..).map(move |row| &self.outputs[row * width..(row + 1) * width])
    }
}
