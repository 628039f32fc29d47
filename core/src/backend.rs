//! What a driver of an accelerator implements.
//!
//! [`Backend`] is the family of types that drive one kind of accelerator together. Programs do not
//! see it: they hold a [`Client`](crate::Client), which hides the family. Every method returns as
//! soon as the work is queued, except those that say they block.

use std::{fmt, sync::Arc};

use crate::{Error, ErrorKind, HostBytes, ProgramFacts, ProgramKey, Result, TensorType, Tiling};

/// One kind of accelerator: the family of types that drive it together.
pub trait Backend: fmt::Debug + Send + Sync + Sized + 'static {
    /// One device.
    type Device: Device;
    /// Bytes on one device.
    type Buffer: Buffer<Event = Self::Event>;
    /// A compiled program.
    type Executable: Executable<Self>;
    /// Something that will have happened.
    type Event: Event;

    /// What this is.
    fn platform(&self) -> &Platform;

    /// Every device of the job, in id order, also those of other processes.
    fn devices(&self) -> &[Self::Device];

    /// Copies host data of type `ty` to a device.
    ///
    /// # Errors
    /// If the number of bytes is not that of `ty`, or there is no such place.
    fn upload(&self, bytes: HostBytes<'_>, ty: &TensorType, to: Placement) -> Result<Self::Buffer>;

    /// Compiles for the devices that `options` names. Blocks until compiled.
    fn compile(&self, program: &Program, options: &CompileOptions) -> Result<Self::Executable>;

    /// Loads what [`Executable::serialize`] returned on this platform and version, for a program of
    /// this signature. `name` is for people, as [`Program::name`].
    ///
    /// # Errors
    /// If the bytes are damaged, or of another platform or version: never hands to a driver what is
    /// not its own.
    fn load(
        &self,
        serialized: &[u8],
        name: &Arc<str>,
        signature: &Signature,
        options: &CompileOptions,
    ) -> Result<Self::Executable>;

    /// A digest of all that decides what [`compile`](Self::compile) makes of this: the program
    /// without its locations, the options as they are sent, the driver's build, the devices. Two
    /// processes that get the same key may use each other's compiled programs.
    ///
    /// `None` for what is not to be kept: without it here, nothing of a backend is.
    fn program_key(&self, _program: &Program, _options: &CompileOptions) -> Option<ProgramKey> {
        None
    }
}

/// One device of a [`Backend`].
pub trait Device: fmt::Debug + Send + Sync + 'static {
    /// Its id, unique in the job.
    fn id(&self) -> DeviceId;

    /// The process of the job that drives it; 0 when there is one.
    fn process(&self) -> u32;

    /// Whether this process can upload to it.
    fn is_local(&self) -> bool;

    /// The model, as the vendor spells it: `TPU v5 lite`, `NVIDIA H200`.
    fn kind(&self) -> &str;

    /// The kinds of memory a buffer of this device can be in; the first is the default.
    fn memories(&self) -> &[MemoryKind];

    /// The slice of the job that it is in: devices of one slice have a fast network between them. 0
    /// when there is one.
    fn slice(&self) -> usize {
        0
    }

    /// What else the driver says of it, as (name, value).
    fn attributes(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Memory in use now.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver keeps no count.
    fn memory(&self) -> Result<MemoryStats>;
}

/// Called once with the bytes of a fetch, on any thread.
pub type OnFetched = Box<dyn FnOnce(Result<Vec<u8>>) + Send>;

/// Called once when an event has happened, on any thread.
pub type OnReady = Box<dyn FnOnce(Result<()>) + Send>;

/// Bytes on one device. Dropping frees them once queued work no longer needs them.
pub trait Buffer: fmt::Debug + Send + Sync + Sized + 'static {
    /// See [`Backend::Event`].
    type Event: Event;

    /// Element type and dimensions of what this device holds.
    fn tensor_type(&self) -> &TensorType;

    /// Where it is.
    fn placement(&self) -> Placement;

    /// Happens when the contents are computed.
    ///
    /// # Errors
    /// If the driver cannot tell.
    fn ready(&self) -> Result<Self::Event>;

    /// Queues a copy to another device or kind of memory, or to the same.
    fn copy_to(&self, place: Placement) -> Result<Self>;

    /// Blocks until the row-major bytes are in `into`, whose length is that of the type.
    fn read(&self, into: &mut [u8]) -> Result<()>;

    /// Queues a copy to the host, and hands the row-major bytes to `then` when they are there.
    /// `then` must neither block, launch nor read: it may run on a thread that the driver's work
    /// needs.
    fn fetch(&self, then: OnFetched);
}

/// Something that will have happened: a computation, a copy.
pub trait Event: Send + Sync + 'static {
    /// Whether it has happened, well or not.
    fn is_ready(&self) -> bool;

    /// Blocks until it has happened; an error of the work is returned here, also when it is long
    /// past. A wait that takes longer than the backend allows is [`ErrorKind::DeadlineExceeded`].
    fn wait(&self) -> Result<()>;

    /// Runs `then` once, on any thread; at once if it has happened. It may launch; one that blocks
    /// holds up later callbacks. The event may be dropped before.
    fn on_ready(&self, then: OnReady);

    /// As [`on_ready`](Self::on_ready), for a `notify` that only signals: it must neither block,
    /// launch nor read. It may run on a thread that the driver's work needs, which saves a switch
    /// of threads.
    fn notify_when_ready(&self, notify: OnReady) {
        self.on_ready(notify);
    }

    /// The launches over several devices that are not done, for the message of a wait that is late:
    /// which programs, since when, on which devices. Empty where the driver does not know.
    fn unfinished(&self) -> String {
        String::new()
    }
}

/// One argument of a launch.
#[derive(Debug)]
pub enum Arg<'a, Buf> {
    /// Read only; still there afterwards.
    Borrow(&'a Buf),
    /// Moved in: the program may reuse its memory, and no handle is left.
    Donate(Buf),
}

impl<Buf> Arg<'_, Buf> {
    /// The buffer, whichever way it is passed.
    pub fn buffer(&self) -> &Buf {
        match self {
            Arg::Borrow(buffer) => buffer,
            Arg::Donate(buffer) => buffer,
        }
    }
}

/// Arguments of one launch as `[device][input]`, for the devices of [`Executable::devices`], in
/// that order.
#[derive(Debug)]
pub struct Launch<'a, Buf> {
    /// `args[device][input]`. An input that the signature does not list as donated must be
    /// borrowed; one that it lists may still be borrowed, and is then copied by the device first.
    pub args: Vec<Vec<Arg<'a, Buf>>>,
}

/// Results of one launch as `[device][output]`. An output is ready when its [`Buffer::ready`] event
/// is.
#[derive(Debug)]
pub struct Launched<Buf> {
    /// `outputs[device][output]`.
    pub outputs: Vec<Vec<Buf>>,
}

/// A compiled program on its devices.
pub trait Executable<B: Backend>: fmt::Debug + Send + Sync + 'static {
    /// Types of arguments and results, as one device sees them.
    fn signature(&self) -> &Signature;

    /// The devices it runs on, in the order of launches.
    fn devices(&self) -> &[DeviceId];

    /// Queues one run.
    ///
    /// # Errors
    /// If an argument has another type, or is on another device, than the program wants; nothing is
    /// queued then, and donated buffers are lost.
    fn launch(&self, launch: Launch<'_, B::Buffer>) -> Result<Launched<B::Buffer>>;

    /// Bytes for [`Backend::load`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver cannot.
    fn serialize(&self) -> Result<Vec<u8>>;

    /// Memory the program needs on each device, as the compiler planned it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not say.
    fn memory(&self) -> Result<ProgramMemory> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "program memory",
            "this backend does not report it",
        ))
    }

    /// Which part of each result the devices have, as the compiler laid them. `None` is what this
    /// driver cannot say of one.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not say.
    fn output_tilings(&self) -> Result<Vec<Option<Tiling>>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "output tilings",
            "this backend does not report them",
        ))
    }

    /// The compiler's own estimates, as (name, value): `flops`, `bytes accessed`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not say.
    fn cost(&self) -> Result<Vec<(String, f64)>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "program cost",
            "this backend does not report it",
        ))
    }

    /// The program as the compiler made it: the name of its form, such as `hlo_with_config`, and
    /// its bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver does not give it.
    fn optimized(&self) -> Result<(String, Vec<u8>)> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "optimized program",
            "this backend does not give it",
        ))
    }
}

/// A program in the form every backend takes, and the types on its border.
#[derive(Clone, Debug)]
pub struct Program {
    /// For people: names dumps, reports and errors.
    pub name: Arc<str>,
    /// StableHLO, as MLIR text or bytecode.
    pub code: Arc<[u8]>,
    /// Types of arguments and results, as one device sees them.
    pub signature: Signature,
    /// How many devices share the work of one run, each on its part of the tensors (SPMD
    /// partitions). At least 1.
    pub partitions: usize,
    /// How many times the program runs side by side, each run on tensors of its own, and able to
    /// exchange them by collective ops. At least 1.
    pub replicas: usize,
    /// What is known of the code; `None` for a program from elsewhere, which backends search.
    pub facts: Option<ProgramFacts>,
}

impl Program {
    /// How many devices one run takes.
    pub fn devices(&self) -> usize {
        self.partitions * self.replicas
    }
}

/// Types of arguments and results of a program, as one device sees them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Signature {
    /// Argument types.
    pub inputs: Vec<TensorType>,
    /// Result types.
    pub outputs: Vec<TensorType>,
    /// Indices of arguments whose memory the program may reuse, ascending.
    pub donated: Vec<usize>,
}

/// Where and how to compile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompileOptions {
    /// One device per replica and partition, replicas outermost. Empty means the first devices of
    /// this process.
    pub devices: Vec<DeviceId>,
    /// Options of the plugin's compiler by name, without leading dashes.
    pub flags: Vec<(String, FlagValue)>,
}

/// Value of a compiler option. Plugins are strict about its type.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the types of options")]
pub enum FlagValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
}

/// What a backend is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Platform {
    /// `cpu`, `cuda`, `tpu`, `null`.
    pub name: Arc<str>,
    /// The driver's own words on its version.
    pub version: String,
}

/// Id of a device, unique in a job.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DeviceId(pub u32);

/// A kind of memory that a device can use.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum MemoryKind {
    /// The device's own.
    #[default]
    Device,
    /// Of the host, page-locked, so that the device reaches it.
    PinnedHost,
    /// Of the host, pageable.
    UnpinnedHost,
}

/// A device, and a kind of its memory.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Placement {
    /// The device.
    pub device: DeviceId,
    /// The kind of memory.
    pub memory: MemoryKind,
}

impl From<DeviceId> for Placement {
    /// The device's own memory.
    fn from(device: DeviceId) -> Self {
        Placement {
            device,
            memory: MemoryKind::Device,
        }
    }
}

/// Memory of one device, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MemoryStats {
    /// In use now.
    pub in_use: u64,
    /// The most that was in use at once.
    pub peak: Option<u64>,
    /// What may be used.
    pub limit: Option<u64>,
}

/// Memory that a compiled program needs on each device, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ProgramMemory {
    /// Arguments.
    pub arguments: u64,
    /// Results.
    pub outputs: u64,
    /// Results that reuse a donated argument's memory.
    pub aliased: u64,
    /// Scratch memory during a run.
    pub temporary: u64,
    /// The program itself.
    pub code: u64,
    /// The most in use at once during a run, where the compiler says.
    pub peak: Option<u64>,
}
