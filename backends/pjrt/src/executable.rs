//! Programs on the devices of a client, and their launches.

use std::{
    cell::Cell,
    fmt,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use halite_core::{
    Arg, Device, DeviceId, Error, ErrorKind, Executable, HloSharding, Launch, Launched, MemoryKind,
    Placement, ProgramMemory, Result, Signature, TensorType,
};
use halite_pjrt_sys::{buffer::PJRT_Buffer, event::PJRT_Event, executable::*};

use crate::{
    CompiledProgram, Pjrt, PjrtBuffer,
    buffer::{Kind, is_shared},
    client::Shared,
    compile::of_program,
    device::memory_kind,
    handle::Handle,
    in_flight::{Described, Permit},
    loaded::Loaded,
    signature::check_types,
    tiling::tiling_of,
};

/// A program on the devices of a plugin's client.
pub struct PjrtExecutable {
    loaded: Loaded,
    program: CompiledProgram,
    described: Arc<Described>,
    signature: Signature,
    inputs: Vec<Input>,
    outputs: Vec<Arc<Kind>>,
    /// The bytes that it was loaded from. XLA's CPU plugins lose functions of a program that they
    /// serialize a second time.
    serialized: Option<Vec<u8>>,
    /// True once the results of a launch were checked to be distinct buffers.
    results_checked: AtomicBool,
    client: Arc<Shared>,
}

/// Properties of a parameter that each launch checks.
struct Input {
    kind: Arc<Kind>,
    /// True if the signature lists it as donated.
    donated: bool,
    /// The program may overwrite it, so a borrowed buffer must be protected.
    may_overwrite: bool,
}

impl PjrtExecutable {
    /// The program as the compiler sees it: sizes, costs, optimized form.
    pub fn program(&self) -> &CompiledProgram {
        &self.program
    }

    /// The name it was compiled under.
    pub fn name(&self) -> &str {
        &self.described.name
    }
}

impl fmt::Debug for PjrtExecutable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Signature {
            inputs, outputs, ..
        } = &self.signature;
        let devices: Vec<_> = self
            .described
            .devices
            .iter()
            .map(|device| device.0)
            .collect();
        write!(
            f,
            "PjrtExecutable({}, {} inputs, {} outputs, devices {devices:?})",
            self.described.name,
            inputs.len(),
            outputs.len()
        )
    }
}

impl PjrtExecutable {
    pub(crate) fn new(
        op: &'static str,
        loaded: Loaded,
        name: &Arc<str>,
        signature: &Signature,
        wanted: Option<&[u32]>,
    ) -> Result<PjrtExecutable> {
        let client = loaded.client.clone();
        let refuse = |message: String| client.invalid(op, format!("`{name}`: {message}"));
        let program = loaded.program(op)?;
        let devices = loaded.devices(op)?;
        if let Some(wanted) = wanted
            && devices
                .iter()
                .map(|id| id.0)
                .ne(wanted.iter().copied().filter(|id| is_local(&client, *id)))
        {
            let got: Vec<_> = devices.iter().map(|id| id.0).collect();
            return Err(refuse(format!(
                "compiled for devices {wanted:?}, but the plugin assigned it to {got:?}"
            )));
        }
        if devices.is_empty() {
            return Err(refuse(
                "none of its devices belongs to this process".to_owned(),
            ));
        }
        let compiled_signature = program.compiled_signature();
        if let Some(compiled) = &compiled_signature {
            compiled.check(signature).map_err(refuse)?;
        } else if let Ok(types) = program.output_types() {
            // Otherwise the reported types of the results alone.
            check_types("result", &types, &signature.outputs).map_err(refuse)?;
        }
        let outputs = program.output_count()?;
        if outputs != signature.outputs.len() {
            return Err(refuse(format!(
                "the program has {outputs} results, its signature has {}",
                signature.outputs.len()
            )));
        }
        let kinds = |names: Result<Vec<String>>, count: usize| {
            let names = names.ok().filter(|names| names.len() == count);
            let kind = |name: &String| memory_kind(name).unwrap_or_default();
            names.map_or(vec![MemoryKind::Device; count], |names| {
                names.iter().map(kind).collect()
            })
        };
        // Equal kinds share one allocation, so that passing a result as an argument of the next
        // launch compares a pointer.
        let mut known: Vec<Arc<Kind>> = Vec::new();
        let mut kind_of = |(ty, memory): (&TensorType, MemoryKind)| {
            let kind = Kind {
                client: client.clone(),
                ty: ty.clone(),
                memory,
            };
            known
                .iter()
                .find(|known| ***known == kind)
                .cloned()
                .unwrap_or_else(|| {
                    known.push(Arc::new(kind));
                    known[known.len() - 1].clone()
                })
        };
        let inputs = (signature.inputs.iter().zip(kinds(
            program.parameter_memory_kinds(),
            signature.inputs.len(),
        )))
        .enumerate()
        .map(|(index, input)| Input {
            kind: kind_of(input),
            donated: signature.donated.contains(&index),
            // Without the optimized program, the text alone may donate it.
            may_overwrite: compiled_signature
                .as_ref()
                .is_none_or(|signature| signature.donated.contains(&index)),
        })
        .collect();
        let outputs = signature
            .outputs
            .iter()
            .zip(kinds(program.output_memory_kinds(), outputs))
            .map(kind_of)
            .collect();
        Ok(PjrtExecutable {
            loaded,
            program,
            described: Arc::new(Described {
                name: name.clone(),
                devices,
            }),
            signature: signature.clone(),
            inputs,
            outputs,
            serialized: None,
            results_checked: AtomicBool::new(false),
            client,
        })
    }

    /// Keeps the bytes that it was loaded from.
    pub(crate) fn with_serialized(self, serialized: Vec<u8>) -> Self {
        PjrtExecutable {
            serialized: Some(serialized),
            ..self
        }
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
            "is a buffer of another client".to_owned()
        } else if buffer.is_deleted() {
            format!("({want}) was deleted")
        } else if halite_core::Buffer::tensor_type(buffer) != want {
            format!(
                "is {}, expected {want}",
                halite_core::Buffer::tensor_type(buffer)
            )
        } else if halite_core::Buffer::placement(buffer) != at {
            let place = halite_core::Buffer::placement(buffer);
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
            OP_LAUNCH,
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
            OP_LAUNCH,
            format!(
                "`{}`: got {given:?} arguments per device, expected {inputs} for each of \
             {devices} devices",
                self.described.name
            ),
        )
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

    /// Queues the program with the checked arguments and writes the results to `scratch`.
    #[inline]
    fn execute(&self, scratch: &mut Scratch) -> Result<()> {
        let (devices, inputs, outputs) = (
            self.described.devices.len(),
            self.inputs.len(),
            self.outputs.len(),
        );
        scratch
            .outputs
            .resize(devices * outputs, std::ptr::null_mut());
        // One pointer to each list, which nothing borrows again until the plugin is done with it.
        let (first_arg, first_output) = (scratch.args.as_ptr(), scratch.outputs.as_mut_ptr());
        for row in 0..devices {
            // SAFETY: the lists have `devices` rows of that many entries.
            let (args, outputs) =
                unsafe { (first_arg.add(row * inputs), first_output.add(row * outputs)) };
            scratch.arg_rows.push(args);
            scratch.output_rows.push(outputs);
        }
        // Held until the launch is queued.
        let permit = if devices > 1 {
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
        unsafe { self.client.call(OP_LAUNCH, &mut args) }.map_err(|error| self.explain(error))?;
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
                Error::new(ErrorKind::Internal, OP_LAUNCH, message).on(self.client.platform_name())
            );
        }
        self.results_checked.store(true, Relaxed);
        Ok(())
    }

    #[cold]
    fn explain(&self, error: Error) -> Error {
        let error = of_program(error, OP_LAUNCH, &self.described.name);
        if error.kind() == ErrorKind::OutOfMemory {
            self.client.with_memory(error, &self.described.devices)
        } else {
            error
        }
    }
}

const OP_LAUNCH: &str = "launch";

impl Executable<Pjrt> for PjrtExecutable {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn devices(&self) -> &[DeviceId] {
        &self.described.devices
    }

    fn launch(&self, launch: Launch<'_, PjrtBuffer>) -> Result<Launched<PjrtBuffer>> {
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
                Error::new(ErrorKind::Internal, OP_LAUNCH, message).on(self.client.platform_name())
            );
        }
        Ok(Launched { outputs })
    }

    fn serialize(&self) -> Result<Vec<u8>> {
        match &self.serialized {
            Some(bytes) => Ok(bytes.clone()),
            None => self.program.serialize(),
        }
    }

    fn memory(&self) -> Result<ProgramMemory> {
        self.program.memory()
    }

    fn cost(&self) -> Result<Vec<(String, f64)>> {
        self.program.cost()
    }

    fn output_shardings(&self) -> Result<Vec<Option<HloSharding>>> {
        let devices = self.described.devices.len();
        let ranks = self.signature.outputs.iter().map(|ty| ty.rank());
        // Replicas have tensors of their own, which no part of is a part of another's.
        if devices > 1 && self.program.partitions()? != devices {
            return Ok(vec![None; self.signature.outputs.len()]);
        }
        let said = self.program.output_shardings()?;
        Ok(ranks
            .enumerate()
            .map(|(i, rank)| tiling_of(said.get(i)?, rank, devices))
            .collect())
    }

    fn optimized(&self) -> Result<(String, Vec<u8>)> {
        self.program.optimized()
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

fn is_local(client: &Shared, id: u32) -> bool {
    client
        .device("place", DeviceId(id))
        .is_ok_and(Device::is_local)
}
