//! Programs on the devices of a client: compiling, loading, launching.

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
    Arg, CompileOptions, Device, DeviceId, Error, ErrorKind, Executable, FlagValue, HloSharding,
    Launch, Launched, MemoryKind, Placement, Program, ProgramFacts, ProgramMemory, Result,
    Shortage, Signature, TensorType,
};
use halite_pjrt_sys::{buffer::PJRT_Buffer, event::PJRT_Event, executable::*};

use crate::{
    CompiledProgram, Pjrt, PjrtBuffer,
    at_exit::Compiling,
    buffer::{Kind, is_shared},
    client::{Shared, compile_code},
    device::memory_kind,
    frame,
    handle::Handle,
    hostile::{refusal, refusal_of_code},
    in_flight::{Described, Turn},
    options::{Assignment, encode, with_defaults},
    program::check_types,
    scan::facts_of,
    tiling::tiling_of,
    value::slice_of,
};

/// A program on the devices of a plugin's client.
pub struct PjrtExecutable {
    loaded: Loaded,
    program: CompiledProgram,
    described: Arc<Described>,
    signature: Signature,
    inputs: Vec<Input>,
    outputs: Vec<Arc<Kind>>,
    /// What it was loaded from. XLA's CPU plugins lose functions of a program that they serialize a
    /// second time.
    serialized: Option<Vec<u8>>,
    /// Whether the results of a launch were seen to be buffers of their own.
    results_checked: AtomicBool,
    client: Arc<Shared>,
}

/// What a launch looks up for each argument.
struct Input {
    kind: Arc<Kind>,
    /// The signature lists it as donated.
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
    let options = options_for(client, &facts, options, &devices);
    let compiled = compile_code(client, OP, program.code.to_vec(), options);
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

/// Loads what [`Executable::serialize`] returned.
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
        return Ok(PjrtExecutable {
            serialized: Some(framed.to_vec()),
            ..executable
        });
    }
    // It knows the devices it was compiled for; others are asked for by options that override its
    // own.
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
    Ok(PjrtExecutable {
        serialized: Some(framed.to_vec()),
        ..executable
    })
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
    // SAFETY: the client is alive; the bytes live during the call. They are what this build of the
    // plugin wrote, which the frame says: it reads them without a look.
    unsafe { client.call(OP, &mut args)? };
    Ok(Loaded {
        executable: Handle::from_plugin(OP, args.loaded_executable)?,
        client: client.clone(),
    })
}

impl PjrtExecutable {
    fn new(
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
                "compiled for devices {wanted:?}, the plugin put it on {got:?}"
            )));
        }
        if devices.is_empty() {
            return Err(refuse(
                "none of its devices belongs to this process".to_owned(),
            ));
        }
        let border = program.border();
        if let Some(border) = &border {
            border.check(signature).map_err(refuse)?;
        } else if let Ok(types) = program.output_types() {
            // The next best: what the plugin says of the results alone.
            check_types("result", &types, &signature.outputs).map_err(refuse)?;
        }
        let outputs = program.output_count()?;
        if outputs != signature.outputs.len() {
            return Err(refuse(format!(
                "the program has {outputs} results, its signature says {}",
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
        // One for all that is equal, so that a result which is an argument of the next launch is
        // known at a glance.
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
            // A plugin that does not show its program may have been told by the text alone.
            may_overwrite: border
                .as_ref()
                .is_none_or(|border| border.donated.contains(&index)),
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

    /// Why an argument cannot be passed; None if it can. Off the fast path, so that it can afford
    /// words.
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
                "is {}, want {want}",
                halite_core::Buffer::tensor_type(buffer)
            )
        } else if halite_core::Buffer::placement(buffer) != at {
            let place = halite_core::Buffer::placement(buffer);
            format!(
                "({want}) is in {:?} memory of device {}, want {:?} of {}",
                place.memory, place.device.0, at.memory, at.device.0
            )
        } else {
            format!(
                "({want}) is donated, but the program does not take it over; it donates {:?}",
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
            format!("`{}`: arguments per device are {given:?}, want {inputs} for each of {devices} devices", self.described.name),
        )
    }

    /// Fills `scratch` with the arguments, each checked.
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

    /// Queues the program with the checked arguments, and leaves the results in `scratch`.
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
            // SAFETY: the lists have `devices` rows of so many entries.
            let (args, outputs) =
                unsafe { (first_arg.add(row * inputs), first_output.add(row * outputs)) };
            scratch.arg_rows.push(args);
            scratch.output_rows.push(outputs);
        }
        // Held until the launch is queued.
        let turn = if devices > 1 {
            Some(self.client.turn(&self.described)?)
        } else {
            None
        };
        let wants_events = turn.as_ref().is_some_and(Turn::wants_events);
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
            // Otherwise completion is asked of the results, and only when somebody wants to know.
            device_complete_events: if wants_events {
                scratch.done.as_mut_ptr()
            } else {
                std::ptr::null_mut()
            },
            ..PJRT_LoadedExecutable_Execute_Args::new()
        };
        // SAFETY: every argument is alive, of this client, on the right device and of the right
        // type; the lists have the lengths said, the output lists room for what the program
        // returns, and the events for a device each.
        unsafe { self.client.call(OP_LAUNCH, &mut args) }.map_err(|error| self.explain(error))?;
        if let Some(turn) = turn {
            turn.launched(&scratch.done);
        }
        // A plugin that does it does it always.
        if !self.results_checked.load(Relaxed) {
            self.check_results(scratch)?;
        }
        Ok(())
    }

    #[cold]
    fn check_results(&self, scratch: &Scratch) -> Result<()> {
        if is_shared(&scratch.outputs, &scratch.args) {
            // Nobody knows which of them may be freed, so none is.
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

/// Lists that a launch needs for the time of the call, kept for the thread's next one.
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
    /// Events of completion by device, where they are wanted.
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

    /// The results by device; as many empty rows as asked for when there are no results.
    fn rows(&self, width: usize) -> impl Iterator<Item = &[*mut PJRT_Buffer]> {
        (0..).map(move |row| &self.outputs[row * width..(row + 1) * width])
    }
}

/// A loaded executable of the plugin, and its client, which outlives it.
struct Loaded {
    executable: Handle<PJRT_LoadedExecutable>,
    client: Arc<Shared>,
}

impl Loaded {
    fn program(&self, op: &'static str) -> Result<CompiledProgram> {
        let mut args = PJRT_LoadedExecutable_GetExecutable_Args {
            loaded_executable: self.executable.as_ptr(),
            ..PJRT_LoadedExecutable_GetExecutable_Args::new()
        };
        // SAFETY: the loaded executable is alive; the executable is ours.
        unsafe { self.client.call(op, &mut args)? };
        let executable = Handle::from_plugin(op, args.executable)?;
        Ok(CompiledProgram::new(
            self.client.plugin(),
            executable,
            self.client.platform_name(),
            Some(self.client.clone()),
        ))
    }

    /// The local devices in launch order.
    fn devices(&self, op: &'static str) -> Result<Vec<DeviceId>> {
        let mut args = PJRT_LoadedExecutable_AddressableDevices_Args {
            executable: self.executable.as_ptr(),
            ..PJRT_LoadedExecutable_AddressableDevices_Args::new()
        };
        // SAFETY: the loaded executable is alive, and so is its list.
        let raw = unsafe {
            self.client.call(op, &mut args)?;
            slice_of(
                self.client.table().name(),
                args.addressable_devices,
                args.num_addressable_devices,
            )?
        };
        let id = |device| {
            self.client
                .devices()
                .iter()
                .find(|known| known.raw() == device)
                .map(Device::id)
        };
        let unknown = || {
            Error::new(
                ErrorKind::Internal,
                op,
                "the plugin put it on a device that it does not list",
            )
        };
        raw.iter()
            .map(|device| id(*device).ok_or_else(unknown))
            .collect()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let mut args = PJRT_LoadedExecutable_Destroy_Args {
            executable: self.executable.as_ptr(),
            ..PJRT_LoadedExecutable_Destroy_Args::new()
        };
        // SAFETY: the executable is ours and not used again; launches that are under way keep what
        // they need.
        unsafe { self.client.table().free(&mut args) };
    }
}

/// Refuses programs and options that no compiler takes, or that are known to end the process.
pub(crate) fn check_program(
    program: &Program,
    facts: &ProgramFacts,
    options: &CompileOptions,
) -> Result<(), String> {
    if program.partitions == 0 || program.replicas == 0 {
        let Program {
            partitions,
            replicas,
            ..
        } = program;
        return Err(format!(
            "has {replicas} replicas of {partitions} partitions, at least 1 device must run it"
        ));
    }
    if program
        .replicas
        .checked_mul(program.partitions)
        .is_none_or(|devices| devices > i32::MAX as usize)
    {
        return Err("wants more devices than can be numbered".to_owned());
    }
    if program.code.is_empty() {
        return Err("has no code".to_owned());
    }
    if facts.shardy && facts.gspmd {
        return Err(
            "mixes `sdy` and `mhlo.sharding` annotations; the partitioners take one kind each"
                .to_owned(),
        );
    }
    let is_wrong = |size: &&usize| **size > 1 && **size != program.partitions;
    if let Some(size) = facts.mesh_sizes.iter().find(is_wrong) {
        // libtpu ends the process on some of these.
        return Err(format!(
            "has a mesh of {size} devices and {} partitions; a mesh is over all partitions",
            program.partitions
        ));
    }
    for (name, _) in &options.flags {
        if name.is_empty() || name.starts_with('-') {
            return Err(format!(
                "flag `{name}`: write the name without leading dashes, such as `xla_dump_to`"
            ));
        }
    }
    if let Some((name, _)) = options
        .flags
        .iter()
        .find(|(name, value)| may_crash_convolutions(name, value))
        && facts.convolutions
    {
        return Err(format!(
            "flag `{name}` on a program with convolutions can end the process; compile it without this flag"
        ));
    }
    if let Some(reason) = refusal(&program.signature, &options.flags) {
        return Err(reason);
    }
    if program.facts.is_none()
        && let Some(reason) = refusal_of_code(&program.code)
    {
        return Err(reason);
    }
    check_donated(&program.signature)
}

/// Whether this flag hands work to oneDNN, which was seen to end the process on programs with
/// convolutions.
fn may_crash_convolutions(name: &str, value: &FlagValue) -> bool {
    // What is not plainly off may be read as on.
    let off = match value {
        FlagValue::Bool(value) => !value,
        FlagValue::Str(value) => ["", "false", "0"].contains(&&**value),
        FlagValue::Int(_) | FlagValue::Float(_) => false,
    };
    name.starts_with("xla_cpu_") && name.contains("onednn") && !off
}

fn check_donated(signature: &Signature) -> Result<(), String> {
    let (donated, inputs) = (&signature.donated, signature.inputs.len());
    if donated.iter().any(|index| *index >= inputs)
        || donated.windows(2).any(|pair| pair[0] >= pair[1])
    {
        return Err(format!(
            "donated inputs {donated:?} are not ascending indices of {inputs} inputs"
        ));
    }
    Ok(())
}

/// The devices for each replica and partition, all known and different. `first` is taken from if
/// none are given.
pub(crate) fn assign(
    replicas: usize,
    partitions: usize,
    given: &[DeviceId],
    first: Vec<DeviceId>,
    known: &[DeviceId],
) -> Result<Assignment, String> {
    let needed = replicas * partitions;
    let ids = if given.is_empty() {
        &first[..needed.min(first.len())]
    } else {
        given
    };
    if ids.len() != needed {
        let (got, from) = (
            ids.len(),
            if given.is_empty() {
                "there are"
            } else {
                "given are"
            },
        );
        return Err(format!(
            "wants {needed} devices ({replicas} replicas of {partitions} partitions), {from} {got}"
        ));
    }
    for (index, id) in ids.iter().enumerate() {
        if ids[..index].contains(id) {
            return Err(format!("device {} is given twice", id.0));
        }
        if !known.contains(id) {
            let known: Vec<_> = known.iter().map(|id| id.0).collect();
            return Err(format!("no device {}; there are {known:?}", id.0));
        }
    }
    Ok(Assignment {
        replicas,
        partitions,
        ids: ids.iter().map(|id| id.0).collect(),
    })
}

fn is_local(client: &Shared, id: u32) -> bool {
    client
        .device("place", DeviceId(id))
        .is_ok_and(Device::is_local)
}

/// Names the program, and keeps the compiler's text. A text that does not parse is `UNKNOWN` to
/// XLA, and the caller's.
pub(crate) fn of_program(error: Error, op: &'static str, name: &str) -> Error {
    let kind = match error.kind() {
        ErrorKind::Internal if op == "compile" && error.message().ends_with("(UNKNOWN)") => {
            ErrorKind::InvalidArgument
        }
        kind => kind,
    };
    let named = Error::new(kind, op, format!("`{name}`: {}", error.message()));
    let named = match shortage(error.message()) {
        Some(shortage) if kind == ErrorKind::OutOfMemory => named.caused_by(shortage),
        _ => named,
    };
    match error.platform() {
        Some(platform) => named.on(&Arc::from(platform)),
        None => named,
    }
}

/// By how much a device's memory does not suffice, in libtpu's words:
/// `required for .. (29.60G) exceeds available HBM (15.75G)`.
fn shortage(words: &str) -> Option<Shortage> {
    let (required, available) = words.split_once(" exceeds available ")?;
    let in_brackets = |text: &str| bytes_of_words(text.split_once('(')?.1.split_once(')')?.0);
    Some(Shortage {
        required: in_brackets(&required[required.rfind('(')?..])?,
        available: in_brackets(available)?,
    })
}

/// `29.60G` is in units of 1024 cubed.
fn bytes_of_words(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1.0,
        "K" | "KiB" => 1024.0,
        "M" | "MiB" => 1024.0 * 1024.0,
        "G" | "GiB" => 1024.0 * 1024.0 * 1024.0,
        "T" | "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some((digits.parse::<f64>().ok()? * unit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scan of this code would find annotations of both partitioners and a type that is too large.
    #[test]
    fn programs_with_facts_are_not_scanned() {
        let code =
            "sdy.mesh @m = <[\"x\"=3]>\n{mhlo.sharding = 1} tensor<9223372036854775807x2xi8>";
        let program = |facts| Program {
            name: Arc::from("test"),
            code: Arc::from(code.as_bytes()),
            signature: Signature::default(),
            partitions: 1,
            replicas: 1,
            facts,
        };
        let check = |program: &Program| {
            check_program(program, &facts_of(program), &CompileOptions::default())
        };
        assert_eq!(check(&program(Some(ProgramFacts::default()))), Ok(()));
        assert!(check(&program(None)).unwrap_err().contains("mixes `sdy`"));
    }

    #[test]
    fn memory_shortage_of_libtpu_is_parsed() {
        let words = "E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO temporaries (29.50G) \
                     exceeds available HBM (15.75G). HLO module: jit_step.";
        let gib = |gib: f64| (gib * f64::from(1 << 30)) as u64;
        assert_eq!(
            shortage(words),
            Some(Shortage {
                required: gib(29.5),
                available: gib(15.75)
            })
        );
        let error = Error::new(ErrorKind::OutOfMemory, "compile", words);
        assert_eq!(
            of_program(error, "compile", "step")
                .shortage()
                .unwrap()
                .required,
            gib(29.5)
        );
        for words in [
            "",
            "(1G) exceeds available HBM",
            "a lot exceeds available (2G)",
            "(1G) exceeds available (2X)",
        ] {
            assert_eq!(shortage(words), None, "{words}");
        }
    }
}
